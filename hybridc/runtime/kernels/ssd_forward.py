"""Mamba-2's scan forward in Triton: chunks' own states, states passed from chunk to chunk, outputs (Dao and Gu, 2024).

With L tokens in a chunk, heads of P channels and states of N, a head's token costs in memory: 12 bytes of times written
and read; x read twice and y written; b and c once for a group; and a state, 12 P N / L bytes in bf16: the chunks' own
are written and read in fp32, the passed ones written and read as bf16. The squares of weights never reach memory.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.kernels.ssd_chunks import Chunks, block, decays, gaps, of_document, place, products, put, tile
from hybridc.runtime.kernels.variant import Variant

PASSED = 1024
"""Elements of a state that one program passes on."""


def running_times(dt: Tensor, a: Tensor, chunks: Chunks) -> Tensor:
    """dt [B, S, H], a [H] -> [3, chunks, H, L] fp32: dt, and dt a summed up within each chunk, in two parts."""
    heads = dt.shape[2]
    times = torch.empty(3, chunks.count, heads, chunks.length, dtype=torch.float32, device=dt.device)
    width = min(16, triton.next_power_of_2(heads))
    _times_kernel[(chunks.count * triton.cdiv(heads, width),)](
        dt, a, times, *chunks.places(), heads, times.stride(0), *dt.stride(), LENGTH=chunks.length, HEADS=width
    )
    return times


def chunk_states(u: Tensor, v: Tensor, times: Tensor, chunks: Chunks, precision: str, *, to_end: bool) -> Tensor:
    """Σ_t w_t u_t ⊗ v_t over each chunk: u [B, S, H, P], v [B, S, G, N] -> [chunks, H, P, N] fp32.

    w_t is dt_t and the decay from t to the chunk's end, or, not `to_end`, the decay from its start to t.
    """
    heads, wide = u.shape[2:]
    groups, size = v.shape[2:]
    out = torch.empty(chunks.count, heads, wide, size, dtype=torch.float32, device=u.device)
    tiles = {"BLOCK_P": chunks.columns(wide), "BLOCK_N": block(size, 128), "BLOCK_K": chunks.square}
    parts = triton.cdiv(wide, tiles["BLOCK_P"]) * triton.cdiv(size, tiles["BLOCK_N"])
    _states_kernel[(chunks.count * heads * parts,)](
        u, v, times, out, *chunks.places(), heads, heads // groups, times.stride(0), *u.stride()[:3], *v.stride()[:3],
        P=wide, N=size, LENGTH=chunks.length, **tiles, TO_END=to_end, PRECISION=precision, num_stages=3,
    )  # fmt: skip
    return out


def pass_states(
    added: Tensor, initial: Tensor | None, times: Tensor, chunks: Chunks, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """added [chunks, H, P, N], initial [documents, H, P, N] -> the states before the chunks, in `dtype`, and the
    documents' last ones, fp32."""
    heads, elements = added.shape[1], added[0, 0].numel()
    before = torch.empty_like(added, dtype=dtype)
    last = torch.empty(chunks.documents, *added.shape[1:], dtype=torch.float32, device=added.device)
    grid = (chunks.documents * heads * triton.cdiv(elements, PASSED),)
    _pass_kernel[grid](
        added, initial, times, before, last, chunks.first, chunks.per_row, heads, times.stride(0),
        ELEMENTS=elements, LENGTH=chunks.length, BLOCK=PASSED,
    )  # fmt: skip
    return before, last


def chunk_scan(
    x: Tensor, b: Tensor, c: Tensor, d: Tensor | None, times: Tensor, before: Tensor, chunks: Chunks, precision: str
) -> Tensor:  # fmt: skip
    """y [B, S, H, P] out of the chunks' own tokens, the states before them, and the skip d [H]."""
    heads, wide = x.shape[2:]
    groups, size = b.shape[2:]
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    high = x.dtype.itemsize == 2 and chunks.length >= 128 and max(wide, size) <= 128
    tiles = {"BLOCK_M": 128 if high else chunks.square, "BLOCK_K": chunks.square}
    tiles |= {"BLOCK_P": chunks.columns(wide), "BLOCK_N": chunks.held(size)}
    parts = triton.cdiv(chunks.length, tiles["BLOCK_M"]) * triton.cdiv(wide, tiles["BLOCK_P"])
    _scan_kernel[(chunks.count * heads * parts,)](
        x, b, c, d, times, before, y, *chunks.places(), heads, heads // groups, times.stride(0),
        *x.stride()[:3], *b.stride()[:3], *c.stride()[:3],
        P=wide, N=size, LENGTH=chunks.length, **tiles, PRECISION=precision, num_warps=8 if high else 4, num_stages=2,
    )  # fmt: skip
    return y


