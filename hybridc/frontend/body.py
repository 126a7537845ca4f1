"""Block bodies: dataflow statements to the nodes of an IR block."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hybridc.diagnostics import NO_SPAN, Span, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.names import LOCALS, check_name
from hybridc.frontend.opcalls import bind
from hybridc.frontend.printer import print_expr
from hybridc.frontend.scope import Binding, Failed, Report, Scope, truth
from hybridc.ir.graph import Node
from hybridc.ir.ops import Op, find, names
from hybridc.ir.ops.basic import Add, Mul, Scale

MAX_NODES = 10_000


@dataclass
class Body:
    """Builds the nodes of one block. Values are named "0", "1", ...; arguments keep their names."""

    report: Report
    nodes: list[Node] = field(default_factory=list)
    labels: dict[str, Span] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    prefix: str = ""
    residuals: int = 0
    reserved: frozenset[str] = frozenset()
    shared: bool = False
    own: bool = False

    def emit(self, op: Op, operands: tuple[str, ...], path: str, span: Span, **extra: object) -> str:
        if len(self.nodes) >= MAX_NODES:
            self.report.fail("HYB120", span, f"a block of more than {MAX_NODES} ops", "split it into blocks")
        name = str(len(self.nodes))
        self.nodes.append(Node(name, op, operands, path, None, span, own=self.own and bool(path), **extra))  # type: ignore[arg-type]
        return name

    def name_value(self, value: str, name: str) -> None:
        """Lets emitted code call a value what the spec calls it."""
        if value.isdigit() and not self.nodes[int(value)].hint:
            self.nodes[int(value)] = replace(self.nodes[int(value)], hint=name)

    def claim(self, name: str, *, label: bool = False) -> str:
        """A path for a submodule called `name` here: the name itself, or numbered when it is taken. A name that a label
        of the block bears is that label's."""
        path, n = self.prefix + name, 1
        while path in self.taken or (not label and path.removeprefix(self.prefix) in self.reserved):
            n += 1
            path = f"{self.prefix}{name}_{n}"
        self.taken.add(path)
        return path

    def apply(self, expr: ast.Expr, scope: Scope, x: str, name: str = "") -> str:
        """The value that `expr` makes of the value `x`; `name` is what a label or a let calls it."""
        self.report.step(expr.span)
        match expr:
            case ast.Name():
                return self._name(expr, scope, x, name)
            case ast.Call():
                return self._call(expr, scope, x, name)
            case ast.Label():
                return self._label(expr, scope, x)
            case ast.Pipe():
                for n, stage in enumerate(expr.stages):
                    if n and self._value_of(stage, scope):
                        help = "put the value first, or add to it with `+`"
                        self.report.fail(
                            "HYB118", stage.span, "a value takes no input, so what is piped here is lost", help
                        )
                    x = self.apply(stage, scope, x)
                return x
            case ast.Parallel():
                return self._sum([self.apply(b, scope, x) for b in expr.branches], expr.span)
            case ast.Conditional():
                return self.apply(expr.then if truth(expr.test, scope, self.report) else expr.other, scope, x, name)
            case ast.Binary(op="+"):
                return self._sum([self.apply(e, scope, x) for e in (expr.left, expr.right)], expr.span)
            case ast.Binary(op="*"):
                return self._product(expr, scope, x)
            case _:
                self.report.fail(
                    "HYB116",
                    expr.span,
                    "this is not a layer or a value",
                    "use ops, named values, `>>`, `|`, `+` and `*`",
                )

    def _value_of(self, expr: ast.Expr, scope: Scope) -> str | None:
        binding = scope.find(expr.id) if isinstance(expr, ast.Name) else None
        return binding.value if binding is not None else None

    def _sum(self, values: list[str], span: Span) -> str:
        total = values[0]
        for value in values[1:]:
            total = self.emit(Add(), (total, value), "", span)
        return total

    def _is_number(self, expr: ast.Expr, scope: Scope) -> bool:
        """Whether an operand of `*` is a constant factor."""
        self.report.step(expr.span)
        match expr:
            case ast.Num():
                return True
            case ast.Unary(op="-"):
                return self._is_number(expr.operand, scope)
            case ast.Binary():
                return self._is_number(expr.left, scope) and self._is_number(expr.right, scope)
            case ast.Name():
                binding = scope.find(expr.id)
                if binding is None:
                    return False
                if binding.expr is not None and binding.scope is not None:
                    return self._is_number(binding.expr, binding.scope)
                return binding.is_constant
            case _:
                return False

    def _product(self, expr: ast.Binary, scope: Scope, x: str) -> str:
        for factor, other in ((expr.left, expr.right), (expr.right, expr.left)):
            if self._is_number(factor, scope):
                call = ast.Call("scale", (factor,), span=expr.span)
                bound = bind(call, scope, self.report)
                assert isinstance(bound.op, Scale)
                return self.emit(bound.op, (self.apply(other, scope, x),), "", expr.span)
        values = tuple(self.apply(e, scope, x) for e in (expr.left, expr.right))
        return self.emit(Mul(), values, "", expr.span)

    def _name(self, expr: ast.Name, scope: Scope, x: str, name: str) -> str:
        binding = scope.find(expr.id)
        if binding is None:
            if find(expr.id):
                self.report.fail("HYB102", expr.span, f"the op `{expr.id}` is not called", f"write `{expr.id}(...)`")
            options = [*scope.visible(), *names(records=False)]
            self.report.fail("HYB101", expr.span, f"`{expr.id}` is not defined", did_you_mean(expr.id, options))
        if binding.value is not None:
            return binding.value
        if binding.expr is not None and binding.scope is not None:
            single = isinstance(binding.expr, (ast.Call, ast.Name))
            if single and not name and isinstance(binding.expr, ast.Call):
                check_name(expr.id, expr.span, "submodule", self.report.sink)
            return self.apply(binding.expr, binding.scope, x, (name or expr.id) if single else name)
        self.report.fail(
            "HYB116", expr.span, f"`{expr.id}` is {binding.what}, not a layer or a value", "use an op or a named value"
        )

    def _label(self, expr: ast.Label, scope: Scope, x: str) -> str:
        check_name(expr.name, expr.span, "submodule", self.report.sink)
        full = self.prefix + expr.name
        first = self.labels.get(full)
        if first is not None and first != expr.span and expr.span != NO_SPAN:
            self.report.sink.report(
                "HYB103",
                expr.span,
                f"the submodule name `{expr.name}` is used twice in this block",
                "give each its own name",
                related=((first, "first used here"),),
            )
        self.labels.setdefault(full, expr.span)
        inner = expr.value
        while isinstance(inner, ast.Name):
            self.report.step(inner.span)
            binding = scope.find(inner.id)
            if binding is None or binding.expr is None or binding.scope is None:
                break
            inner, scope = binding.expr, binding.scope
        if isinstance(inner, ast.Call):
            return self._call(inner, scope, x, expr.name, label=True)
        outer, self.prefix = self.prefix, self.claim(expr.name, label=True) + "."
        try:
            return self.apply(inner, scope, x)
        finally:
            self.prefix = outer

    def _call(self, expr: ast.Call, scope: Scope, x: str, name: str, *, label: bool = False) -> str:
        if expr.func == "concat":
            if expr.kwargs or len(expr.args) < 2:
                self.report.fail("HYB110", expr.span, "concat takes two values or more", "write concat(a, b)")
            values = tuple(self.apply(a, scope, x) for a in expr.args)
            from hybridc.ir.ops.basic import Concat

            return self.emit(Concat(), values, "", expr.span)
        if expr.func == "own":
            return self._own(expr, scope, x, name, label=label)
        found = find(expr.func)
        if found is not None and (found[0].record or found[0] in (Add, Mul)):
            help = "it is written `a + b`" if found[0] is Add else "it is written `a * b`" if found[0] is Mul else (
                f"give it to an op, as in attention({expr.func}={expr.func}(...))"
            )  # fmt: skip
            self.report.fail("HYB116", expr.span, f"`{expr.func}` is not a layer of its own", help)
        bound = bind(expr, scope, self.report)
        operands = (x, *(self.apply(e, scope, x) for _, e in bound.operands))
        kind = type(bound.op)
        owns = kind.constructor is not Op.constructor or kind.body is not Op.body
        path = self.claim(name or expr.func, label=label) if owns else ""
        return self.emit(bound.op, operands, path, expr.span, spans=bound.spans, text=print_expr(expr))

    def _own(self, expr: ast.Call, scope: Scope, x: str, name: str, *, label: bool) -> str:
        """What stands in `own(...)`: in a shared block its parameters are each layer's own."""
        if expr.kwargs or len(expr.args) != 1:
            self.report.fail("HYB110", expr.span, "own takes one layer or pipeline", "write own(linear(64))")
        if not self.shared:
            self.report.fail("HYB136", expr.span, "nothing is shared here", "remove `own`, or write `shared block`")
        inner, outer, self.own = expr.args[0], self.own, True
        try:
            if label and isinstance(inner, ast.Call):
                return self._call(inner, scope, x, name, label=True)
            return self.apply(inner, scope, x, name)
        finally:
            self.own = outer


