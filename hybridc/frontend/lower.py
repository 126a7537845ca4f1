"""AST to IR: names resolved, patterns unfolded, each distinct occurrence of a block lowered once, all errors with
spans."""

from __future__ import annotations

from dataclasses import dataclass, field

from hybridc.diagnostics import Sink, Span, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.body import lower_statements
from hybridc.frontend.meshes import lower_mesh
from hybridc.frontend.names import check_name
from hybridc.frontend.patterns import Cut, Item, Occurrence, expand
from hybridc.frontend.printer import print_expr
from hybridc.frontend.regions import default_dtype
from hybridc.frontend.scope import Binding, Constant, Failed, Report, Scope, evaluate
from hybridc.ir.attrs import show
from hybridc.ir.graph import Arg, Block, InitScheme, Layer, Module

ENTRIES = ("embed", "layers", "head", "mtp", "init")
REQUIRED = ("embed", "layers", "head")


@dataclass
class _Lowering:
    report: Report
    scope: Scope
    blocks: dict[object, Block] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    shared: dict[str, int] = field(default_factory=dict)
    failed: set[object] = field(default_factory=set)

    def occurrence(self, item: Occurrence, layer: int) -> Block | None:
        """The IR block of one layer; lowered anew only when its body reads `layer` or its arguments differ."""
        arguments, key_arguments = self._arguments(item)
        key = (item.block.name, key_arguments)
        for candidate in (key, (*key, layer)):
            if candidate in self.blocks:
                return self.blocks[candidate]
            if candidate in self.failed:
                return None
        reads_layer = False

        def mark() -> None:
            nonlocal reads_layer
            reads_layer = True

        scope = Scope(self.scope, dict(arguments))
        scope.names["x"] = Binding(item.block.span, "a value", value="x")
        scope.names["x0"] = x0 = Binding(item.block.span, "a value", value="x0")
        scope.constant("layer", layer, item.block.span, "the layer's index").on_use = mark
        try:
            if not item.block.body:
                self.report.fail(
                    "HYB119", item.block.span, f"the block `{item.block.name}` is empty", "write `x += ...` in it"
                )
            shared = item.block.shared is not None
            body, result = lower_statements(item.block.body, scope, self.report, shared=shared)
        except Failed:
            self.failed.add((*key, layer) if reads_layer else key)
            return None
        args = (Arg("x"), Arg("x0")) if x0.used else (Arg("x"),)
        source = tuple(f"{s.target} {s.op} {print_expr(s.value)}" for s in item.block.body)
        given = ", ".join(f"{name}={print_expr(value)}" for name, value in item.args)
        title = f"{item.block.name}({given})" if given else item.block.name
        name, n = item.block.name, 1
        while name in self.names:
            n += 1
            name = f"{item.block.name}_{n}"
        self.names.add(name)
        block = Block(
            name, args, tuple(body.nodes), result, title, source, item.block.span, body.residuals
        )  # fmt: skip
        self.blocks[(*key, layer) if reads_layer else key] = block
        return block

    def _arguments(self, item: Occurrence) -> tuple[dict[str, Binding], tuple[object, ...]]:
        """A block's params bound for an occurrence, and the part of its key that they make."""
        given = dict(item.args)
        bindings: dict[str, Binding] = {}
        key: list[object] = []
        for param in item.block.params:
            expr, scope = given.get(param.name, param.value), item.scope if param.name in given else self.scope
            if expr is None:
                self.report.fail(
                    "HYB110",
                    item.span,
                    f"`{item.block.name}` needs a value for `{param.name}`",
                    f"write {item.block.name}({param.name}=...), or give the param a default",
                )
            if _is_layer(expr):
                bindings[param.name] = Binding(param.span, "a block param", expr=expr, scope=scope, used=True)
                key += [param.name, expr, id(scope)]
            else:
                value = evaluate(expr, scope, self.report)
                bindings[param.name] = Binding(param.span, "a block param", constant=value, is_constant=True, used=True)
                key += [param.name, type(value).__name__, value]
        return bindings, tuple(key)

    def layers(self, items: list[Item]) -> tuple[Layer, ...]:
        out: list[Layer] = []
        stage, previous = 0, True
        for item in items:
            if isinstance(item, Cut):
                if previous:
                    self.report.sink.report(
                        "HYB132", item.span, "a pipeline stage without layers", "put a layer on both sides of `|`"
                    )
                stage, previous = stage + 1, True
                continue
            previous = False
            block = self.occurrence(item, len(out))
            weights = ""
            if item.block.shared is not None:
                turn = self.shared.get(item.block.name, 0)
                self.shared[item.block.name] = turn + 1
                weights = f"{item.block.name}.{turn % max(1, item.block.shared)}"
            if block is not None:
                out.append(Layer(block.name, stage, weights))
        if previous and stage:
            self.report.sink.report(
                "HYB132", items[-1].span, "a pipeline stage without layers", "put a layer on both sides of `|`"
            )
        return tuple(out)

    def entry(self, name: str, arg: str, expr: ast.Expr) -> Block | None:
        """`embed` or `head` as a block."""
        scope = Scope(self.scope)
        scope.names["x"] = Binding(expr.span, "a value", value=arg)
        try:
            body, result = lower_statements((ast.Statement("x", "=", expr, span=expr.span),), scope, self.report)
        except Failed:
            return None
        return Block(name, (Arg(arg),), tuple(body.nodes), result, name, (f"{name} = {print_expr(expr)}",), expr.span)


