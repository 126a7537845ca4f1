"""Routers as text: the k largest scores of a row by repeated maxima, and the gradients of their weights."""

from __future__ import annotations

from collections.abc import Iterator

from hybridc.codegen.triton.derive import straight
from hybridc.codegen.triton.expression_code import text
from hybridc.codegen.triton.group import Group, Input, Output, Router
from hybridc.codegen.triton.kernel_code import framed
from hybridc.codegen.triton.program import Program, rank
from hybridc.codegen.triton.share import shared
from hybridc.codegen.triton.wrapper_code import class_name, definition, documented, indented, launched

NUMBERS = ("k", "renormalize", "eps", "scaling")
GROUPED = ("groups", "top_groups")

LIMIT = 4096
"""The most experts: a row of them is one block."""

CHOICE = """
slot = tl.arange(0, SLOTS)[None, :]
weights = tl.zeros([ROWS, SLOTS], tl.float32)
for i in range(k):
    best = tl.minimum(tl.argmax(ranked, 1, keep_dims=True), WIDTH - 1)
    chosen = col == best
    weights = tl.where(slot == i, tl.sum(tl.where(chosen, score, 0.0), 1, keep_dims=True), weights)
    ranked = tl.where(chosen, float("-inf"), ranked)
    tl.store(ids_ptr + row * k + i, best, mask=live)
if renormalize:
    weights = weights / (tl.sum(weights, 1, keep_dims=True) + eps)
tl.store(weights_ptr + row * k + slot, scaling * weights, mask=live & (slot < k))
"""

GRADIENT = """
given = tl.zeros([ROWS, BLOCK], tl.float32)
picked = tl.zeros([ROWS, BLOCK], tl.int32)
for i in range(k):
    chosen = col == tl.load(ids_ptr + row * k + i, mask=live, other=-1)
    given = tl.where(chosen, tl.load(dweights_ptr + row * dweights_stride + i, mask=live, other=0.0), given)
    picked = tl.where(chosen, 1, picked)
dscore = scaling * given
if renormalize:
    total = tl.sum(tl.where(picked != 0, score, 0.0), 1, keep_dims=True) + eps
    dscore = (dscore - tl.sum(dscore * score, 1, keep_dims=True) / total) / total
    dscore = tl.where(picked != 0, dscore, 0.0)
"""


def router(made: Router) -> tuple[list[str], str]:
    """The texts of a router's two kernels, and of the functions around them."""
    forward, backward = straight(_group(made))
    return [_forward(made, shared(forward)), _backward(made, shared(backward))], _wrapper(made)


def _group(made: Router) -> Group:
    return Group(made.name, made.doc, (Input("logits"),), made.body, (Output("score"),))


def _start() -> Iterator[str]:
    yield "row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]"
    yield "live = row < rows"
    yield "col = tl.arange(0, BLOCK)[None, :]"
    yield "inside = live & (col < WIDTH)"
    at = "logits_ptr + row * logits_stride + col"
    yield f"logits = tl.load({at}, mask=inside, other=0.0).to(tl.float32)"


def _statements(program: Program) -> Iterator[tuple[str, str]]:
    """Names and lines of a program's formulae, over rows that are one block."""
    ranks = program.ranks()
    outside = {"sum": "0.0", "max": 'float("-inf")'}
    for s in program.statements:
        value = text(s.value, lambda e: rank(e, ranks), "")
        if s.reduce:
            value = f"tl.{s.reduce}(tl.where(inside, {value}, {outside[s.reduce]}), 1, keep_dims=True)"
        yield s.name, f"{s.name} = {value}"


def _forward(made: Router, program: Program) -> str:
    arguments = ["logits_ptr", "logits_stride", *(["bias_ptr"] if made.bias else []), "weights_ptr", "ids_ptr", "rows"]

    def body() -> Iterator[str]:
        yield from _start()
        yield from (line for _, line in _statements(program))
        ranked = "score"
        if made.bias:
            yield "bias = tl.load(bias_ptr + col, mask=col < WIDTH, other=0.0).to(tl.float32)"
            ranked = "score + bias"
        yield f'ranked = tl.where(col < WIDTH, tl.maximum({ranked}, -1.0e38), float("-inf"))'
        yield "if top_groups < groups:"
        yield "    ranked = within_groups(ranked, col, WIDTH, groups, top_groups)"
        yield from CHOICE.strip().splitlines()

    return framed(f"{made.name}_forward", made.doc, arguments, (*NUMBERS, *GROUPED, "SLOTS"), body())


