"""Whole files in canonical form: `print_spec` from an AST, `format_source` from text, comments and blank lines kept."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridc.diagnostics import Sink
from hybridc.frontend import ast
from hybridc.frontend.lexemes import Lexeme
from hybridc.frontend.parser import parse
from hybridc.frontend.printer import WIDTH, arguments, layout, listed, print_expr, quote, selector
from hybridc.frontend.tokens import tokenize


def print_spec(spec: ast.Spec) -> str:
    """Canonical text; `parse` of it gives an equal AST."""
    writer = _Writer([], "")
    writer.spec(spec)
    return writer.text()


def format_source(text: str, file: str = "<spec>") -> str:
    """A spec's text in canonical form, every comment at its place. Raises DiagnosticError for text that does not
    parse."""
    spec = parse(text, file)
    _, comments = tokenize(text, file, Sink())
    writer = _Writer(comments, text)
    writer.spec(spec)
    return writer.text()


@dataclass
class _Writer:
    """Lines in the making; `comments` are those not yet written, `source` is "" for an AST without its text."""

    comments: list[Lexeme]
    source: str
    lines: list[str] = field(default_factory=list)
    indent: int = 0
    last_line: int = 0

    def text(self) -> str:
        self.own_comments(len(self.source) + 1)
        return "\n".join(self.lines).strip("\n") + "\n" if self.lines else ""

    def put(self, line: str) -> None:
        self.lines.append(" " * self.indent + line if line else "")

    def blank(self) -> None:
        """One blank line, never two and never behind an opening brace."""
        if self.lines and self.lines[-1] and not self.lines[-1].endswith("{"):
            self.lines.append("")

    def gap(self, line: int) -> None:
        """A blank line where the source has one or more between the last thing written and `line`."""
        if self.last_line and line - self.last_line > 1:
            self.blank()

    def own_comments(self, before: int) -> None:
        """Comments that start before the offset `before`, on lines of their own."""
        while self.comments and self.comments[0].span.start < before:
            comment = self.comments.pop(0)
            self.gap(comment.span.line)
            self.put(_comment(comment.text))
            self.last_line = comment.span.line

    def trailing(self, line: int, before: int) -> None:
        """Comments on source line `line` that start before offset `before` go behind what was written last."""
        while self.comments and self.comments[0].span.line == line and self.comments[0].span.start < before:
            self.lines[-1] += "  " + _comment(self.comments.pop(0).text)

    def leaf(self, node: ast.Node, lines: list[str]) -> None:
        """A statement, with the comments in front of it, inside it and behind it."""
        span = node.span
        if self.source:
            self.own_comments(span.start)
            self.gap(span.line)
            self.own_comments(span.end)
        self.lines += lines
        if self.source:
            self.last_line = span.end_line
            self.trailing(span.end_line, len(self.source) + 1)

    def container(self, node: ast.Node, header: list[str], members: tuple[ast.Node, ...]) -> None:
        """`header { members }`."""
        span = node.span
        if self.source:
            self.own_comments(span.start)
            self.gap(span.line)
        else:
            self.blank()
        self.put(header[0] + ("" if header[1:] else " {"))
        self.lines += [line + " {" if n == len(header) else line for n, line in enumerate(header[1:], 2)]
        if self.source:
            self.last_line = span.line
            self.trailing(span.line, members[0].span.start if members else span.end)
        self.indent += 2
        for n, member in enumerate(members):
            if not self.source and n and _apart(members[n - 1], member):
                self.blank()
            self.node(member)
        if self.source:
            self.own_comments(span.end)
        self.indent -= 2
        while self.lines and not self.lines[-1]:
            self.lines.pop()
        self.put("}")
        if self.source:
            self.last_line = span.end_line
            self.trailing(span.end_line, len(self.source) + 1)

    def spec(self, spec: ast.Spec) -> None:
        parts: list[ast.Node] = [*spec.imports, *spec.members]
        parts += [part for part in (spec.model, spec.precision, spec.mesh) if part is not None]
        if self.source:
            parts.sort(key=lambda part: part.span.start)
        for n, part in enumerate(parts):
            if not self.source and n and _apart(parts[n - 1], part):
                self.blank()
            self.node(part)

    def node(self, node: ast.Node) -> None:
        pad = " " * self.indent
        match node:
            case ast.Import():
                self.leaf(node, [f"{pad}import {quote(node.path)}"])
            case ast.Let():
                self.leaf(node, layout(f"let {node.name} = ", node.value, self.indent))
            case ast.Param() if node.value is not None:
                self.leaf(node, layout(f"param {node.name} = ", node.value, self.indent))
            case ast.Entry():
                self.leaf(node, layout(f"{node.name} = ", node.value, self.indent))
            case ast.Statement():
                self.leaf(node, layout(f"{node.target} {node.op} ", node.value, self.indent))
            case ast.Axis():
                self.leaf(node, layout(f"{node.name} = ", node.value, self.indent))
            case ast.Default():
                self.leaf(node, [f"{pad}default {print_expr(node.format)}"])
            case ast.Rule():
                self.leaf(node, _rule(node, self.indent))
            case ast.Block():
                self.container(node, _header(node, self.indent), node.body)
            case ast.Model():
                self.container(node, [f"model {node.name}"], node.members)
            case ast.Precision():
                self.container(node, ["precision"], node.rules)
            case ast.Mesh():
                self.container(node, ["mesh"], node.axes)


def _rule(node: ast.Rule, indent: int) -> list[str]:
    """A rule on one line if it fits, else broken behind its commas and in front of `except`."""
    on, exclude = list(map(selector, node.on)), list(map(selector, node.exclude))
    head = f"{print_expr(node.format)} on "
    line = " " * indent + head + ", ".join(on) + (f" except {', '.join(exclude)}" if exclude else "")
    if len(line) <= WIDTH:
        return [line]
    lines = listed(head, on, indent, indent + 4)
    return lines + (listed("except ", exclude, indent + 2, indent + 4) if exclude else [])


def _header(node: ast.Block, indent: int) -> list[str]:
    """`shared(2) block NAME(params)`, the first line without indentation."""
    shared = "" if node.shared is None else "shared " if node.shared == 1 else f"shared({node.shared}) "
    head = f"{shared}block {node.name}"
    if not node.params:
        return [head]
    line = f"{head}({', '.join(map(_formal, node.params))})"
    if indent + len(line) + 2 <= WIDTH:
        return [line]
    return arguments(head + "(", [[_formal(p)] for p in node.params], indent, ")")


def _formal(param: ast.Param) -> str:
    return param.name if param.value is None else f"{param.name}={print_expr(param.value)}"


def _comment(text: str) -> str:
    """`#text` as `# text`."""
    body = text[1:]
    return text if not body or body[0] in " !#" else f"# {body}"


def _apart(before: ast.Node, after: ast.Node) -> bool:
    """Whether a blank line belongs between two parts of an AST that has no text of its own."""
    containers = (ast.Block, ast.Model, ast.Precision, ast.Mesh)
    if isinstance(before, containers) or isinstance(after, containers):
        return True
    return isinstance(after, ast.Entry) and not isinstance(before, ast.Entry)
