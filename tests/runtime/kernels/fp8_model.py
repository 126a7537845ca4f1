"""FP8 by its definition, in numpy: every number of a format from its bits, and rounding as a search among them."""

from functools import cache

import numpy as np
import torch

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
MANTISSA, BIAS, LARGEST = {E4M3: 3, E5M2: 2}, {E4M3: 7, E5M2: 15}, {E4M3: 448.0, E5M2: 57344.0}


@cache
def numbers(format):
    """The format's finite numbers that are not negative, in order, which is that of their bits (Micikevicius et al.,
    2022, table 1)."""
    bits, found = MANTISSA[format], []
    for code in range(128):
        exponent, fraction = code >> bits, code % 2**bits / 2**bits
        found.append((1 + fraction if exponent else fraction) * 2.0 ** (max(exponent, 1) - BIAS[format]))
    return np.array(found[: found.index(LARGEST[format]) + 1])


def nearest(x, format):
    """The format's number nearest to each of x, fp64, with an even mantissa in a tie and never beyond the largest."""
    table = numbers(format)
    size = np.minimum(np.abs(x), LARGEST[format])
    above = np.searchsorted(table, size).clip(max=len(table) - 1)
    below = np.maximum(above - 1, 0)
    up, down = table[above] - size, size - table[below]
    chosen = np.where((up < down) | ((up == down) & (above % 2 == 0)) | (size == table[above]), above, below)
    return np.where(np.isnan(x), np.nan, np.copysign(table[chosen], x))


def quantized(group, format, pow2=False):
    """The numbers of one group with one scale: numpy fp32 of any shape -> data fp64 and scale."""
    group = np.asarray(group, dtype=np.float32)
    amax = np.float32(np.nanmax(np.abs(group), initial=0))
    largest = np.float32(LARGEST[format])
    if amax == 0 or np.isinf(amax):
        many, scale = np.float32(1), np.float32(1)
    elif pow2:
        exponent = -126
        while 2.0**exponent * float(largest) < float(amax):
            exponent += 1
        many, scale = np.float32(2.0**-exponent), np.float32(2.0**exponent)
    else:
        many = np.float32(largest / amax) if float(amax) > float(largest) * 2.0**-126 else np.float32(2.0**126)
        scale = np.float32(1) / many
    with np.errstate(over="ignore"):
        return nearest((group * many).astype(np.float64), format), scale


def equal(data, expected):
    """Whether FP8 `data` has the `expected` numbers, and NaN where they do; a zero's sign does not count."""
    return np.array_equal(data.float().numpy(), expected, equal_nan=True)
