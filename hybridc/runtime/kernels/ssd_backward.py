"""Mamba-2's scan backward in Triton (Dao and Gu, 2024, for the forward; the derivatives are worked out below).

In a chunk, with l_i = Σ_{t <= i} dt_t a, states S before it, G the gradient of the state behind it and g that of y:

    M_ij = exp(l_i - l_j) dt_j (g_i · x_j) for j <= i
    ds_j = Σ_i exp(l_i - l_j) (c_i · b_j) g_i + exp(l_L - l_j) G b_j           dx_j = dt_j ds_j + d g_j
    dc_i = Σ_heads [ Σ_j M_ij b_j + exp(l_i) Sᵀ g_i ]
    db_j = Σ_heads [ Σ_i M_ij c_i + exp(l_L - l_j) dt_j Gᵀ x_j ]
    the gradient of dt_t a: Σ_{j < t <= i} M_ij (c_i · b_j) + Σ_{i >= t} exp(l_i) g_i · S c_i
                            + Σ_{j < t} exp(l_L - l_j) dt_j x_j · G b_j + exp(l_L) G · S

The states before the chunks are kept from the forward; squares are made again, those of c · b once for a group of
heads. Summed over a group, M is kept for two kernels: L numbers a token and group, bf16 beside bf16. Beyond that a
head's token costs 18 P N / L bytes for states and their gradients, x read three times and g four times, dx written, and
4 bytes for each of some sums.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.ssd_chunks import Chunks, block, decays, gaps, of_document, place, products, put, tile
from hybridc.runtime.kernels.ssd_forward import PASSED, PLACES, SHARED, USUAL_CHUNKS, USUAL_TILE, chunk_states, strides
from hybridc.runtime.kernels.variant import Variant


def ssd_backward(
    grad: Tensor,
    grad_last: Tensor | None,
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor | None,
    times: Tensor,
    before: Tensor,
    chunks: Chunks,
    precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """Gradients of x, dt, a, b, c, d, in their dtypes, and of the documents' initial states, fp32.

    grad is y's [B, S, H, P], grad_last the last states' [documents, H, P, N]; times and before are the forward's.
    """
    heads, wide = x.shape[2:]
    groups, size = b.shape[2:]
    share, count, length = heads // groups, chunks.count, chunks.length
    square = chunks.square
    new = {"dtype": torch.float32, "device": x.device}
    common = (*chunks.places(), heads, share, times.stride(0))
    constants = {"LENGTH": length, "BLOCK": square, "PRECISION": precision}

    added = chunk_states(grad, c, times, chunks, precision, to_end=False)
    behind, ends, grad_initial = _pass_back(added, grad_last, before, times, chunks)
    del added

    moved = torch.empty(count, groups, length, length, dtype=before.dtype, device=x.device)
    inner = torch.empty(chunks.squares, count, heads, length, **new)
    _moved_kernel[(count * groups * chunks.squares**2,)](
        grad, x, b, c, times, moved, inner, *common, inner.stride(0),
        *grad.stride()[:3], *x.stride()[:3], *b.stride()[:3], *c.stride()[:3],
        P=wide, N=size, BLOCK_P=chunks.columns(wide), BLOCK_N=chunks.held(size), num_warps=8, num_stages=2, **constants,
    )  # fmt: skip

    columns = block(size, 128)
    parts = triton.cdiv(size, columns)
    outer = torch.empty(2, parts, count, heads, length, **new)
    dc, db = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (c, b))
    for of_c, u, mine, other, states, out in ((True, grad, c, b, before, dc), (False, x, b, c, behind, db)):
        sums = outer[0 if of_c else 1]
        _sides_kernel[(count * groups * chunks.squares * parts,)](
            u, mine, other, states, times, moved, out, sums, *common, sums.stride(0),
            *u.stride()[:3], *mine.stride()[:3], *other.stride()[:3],
            P=wide, N=size, BLOCK_P=chunks.columns(wide), BLOCK_N=columns, OF_C=of_c, num_warps=8, num_stages=2,
            **constants,
        )  # fmt: skip
    del moved

    dx = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    columns = chunks.columns(wide)
    parts = triton.cdiv(wide, columns)
    direct = torch.empty(parts, count, heads, length, **new)
    skips = torch.empty(parts * chunks.squares, count, heads, **new)
    _inputs_kernel[(count * heads * chunks.squares * parts,)](
        grad, x, b, c, d, times, behind, dx, direct, skips, *common, direct.stride(0),
        *grad.stride()[:3], *x.stride()[:3], *b.stride()[:3], *c.stride()[:3],
        P=wide, N=size, BLOCK_P=columns, BLOCK_N=chunks.held(size), num_warps=8, num_stages=2, **constants,
    )  # fmt: skip

    ddt = torch.empty(dt.shape, dtype=dt.dtype, device=dt.device)
    rates = torch.empty(count, heads, **new)
    tall = min(8, triton.next_power_of_2(heads))
    _steps_kernel[(count * triton.cdiv(heads, tall),)](
        inner, outer, ends, direct, a, times, ddt, rates, *chunks.places(), heads, times.stride(0),
        SQUARES=chunks.squares, PARTS_N=outer.shape[1], PARTS_P=parts, PARTS_E=ends.shape[0],
        LENGTH=length, BLOCK=square, HEADS=tall,
    )  # fmt: skip
    dd = None if d is None else skips.sum((0, 1)).to(d.dtype)
    return dx, ddt, rates.sum(0).to(a.dtype), db, dc, dd, grad_initial


def _pass_back(
    added: Tensor, grad_last: Tensor | None, before: Tensor, times: Tensor, chunks: Chunks
) -> tuple[Tensor, Tensor, Tensor]:
    """What `pass_states` gives, backwards: gradients of the states behind the chunks, like `before`; their products
    with the states before, decayed over the chunk, in parts [parts, chunks, H]; and the initial states' gradients."""
    heads, elements = added.shape[1], added[0, 0].numel()
    parts = triton.cdiv(elements, PASSED)
    behind = torch.empty_like(before)
    ends = torch.empty(parts, chunks.count, heads, dtype=torch.float32, device=added.device)
    initial = torch.empty(chunks.documents, *added.shape[1:], dtype=torch.float32, device=added.device)
    _pass_back_kernel[(chunks.documents * heads * parts,)](
        added, grad_last, before, times, behind, ends, initial, chunks.first, chunks.per_row, heads, times.stride(0),
        ends.stride(0), ELEMENTS=elements, LENGTH=chunks.length, BLOCK=PASSED,
    )  # fmt: skip
    return behind, ends, initial


