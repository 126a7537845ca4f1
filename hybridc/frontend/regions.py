"""The `precision` block: formats checked, selectors resolved over the module tree."""

from __future__ import annotations

from collections.abc import Iterator

from hybridc.diagnostics import did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.printer import print_expr
from hybridc.frontend.printer import selector as print_selector
from hybridc.frontend.scope import Failed, Report
from hybridc.frontend.selectors import Target, select, tree
from hybridc.ir.formats import OPTIONS, RECIPES, parse
from hybridc.ir.graph import Module, PrecisionRule
from hybridc.ir.packed import unpackable
from hybridc.ir.types import DType

PLAIN = ("fp32", "bf16", "fp16")


def default_dtype(precision: ast.Precision | None, report: Report) -> DType:
    """The dtype of `default FORMAT`, fp32 where there is none."""
    found: DType | None = None
    for rule in precision.rules if precision else ():
        if not isinstance(rule, ast.Default):
            continue
        name = _plain(rule.format)
        if name is None:
            help = f"use one of {', '.join(PLAIN)}"
            report.sink.report("HYB304", rule.format.span, "a default is a plain format", help)
        elif found is not None:
            report.sink.report("HYB103", rule.span, "a second default", "give one default")
        else:
            found = DType(name)
    return found or DType.FP32


Place = tuple[int, tuple[str, ...]]
"""A module or parameter: its layer, -1 in the embedding and the head, and its path from the root."""

Formats = dict[Place, str]
"""What rules give the modules of a net: by layer (-1 in the embedding and the head) and path, the format as written."""


def lower_rules(
    precision: ast.Precision | None, module: Module, report: Report
) -> tuple[tuple[PrecisionRule, ...], Formats]:
    """The rules in order, their formats checked and their selectors resolved, and what they come to, the later rule
    winning. `module` has types."""
    rules: list[PrecisionRule] = []
    formats: Formats = {}
    targets: list[Target] | None = None
    products: set[Place] = set()
    hits: list[tuple[ast.Rule, str, set[Place]]] = []
    told: set[int] = set()
    for rule in precision.rules if precision else ():
        if isinstance(rule, ast.Default):
            continue
        try:
            _format(rule.format, report)
        except Failed:
            continue
        if targets is None:
            targets, products = list(tree(module)), set(_products(module))
        named: list[Target] = []
        spared: set[Place] = set()
        quantized = parse(print_expr(rule.format)) is not None
        for selector, wanted in (*((s, True) for s in rule.on), *((s, False) for s in rule.exclude)):
            try:
                found = select(selector, module, report, targets)
            except Failed:
                continue
            if wanted:
                glob = all(step.name in ("*", "**") for step in selector.steps)
                named += [t for t in found if not glob or t.path[0] == "layers"]
                if quantized and found and _untouched(selector, found, products, report):
                    told.add(id(rule))
            else:
                spared |= {(t.layer, t.path) for t in found}
        places = {(t.layer, t.path) for t in named}
        # a module's format is that of all that is in it, unless it or a part is spared
        reached = [t for t in targets if _above(t, places) and not _above(t, spared)]
        formats |= dict.fromkeys([(t.layer, t.path) for t in reached], print_expr(rule.format))
        if quantized and named:
            hits.append((rule, print_expr(rule.format), {(t.layer, t.path) for t in reached} & products))
        rules.append(
            PrecisionRule(
                print_expr(rule.format), tuple(map(print_selector, rule.on)), tuple(map(print_selector, rule.exclude))
            )
        )
    for rule, format, mine in hits:
        if format == "bitnet(packed)":
            _refuse_unpackable(rule, {place for place in mine if formats[place] == format}, module, report)
        if not mine and id(rule) not in told:
            label = "this rule reaches no whole product with weights, and quantizes nothing"
            help = "name a module that holds products, such as a linear map, an op or a block; `except` may spare all"
            report.sink.report("HYB308", rule.span, label, help, severity="warning")
        if mine and all(formats[place] != format for place in mine):
            label = "later rules give everything that this one reaches another format"
            report.sink.report("HYB308", rule.span, label, "put it behind them, or leave it out", severity="warning")
    return tuple(rules), formats


def _products(module: Module) -> Iterator[Place]:
    """The products with weights that a rule can quantize."""
    paths = {name: [path for *_, path in block.projections()] for name, block in module.by_name.items()}
    for i, layer in enumerate(module.layers):
        yield from ((i, ("layers", str(i), *path)) for path in paths[layer.block])
    yield from ((-1, ("head", *path)) for path in paths["head"])