def _is_layer(expr: ast.Expr) -> bool:
    """Whether an argument is an op or a pipeline rather than a constant."""
    return isinstance(expr, (ast.Call, ast.Pipe, ast.Parallel, ast.Label))


def lower(spec: ast.Spec, sink: Sink) -> Module | None:
    """The module that a spec describes, not yet typed; None where an error leaves no module to go on with.

    Mistakes go to `sink`.
    """
    report = Report(sink)
    scope = Scope()
    # what could not be parsed has been left out: whatever is missing then may be in it
    unread = bool(sink.errors)
    if spec.model is None and unread:
        return None
    if spec.model is None:
        sink.report("HYB122", spec.span, "there is no model in this file", "write `model NAME { ... }`")
        _define(spec.members, scope, report)
        return None
    model = spec.model
    check_name(model.name, model.span, "model", sink)
    _define(spec.members, scope, report)
    library = set(scope.names)
    values = _params(model, scope, report)
    _define(tuple(m for m in model.members if isinstance(m, (ast.Let, ast.Block))), scope, report)
    if _circles((*spec.members, *model.members), report):
        return None
    entries: dict[str, ast.Entry] = {}
    for member in model.members:
        if isinstance(member, ast.Entry):
            if member.name in entries:
                sink.report("HYB103", member.span, f"`{member.name}` is given twice", "give it once")
            entries.setdefault(member.name, member)
    for name in REQUIRED:
        if name not in entries and not unread:
            sink.report("HYB122", model.span, f"the model has no `{name}`", f"write `{name} = ...` in it")

    state = _Lowering(report, scope)
    embed = state.entry("embed", "ids", entries["embed"].value) if "embed" in entries else None
    layers = _pattern(state, entries.get("layers"), report)
    mtp = _pattern(state, entries.get("mtp"), report)
    head = state.entry("head", "x", entries["head"].value) if "head" in entries else None
    init = _init(entries.get("init"), scope, report)
    dtype = default_dtype(spec.precision, report)
    axes = lower_mesh(spec.mesh, scope, report)
    if not unread:
        _unused(spec, scope, library, report)
    if embed is None or head is None or not layers:
        return None
    blocks = tuple(state.blocks.values())
    return Module(model.name, embed, blocks, layers, head, mtp, values, init, dtype, mesh=axes)


def _unused(spec: ast.Spec, scope: Scope, library: set[str], report: Report) -> None:
    """Warns of params, lets and blocks that nothing names, whether or not what names them is right."""
    nodes = ast.walk((spec.members, spec.model, spec.precision, spec.mesh))
    named = {n.id for n in nodes if isinstance(n, ast.Name)} | {n.func for n in nodes if isinstance(n, ast.Call)}
    if any(isinstance(n, ast.Call) and n.func == "embedding" and len(n.args) < 2 for n in nodes):
        named.add("dim")  # an embedding without a width reads it
    for name, binding in scope.names.items():
        if name not in named and name not in library:
            code = {"a block": "HYB105", "a let": "HYB106"}.get(binding.what, "HYB104")
            label = f"{binding.what[2:]} `{name}` is never used"
            report.sink.report(code, binding.span, label, "use it or remove it", severity="warning")


def _define(members: tuple[ast.Let | ast.Block, ...], scope: Scope, report: Report) -> None:
    for member in members:
        what = "block" if isinstance(member, ast.Block) else "let"
        check_name(member.name, member.span, what, report.sink)
        if (first := scope.names.get(member.name)) is not None:
            related: tuple[tuple[Span, str], ...] = ((first.span, "first defined here"),)
            report.sink.report(
                "HYB103", member.span, f"`{member.name}` is defined twice", "rename one of them", related=related
            )
            continue
        if isinstance(member, ast.Let):
            scope.names[member.name] = Binding(member.span, "a let", expr=member.value, scope=scope)
        else:
            scope.names[member.name] = Binding(member.span, "a block", block=member)
            _block_header(member, report)