@triton.jit
def _pass_back_kernel(
    added, grad_last, before, times, behind, ends, initial, first, per_row, heads, plane, ends_plane,
    ELEMENTS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    parts: tl.constexpr = (ELEMENTS + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    part = program % parts
    element = part.to(tl.int32) * BLOCK + tl.arange(0, BLOCK)
    inside = element < ELEMENTS
    head, document = (program // parts) % heads, program // parts // heads
    own = (document * heads + head) * ELEMENTS + element
    if grad_last is None:
        grad = tl.zeros((BLOCK,), tl.float32)
    else:
        grad = tl.load(grad_last + own, mask=inside, other=0).to(tl.float32)
    begin, end = of_document(first, per_row, document)
    for back in tl.range(0, end - begin, num_stages=3):
        chunk = end - 1 - back
        at = (chunk * heads + head) * ELEMENTS + element
        sums, rest = decays(times, plane, (chunk * heads + head) * LENGTH + LENGTH - 1)
        tl.store(behind + at, grad.to(behind.dtype.element_ty), mask=inside)
        grad *= tl.exp(sums + rest)
        state = tl.load(before + at, mask=inside, other=0).to(tl.float32)
        tl.store(ends + part * ends_plane + chunk * heads + head, tl.sum(grad * state, 0))
        grad += tl.load(added + at, mask=inside, other=0)
    tl.store(initial + own, grad, mask=inside)


@triton.jit
def _moved_kernel(
    grad, x, b, c, times, moved, inner, spans, per_row, tokens, heads, share, plane, inner_plane,
    grad_row, grad_token, grad_head, x_row, x_token, x_head, b_row, b_token, b_group, c_row, c_token, c_group,
    P: tl.constexpr, N: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A square of M summed over a group's heads, and what each head's M (c · b) gives its rows and takes from its
    columns: in the plane of `inner` that has the number of the square's other block."""
    squares: tl.constexpr = LENGTH // BLOCK
    program = tl.program_id(0).to(tl.int64)
    block_i = ((program // squares) % squares).to(tl.int32)
    block_j = (program % squares).to(tl.int32)
    groups = heads // share
    group, chunk = (program // (squares * squares)) % groups, program // (squares * squares) // groups
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    if block_j > block_i or block_i * BLOCK >= count:
        return
    i, j = block_i * BLOCK + tl.arange(0, BLOCK), block_j * BLOCK + tl.arange(0, BLOCK)
    scores = products(
        c + row * c_row + start * c_token + group * c_group, i, count, c_token,
        b + row * b_row + start * b_token + group * b_group, j, count, b_token, N, BLOCK_N, PRECISION,
    )  # fmt: skip
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for head in range(group * share, group * share + share):
        product = products(
            grad + row * grad_row + start * grad_token + head * grad_head, i, count, grad_token,
            x + row * x_row + start * x_token + head * x_head, j, count, x_token, P, BLOCK_P, PRECISION,
        )  # fmt: skip
        at = (chunk * heads + head) * LENGTH
        sums_i, rest_i = decays(times, plane, at + i)
        sums_j, rest_j = decays(times, plane, at + j)
        product *= tl.load(times + at + j)[None, :] * gaps(i, sums_i, rest_i, j, sums_j, rest_j)
        total += product
        # what a token gives to itself crosses no step
        product = tl.where(i[:, None] > j[None, :], product * scores, 0.0)
        to_rows, to_columns = tl.sum(product, 1), tl.sum(product, 0)
        apart = i // BLOCK != j // BLOCK
        to_plane = inner + block_j * inner_plane + at + i
        tl.store(to_plane, tl.where(apart, to_rows, to_rows - to_columns))
        tl.store(inner + block_i * inner_plane + at + j, -to_columns, mask=apart)
    out = moved + (chunk * groups + group) * (LENGTH * LENGTH)
    tl.store(out + i[:, None] * LENGTH + j[None, :], total.to(moved.dtype.element_ty))


@triton.jit
def _sides_kernel(
    u, mine, other, states, times, moved, out, sums, spans, per_row, tokens, heads, share, plane, sums_plane,
    u_row, u_token, u_head, mine_row, mine_token, mine_group, other_row, other_token, other_group,
    P: tl.constexpr, N: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr, OF_C: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of c (u is g, states those before, other is b), or that of b (u is x, states the gradients of those
    behind, other is c); in `sums` the product with c or b of what comes by way of the states, for each head."""
    squares: tl.constexpr = LENGTH // BLOCK
    parts: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    program = tl.program_id(0).to(tl.int64)
    part, own = (program % parts).to(tl.int32), ((program // parts) % squares).to(tl.int32)
    groups = heads // share
    group, chunk = (program // (parts * squares)) % groups, program // (parts * squares) // groups
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    if own * BLOCK >= count:
        return
    t, n = own * BLOCK + tl.arange(0, BLOCK), part * BLOCK_N + tl.arange(0, BLOCK_N)
    factor = tile(mine + row * mine_row + start * mine_token + group * mine_group, t, count, mine_token, n, N)
    total = tl.zeros((BLOCK, BLOCK_N), tl.float32)
    for head in range(group * share, group * share + share):
        product = tl.zeros((BLOCK, BLOCK_N), tl.float32)
        for low in tl.static_range(0, P, BLOCK_P):
            p = low + tl.arange(0, BLOCK_P)
            v = tile(u + row * u_row + start * u_token + head * u_head, t, count, u_token, p, P)
            state = tile(states + (chunk * heads + head) * (P * N), p, P, N, n, N)
            product = tl.dot(v.to(state.dtype), state, product, input_precision=PRECISION)
        at = (chunk * heads + head) * LENGTH
        upto, rest = decays(times, plane, at + t)
        if OF_C:
            weight = tl.exp(upto + rest)
        else:
            end, end_rest = decays(times, plane, at + LENGTH - 1)
            weight = tl.exp((end - upto) + (end_rest - rest)) * tl.load(times + at + t)
        product *= weight[:, None]
        total += product
        tl.store(sums + part * sums_plane + at + t, tl.sum(product * factor.to(tl.float32), 1))
    other += row * other_row + start * other_token + group * other_group
    square = moved + (chunk * groups + group) * (LENGTH * LENGTH)
    filled = (count + BLOCK - 1) // BLOCK
    for number in range(0 if OF_C else own, own + 1 if OF_C else filled):
        s = number * BLOCK + tl.arange(0, BLOCK)
        if OF_C:
            weights = tl.load(square + t[:, None] * LENGTH + s[None, :])
        else:
            weights = tl.trans(tl.load(square + s[:, None] * LENGTH + t[None, :]))
        values = tile(other, s, count, other_token, n, N).to(weights.dtype)
        total = tl.dot(weights, values, total, input_precision=PRECISION)
    put(out + ((row * tokens + start) * groups + group) * N, t, count, groups * N, n, total, N)


@triton.jit
def _inputs_kernel(
    grad, x, b, c, d, times, behind, dx, direct, skips, spans, per_row, tokens, heads, share, plane, direct_plane,
    grad_row, grad_token, grad_head, x_row, x_token, x_head, b_row, b_token, b_group, c_row, c_token, c_group,
    P: tl.constexpr, N: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr, BLOCK_P: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """dx, and in `direct` x · ds for each token, in `skips` the sum of x · g over a block: parts of dt's and d's."""
    squares: tl.constexpr = LENGTH // BLOCK
    parts: tl.constexpr = (P + BLOCK_P - 1) // BLOCK_P
    program = tl.program_id(0).to(tl.int64)
    part, own = program % parts, ((program // parts) % squares).to(tl.int32)
    head, chunk = (program // (parts * squares)) % heads, program // (parts * squares) // heads
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    skip = skips + ((part * squares + own) * (tl.num_programs(0) // (parts * squares))) + chunk * heads + head
    if own * BLOCK >= count:
        tl.store(skip, 0.0)
        return
    j = own * BLOCK + tl.arange(0, BLOCK)
    p = part.to(tl.int32) * BLOCK_P + tl.arange(0, BLOCK_P)
    grad += row * grad_row + start * grad_token + head * grad_head
    c += row * c_row + start * c_token + head // share * c_group
    b += row * b_row + start * b_token + head // share * b_group
    at = (chunk * heads + head) * LENGTH
    sums_j, rest_j = decays(times, plane, at + j)
    end, end_rest = decays(times, plane, at + LENGTH - 1)
    total = products(b, j, count, b_token, behind + (chunk * heads + head) * (P * N), p, P, N, N, BLOCK_N, PRECISION)
    total *= tl.exp((end - sums_j) + (end_rest - rest_j))[:, None]
    if N <= BLOCK_N:
        n = tl.arange(0, BLOCK_N)
        keys = tile(b, j, count, b_token, n, N)
    for low in range(own * BLOCK, count, BLOCK):
        i = low + tl.arange(0, BLOCK)
        sums_i, rest_i = decays(times, plane, at + i)
        if N <= BLOCK_N:
            weight = tl.dot(tile(c, i, count, c_token, n, N), tl.trans(keys), input_precision=PRECISION)
        else:
            weight = products(c, i, count, c_token, b, j, count, b_token, N, BLOCK_N, PRECISION)
        g = tile(grad, i, count, grad_token, p, P)
        weight *= gaps(i, sums_i, rest_i, j, sums_j, rest_j)
        total = tl.dot(tl.trans(weight.to(g.dtype)), g, total, input_precision=PRECISION)
    v = tile(x + row * x_row + start * x_token + head * x_head, j, count, x_token, p, P).to(tl.float32)
    g = tile(grad, j, count, grad_token, p, P).to(tl.float32)
    tl.store(direct + part * direct_plane + at + j, tl.sum(total * v, 1))
    tl.store(skip, tl.sum(tl.sum(v * g, 1), 0))
    total *= tl.load(times + at + j)[:, None]
    if d is not None:
        total += g * tl.load(d + head).to(tl.float32)
    put(dx + ((row * tokens + start) * heads + head) * P, j, count, heads * P, p, total, P)


@triton.jit
def _steps_kernel(
    inner, outer, ends, direct, a, times, ddt, rates, spans, per_row, tokens, heads, plane,
    SQUARES: tl.constexpr, PARTS_N: tl.constexpr, PARTS_P: tl.constexpr, PARTS_E: tl.constexpr,
    LENGTH: tl.constexpr, BLOCK: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """All that the other kernels have summed for each token, to gradients of dt, and of a for each chunk."""
    width = tl.cdiv(heads, HEADS)
    program = tl.program_id(0).to(tl.int64)
    chunk = program // width
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    head = (program % width).to(tl.int32) * HEADS + tl.arange(0, HEADS)
    t = tl.arange(0, LENGTH)
    filled = (head < heads)[:, None] & (t < count)[None, :]
    at = (chunk * heads + head)[:, None] * LENGTH + t[None, :]
    risen = tl.zeros((HEADS, LENGTH), tl.float32)
    passed = tl.zeros((HEADS, LENGTH), tl.float32)
    total = tl.zeros((HEADS, LENGTH), tl.float32)
    for s in tl.static_range(SQUARES):
        # squares behind the last token were not made
        made = filled & (t * 0 + s * BLOCK < count)[None, :]
        risen += tl.load(inner + s * plane + at, mask=made, other=0)
    for s in tl.static_range(PARTS_N):
        risen += tl.load(outer + s * plane + at, mask=filled, other=0)
        passed += tl.load(outer + (PARTS_N + s) * plane + at, mask=filled, other=0)
    for s in tl.static_range(PARTS_P):
        total += tl.load(direct + s * plane + at, mask=filled, other=0)
    over = tl.sum(passed, 1)
    chunk_heads = plane // LENGTH
    for s in tl.static_range(PARTS_E):
        over += tl.load(ends + s * chunk_heads + chunk * heads + head, mask=head < heads, other=0)
    # the gradient of the sum up to a token enters all steps before it, that of the chunk's end all steps
    step = tl.cumsum(risen - passed, 1, reverse=True) + over[:, None]
    rate = tl.load(a + head, mask=head < heads, other=0).to(tl.float32)
    total += step * rate[:, None]
    out = ddt + ((row * tokens + start) + t[None, :]) * heads + head[:, None]
    tl.store(out, total.to(ddt.dtype.element_ty), mask=filled)
    taken = tl.sum(step * tl.load(times + at, mask=filled, other=0), 1)
    tl.store(rates + chunk * heads + head, taken, mask=head < heads)


_PAIRS = strides("grad_row", "grad_token", "grad_head", "x_row", "x_token", "x_head", "b_row", "b_token", "b_group")
_PAIRS |= strides("c_row", "c_token", "c_group")
_FOUR = {"grad": "*bf16:16", "x": "*bf16:16", "b": "*bf16:16", "c": "*bf16:16"}
VARIANTS = (
    Variant(
        _pass_back_kernel,
        {"added": "*fp32:16", "before": "*bf16:16", "times": "*fp32:16", "behind": "*bf16:16", "ends": "*fp32:16"}
        | {"initial": "*fp32:16", "first": "*i32:16", "per_row": "i32", "heads": "i32:16"}
        | {"plane": "i64:16", "ends_plane": "i64:16"},
        {"grad_last": None, "ELEMENTS": 64 * 128, "LENGTH": 256, "BLOCK": PASSED},
    ),
    Variant(
        _moved_kernel,
        {**_FOUR, "moved": "*bf16:16", "inner": "*fp32:16", **SHARED, "inner_plane": "i64:16", **_PAIRS},
        {**USUAL_TILE, "BLOCK": USUAL_CHUNKS.square},
        warps=8,
    ),
    *(
        Variant(
            _sides_kernel,
            {"u": "*bf16:16", "mine": "*bf16:16", "other": "*bf16:16", "states": "*bf16:16", "moved": "*bf16:16"}
            | {"out": "*bf16:16", "sums": "*fp32:16", **SHARED, "sums_plane": "i64:16"}
            | strides("u_row", "u_token", "u_head", "mine_row", "mine_token", "mine_group")
            | strides("other_row", "other_token", "other_group"),
            {**USUAL_TILE, "BLOCK": USUAL_CHUNKS.square, "OF_C": of_c},
            warps=8,
            name=f"_sides_kernel_of_{'c' if of_c else 'b'}",
        )
        for of_c in (True, False)
    ),
    Variant(
        _inputs_kernel,
        {**_FOUR, "d": "*fp32:16", "behind": "*bf16:16", "dx": "*bf16:16", "direct": "*fp32:16", "skips": "*fp32:16"}
        | {**SHARED, "direct_plane": "i64:16", **_PAIRS},
        {**USUAL_TILE, "BLOCK": USUAL_CHUNKS.square},
        warps=8,
    ),
    Variant(
        _steps_kernel,
        {"inner": "*fp32:16", "outer": "*fp32:16", "ends": "*fp32:16", "direct": "*fp32:16", "a": "*fp32:16"}
        | {"times": "*fp32:16", "ddt": "*fp32:16", "rates": "*fp32:16", **PLACES},
        {"SQUARES": 4, "PARTS_N": 1, "PARTS_P": 1, "PARTS_E": 8, "LENGTH": 256, "BLOCK": 64, "HEADS": 8},
    ),
)
