"""Linear maps in BitNet's formats for NVIDIA GPUs: what `ops.bit_linear` has, with the products of `ternary_gemm`.

Weights are made ternary and packed at 2 bits once for each time that they change, inputs are brought to 8 bits by the
kernel that makes them or once for all that read them. Of the input, int8 is kept for the backward. Gradients pass the
rounding unchanged: dx = dy W with the ternary W, dW = dyᵀ x with x in 8 bits, a product in dy's dtype.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hybridc.runtime.kernels.stored import Stored
from hybridc.runtime.kernels.ternary_gemm import pack, quantize_ternary, quantize_tokens, ternary_mm, ternary_mm_dx
from hybridc.runtime.ops import bit_linear as reference
from hybridc.runtime.ops.autocast import result_dtype
from hybridc.runtime.ops.ternary_rows import unpack_rows
from hybridc.runtime.parallel.across import ALONE, Across
from hybridc.runtime.versions import Held


class Levels(NamedTuple):
    """Tokens in 8 bits: int8 [..., in], fp32 scale [...] and int32 sum [...]."""

    data: Tensor
    scale: Tensor
    total: Tensor


class BitInput:
    """A tensor that several products take: brought to 8 bits once. It has the tensor's shape, dtype and device."""

    def __init__(self, x: Tensor) -> None:
        self.carrier = x
        self.shape, self.dtype, self.device = x.shape, x.dtype, x.device

    @cached_property
    def levels(self) -> Levels:
        """The tensor in 8 bits."""
        return Levels(*quantize_tokens(self.carrier.detach()))


def levels_of(x: Tensor | BitInput | Stored, across: Across = ALONE) -> Levels:
    """What a product reads of its input, of which ranks may have channels."""
    reference.whole_input(x, across)
    if isinstance(x, BitInput):
        return x.levels
    if isinstance(x, Stored):
        return Levels(x.data, x.scale[..., 0], x.data.sum(-1, dtype=torch.int32))
    if not across.columns:
        return Levels(*quantize_tokens(x.detach()))
    return Levels(*quantize_tokens(x.detach(), across.most(x.detach().abs().amax(-1).float())))


def _packed(weight: Tensor, parts: tuple[int, ...] = (), across: Across = ALONE) -> tuple[Tensor, Tensor]:
    """A weight [out, in] as `ternary_gemm` reads it: uint8 [out, 16 ⌈in / 64⌉] and fp32 [out]."""
    values, scale = quantize_ternary(weight, parts, across)
    return pack(values), scale


def _product(
    x: Tensor | BitInput | Stored,
    levels: Levels,
    weight: Tensor | None,
    packed: tuple[Tensor, Tensor],
    bias: Tensor | None,
) -> Tensor:
    """x Wᵀ + b in x's dtype (autocast's, where that is on); `weight` takes the gradient of W, if it is given."""
    carrier = x if isinstance(x, Tensor) else x.carrier
    dtype = result_dtype(carrier)
    with torch.autocast(carrier.device.type, enabled=False):
        return _Product.apply(carrier, weight, bias, levels, packed, dtype)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, carrier, weight, bias, levels, packed, dtype):
        ctx.packed, ctx.dtypes = packed, [None if t is None else t.dtype for t in (carrier, weight, bias)]
        ctx.width = carrier.shape[-1]
        ctx.save_for_backward(*((levels.data, levels.scale) if ctx.needs_input_grad[1] else ()))
        return ternary_mm(*levels, *packed, bias, dtype=dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        dx = dw = db = None
        flat = dy.reshape(-1, dy.shape[-1])
        if ctx.needs_input_grad[0]:
            dx = ternary_mm_dx(dy, *ctx.packed, ctx.width).to(ctx.dtypes[0])
        if ctx.needs_input_grad[1]:
            data, scale = ctx.saved_tensors
            x = (data * scale[..., None]).to(dy.dtype)
            dw = (flat.t() @ x.view(-1, ctx.width)).to(ctx.dtypes[1])
        if ctx.needs_input_grad[2]:
            db = flat.float().sum(0).to(ctx.dtypes[2])
        return dx, dw, db, None, None, None


class BitProduct(reference.BitProduct):
    """x Wᵀ + b in BitNet's formats, with weights that are not its own, such as experts'."""

    def __init__(self) -> None:
        super().__init__()
        self.packed: Held[tuple[Tensor, Tensor]] = Held()

    def forward(
        self, x: Tensor | BitInput | Stored, weight: Tensor, bias: Tensor | None = None, *, index: int = 0
    ) -> Tensor:  # fmt: skip
        """x [..., in], weight [out, in] -> [..., out]. `index` tells the weights apart that go through one product."""
        across = self.across
        packed = self.packed((weight,), lambda: _packed(weight, (), across), index=index, steady=across.cut)
        return _product(x, levels_of(x, self.across), weight, packed, bias)


class BitLinear(reference.BitLinear):
    """`ops.BitLinear` by kernels."""

    def __init__(self, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> None:
        super().__init__(ins, out, bias=bias, parts=parts)
        self.packed: Held[tuple[Tensor, Tensor]] = Held()

    def forward(self, x: Tensor | BitInput | Stored) -> Tensor:
        """x [..., in] -> [..., out]."""
        levels = levels_of(x, self.across)
        across = self.across
        packed = self.packed((self.weight,), lambda: _packed(self.weight, self.parts, across), steady=across.cut)
        return _product(x, levels, self.weight, packed, self.bias)


class PackedBitLinear(reference.PackedWeight):
    """`ops.PackedBitLinear` by kernels, which read a second layout of the bytes, made when the first is loaded."""

    def __init__(self, ins: int, out: int, *, bias: bool = False, parts: tuple[int, ...] = ()) -> None:
        super().__init__(ins, out, bias=bias, parts=parts)
        self.packed: Held[Tensor] = Held()

    def forward(self, x: Tensor | BitInput | Stored) -> Tensor:
        """x [..., in] -> [..., out]."""
        levels = levels_of(x, self.across)
        codes = self.packed((self.weight,), lambda: pack(unpack_rows(self.weight, self.parts)))
        # scales apart from the bytes: they may be written alone
        return _product(x, levels, None, (codes, self.row_scales()), self.bias)