def _circles(members: tuple[ast.Member, ...], report: Report) -> bool:
    """Reports lets that lead back to themselves (HYB124); whether there are any."""
    lets = {m.name: m for m in members if isinstance(m, ast.Let)}
    named: dict[str, list[str]] = {}
    for name, let in lets.items():
        nodes = ast.walk(let.value)
        bound = {n.var for n in nodes if isinstance(n, ast.Comprehension)}
        named[name] = [n.id for n in nodes if isinstance(n, ast.Name) and n.id in lets and n.id not in bound]
    done: set[str] = set()
    found = False
    for start in lets:
        chain: dict[str, None] = {}
        stack = [(start, False)]
        while stack:
            name, leaving = stack.pop()
            if leaving:
                done.add(name)
                del chain[name]
            elif name in chain:
                shown = " -> ".join([*list(chain)[list(chain).index(name) :], name])
                label = f"this let leads back to itself: {shown}"
                report.sink.report("HYB124", lets[name].span, label, "give one of them a value of its own")
                found = True
            elif name not in done:
                chain[name] = None
                stack.append((name, True))
                stack += [(n, False) for n in named[name]]
    return found


def _block_header(block: ast.Block, report: Report) -> None:
    seen: set[str] = set()
    for param in block.params:
        check_name(param.name, param.span, "param", report.sink)
        if param.name in seen:
            report.sink.report("HYB103", param.span, f"the param `{param.name}` is there twice", "rename one of them")
        seen.add(param.name)
    if block.shared is not None and block.shared < 1:
        report.sink.report("HYB112", block.span, "a shared block has one weight set or more", "write shared(1) or more")
    used = {n.id for s in block.body for n in ast.walk(s.value) if isinstance(n, ast.Name)}
    used |= {n.func for s in block.body for n in ast.walk(s.value) if isinstance(n, ast.Call)}
    for param in block.params:
        if param.name not in used:
            report.sink.report(
                "HYB104", param.span, f"param `{param.name}` is never used", "use it or remove it", severity="warning"
            )


def _params(model: ast.Model, scope: Scope, report: Report) -> tuple[tuple[str, int | float | str | bool | None], ...]:
    """Binds the model's params in order and returns them as constants."""
    values: list[tuple[str, int | float | str | bool | None]] = []
    for member in model.members:
        if not isinstance(member, ast.Param):
            continue
        check_name(member.name, member.span, "param", report.sink)
        if member.name in scope.names:
            report.sink.report("HYB103", member.span, f"`{member.name}` is defined twice", "rename one of them")
            continue
        value: Constant = None
        try:
            if member.value is None:
                report.fail(
                    "HYB110", member.span, f"the param `{member.name}` has no value", "write `param name = value`"
                )
            else:
                value = evaluate(member.value, scope, report)
        except Failed:
            pass
        scope.constant(member.name, value, member.span, "a param")
        if not isinstance(value, tuple):
            values.append((member.name, value))
    return tuple(values)


def _pattern(state: _Lowering, entry: ast.Entry | None, report: Report) -> tuple[Layer, ...]:
    if entry is None:
        return ()
    try:
        items = expand(entry.value, state.scope, report)
        if not any(isinstance(i, Occurrence) for i in items):
            report.fail("HYB130", entry.value.span, "this pattern has no layers", "name at least one block")
        return state.layers(items)
    except Failed:
        return ()


def _init(entry: ast.Entry | None, scope: Scope, report: Report) -> InitScheme:
    """`init = normal(std=0.02, depth=true)` or `init = kaiming(depth=true)`."""
    if entry is None:
        return InitScheme()
    expr = entry.value
    try:
        if not isinstance(expr, ast.Call) or expr.func not in ("normal", "kaiming"):
            report.fail("HYB113", expr.span, "this is not an init scheme", "write normal(std=0.02) or kaiming()")
        names = ["std", "depth"] if expr.func == "normal" else ["depth"]
        given = dict(zip(names, expr.args, strict=False)) | {k.name: k.value for k in expr.kwargs}
        if unknown := [k for k in given if k not in names]:
            report.fail("HYB109", expr.span, f"`{expr.func}` has no argument `{unknown[0]}`", did_you_mean("", names))
        std = evaluate(given["std"], scope, report) if "std" in given else 0.02
        depth = evaluate(given["depth"], scope, report) if "depth" in given else True
        if isinstance(std, bool) or not isinstance(std, (int, float)) or not 0 < std < 100:
            report.fail("HYB111", expr.span, f"std is {show(std)}", "use a positive number")
        if not isinstance(depth, bool):
            report.fail("HYB111", expr.span, f"depth is {show(depth)}", "write true or false")
        return InitScheme(expr.func, float(std), depth)
    except Failed:
        return InitScheme()
