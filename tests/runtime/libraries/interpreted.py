"""Lets libraries' Triton kernels run on CPU tensors, by Triton's interpreter; import before the libraries.

What is replaced is at the edges alone: the driver that Triton asks for a device, what torch says of GPUs, and modules
that are compiled from CUDA (`compiled_parts`). Written for triton 3.9.
"""

import ast
import contextlib
import math
import types

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import interpreter

from tests.runtime.libraries import compiled_parts

SHARED = 227 * 1024
"""Bytes of shared memory that kernels are told of: those of sm90."""


class Driver:
    """Stands where Triton expects a GPU's driver."""

    utils = types.SimpleNamespace(
        get_device_properties=lambda device: {
            "max_shared_mem": SHARED,
            "multiprocessor_count": 4,
            "warpSize": 32,
            "max_num_regs": 65536,
        }
    )

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        """There is one."""

    def get_current_stream(self, device=None):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_device_interface(self):
        return torch.cpu

    def get_benchmarker(self):
        return lambda function, quantiles=None, **options: [0.0] * len(quantiles or (0.5,))

    def get_empty_cache_for_benchmark(self):
        return torch.empty(1)

    def clear_cache(self, cache):
        """There is none."""


def visit_loop(self, node):
    """Makes variables of `range` tensors, as they are on GPUs: fla's kernels call their methods."""
    made = self.generic_visit(node)
    loop = made.iter
    if isinstance(loop, ast.Call) and isinstance(loop.func, ast.Name) and loop.func.id == "range":
        name = made.target.id
        made.body.insert(0, self.visit_Assign(ast.Assign([ast.Name(name, ast.Store())], ast.Name(name, ast.Load()))))
    return made


def with_bools(method):
    """A load or a store whose mask is of bools, which `&` of a mask and a scalar makes integers in the interpreter."""

    def run(self, pointers, *args):
        at = 1 if method.__name__ == "create_masked_store" else 0
        args[at].data = args[at].data.astype(bool)
        return method(self, pointers, *args)

    return run


def tuned(configs, key, **options):
    """triton.autotune with one of the configurations, that of the smallest tiles: masked places take time here."""
    small = min(configs, key=lambda c: math.prod(n for n in c.kwargs.values() if isinstance(n, int)))
    return autotune([small], key, **options)


autotune, triton.autotune = triton.autotune, tuned
assert triton.knobs.runtime.interpret, "set TRITON_INTERPRET=1"
triton.runtime.driver.set_active(Driver())
interpreter.ASTTransformer.visit_For = visit_loop
for _name in ("create_masked_load", "create_masked_store"):
    setattr(interpreter.InterpreterBuilder, _name, with_bools(getattr(interpreter.InterpreterBuilder, _name)))
torch.cuda.device = lambda *args, **kwargs: contextlib.nullcontext()
torch.cuda.get_device_properties = lambda *args, **kwargs: types.SimpleNamespace(
    name="interpreter",
    major=9,
    minor=0,
    multi_processor_count=4,
    shared_memory_per_block_optin=SHARED,
    total_memory=80 << 30,
)
compiled_parts.install()