@triton.jit
def _times_kernel(
    dt, a, times, spans, per_row, tokens, heads, plane, dt_row, dt_token, dt_head,
    LENGTH: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    parts = tl.cdiv(heads, HEADS)
    program = tl.program_id(0).to(tl.int64)
    chunk = program // parts
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    head = (program % parts).to(tl.int32) * HEADS + tl.arange(0, HEADS)
    t = tl.arange(0, LENGTH)
    inside = (head < heads)[:, None]
    at = row * dt_row + start * dt_token + t[None, :] * dt_token + head[:, None] * dt_head
    v = tl.load(dt + at, mask=inside & (t < count)[None, :], other=0).to(tl.float32)
    rate = tl.load(a + head, mask=head < heads, other=0).to(tl.float64)
    # far from the start of a chunk a float32 sum is coarse beside the gap between neighbours
    exact = tl.cumsum(v.to(tl.float64) * rate[:, None], 1)
    sums = exact.to(tl.float32)
    out = times + (chunk * heads + head)[:, None] * LENGTH + t[None, :]
    tl.store(out, v, mask=inside)
    tl.store(out + plane, sums, mask=inside)
    tl.store(out + 2 * plane, (exact - sums.to(tl.float64)).to(tl.float32), mask=inside)


@triton.jit
def _states_kernel(
    u, v, times, out, spans, per_row, tokens, heads, share, plane, u_row, u_token, u_head, v_row, v_token, v_group,
    P: tl.constexpr, N: tl.constexpr, LENGTH: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, TO_END: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    parts_n: tl.constexpr = (N + BLOCK_N - 1) // BLOCK_N
    parts: tl.constexpr = parts_n * ((P + BLOCK_P - 1) // BLOCK_P)
    program = tl.program_id(0).to(tl.int64)
    part = (program % parts).to(tl.int32)
    head, chunk = (program // parts) % heads, program // parts // heads
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    p = part // parts_n * BLOCK_P + tl.arange(0, BLOCK_P)
    n = part % parts_n * BLOCK_N + tl.arange(0, BLOCK_N)
    u += row * u_row + start * u_token + head * u_head
    v += row * v_row + start * v_token + head // share * v_group
    at = (chunk * heads + head) * LENGTH
    end, end_rest = decays(times, plane, at + LENGTH - 1)
    total = tl.zeros((BLOCK_P, BLOCK_N), tl.float32)
    for k in range(0, count, BLOCK_K):
        t = k + tl.arange(0, BLOCK_K)
        sums, rest = decays(times, plane, at + t)
        if TO_END:
            sums, rest = end - sums, end_rest - rest
        weight = tl.exp(sums + rest)
        if TO_END:
            weight *= tl.load(times + at + t)
        left = tile(u, t, count, u_token, p, P)
        right = tile(v, t, count, v_token, n, N)
        left = (left.to(tl.float32) * weight[:, None]).to(right.dtype)
        total = tl.dot(tl.trans(left), right, total, input_precision=PRECISION)
    put(out + (chunk * heads + head) * (P * N), p, P, N, n, total, N)


@triton.jit
def _pass_kernel(
    added, initial, times, before, last, first, per_row, heads, plane,
    ELEMENTS: tl.constexpr, LENGTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    parts: tl.constexpr = (ELEMENTS + BLOCK - 1) // BLOCK
    program = tl.program_id(0).to(tl.int64)
    element = (program % parts).to(tl.int32) * BLOCK + tl.arange(0, BLOCK)
    inside = element < ELEMENTS
    head, document = (program // parts) % heads, program // parts // heads
    own = (document * heads + head) * ELEMENTS + element
    if initial is None:
        state = tl.zeros((BLOCK,), tl.float32)
    else:
        state = tl.load(initial + own, mask=inside, other=0).to(tl.float32)
    begin, end = of_document(first, per_row, document)
    for chunk in tl.range(begin, end, num_stages=3):
        at = (chunk * heads + head) * ELEMENTS + element
        sums, rest = decays(times, plane, (chunk * heads + head) * LENGTH + LENGTH - 1)
        tl.store(before + at, state.to(before.dtype.element_ty), mask=inside)
        state = state * tl.exp(sums + rest) + tl.load(added + at, mask=inside, other=0)
    tl.store(last + own, state, mask=inside)


@triton.jit
def _scan_kernel(
    x, b, c, d, times, before, y, spans, per_row, tokens, heads, share, plane, x_row, x_token, x_head,
    b_row, b_token, b_group, c_row, c_token, c_group,
    P: tl.constexpr, N: tl.constexpr, LENGTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr,
    BLOCK_P: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    parts_p: tl.constexpr = (P + BLOCK_P - 1) // BLOCK_P
    parts: tl.constexpr = parts_p * ((LENGTH + BLOCK_M - 1) // BLOCK_M)
    program = tl.program_id(0).to(tl.int64)
    part = (program % parts).to(tl.int32)
    head, chunk = (program // parts) % heads, program // parts // heads
    row, start, count = place(spans, per_row, tokens, chunk, LENGTH)
    low = part // parts_p * BLOCK_M
    if low >= count:
        return
    i = low + tl.arange(0, BLOCK_M)
    p = part % parts_p * BLOCK_P + tl.arange(0, BLOCK_P)
    at = (chunk * heads + head) * LENGTH
    sums, rest = decays(times, plane, at + i)
    x += row * x_row + start * x_token + head * x_head
    b += row * b_row + start * b_token + head // share * b_group
    c += row * c_row + start * c_token + head // share * c_group
    total = products(c, i, count, c_token, before + (chunk * heads + head) * (P * N), p, P, N, N, BLOCK_N, PRECISION)
    total *= tl.exp(sums + rest)[:, None]
    if N <= BLOCK_N:
        n = tl.arange(0, BLOCK_N)
        queries = tile(c, i, count, c_token, n, N)
    for low_k in range(0, tl.minimum(low + BLOCK_M, count), BLOCK_K):
        k = low_k + tl.arange(0, BLOCK_K)
        sums_k, rest_k = decays(times, plane, at + k)
        if N <= BLOCK_N:
            weight = tl.dot(queries, tl.trans(tile(b, k, count, b_token, n, N)), input_precision=PRECISION)
        else:
            weight = products(c, i, count, c_token, b, k, count, b_token, N, BLOCK_N, PRECISION)
        weight *= gaps(i, sums, rest, k, sums_k, rest_k) * tl.load(times + at + k)[None, :]
        values = tile(x, k, count, x_token, p, P)
        total = tl.dot(weight.to(values.dtype), values, total, input_precision=PRECISION)
    if d is not None:
        total += tl.load(d + head).to(tl.float32) * tile(x, i, count, x_token, p, P).to(tl.float32)
    out = y + ((row * tokens + start) * heads + head) * P
    put(out, i, count, heads * P, p, total, P)


PLACES = {"spans": "*i32:16", "per_row": "i32", "tokens": "i32:16", "heads": "i32:16", "plane": "i64:16"}
SHARED = PLACES | {"share": "i32", "times": "*fp32:16"}


def strides(*names: str) -> dict[str, str]:
    """Types of strides that are multiples of 16, for a variant's signature."""
    return dict.fromkeys(names, "i32:16")


USUAL_CHUNKS = Chunks(256, torch.bfloat16, count=1, documents=1, tokens=256)
USUAL = {"P": 64, "N": 128, "LENGTH": 256, "PRECISION": "tf32"}
USUAL_TILE = {**USUAL, "BLOCK_P": USUAL_CHUNKS.columns(64), "BLOCK_N": USUAL_CHUNKS.held(128)}
VARIANTS = (
    Variant(
        _times_kernel,
        {"dt": "*fp32:16", "a": "*fp32:16", "times": "*fp32:16", **PLACES, **strides("dt_row", "dt_token")},
        {"dt_head": 1, "LENGTH": 256, "HEADS": 16},
    ),
    *(
        Variant(
            _states_kernel,
            {"u": "*bf16:16", "v": "*bf16:16", "out": "*fp32:16", **SHARED}
            | strides("u_row", "u_token", "u_head", "v_row", "v_token", "v_group"),
            {**USUAL_TILE, "BLOCK_K": USUAL_CHUNKS.square, "TO_END": to_end},
            stages=3,
            name=f"_states_kernel_{'to_end' if to_end else 'from_start'}",
        )
        for to_end in (True, False)
    ),
    Variant(
        _pass_kernel,
        {"added": "*fp32:16", "initial": "*fp32:16", "times": "*fp32:16", "before": "*bf16:16", "last": "*fp32:16"}
        | {"first": "*i32:16", "per_row": "i32", "heads": "i32:16", "plane": "i64:16"},
        {"ELEMENTS": 64 * 128, "LENGTH": 256, "BLOCK": PASSED},
    ),
    Variant(
        _scan_kernel,
        {"x": "*bf16:16", "b": "*bf16:16", "c": "*bf16:16", "d": "*fp32:16", "before": "*bf16:16", "y": "*bf16:16"}
        | SHARED
        | strides("x_row", "x_token", "x_head", "b_row", "b_token", "b_group", "c_row", "c_token", "c_group"),
        {**USUAL_TILE, "BLOCK_M": 128, "BLOCK_K": USUAL_CHUNKS.square},
        warps=8,
    ),
)
