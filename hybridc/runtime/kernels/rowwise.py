"""What generated row-wise kernels share: functions that Triton has not, quantization, and how they are launched.

A kernel works on tiles of ROWS x BLOCK numbers of a matrix [rows, width]. Rows up to LARGEST are one block, so that
each number is read once; wider ones are read block by block, once for every sum that has to be known first.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from hybridc.runtime.errors import UsageError
from hybridc.runtime.kernels.device import processors
from hybridc.runtime.kernels.variant import Variant

LARGEST = 16384
"""Columns of a block, at most."""

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
ALL = tl.constexpr(tl.PropagateNan.ALL)


@triton.jit
def at_least(x, limit):
    """The larger of both; NaN stays NaN, as in torch."""
    return tl.maximum(x, limit, propagate_nan=ALL)


@triton.jit
def at_most(x, limit):
    """The smaller of both; NaN stays NaN, as in torch."""
    return tl.minimum(x, limit, propagate_nan=ALL)


@triton.jit
def tanh(x):
    """tanh to fp32 rounding: Lambert's continued fraction where |x| < 1, else by exp(-2 |x|)."""
    square = x * x
    near = x * (945.0 + square * (105.0 + square)) / (945.0 + square * (420.0 + square * 15.0))
    small = tl.exp(-2.0 * tl.abs(x))
    far = 1.0 - 2.0 * small / (1.0 + small)
    return tl.where(square < 1.0, near, tl.where(x < 0.0, -far, far))


@triton.jit
def magnitude(x):
    """|x| with NaN as 0: a NaN has no say in a factor."""
    return tl.where(x == x, tl.abs(x), 0.0)


@triton.jit
def e4m3_many(amax):
    """What values are multiplied by, so that `amax` becomes 448, E4M3's largest number; 1 where amax is 0 or infinite.
    An amax below 448 · 2⁻¹²⁶ counts as that, so that no factor is a subnormal number, which a device may take for 0."""
    usual = (amax > 0.0) & (amax < float("inf"))
    return tl.div_rn(448.0, tl.where(usual, at_least(amax, 5.2665615292e-36), 448.0))


@triton.jit
def e4m3_factor(amax):
    """What values are divided by for E4M3."""
    return tl.div_rn(1.0, e4m3_many(amax))


@triton.jit
def to_e4m3(x, factor):
    """x / factor in E4M3: the nearest, ties to even; what is too large becomes 448."""
    return _to_e4m3(x * tl.div_rn(tl.zeros_like(factor) + 1.0, factor))


@triton.jit
def _to_e4m3(x):
    """x in E4M3."""
    x = at_most(at_least(x, -448.0), 448.0)
    if INTERPRETED:
        # its cast loses the carry where rounding reaches the next power of two, so it is given numbers that it has
        bits = x.to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(tl.float32, bitcast=True)
        tiny = (x + 24576.0) - 24576.0
        # a NaN that is one in the format's bits too, with a zero behind them
        nan = tl.full(x.shape, 0x7FF00000, tl.int32).to(tl.float32, bitcast=True)
        x = tl.where(x == x, tl.where(tl.abs(x) < 0.015625, tiny, normal), nan)
    return x.to(tl.float8e4nv)


