"""lark's parse tree to the AST."""

from __future__ import annotations

import math
import re
from typing import Any

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from hybridc.diagnostics import NO_SPAN, Span
from hybridc.frontend import ast


class Misplaced(Exception):
    """A part that parses and stands where it must not; the arguments are a diagnostic's code, span, label and help."""


_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "t": "\t"}
ENTRIES = ("embed", "layers", "head", "mtp", "init")


@v_args(meta=True)
class ToAst(Transformer_NonRecursive):  # type: ignore[type-arg]
    """One method a grammar rule; children arrive as AST nodes or tokens."""

    def __init__(self, file: str) -> None:
        super().__init__(visit_tokens=False)
        self.file = file

    def _span(self, meta: Meta) -> Span:
        if meta.empty:
            return NO_SPAN
        return Span(
            self.file, meta.start_pos, meta.end_pos, meta.line, meta.column, meta.end_line, meta.end_column
        )  # fmt: skip

    def _at(self, token: Token) -> Span:
        return Span(
            self.file, token.start_pos or 0, token.end_pos or 0, token.line or 0, token.column or 0,
            token.end_line or 0, token.end_column or 0,
        )  # fmt: skip

    def _text(self, token: Token) -> str:
        """The value of a string token."""

        def replace(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPES:
                help = 'the escapes are \\" \\\\ \\n and \\t'
                raise Misplaced("HYB003", self._at(token), f"`\\{match[1]}` is no escape", help)
            return _ESCAPES[match[1]]

        return re.sub(r"\\(.)", replace, token[1:-1])

    # --- files and models ------------------------------------------------------------------------------------------

    def start(self, meta: Meta, parts: list[Any]) -> ast.Spec:
        single: dict[str, Any] = {}
        imports: list[ast.Import] = []
        members: list[ast.Let | ast.Block] = []
        for part in parts:
            if isinstance(part, ast.Import):
                imports.append(part)
            elif isinstance(part, (ast.Let, ast.Block)):
                members.append(part)
            else:
                name = type(part).__name__.lower()
                if name in single:
                    raise Misplaced("HYB005", part.span, f"a second `{name}`", f"a file has one `{name}` at most")
                single[name] = part
        return ast.Spec(tuple(imports), tuple(members), **single, span=self._span(meta))

    def import_(self, meta: Meta, children: list[Token]) -> ast.Import:
        return ast.Import(self._text(children[0]), span=self._span(meta))

    def let(self, meta: Meta, children: list[Any]) -> ast.Let:
        return ast.Let(str(children[0]), children[1], span=self._span(meta))

    def model(self, meta: Meta, children: list[Any]) -> ast.Model:
        return ast.Model(str(children[0]), tuple(children[1:]), span=self._span(meta))

    def param(self, meta: Meta, children: list[Any]) -> ast.Param:
        return ast.Param(str(children[0]), children[1], span=self._span(meta))

    def entry(self, meta: Meta, children: list[Any]) -> ast.Entry:
        name = str(children[0])
        if name not in ENTRIES:
            from hybridc.diagnostics import did_you_mean

            options = [*ENTRIES, "param", "let", "block"]
            help = f"{did_you_mean(name, options)}, or write `let {name} = ...`"
            raise Misplaced("HYB006", self._span(meta), f"a model has no part `{name}`", help)
        return ast.Entry(name, children[1], span=self._span(meta))

    def sharing(self, meta: Meta, children: list[Token]) -> tuple[str, int]:
        count = children[0].replace("_", "") if children else "1"
        if not count.isdigit() or not 1 <= len(count.lstrip("0")) <= 9:
            raise Misplaced("HYB112", self._span(meta), f"{count[:40]} weight sets", "write shared(1) or more")
        return ("shared", int(count))

    def formals(self, meta: Meta, children: list[ast.Param]) -> tuple[ast.Param, ...]:
        return tuple(children)

    def formal(self, meta: Meta, children: list[Any]) -> ast.Param:
        return ast.Param(str(children[0]), children[1] if len(children) > 1 else None, span=self._span(meta))

    def block(self, meta: Meta, children: list[Any]) -> ast.Block:
        shared = None
        if isinstance(children[0], tuple):
            shared = children[0][1]
            children = children[1:]
        formals: tuple[ast.Param, ...] = ()
        body = children[1:]
        if body and isinstance(body[0], tuple):
            formals, body = body[0], body[1:]
        return ast.Block(str(children[0]), formals, tuple(body), shared, span=self._span(meta))

    def augment(self, meta: Meta, children: list[Any]) -> ast.Statement:
        return ast.Statement(str(children[0]), "+=", children[1], span=self._span(meta))

    def assign(self, meta: Meta, children: list[Any]) -> ast.Statement:
        return ast.Statement(str(children[0]), "=", children[1], span=self._span(meta))

    # --- precision and mesh ----------------------------------------------------------------------------------------

    def precision(self, meta: Meta, children: list[Any]) -> ast.Precision:
        return ast.Precision(tuple(children), span=self._span(meta))

    def default(self, meta: Meta, children: list[Any]) -> ast.Default:
        return ast.Default(children[0], span=self._span(meta))

    def rule(self, meta: Meta, children: list[Any]) -> ast.Rule:
        exclude = children[2] if len(children) > 2 else ()
        return ast.Rule(children[0], children[1], exclude, span=self._span(meta))

    def selectors(self, meta: Meta, children: list[ast.Selector]) -> tuple[ast.Selector, ...]:
        return tuple(children)

    def selector(self, meta: Meta, children: list[ast.Step]) -> ast.Selector:
        return ast.Selector(tuple(children), span=self._span(meta))

    def step(self, meta: Meta, children: list[Any]) -> ast.Step:
        return ast.Step(str(children[0]), children[1] if len(children) > 1 else None, span=self._span(meta))

    def at(self, meta: Meta, children: list[int]) -> ast.Slice:
        return ast.Slice(children[0], None, True, span=self._span(meta))

    def between(self, meta: Meta, children: list[Any]) -> ast.Slice:
        colon = next(n for n, c in enumerate(children) if isinstance(c, Token))
        numbers = [c for c in children if isinstance(c, int)]
        start = numbers[0] if colon > 0 else None
        stop = numbers[-1] if colon < len(children) - 1 else None
        return ast.Slice(start, stop, span=self._span(meta))

    def integer(self, meta: Meta, children: list[Token]) -> int:
        text = children[-1].replace("_", "")
        if not text.isdigit() or len(text) > 12:
            raise Misplaced("HYB302", self._span(meta), f"`{children[-1]}` is no index", "write a whole number")
        return -int(text) if len(children) > 1 else int(text)

    def mesh(self, meta: Meta, children: list[Any]) -> ast.Mesh:
        return ast.Mesh(tuple(children), span=self._span(meta))

    def axis(self, meta: Meta, children: list[Any]) -> ast.Axis:
        return ast.Axis(str(children[0]), children[1], span=self._span(meta))

    # --- expressions -----------------------------------------------------------------------------------------------

    def conditional(self, meta: Meta, children: list[Any]) -> ast.Conditional:
        then, test, other = children
        return ast.Conditional(test, then, other, span=self._span(meta))

    def parallel(self, meta: Meta, children: list[Any]) -> ast.Parallel:
        return ast.Parallel(tuple(children), span=self._span(meta))

    def pipe(self, meta: Meta, children: list[Any]) -> ast.Pipe:
        return ast.Pipe(tuple(children), span=self._span(meta))

    def juxtaposed(self, meta: Meta, children: list[Any]) -> ast.Sequence:
        return ast.Sequence(tuple(children), span=self._span(meta))

    def or_(self, meta: Meta, children: list[Any]) -> ast.Binary:
        return ast.Binary("or", children[0], children[1], span=self._span(meta))

    def and_(self, meta: Meta, children: list[Any]) -> ast.Binary:
        return ast.Binary("and", children[0], children[1], span=self._span(meta))

    def not_(self, meta: Meta, children: list[Any]) -> ast.Unary:
        return ast.Unary("not", children[0], span=self._span(meta))

    def compare(self, meta: Meta, children: list[Any]) -> ast.Binary:
        return ast.Binary(str(children[1]), children[0], children[2], span=self._span(meta))

    binary = compare

    def range_literal(self, meta: Meta, children: list[Any]) -> ast.Range:
        return ast.Range(children[0], children[1], span=self._span(meta))

    def negative(self, meta: Meta, children: list[Any]) -> ast.Unary:
        return ast.Unary("-", children[-1], span=self._span(meta))

    def name(self, meta: Meta, children: list[Token]) -> ast.Name:
        return ast.Name(str(children[0]), span=self._span(meta))

    def number(self, meta: Meta, children: list[Token]) -> ast.Num:
        text = children[0].replace("_", "")
        if len(text) > 400:
            raise Misplaced("HYB112", self._span(meta), f"a number of {len(text)} digits", "write a shorter number")
        value: int | float = int(text) if text.isdigit() else float(text)
        if value == math.inf and text != "inf":
            raise Misplaced("HYB112", self._span(meta), f"`{text[:40]}` is larger than any number", "write `inf`")
        return ast.Num(value, text=str(children[0]), span=self._span(meta))

    def string(self, meta: Meta, children: list[Token]) -> ast.Str:
        return ast.Str(self._text(children[0]), span=self._span(meta))

    def true(self, meta: Meta, children: list[Any]) -> ast.Bool:
        return ast.Bool(True, span=self._span(meta))

    def false(self, meta: Meta, children: list[Any]) -> ast.Bool:
        return ast.Bool(False, span=self._span(meta))

    def none(self, meta: Meta, children: list[Any]) -> ast.Nil:
        return ast.Nil(span=self._span(meta))

    def group(self, meta: Meta, children: list[Any]) -> Any:
        return children[0]

    def tuple_literal(self, meta: Meta, children: list[Any]) -> ast.TupleExpr:
        return ast.TupleExpr(tuple(children), span=self._span(meta))

    def list_literal(self, meta: Meta, children: list[Any]) -> ast.ListExpr:
        return ast.ListExpr(tuple(children), span=self._span(meta))

    def comprehension(self, meta: Meta, children: list[Any]) -> ast.Comprehension:
        element, var, iterable = children[:3]
        condition = children[3] if len(children) > 3 else None
        return ast.Comprehension(element, str(var), iterable, condition, span=self._span(meta))

    def call(self, meta: Meta, children: list[Any]) -> ast.Call:
        arguments = children[1] if len(children) > 1 else []
        args: list[Any] = []
        kwargs: list[ast.Keyword] = []
        for argument in arguments:
            if isinstance(argument, ast.Keyword):
                kwargs.append(argument)
            elif kwargs:
                label = "an argument without a name behind one with a name"
                raise Misplaced("HYB005", argument.span, label, "give this one a name, or put it first")
            else:
                args.append(argument)
        return ast.Call(str(children[0]), tuple(args), tuple(kwargs), span=self._span(meta))

    def arguments(self, meta: Meta, children: list[Any]) -> list[Any]:
        return children

    def keyword(self, meta: Meta, children: list[Any]) -> ast.Keyword:
        return ast.Keyword(str(children[0]), children[1], span=self._span(meta))

    def quoted(self, meta: Meta, children: list[Any]) -> ast.Keyword:
        return ast.Keyword(self._text(children[0]), children[1], True, span=self._span(meta))

    def label(self, meta: Meta, children: list[Any]) -> ast.Label:
        return ast.Label(str(children[0]), children[1], span=self._span(meta))