def _backward(made: Router, program: Program) -> str:
    arguments = ["logits_ptr", "logits_stride", "ids_ptr", "dweights_ptr", "dweights_stride", "dlogits_ptr", "rows"]
    (store,) = program.stores
    ranks = program.ranks()
    needs = {"dscore"}

    def body() -> Iterator[str]:
        yield from _start()
        later: list[str] = []
        for s, (name, line) in zip(program.statements, _statements(program), strict=True):
            if {x.name for x in s.value.free_symbols} & needs:
                needs.add(name)
                later.append(line)
            else:
                yield line
        if not any(s.name == "score" for s in program.statements):
            yield from (line for name, line in _scores(made) if name not in ranks)
        yield from GRADIENT.strip().splitlines()
        yield from later
        yield f"dlogits = {text(store.values[0], lambda e: rank(e, ranks), '')}"
        yield "tl.store(dlogits_ptr + row * WIDTH + col, dlogits, mask=inside)"

    return framed(f"{made.name}_backward", f"The gradients of {made.name}.", arguments, NUMBERS, body())


def _scores(made: Router) -> Iterator[tuple[str, str]]:
    return _statements(shared(straight(_group(made))[0]))


def _wrapper(made: Router) -> str:
    inputs = ["logits", *(["bias"] if made.bias else [])]
    numbers = [*NUMBERS, *GROUPED]
    bias = ["vector(bias, experts)"] if made.bias else []
    constants = ["WIDTH=experts", *(f"{n}={n}" for n in numbers), "SLOTS=triton.next_power_of_2(k)", "**fit.options"]
    forward = [
        "rows, experts = Rows.of(logits), logits.shape[-1]",
        "logits_rows = rows.matrix(logits, experts)",
        "weights, ids = rows.empty(k, torch.float32), rows.empty(k, torch.int64)",
        f"fit = tile(rows.count, experts, whole={LIMIT})",
        *launched(
            f"{made.name}_forward",
            ["logits_rows", "logits_rows.stride(0)", *bias, "weights", "ids", "rows.count", *constants],
        ),
        "ctx.save_for_backward(logits, ids)",
        "ctx.rows, ctx.numbers = rows, (k, renormalize, eps, scaling)",
        "ctx.mark_non_differentiable(ids)",
        "return weights, ids",
    ]
    read = ["logits_rows", "logits_rows.stride(0)", "ids", "dweights_rows", "dweights_rows.stride(0)", "dlogits"]
    read += ["rows.count", "WIDTH=experts"]
    nones = ", None" * (len(inputs) - 1 + len(numbers))
    backward = [
        "logits, ids = ctx.saved_tensors",
        "rows, (k, renormalize, eps, scaling) = ctx.rows, ctx.numbers",
        "experts = logits.shape[-1]",
        "logits_rows, dweights_rows = rows.matrix(logits, experts), rows.matrix(dweights, k)",
        "dlogits = rows.empty(experts)",
        f"fit = tile(rows.count, experts, whole={LIMIT})",
        *launched(f"{made.name}_backward", [*read, *(f"{n}={n}" for n in NUMBERS), "**fit.options"]),
        f"return dlogits{nones}",
    ]
    name = class_name(made.name)
    lines = definition(name, made.doc, [*inputs, *numbers], forward, ["dweights", "dids"], backward)
    defaults = "k, *, renormalize, eps=0.0, scaling=1.0, groups=1, top_groups=1"
    shape = "logits [..., experts]" + (", bias [experts]" if made.bias else "")
    told = (
        f"{shape} -> weights [..., k] fp32, ids [..., k] int64, the best first. Weights are scores times `scaling`, "
        "divided by their sum and `eps` if `renormalize`; with `groups`, experts are from the `top_groups` groups "
        "with the largest sums of their two best."
    )
    lines += ["", "", f"def {made.name}({', '.join([*inputs, defaults])}):"]
    lines += indented(documented(made.doc, told))
    lines.append(f"    return {name}.apply({', '.join([*inputs, *numbers])})")
    return "\n".join(lines)
