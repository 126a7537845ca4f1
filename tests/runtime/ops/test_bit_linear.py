"""BitNet's training form against its formulas in float64 (Ma et al., 2024, equations 1 to 4), its packed form against
that, and both where tensor parallelism splits them."""

import pytest
import torch
from torch import distributed
from transformers.integrations.bitnet import pack_weights, unpack_weights

from hybridc.runtime.ops import BitInput, BitLinear, PackedBitLinear
from hybridc.runtime.ops.bit_linear import eight_bits, inverse_scales, ternary
from hybridc.runtime.parallel.across import Across
from hybridc.runtime.parallel.axis import Axis
from hybridc.runtime.parallel.shards import split
from tests.equivalence.ranks import on_ranks


def test_weights_are_three_values_of_mean_size():
    weight = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
    mean = weight.double().abs().mean()
    expected = (weight.double() / mean).round().clamp(-1, 1) * mean
    torch.testing.assert_close(ternary(weight).double(), expected, rtol=1e-6, atol=1e-7)
    assert len(ternary(weight).unique()) == 3


def test_activations_have_a_scale_for_each_token():
    x = (
        torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))
        * torch.tensor([1e-3, 1.0, 50.0])[:, None, None]
    )
    largest = x.double().abs().amax(-1, keepdim=True)
    expected = (x.double() * 127 / largest).round() * largest / 127
    torch.testing.assert_close(eight_bits(x).double(), expected, rtol=1e-6, atol=1e-9)


def test_zeros_stay_zeros():
    zeros = torch.zeros(4, 8)
    assert torch.equal(eight_bits(zeros), zeros) and torch.equal(ternary(zeros), zeros)


def test_gradients_pass_straight_through():
    layer = BitLinear(8, 6, bias=True)
    x = torch.randn(5, 8, requires_grad=True)
    grad = torch.randn(5, 6)
    layer(x).backward(grad)
    torch.testing.assert_close(x.grad, grad @ ternary(layer.weight.detach()))
    torch.testing.assert_close(layer.weight.grad, grad.T @ eight_bits(x.detach()))
    torch.testing.assert_close(layer.bias.grad, grad.sum(0))


def test_fused_projections_have_scales_of_their_own():
    fused = BitLinear(8, 10, parts=(6, 4))
    with torch.no_grad():
        fused.weight[6:] *= 20
    x = torch.randn(3, 8)
    alone = []
    for rows in (fused.weight[:6], fused.weight[6:]):
        layer = BitLinear(8, rows.shape[0])
        with torch.no_grad():
            layer.weight.copy_(rows)
        alone.append(layer(x))
    torch.testing.assert_close(fused(x), torch.cat(alone, -1))


def packed(layer):
    """The packed form of a BitLinear, its bytes made by transformers' function from weights rounded in float64."""
    made = PackedBitLinear(layer.in_features, layer.out_features, bias=layer.bias is not None, parts=layer.parts)
    bytes, scales = [], []
    for part in layer.weight.detach().double().split(layer.parts or layer.out_features):
        scales.append(part.abs().mean().clamp(min=1e-5))
        bytes.append(pack_weights((part / scales[-1]).round().clamp(-1, 1)))
    with torch.no_grad():
        made.weight.copy_(torch.cat(bytes))
        made.weight_scale.copy_(torch.stack(scales))
        if layer.bias is not None:
            made.bias.copy_(layer.bias)
    return made


@pytest.mark.parametrize("parts", [(), (6, 10, 3)])
def test_packed_form_is_the_training_form(parts):
    layer = BitLinear(33, 19, bias=True, parts=parts)
    with torch.no_grad():
        layer.weight[6:] *= 20
    x, grad = torch.randn(2, 5, 33), torch.randn(2, 5, 19)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    made = packed(layer)
    y, wanted = made(ours), layer(theirs)
    torch.testing.assert_close(y, wanted)
    y.backward(grad)
    wanted.backward(grad)
    torch.testing.assert_close(ours.grad, theirs.grad)
    torch.testing.assert_close(made.bias.grad, layer.bias.grad)
    assert made.weight.grad is None and made.weight_scale.grad is None
    torch.testing.assert_close(made(BitInput(x)), y, rtol=0, atol=0)


