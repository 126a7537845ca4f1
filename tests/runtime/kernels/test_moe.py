"""Sorting by experts and back, against loops over choices, and around experts' products as `ops.Experts` runs them."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional as F

from hybridc.runtime import ops
from hybridc.runtime.kernels import moe
from hybridc.runtime.kernels.moe import permute, sort_by_expert, sort_by_expert_reference, unpermute
from hybridc.runtime.ops.moe import sorted_by_expert
from tests.runtime.kernels.ahead import check_fits
from tests.runtime.ops import reference as ref
from tests.runtime.ops.cases import close, gradients, made


def chosen(tokens, k, experts, seed=0, favour=0.0):
    """ids [tokens, k], no expert twice for a token."""
    scores = made(seed, tokens, experts)
    scores[:, 0] += favour
    return scores.topk(k, dim=-1).indices


def rows_of(ids, experts, align):
    """The row of each choice, where experts begin, and their counts, by a loop over experts, tokens and choices."""
    places, offsets, counts = torch.full(ids.shape, -1), [0], []
    for expert in range(experts):
        count = 0
        for t in range(ids.shape[0]):
            for j in range(ids.shape[1]):
                if ids[t, j] == expert:
                    places[t, j] = offsets[-1] + count
                    count += 1
        counts.append(count)
        offsets.append(offsets[-1] + -(-count // align) * align)
    return places.tolist(), offsets, counts


CASES = [(1, 1, 1), (1, 3, 8), (7, 2, 5), (40, 8, 8), (150, 3, 12)]


@pytest.mark.parametrize("align", [1, 4, 128])
@pytest.mark.parametrize(("tokens", "k", "experts"), CASES)
@pytest.mark.parametrize("favour", [0.0, 20.0])
def test_sorting(tokens, k, experts, favour, align):
    ids = chosen(tokens, k, experts, favour=favour)
    to = sort_by_expert(ids, experts, align)
    places, offsets, counts = rows_of(ids, experts, align)
    assert to.places.tolist() == places and to.offsets.tolist() == offsets and to.counts.tolist() == counts
    assert offsets[-1] <= to.rows and (align > 1 or to.rows == tokens * k)
    for got, expected in zip(sort_by_expert_reference(ids, experts, align), (places, offsets, counts), strict=True):
        assert got.tolist() == expected


def test_many_blocks_of_choices(monkeypatch):
    """Sums over blocks go on from one stretch of them to the next."""
    monkeypatch.setattr(moe, "CHOICES", 16)
    begin = moe._begin_kernel

    class Short:
        def __getitem__(self, grid):
            return lambda *given, **options: begin[grid](*given, **options | {"BLOCK": 2})

    monkeypatch.setattr(moe, "_begin_kernel", Short())
    ids = chosen(40, 3, 6)
    to = sort_by_expert(ids, 6, 4)
    assert (to.places.tolist(), to.offsets.tolist(), to.counts.tolist()) == rows_of(ids, 6, 4)


@pytest.mark.parametrize("tokens", [1, 2, 9])
def test_as_the_op_sorts(tokens):
    ids = chosen(tokens, 2, 5)
    to = sort_by_expert(ids, 5)
    _, places, sizes = sorted_by_expert(ids, 5)
    assert torch.equal(to.places.long(), places) and to.offsets.diff().tolist() == sizes


def test_choices_of_no_expert():
    """Of -1, or of experts that are elsewhere: they have no row, add nothing, and get no gradient."""
    ids = torch.tensor([[0, -1], [5, 2], [2, 9], [-1, -1]])
    to = sort_by_expert(ids, 3, 2)
    assert to.places.tolist() == [[0, -1], [-1, 2], [3, -1], [-1, -1]]
    assert to.offsets.tolist() == [0, 2, 2, 4] and to.counts.tolist() == [1, 0, 2]
    x, weights = made(1, 4, 5), made(2, 4, 2)
    assert torch.equal(permute(x, to)[:4], torch.stack([x[0], 0 * x[0], x[1], x[2]]))
    rows = made(3, to.rows, 5)
    y = unpermute(rows, weights, to)
    expected = [weights[0, 0] * rows[0], weights[1, 1] * rows[2], weights[2, 0] * rows[3], 0 * rows[0]]
    torch.testing.assert_close(y, torch.stack(expected))
    (dx,) = gradients(lambda x: permute(x, to), [x])
    assert not dx[3].any() and dx[:3].all()
    d_rows, d_weights = gradients(lambda r, w: unpermute(r, w, to), [rows, weights])
    assert not d_rows[[1, *range(4, to.rows)]].any() and d_rows[[0, 2, 3]].all()
    assert (d_weights != 0).tolist() == [[True, False], [False, True], [True, False], [False, False]]


@pytest.fixture(params=[150, 40], ids=["many blocks", "one block"])
def width(request, monkeypatch):
    """Of channels; rows in more than one block, or in one."""
    monkeypatch.setattr(moe, "block_of", lambda width: 64)
    return request.param


@pytest.mark.parametrize("align", [1, 4])
@pytest.mark.parametrize(("tokens", "k", "experts"), [(1, 1, 3), (9, 2, 5), (20, 4, 4)])
def test_there_and_back(tokens, k, experts, align, width):
    ids = chosen(tokens, k, experts)
    to = sort_by_expert(ids, experts, align)
    places = torch.tensor(rows_of(ids, experts, align)[0])
    x, weights, scale = made(1, tokens, width), made(2, tokens, k), made(3, to.rows, width)

    def there(x):
        out = torch.zeros(to.rows, width, dtype=x.dtype)
        for t in range(tokens):
            for j in range(k):
                out[places[t, j]] = x[t]
        return out

    def back(rows, weights):
        return torch.stack([sum(weights[t, j] * rows[places[t, j]] for j in range(k)) for t in range(tokens)])

    assert torch.equal(permute(x, to), there(x))
    close(unpermute(scale, weights, to), back(scale.double(), weights.double()))
    for ours, theirs, given in (
        (lambda x: permute(x, to) * scale, lambda x: there(x) * scale, [x]),
        (lambda r, w: unpermute(r, w, to), back, [scale, weights]),
    ):
        for got, expected in zip(gradients(ours, given), gradients(theirs, [i.double() for i in given]), strict=True):
            close(got, expected)


def test_strides(width):
    to = sort_by_expert(chosen(9, 2, 5), 5, 4)
    x, rows, weights = made(1, width, 9).t(), made(2, width, to.rows).t(), made(3, 2, 9).t()
    assert torch.equal(permute(x, to), permute(x.contiguous(), to))
    y = unpermute(rows.requires_grad_(), weights.requires_grad_(), to)
    grad = made(4, width, 9).t()
    got = torch.autograd.grad(y, (rows, weights), grad)
    alike = [t.detach().contiguous().requires_grad_() for t in (rows, weights)]
    expected = torch.autograd.grad(unpermute(*alike, to), alike, grad.contiguous())
    assert all(torch.equal(g, e) for g, e in zip(got, expected, strict=True))


def test_types():
    to = sort_by_expert(chosen(9, 2, 5), 5, 4)
    x, weights = made(1, 9, 40).half(), made(2, 9, 2)
    rows = permute(x, to)
    assert rows.dtype == torch.float16 and unpermute(rows, weights, to).dtype == torch.float32
    half = unpermute(rows, weights.half(), to)
    assert half.dtype == torch.float16
    expected = (rows.double()[to.places.long()] * weights.half().double()[..., None]).sum(1)
    torch.testing.assert_close(half.double(), expected, rtol=1e-3, atol=1e-3)
    codes = x.to(torch.float8_e4m3fn)
    assert torch.equal(permute(codes, to).float(), permute(codes.float(), to))
    (dx,) = gradients(lambda x: permute(x, to), [x])
    assert dx.dtype == torch.float16


def test_unclaimed_rows_are_not_read():
    to = sort_by_expert(chosen(9, 2, 5), 5, 4)
    free = torch.ones(to.rows, dtype=torch.bool)
    free[to.places.flatten().long()] = False
    assert free.any()
    rows, weights = made(1, to.rows, 40), made(2, 9, 2)
    rows[free] = torch.nan
    assert unpermute(rows, weights, to).isfinite().all() and not permute(made(3, 9, 40), to)[free].any()
    d_rows, d_weights = gradients(lambda r, w: unpermute(r, w, to), [rows, weights])
    assert not d_rows[free].any() and d_weights.isfinite().all()


@pytest.mark.parametrize("favour", [0.0, 20.0])
@pytest.mark.parametrize(("tokens", "k", "experts"), [(1, 2, 4), (17, 2, 5)])
def test_around_experts(tokens, k, experts, favour):
    """As `ops.Experts`, and as its reference in float64: output and all gradients."""
    layer = ops.Experts(experts, 6, 5)
    gate_up, down = made(5, experts, 10, 6), made(6, experts, 6, 5)
    logits = made(4, tokens, experts)
    logits[:, 0] += favour
    weights, ids = ops.softmax_topk(logits, k, renormalize=True)
    given = [made(3, tokens, 6), weights, gate_up, down]

    def ours(x, weights, gate_up, down):
        to = sort_by_expert(ids, experts)
        rows, ends = permute(x, to), to.offsets.tolist()
        parts = rows.split([end - begin for begin, end in pairwise(ends)] + [to.rows - ends[-1]])
        made = []
        for part, up, out in zip(parts, gate_up, down, strict=False):
            gate, value = F.linear(part, up).chunk(2, -1)
            made.append(F.linear(F.silu(gate) * value, out))
        return unpermute(torch.cat([*made, parts[-1]]), weights, to)

    def theirs(x, weights, gate_up, down):
        return torch.func.functional_call(layer, {"gate_up": gate_up, "down": down}, (x, weights, ids))

    expected = ref.experts(*(i.double() for i in given[:2]), ids, *(i.double() for i in given[2:]))
    close(ours(*given), expected)
    close(theirs(*given), expected)
    wide = gradients(lambda x, w, g, d: ref.experts(x, w, ids, g, d), [i.double() for i in given])
    for got, same, want in zip(gradients(ours, given), gradients(theirs, given), wide, strict=True):
        close(got, want)
        close(same, want)


def test_nothing_to_sort():
    to = sort_by_expert(torch.zeros(0, 2, dtype=torch.int64), 3)
    assert to.rows == 0 and to.offsets.tolist() == [0] * 4
    assert permute(made(1, 0, 8), to).shape == (0, 8)
    assert unpermute(made(1, 0, 8), made(2, 0, 2), to).shape == (0, 8)


def test_fits():
    check_fits("hybridc.runtime.kernels.moe")