def _refuse_unpackable(rule: ast.Rule, places: set[Place], module: Module, report: Report) -> None:
    """Reports products that are to be packed and cannot be."""
    found: dict[str, str] = {}
    for layer, path in places:
        block = module.by_name[module.layers[layer].block] if layer >= 0 else module.head
        below = path[2 if layer >= 0 else 1 :]
        for node, part, own in block.projections():
            if own == below and (why := unpackable(node.op, block.widths(node), part)):
                found[".".join(own)] = why
    for name, why in sorted(found.items()):
        help = f"leave it out with `except {name}`, or give it `bitnet` in a rule behind this one"
        report.sink.report("HYB309", rule.span, f"`{name}` {why}, and has no packed form", help)


def _untouched(selector: ast.Selector, found: list[Target], products: set[Place], report: Report) -> bool:
    """Whether a quantized format is given to parts that hold no product and lie in none, such as a norm; says so."""
    places = {(t.layer, t.path) for t in found}
    inside = any((layer, path[:n]) in places for layer, path in products for n in range(1, len(path) + 1))
    reached = inside or any((t.layer, t.path[:n]) in products for t in found for n in range(1, len(t.path)))
    if not reached:
        label = f"`{print_selector(selector)}` has no product with weights, and stays as it is"
        help = "norms, routers, convolutions, embeddings and state parameters are not quantized: leave it out"
        report.sink.report("HYB308", selector.span, label, help, severity="warning")
    return not reached


def _above(target: Target, places: set[Place]) -> bool:
    """Whether a module above the target, or the target, is among the places."""
    return any((target.layer, target.path[:n]) in places for n in range(1, len(target.path) + 1))


def _plain(expr: ast.Expr) -> str | None:
    return expr.id if isinstance(expr, ast.Name) and expr.id in PLAIN else None


def _format(expr: ast.Expr, report: Report) -> None:
    """Reports a format that does not exist: fp32, bf16, fp16, bitnet, bitnet(packed),
    fp8(tensor|delayed|row|block128|mx, fwd=, bwd=, scale=)."""
    known = (*PLAIN, "bitnet", "fp8")
    if isinstance(expr, ast.Name):
        if expr.id == "fp8":
            report.fail(
                "HYB304", expr.span, "fp8 needs a recipe", f"write fp8(block128), or one of {', '.join(RECIPES)}"
            )
        if expr.id not in known:
            report.fail("HYB304", expr.span, f"there is no format `{expr.id}`", did_you_mean(expr.id, known))
        return
    if not isinstance(expr, ast.Call) or expr.func not in ("fp8", "bitnet"):
        shown = expr.func if isinstance(expr, ast.Call) else print_expr(expr)
        report.fail("HYB304", expr.span, f"`{shown}` is not a format", did_you_mean(shown, known))
    if expr.func == "bitnet":
        if expr.args != (ast.Name("packed"),) or expr.kwargs:
            help = "write `bitnet`, or `bitnet(packed)` for weights that are ternary already"
            report.fail("HYB304", expr.span, "bitnet has one option, packed", help)
        return
    recipe = expr.args[0] if len(expr.args) == 1 else None
    if not isinstance(recipe, ast.Name) or recipe.id not in RECIPES:
        name = recipe.id if isinstance(recipe, ast.Name) else ""
        report.fail("HYB304", expr.span, "fp8 takes one recipe", did_you_mean(name, RECIPES))
    given: set[str] = set()
    for kw in expr.kwargs:
        if kw.name in given:
            report.fail("HYB115", kw.span, f"`{kw.name}` is given twice", "give it once")
        given.add(kw.name)
        if kw.name not in OPTIONS:
            report.fail("HYB109", kw.span, f"fp8 has no argument `{kw.name}`", did_you_mean(kw.name, OPTIONS))
        options = OPTIONS[kw.name]
        if not isinstance(kw.value, ast.Name) or kw.value.id not in options:
            report.fail("HYB304", kw.span, f"`{kw.name}` is {' or '.join(options)}", f"write {kw.name}={options[0]}")
        if kw.name == "scale" and recipe.id != "block128":
            report.fail("HYB304", kw.span, "`scale` is an option of block128", "leave it out")
