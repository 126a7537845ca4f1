"""What the recipes are defined to compute, in float64 and plain Python: written from the formats' definitions."""

import math

import torch

GRIDS = {"e4m3": (3, -6, 448.0), "e5m2": (2, -14, 57344.0)}
"""Bits behind the leading one, the least exponent of a normal number, and the largest number (OCP OFP8, 2023)."""


def on_grid(x, element):
    """The nearest number of an element format, ties to even, saturating."""
    bits, least, largest = GRIDS[element]
    if math.isnan(x):
        return x
    if abs(x) >= largest:
        return math.copysign(largest, x)
    exponent = max(math.frexp(x)[1] - 1, least) if x else least
    step = 2.0 ** (exponent - bits)
    return round(x / step) * step  # Python rounds ties to even


def multiplier_of(amax, element, power):
    """What a block with this largest number is multiplied with, a number of fp32."""
    largest = GRIDS[element][2]
    if amax == 0 or math.isinf(amax) or math.isnan(amax):
        return 1.0
    if power:
        return 2.0 ** -math.ceil(math.log2(amax / largest))
    quotient = torch.tensor(largest, dtype=torch.float32) / torch.tensor(amax, dtype=torch.float32)
    return min(quotient.item(), 2.0**126)


def blocks_of(x, rows, columns):
    """The slices of a matrix's blocks."""
    for r in range(0, x.shape[0], rows or x.shape[0]):
        for c in range(0, x.shape[1], columns or x.shape[1]):
            yield slice(r, r + (rows or x.shape[0])), slice(c, c + (columns or x.shape[1]))


def rounded(x, element, rows, columns, power=False):
    """A matrix, quantized in blocks and back, in float64. `rows`, `columns` of 0: all of them."""
    out = x.double().clone()
    for r, c in blocks_of(x, rows, columns):
        block = x[r, c]
        multiplier = torch.tensor(multiplier_of(block.abs().max().item(), element, power), dtype=torch.float32)
        scaled = (block.float() * multiplier).tolist()  # a product of fp32 numbers
        values = torch.tensor([[on_grid(v, element) for v in row] for row in scaled], dtype=torch.float64)
        out[r, c] = values * (1 / multiplier).double()
    return out


RECIPES = {
    # blocks of activations and gradients, of weights, powers of two, and the element format of gradients
    "tensor": ((0, 0), (0, 0), False, "e5m2"),
    "row": ((1, 0), (1, 0), False, "e4m3"),
    "block128": ((1, 128), (128, 128), False, "e4m3"),
    "mx": ((1, 32), (1, 32), True, "e4m3"),
}


def products(x, weight, dy, name, *, fwd="e4m3", bwd=None, power=None):
    """y, dx and dW of a linear map in a recipe: each product's operands quantized along what it sums over."""
    activation, weights, usual, gradients = RECIPES[name]
    power, bwd = usual if power is None else power, bwd or gradients
    q = lambda m, element, blocks: rounded(m, element, *blocks, power)  # noqa: E731
    y = q(x, fwd, activation) @ q(weight, fwd, weights).t()
    dx = q(dy, bwd, activation) @ q(weight.t(), fwd, weights).t()
    dw = q(dy.t(), bwd, activation) @ q(x.t(), fwd, activation).t()
    return y, dx, dw
