"""The functions that formulae may use: their derivatives for sympy, and how Triton writes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
from sympy import Expr, Symbol

REDUCTIONS = ("sum", "mean", "max")
"""Over the columns of a row."""


def symbol(name: str) -> Symbol:
    """The symbol of a value; one name is one symbol everywhere."""
    return Symbol(name, real=True)


WIDTH = symbol("WIDTH")
"""The number of columns, a constant of the kernel."""


def _function(name: str, derivative: Callable[..., Any]) -> Any:
    """A function of sympy that stays as it is written; `derivative` is by its first argument, others are constants."""

    def fdiff(self: Any, argindex: int = 1) -> Any:
        return derivative(*self.args) if argindex == 1 else sympy.Integer(0)

    return type(name, (sympy.Function,), {"fdiff": fdiff})


def _none(*args: Expr) -> Expr:
    return sympy.Integer(0)


positive: Any = _function("positive", _none)
below = _function("below", _none)
above = _function("above", _none)
sign = _function("sign", _none)
equal = _function("equal", _none)
near = _function("near", _none)
sqrt: Any = _function("sqrt", lambda x: 1 / (2 * sqrt(x)))
rsqrt: Any = _function("rsqrt", lambda x: -(rsqrt(x) ** 3) / 2)
sigmoid: Any = _function("sigmoid", lambda x: sigmoid(x) * (1 - sigmoid(x)))
relu: Any = _function("relu", lambda x: positive(x))
absolute = _function("absolute", lambda x: sign(x))
at_most = _function("at_most", lambda x, limit: below(x, limit))
at_least = _function("at_least", lambda x, limit: above(x, limit))
fixed = _function("fixed", _none)
cast = _function("cast", lambda x: sympy.Integer(1))
e4m3_factor = _function("e4m3_factor", _none)
magnitude = _function("magnitude", _none)
int8_factor = _function("int8_factor", _none)
to_e4m3 = _function("to_e4m3", _none)
to_int8 = _function("to_int8", _none)


def silu(x: Expr) -> Expr:
    """x sigmoid(x)."""
    return x * sigmoid(x)


def relu2(x: Expr) -> Expr:
    """The square of relu (So et al., 2021)."""
    return relu(x) ** 2


def gelu(x: Expr) -> Expr:
    """x Φ(x), with the error function (Hendrycks and Gimpel, 2016)."""
    return x * (1 + sympy.erf(x / sympy.sqrt(2))) / 2


def gelu_tanh(x: Expr) -> Expr:
    """The tanh approximation of gelu (Hendrycks and Gimpel, 2016)."""
    return x * (1 + sympy.tanh(sympy.sqrt(2 / sympy.pi) * (x + sympy.Float(0.044715) * x**3))) / 2


FUNCTIONS: dict[str, Callable[..., Expr]] = {
    "abs": absolute,
    "at_least": at_least,
    "at_most": at_most,
    "cast": cast,
    "erf": sympy.erf,
    "exp": sympy.exp,
    "fixed": fixed,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "log": sympy.log,
    "relu": relu,
    "relu2": relu2,
    "rsqrt": rsqrt,
    "sigmoid": sigmoid,
    "silu": silu,
    "sqrt": sqrt,
    "tanh": sympy.tanh,
}
"""By the names that formulae use. `at_most(x, c)` and `at_least(x, c)` clamp; the gradient passes on the limit itself,
as it does through torch's clamp. `fixed(x)` is x, without a gradient."""

TRITON = {
    "above": "tl.where({} >= {}, 1.0, 0.0)",
    "absolute": "tl.abs({})",
    "at_least": "at_least({}, {})",
    "at_most": "at_most({}, {})",
    "below": "tl.where({} <= {}, 1.0, 0.0)",
    "e4m3_factor": "e4m3_factor({})",
    "equal": "tl.where({} == {}, 1.0, 0.0)",
    "erf": "tl.erf({})",
    "exp": "tl.exp({})",
    "int8_factor": "int8_factor({})",
    "log": "tl.log({})",
    "magnitude": "magnitude({})",
    "near": "tl.where(tl.abs({0} - {1}) <= 1e-6 * tl.abs({1}), 1.0, 0.0)",
    "positive": "tl.where({} > 0.0, 1.0, 0.0)",
    "relu": "at_least({}, 0.0)",
    "rsqrt": "tl.rsqrt({})",
    "sigmoid": "tl.sigmoid({})",
    "sign": "tl.where({0} > 0.0, 1.0, tl.where({0} < 0.0, -1.0, 0.0))",
    "sqrt": "tl.sqrt({})",
    "tanh": "tanh({})",
    "to_e4m3": "to_e4m3({}, {})",
    "to_int8": "to_int8({}, {})",
}
"""How a function is written; those without `tl.` are in `hybridc.runtime.kernels.rowwise`."""