def test_packed_sums_are_exact():
    """Levels of all sizes in 1000 columns: the sum of whole numbers is what it is in int64, whatever the dtype."""
    layer = PackedBitLinear(1000, 4)
    with torch.no_grad():
        layer.weight.copy_(pack_weights(torch.randint(-1, 2, (4, 1000), dtype=torch.int8)))
    x = torch.randint(-127, 128, (3, 1000))
    x[:, 0] = 127  # a scale of 1
    with torch.compiler.set_stance("force_eager"):
        wanted = x @ unpack_weights(layer.weight, torch.int64).T
    assert torch.equal(layer(x.float()).long(), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x.float()), wanted.bfloat16())
    assert torch.equal(layer(x.bfloat16()), wanted.bfloat16())


def whole():
    """A layer with fused projections of very different sizes."""
    generator = torch.Generator().manual_seed(5)
    layer = BitLinear(8, 10, parts=(6, 4))
    with torch.no_grad():
        layer.weight.copy_(torch.randn(10, 8, generator=generator) * torch.logspace(-3, 2, 10)[:, None])
    return layer


def tokens():
    """Tokens whose largest numbers are on either side."""
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(6)) * torch.logspace(-2, 2, 8)


def test_scales_are_those_of_the_whole_where_ranks_have_shards():
    def on_rank():
        axis = Axis("tp", 2, distributed.get_rank(), distributed.group.WORLD)
        layer, x, found = whole(), tokens(), {}
        for way, shard, parts in (("rows", split(6, 4), (3, 2)), ("columns", split(8, dim=1), layer.parts)):
            part = shard.take(layer.weight.detach(), axis.rank, 2)
            made = BitLinear(*part.shape[::-1], parts=parts)
            with torch.no_grad():
                made.weight.copy_(part)
            made.placed("weight", Across.of(part, shard, axis))
            found[f"scales by {way}"] = inverse_scales(made.weight, made.parts, made.across)
            mine = x.chunk(2, -1)[axis.rank] if way == "columns" else x
            found[f"y by {way}"] = made(mine if way == "columns" else BitInput(x)).detach()
        found["x by columns"] = eight_bits(mine, made.across)
        theirs, other = packed(layer), PackedBitLinear(4, 10, parts=layer.parts)
        with torch.no_grad():
            other.weight.copy_(theirs.weight.chunk(2, 1)[axis.rank])
            other.weight_scale.copy_(theirs.weight_scale)
        other.placed("weight", made.across)
        return {**found, "packed y by columns": other(mine).detach()}

    ranks = on_ranks(2, on_rank)
    layer, x = whole(), tokens()
    y = layer(x).detach()
    scales = inverse_scales(layer.weight, layer.parts)
    wanted = torch.stack([1 / p.double().abs().mean() for p in layer.weight.split(layer.parts)])
    torch.testing.assert_close(scales.double(), wanted.detach(), rtol=2e-7, atol=0)
    for found in ranks:
        assert torch.equal(found["scales by rows"], scales) and torch.equal(found["scales by columns"], scales)
    assert torch.equal(torch.cat([found["x by columns"] for found in ranks], -1), eight_bits(x))
    halves = [found["y by rows"].split((3, 2), -1) for found in ranks]
    torch.testing.assert_close(torch.cat([torch.cat(part, -1) for part in zip(*halves, strict=True)], -1), y)
    torch.testing.assert_close(sum(found["y by columns"] for found in ranks), y)
    torch.testing.assert_close(sum(found["packed y by columns"] for found in ranks), y)