@triton.jit
def to_e4m3_blocks(x, inside, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """A tile in E4M3 with a factor for each 128 columns: the values [ROWS, BLOCK], the factors [ROWS, BLOCK / 128]."""
    grouped = tl.reshape(tl.where(inside, x, 0.0), [ROWS, BLOCK // 128, 128])
    many = e4m3_many(tl.max(magnitude(grouped), 2, keep_dims=True))
    factor = tl.div_rn(1.0, many)
    return tl.reshape(_to_e4m3(grouped * many), [ROWS, BLOCK]), tl.reshape(factor, [ROWS, BLOCK // 128])


@triton.jit
def int8_factor(amax):
    """What values are divided by, so that `amax` becomes 127; an amax below 1e-5 counts as that (Ma et al., 2024)."""
    return at_least(amax, 1e-5) / 127.0


@triton.jit
def to_int8(x, factor):
    """x / factor in 8 bits: the nearest, ties to even."""
    shift = 12582912.0  # 1.5 · 2^23: what is added to it loses its fraction
    rounded = (tl.div_rn(x, tl.zeros_like(x) + factor) + shift) - shift
    return at_most(at_least(rounded, -128.0), 127.0).to(tl.int8)


@triton.jit
def load_pairs(pointers, start, width, live, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Columns 2 c and 2 c + 1 for c from `start` on, as two tiles [ROWS, BLOCK] in fp32; `pointers` [ROWS, 1] are of
    the rows."""
    col = 2 * start + tl.arange(0, 2 * BLOCK)[None, :]
    tile = tl.load(pointers + col, mask=live & (col < 2 * width), other=0.0).to(tl.float32)
    return tl.split(tl.reshape(tile, [ROWS, BLOCK, 2]))


@triton.jit
def store_pairs(pointers, first, second, start, width, live, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Two tiles [ROWS, BLOCK] into the columns that `load_pairs` reads."""
    col = 2 * start + tl.arange(0, 2 * BLOCK)[None, :]
    tl.store(pointers + col, tl.reshape(tl.join(first, second), [ROWS, 2 * BLOCK]), mask=live & (col < 2 * width))


@triton.jit
def add_columns(total, value, pointers, there, WHOLE: tl.constexpr):
    """The sum over rows so far, and one tile's: in registers where a tile is as wide as a row, else in memory that
    belongs to the program."""
    if WHOLE:
        return total + value
    tl.debug_barrier()  # other threads may have written what this one reads
    tl.store(pointers, tl.load(pointers, mask=there, other=0.0) + value, mask=there)
    return total


@triton.jit
def within_groups(ranked, col, WIDTH: tl.constexpr, groups: tl.constexpr, top_groups: tl.constexpr):
    """The scores of the `top_groups` groups of columns that have the largest sums of their two best; others lose."""
    allowed = ranked != ranked
    sums = tl.full(ranked.shape, float("-inf"), tl.float32)
    for g in range(groups):
        mine = (col >= g * (WIDTH // groups)) & (col < (g + 1) * (WIDTH // groups))
        first = tl.where(mine, ranked, float("-inf"))
        at = tl.argmax(first, 1, keep_dims=True)
        second = tl.where(col == at, float("-inf"), first)
        both = tl.max(first, 1, keep_dims=True) + tl.max(second, 1, keep_dims=True)
        sums = tl.where(col == g, both, sums)
    for _ in range(top_groups):
        at = tl.argmax(sums, 1, keep_dims=True)
        allowed = allowed | (col // (WIDTH // groups) == at)
        sums = tl.where(col == at, float("-inf"), sums)
    return tl.where(allowed, ranked, float("-inf"))


@dataclass(frozen=True)
class Tile:
    """How a kernel is launched: programs, rows and columns of a tile, warps."""

    grid: tuple[int, ...]
    rows: int
    block: int
    warps: int

    @property
    def options(self) -> dict[str, int]:
        """The keyword arguments of a launch."""
        return {"ROWS": self.rows, "BLOCK": self.block, "num_warps": self.warps}


def tile(
    rows: int,
    width: int,
    *,
    limit: int = 16384,
    segments: int = 0,
    columns: bool = False,
    programs: int = 0,
    least: int = 1,
    whole: int = 0,
) -> Tile:
    """The launch for a matrix [rows, width], each row in so many `segments`.

    `limit` is the widest block that a program's registers hold; with `columns`, blocks of columns are programs of their
    own. `programs` bounds how many programs share the rows among them. `least` is the narrowest block. With `whole`, a
    row must be one block of at most so many columns, of which a thread has few, since several tiles stay in registers
    from the first choice to the last; raises ValueError where it is wider.
    """
    block = triton.next_power_of_2(width)
    if whole and width > whole:
        raise ValueError(f"rows of {width} are wider than {whole}")
    if not whole:
        block = max(least, min(block, limit, LARGEST, 1024 if columns else LARGEST))
    high = max(1, min(1024 // block, triton.next_power_of_2(max(rows, 1))))
    down = max(1, triton.cdiv(rows, high))
    if programs:
        down = min(down, programs)
    across = (triton.cdiv(width, block),) if columns else (segments,) if segments else ()
    return Tile((down, *across), high, block, min(16, max(1, high * block // (128 if whole else 512))))


@dataclass(frozen=True)
class Rows:
    """The rows that a group works on: the dims in front of the last one, the dtype of results, the device."""

    lead: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, x: Tensor, like: Sequence[Tensor] = ()) -> Rows:
        """Those of x [..., columns]; results are in the dtype that those of `like` promote to, else in x's."""
        if x.device.type == "cpu" and not triton.knobs.runtime.interpret:
            raise UsageError(
                "this model was compiled for a GPU, and its input is on the CPU",
                "move both to a GPU, compile for the target cpu, or let Triton interpret the kernels "
                "(TRITON_INTERPRET=1, slow)",
            )
        dtype = like[0].dtype if like else x.dtype
        for other in like[1:]:
            dtype = torch.promote_types(dtype, other.dtype)
        return cls(tuple(x.shape[:-1]), dtype, x.device)

    @property
    def count(self) -> int:
        return math.prod(self.lead)

    @property
    def shares(self) -> int:
        """How many programs share the rows among them where each keeps sums of its own."""
        return 4 * processors(self.device) or 3

    def matrix(self, x: Tensor | None, columns: int) -> Tensor:
        """x [..., columns] as [rows, columns] with columns side by side; a view where strides allow one, zeros for
        None. Raises ValueError for another shape."""
        if x is None:
            return torch.zeros(1, columns, dtype=self.dtype, device=self.device).expand(self.count, columns)
        if tuple(x.shape) != (*self.lead, columns):
            raise ValueError(f"{list(x.shape)} where {[*self.lead, columns]} is needed")
        made = x.reshape(self.count, columns)
        return made if made.stride(1) == 1 else made.contiguous()

    def numbers(self, x: Tensor, columns: int) -> Tensor:
        """x [..., columns], one number after the other in memory. Raises ValueError for another shape."""
        return self.matrix(x, columns).contiguous()

    def empty(self, columns: int, dtype: torch.dtype | None = None) -> Tensor:
        """A tensor [..., columns] to be written."""
        return torch.empty((*self.lead, columns), dtype=dtype or self.dtype, device=self.device)

    def zeros(self, *shape: int) -> Tensor:
        """A tensor in fp32 to be added to."""
        return torch.zeros(shape, dtype=torch.float32, device=self.device)

    def handed_through(self, x: Tensor, segments: int, used: int) -> Tensor:
        """A tensor to be written in the first `used` columns of each segment; the others are those of the matrix x."""
        width = x.shape[1] // segments
        out = torch.empty((self.count, segments, width), dtype=self.dtype, device=self.device)
        if used < width:
            out[..., used:] = x.unflatten(1, (segments, width))[..., used:]
        return out.view(*self.lead, x.shape[1])

    def carrier(self, columns: int) -> Tensor:
        """Zeros [..., columns] that take no memory: the result that stands for a quantized one in autograd. What reads
        that one hands the gradient which the value has to this."""
        return torch.zeros(1, dtype=self.dtype, device=self.device).expand(*self.lead, columns)


def vector(x: Tensor, size: int) -> Tensor:
    """x [size], one number after the other in memory. Raises ValueError for another shape."""
    if tuple(x.shape) != (size,):
        raise ValueError(f"{list(x.shape)} where [{size}] is needed")
    return x.contiguous()


def form(kernel: Any, width: int, *, dtype: str = "bf16", **options: Any) -> Variant:
    """A kernel as it is compiled for rows of `width` numbers of `dtype`.

    `options` are `types` of the pointers that have another dtype, `constants`, `targets`, and those of `tile`.
    """
    types, constants = options.pop("types", {}), options.pop("constants", {})
    targets = options.pop("targets", (80, 90, 100))
    fit = tile(1 << 20, width, **options)
    signature: dict[str, str] = {}
    for name in kernel.arg_names:
        stem, _, kind = name.rpartition("_")
        if kind == "ptr":
            signature[name] = f"*{types.get(stem, dtype)}:16"
        elif name == "rows":
            signature[name] = "i32"
        elif kind in ("stride", "step"):
            signature[name] = "i32:16"
    made = {"WIDTH": width, "ROWS": fit.rows, "BLOCK": fit.block, **constants}
    name = f"{kernel.fn.__name__}[{width} {dtype}]"
    return Variant(kernel, signature, made, warps=fit.warps, targets=targets, name=name)