def lower_statements(
    statements: tuple[ast.Statement, ...], scope: Scope, report: Report, *, shared: bool = False
) -> tuple[Body, str]:
    """The nodes of a block's body and the name of the value that the residual stream ends as."""
    labels = (n.name for s in statements for n in ast.walk(s.value) if isinstance(n, ast.Label))
    body = Body(report, reserved=frozenset(labels), shared=shared)
    stream = scope.names["x"]
    named: dict[str, Binding] = {}
    failed = False
    for statement in statements:
        try:
            _statement(statement, scope, body, stream, named)
        except Failed:
            failed = True
            if statement.target not in scope.names:
                # later statements may still be checked: the name exists, its value is the stream as it was
                scope.names[statement.target] = Binding(statement.span, "a value", value=stream.value, used=True)
    for name, binding in named.items():
        if not binding.used:
            report.sink.report(
                "HYB107", binding.span, f"the value `{name}` is never used", "use it or remove it", severity="warning"
            )
    if failed:
        raise Failed
    assert stream.value is not None
    return body, stream.value


def _statement(statement: ast.Statement, scope: Scope, body: Body, stream: Binding, named: dict[str, Binding]) -> None:
    target, report = statement.target, body.report
    assert stream.value is not None
    if statement.op == "+=":
        if target != "x":
            report.fail(
                "HYB119",
                statement.span,
                f"`{target}` is not the residual stream",
                f"write `{target}_2 = {target} + ...`",
            )
        value = body.apply(statement.value, scope, stream.value)
        stream.value = body.emit(Add(), (stream.value, value), "", statement.span)
        body.residuals += 1
        return
    if target == "x":
        stream.value = body.apply(statement.value, scope, stream.value)
        return
    if target in LOCALS:
        report.fail("HYB108", statement.span, f"`{target}` has a meaning of its own", "choose another name")
    if target in scope.names:
        report.fail("HYB103", statement.span, f"`{target}` is defined twice in this block", "choose another name")
    check_name(target, statement.span, "value", report.sink)
    value = body.apply(statement.value, scope, stream.value)
    body.name_value(value, target)
    scope.names[target] = named[target] = Binding(statement.span, "a value", value=value)
