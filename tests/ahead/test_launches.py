"""What is recorded of a launch, against what Triton's own binder makes of the same arguments."""

import itertools
import os
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

from hybridc.ahead.launches import Launch, bind, recorded
from hybridc.runtime.kernels import conv, delta_rule_scalar, moe, ssd_forward


def plain(x, many, scale, flag, SIZE: tl.constexpr, name: tl.constexpr = None):
    """A kernel with an argument of each sort."""


def annotated(x, many: tl.int64, scale: tl.float32, wide: "i64"):  # noqa: F821
    """A kernel that says of which types its numbers are."""


def by_triton(kernel, args, given, capability=90):
    """The signature and constants that Triton itself compiles a launch with."""
    backend = make_backend(GPUTarget("cuda", capability, 32))
    own = {k: v for k, v in given.items() if k in kernel.arg_names}
    values, found, _ = create_function_from_signature(kernel.signature, kernel.params, backend)(*args, **own)
    signature, constants = {}, {}
    for name, (word, attribute) in zip(kernel.arg_names, found, strict=True):
        if word == "constexpr":
            constants[name] = values[name]
        else:
            signature[name] = f"{word}:16" if attribute == "D" else word
    return signature, constants


def check(kernel, args, given):
    launch = bind(kernel, args, given)
    signature, constants = by_triton(kernel, args, given)
    assert dict(launch.signature) == signature
    assert dict(launch.constants) == constants


def meta(*shape, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


DTYPES = (
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
    torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_every_dtype_aligned_and_not(dtype):
    x = meta(4, 100, dtype=dtype)
    for part in (x, x[1:], x[:, 1:], x[:, 16:], x[:, 3:].t(), torch.nn.Parameter(x, requires_grad=False)):
        check(JITFunction(plain), (part, 3, 0.5, True, 8), {})


@pytest.mark.parametrize("number", [0, 1, -1, 15, 16, 17, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**63])
def test_whole_numbers(number):
    check(JITFunction(plain), (meta(1), number, 1.0, False, number), {})
    if number < 2**63:
        check(JITFunction(annotated), (meta(1), number, 1.0, number), {})
    check(JITFunction(plain, do_not_specialize=["many"]), (meta(1), number, 1.0, False, 1), {})
    check(JITFunction(plain, do_not_specialize_on_alignment=["many"]), (meta(1), number, 1.0, False, 1), {})


@pytest.mark.parametrize("values", list(itertools.product((None, True, 0.0, 1), repeat=2)), ids=str)
def test_what_becomes_a_constant(values):
    check(JITFunction(plain), (None, *values, False), {"SIZE": tl.float32, "name": "ieee"})


def real(function):
    """The kernel as Triton compiles it, though this process interprets."""
    return JITFunction(function.fn)


def test_kernels_of_the_runtime():
    x, w = meta(2, 4096, 714)[..., 320:704], meta(384, 4)
    given = {"TAPS": 4, "SILU": True, "TOKENS": 8, "WIDTH": 128, "num_warps": 4}
    args = (x, w, None, None, None, None, x, 4096, 384, *x.stride()[:2], *w.stride())
    check(real(conv._forward_kernel), args, given)
    args = (meta(64, 2, dtype=torch.int64), *(meta(64, dtype=torch.int32) for _ in range(2)), 128, 1, 8)
    check(real(moe._count_kernel), args, {"CHOICES": 128, "LANES": 8})
    x = meta(64, 4, 128)
    args = (x, x, x, 64, *x.stride()[:2], 128**-0.5)
    check(real(delta_rule_scalar.unit_backward), args, {"GROUPS": 4, "SHARE": 2, "K": 128, "BT": 32, "BK": 128})


def test_options_are_what_no_argument_is_called():
    launch = bind(JITFunction(plain), (meta(1), 2, 1.0, True), {"SIZE": 4, "num_warps": 8, "num_stages": 1})
    assert launch.options == {"num_warps": 8, "num_stages": 1}
    assert launch.constants == {"SIZE": 4, "name": None}


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((meta(1, dtype=torch.complex64), 1, 1.0, True, 1), "`x` is of torch.complex64"),
        (("text", 1, 1.0, True, 1), "`x` is a str"),
        ((meta(1), 1), "missing a required argument"),
    ],
)
def test_what_no_kernel_takes_is_said(args, said):
    with pytest.raises(TypeError, match=said):
        bind(JITFunction(plain), args, {})


def test_launches_that_differ_in_a_stride_or_an_option_are_two():
    keys = {
        bind(JITFunction(plain), (meta(1), many, 1.0, True, 4), {"num_warps": warps}).key
        for many in (1, 2, 3, 16, 32)
        for warps in (4, 8)
    }
    assert len(keys) == 6  # one, a multiple of 16, neither; each with both


def test_nothing_is_recorded_where_triton_interprets():
    assert triton.knobs.runtime.interpret
    with pytest.raises(RuntimeError, match="interprets"), recorded():
        pass
    kernel = real(ssd_forward._pass_kernel)
    assert isinstance(bind(kernel, (), dict.fromkeys(kernel.arg_names)), Launch)


SCRIPT = """
import torch, triton, triton.language as tl
from torch import nn
from torch.autograd import Function
from triton.runtime.jit import JITFunction
from hybridc.ahead.launches import Place, recorded

@triton.autotune(configs=[triton.Config({"SIZE": 32}, num_warps=2), triton.Config({"SIZE": 64})], key=["many"])
@triton.jit
def tuned(x, many, SIZE: tl.constexpr):
    tl.store(x, 1)

@triton.jit
def other(x, many):
    tl.store(x, 1)

class Double(Function):
    @staticmethod
    def forward(ctx, x):
        tuned[(1,)](x, x.numel())
        return x * 2
    @staticmethod
    def backward(ctx, grad):
        other[(1,)](grad, grad.numel())
        return grad * 2

class Inner(nn.Module):
    def forward(self, x):
        return Double.apply(x)

class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        other[(1,)](x, 1)
        return self.inner(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(), Layer()])
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

before = JITFunction.run, Function.apply
net, x = Net(), torch.ones(3, requires_grad=True)
try:
    with recorded(net) as seen:
        net(x).sum().backward()
        raise KeyError
except KeyError:
    pass
assert (JITFunction.run, Function.apply) == before
assert x.grad.tolist() == [4, 4, 4]
found = [(launch.kernel.fn.__name__, dict(launch.constants), dict(launch.options), places)
         for launch, places in seen.launches]
assert found == [
    ("other", {"many": 1}, {}, (Place("Layer", "forward"),)),
    ("tuned", {"SIZE": 32}, {"num_warps": 2, "num_ctas": 1, "num_stages": 3}, (Place("Layer.inner", "forward"),)),
    ("other", {}, {}, (Place("Layer.inner", "backward"),)),
], found
"""


def test_places_runs_and_first_configurations():
    """A net of two equal layers; the expected list is written out in the script."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.py"  # Triton reads its kernels' source from a file
        path.write_text(SCRIPT)
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
