"""Linear maps and experts in few bits whose weights ranks have between them compute what one rank does."""

import pytest
import torch
from torch import distributed, nn

from hybridc.runtime import gpu, ops
from hybridc.runtime.errors import UsageError
from hybridc.runtime.ops.bit_linear import eight_bits, inverse_scales
from hybridc.runtime.parallel.across import Across
from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.shards import split, whole
from hybridc.runtime.quant.primary import PrimaryWeights
from tests.equivalence.ranks import on_ranks

RANKS, TOKENS = 2, 5
FORMS = {"ops": ops, "gpu": gpu}
RECIPES = ("tensor", "delayed", "row", "block128", "mx")
KINDS = ("bitnet", *RECIPES)


def close(got, want, *names):
    """Far below the least change of a quantized number: 1/16 in FP8, and 1/127 of a token's largest in 8 bits."""
    off = float((got - want).abs().max() / want.abs().max())
    assert off < 1e-6, (*names, off)


def numbers(seed, *shape):
    """Numbers of few digits, so that quarters of them add up, and very different along both dims."""
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()
    return x * 2.0 ** torch.arange(shape[-1]).remainder(7) * 2.0 ** torch.arange(shape[-2]).remainder(5)[:, None]


def sizes(kind):
    """Columns, and rows of three fused projections, whose parts on a rank are whole blocks."""
    unit = 128 if kind == "block128" else 32
    return 2 * unit, (2 * unit, unit, unit)


def ways(kind):
    """How ranks have a weight: neighbours have copies of its last two projections; columns; the whole."""
    ins, rows = sizes(kind)
    return {"rows": split(*rows, copies=(1, 2, 2)), "columns": split(ins, dim=1), "summed": whole()}


def layer(form, kind, ins, parts):
    if kind == "bitnet":
        return form.BitLinear(ins, sum(parts), parts=parts)
    return form.FP8Linear(ins, sum(parts), kind)


def steps(kind):
    """Two, so that there are former ones: the second has larger numbers in one rank's channels."""
    ins, rows = sizes(kind)
    x, dy = numbers(1, TOKENS, ins), numbers(2, TOKENS, sum(rows))
    later = x.clone(), dy.clone()
    later[0][:, -1] *= 4
    later[1][:, 0] *= 4
    return [(x, dy), later]


def stepped(made, weight, given):
    """Results, and gradients of inputs and weights."""
    with torch.no_grad():
        made.weight.copy_(weight)
    found = []
    for x, dy in given:
        x = x.clone().requires_grad_()
        y = made(x)
        y.backward(dy)
        found.append((y.detach(), x.grad, made.weight.grad))
        made.weight.grad = None
    return found


def tp():
    return Axis("tp", RANKS, distributed.get_rank(), distributed.group.WORLD)


def linear_on_rank(form, kind, way):
    axis, (ins, rows), shard = tp(), sizes(kind), ways(kind)[way]
    part, share = shard.take(numbers(0, sum(rows), ins), axis.rank, RANKS), (0.25, 0.75)[axis.rank]
    parts = tuple(shard.sizes(RANKS)) if way == "rows" else rows
    made = layer(FORMS[form], kind, part.shape[1], parts)
    made.placed("weight", Across.of(made.weight, shard, axis))
    given = steps(kind)
    if way == "rows":  # of what both have, each has a part of the gradient
        channels = split(*rows, dim=1, copies=shard.copies)
        given = [(x, channels.take(dy, axis.rank, RANKS)) for x, dy in given]
        given = [(x, torch.cat((dy[:, : parts[0]], dy[:, parts[0] :] * share), 1)) for x, dy in given]
    elif way == "columns":
        given = [(x.chunk(RANKS, 1)[axis.rank], dy) for x, dy in given]
    else:
        given = [(x, dy * share) for x, dy in given]
    return [joined(axis, shard, rows, way, *each) for each in stepped(made, part, given)]


def joined(axis, shard, rows, way, y, dx, dw):
    """The whole tensors of what ranks have."""
    if way == "columns":
        return axis.summed(y), torch.cat(axis.gathered(dx), 1), shard.join(axis.gathered(dw))
    if way == "summed":
        return y, axis.summed(dx), axis.summed(dw)
    whole_y = split(*rows, dim=1, copies=shard.copies).join(axis.gathered(y))
    pieces = list(dw.split(shard.sizes(RANKS)))
    pieces[1:] = [axis.summed(p) for p in pieces[1:]]
    return whole_y, axis.summed(dx), shard.join(axis.gathered(torch.cat(pieces)))


@pytest.mark.parametrize("form", FORMS)
def test_linear_maps(form):
    """With scales of a rank's own part, results are off by 1e-2 and more."""
    cases = [(kind, way) for kind in KINDS for way in ways(kind)]
    if form == "gpu":  # the interpreter is slow: what ranks ask each other for
        cases = [(kind, way) for kind, way in cases if way != "summed" and kind not in ("block128", "mx")]
    found = on_ranks(RANKS, lambda: [linear_on_rank(form, *case) for case in cases])
    for n, (kind, way) in enumerate(cases):
        ins, rows = sizes(kind)
        wanted = stepped(layer(FORMS[form], kind, ins, rows), numbers(0, sum(rows), ins), steps(kind))
        for rank in range(RANKS):
            for step, (got, want) in enumerate(zip(found[rank][n], wanted, strict=True)):
                for name, a, b in zip(("y", "dx", "dw"), got, want, strict=True):
                    close(a, b, kind, way, step, name)


def experts(form, kind, dim, hidden):
    made = FORMS[form]
    products = (made.BitProduct() if kind == "bitnet" else made.FP8Product(kind) for _ in range(2))
    return made.Experts(3, dim, hidden, products=tuple(products))


def with_experts(made, gate_up, down):
    """Result and gradients of 9 tokens, of which none is the second expert's."""
    with torch.no_grad():
        made.gate_up.copy_(gate_up)
        made.down.copy_(down)
    x = numbers(3, 9, gate_up.shape[2]).div(128).requires_grad_()
    ids = torch.tensor([[0, 2]] * 4 + [[2, 0]] * 5)
    y = made(x, torch.full((9, 2), 0.5), ids)
    y.backward(numbers(4, *x.shape))
    return y.detach(), x.grad, made.gate_up.grad, made.down.grad


def weights(kind):
    unit = 128 if kind == "block128" else 32
    return numbers(5, 3, 4 * unit, 32) / 128, numbers(6, 3, 32, 2 * unit) / 128


def experts_on_rank(form, kind):
    axis, (gate_up, down) = tp(), weights(kind)
    hidden = down.shape[2]
    shards = split(hidden, hidden, dim=1), split(hidden, dim=2)
    made = experts(form, kind, 32, hidden // RANKS)
    parts = [s.take(w, axis.rank, RANKS) for s, w in zip(shards, (gate_up, down), strict=True)]
    for name, s, w in zip(("gate_up", "down"), shards, parts, strict=True):
        made.placed(name, Across.of(w, s, axis))
    y, dx, *grads = with_experts(made, *parts)
    return axis.summed(y), axis.summed(dx), *(s.join(axis.gathered(g)) for s, g in zip(shards, grads, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_experts(form):
    kinds = ("bitnet", "tensor", "row") if form == "gpu" else ("bitnet", "tensor", "row", "block128", "mx")
    found = on_ranks(RANKS, lambda: [experts_on_rank(form, kind) for kind in kinds])
    for n, kind in enumerate(kinds):
        gate_up, down = weights(kind)
        wanted = with_experts(experts(form, kind, 32, down.shape[2]), gate_up, down)
        for rank in range(RANKS):
            for name, a, b in zip(("y", "dx", "gate_up", "down"), found[rank][n], wanted, strict=True):
                close(a, b, kind, name)


def test_a_mean_is_of_what_is_there_once():
    """Copies count once, and fillers not at all, bit for bit."""

    def on_rank():
        axis, shard = tp(), split(9, 4, copies=(1, 2))
        weight = numbers(0, 13, 8)
        part = shard.take(weight, axis.rank, RANKS)
        assert part.shape == (5 + 4, 8)
        return inverse_scales(part, (5, 4), Across.of(part, shard, axis)), inverse_scales(weight, (9, 4))

    for got, want in on_ranks(RANKS, on_rank):
        assert torch.equal(got, want)


def test_an_input_that_is_split_cannot_be_quantized_before():
    def on_rank():
        said = []
        for form in FORMS.values():
            for made, x in (
                (form.BitLinear(4, 4), form.BitInput(torch.ones(2, 4))),
                (form.FP8Linear(4, 4, "row"), form.FP8Input(torch.ones(2, 4), "row")),
            ):
                made.placed("weight", Across.of(made.weight, split(8, dim=1), tp()))
                try:
                    made(x)
                except ValueError as error:
                    said.append(str(error))
        x = numbers(1, TOKENS, 8)
        across = Across.of(torch.ones(4, 4), split(8, dim=1), tp())
        return said, torch.equal(eight_bits(x.chunk(RANKS, 1)[tp().rank], across), eight_bits(x).chunk(2, 1)[tp().rank])

    for said, same in on_ranks(RANKS, on_rank):
        assert len(said) == 4 and all("hand it a tensor" in s for s in said) and same


def test_encoded_weights():
    """FP8 weights of a rank are a part of the whole's, and so are their scales. They are not stored, since state dicts
    of a mesh would have those scales of one rank."""

    def on_rank(kind, way):
        ins, rows = sizes(kind)
        shard = split(*rows) if way == "rows" else split(ins, dim=1)
        serial = ops.FP8Linear(ins, sum(rows), kind)
        with torch.no_grad():
            serial.weight.copy_(numbers(0, sum(rows), ins))
        part = shard.take(serial.weight.detach(), tp().rank, RANKS)
        made = ops.FP8Linear(part.shape[1], part.shape[0], kind)
        made.placed("weight", Across.of(part, shard, tp()))
        with pytest.raises(UsageError, match="between them"):
            PrimaryWeights(nn.Sequential(made))
        mine, theirs = (m.product.encode(w, turned=True) for m, w in ((made, part), (serial, serial.weight)))
        scale = theirs.scale
        if kind == "row" and way == "rows":
            scale = shard.take(scale, tp().rank, RANKS)
        data = shard.take(theirs.data.float(), tp().rank, RANKS)
        return torch.equal(mine.data.float(), data) and torch.equal(mine.scale, scale)

    cases = [(kind, way) for kind in ("tensor", "delayed", "row") for way in ("rows", "columns")]
    for found in on_ranks(RANKS, lambda: [on_rank(*case) for case in cases]):
        assert all(found), dict(zip(cases, found, strict=True))
