"""Emitted kernels, loaded from a file as triton needs them."""

import importlib.util
import sys
import tempfile
from functools import cache
from pathlib import Path

from hybridc.codegen.triton.groups import GROUPS, ROUTERS
from hybridc.codegen.triton_code import Use, emit_kernels

CONSTANTS = {"eps": 1e-5, "cap": 30.0, "factor": 0.5, "beta": 1.702, "limit": 7.0, "offset": 1.0}


def use(name, width=4096, dtype="bf16"):
    """A group as a model of 4096 channels with 128 in a head would launch it, with 256 experts."""
    if name in ROUTERS:
        return Use(name, 256, constants={"k": 8})
    if GROUPS[name].segmented:
        return Use(name, 128, dtype, segments=8, constants=CONSTANTS)
    return Use(name, width, dtype, constants=CONSTANTS)


def load(text, name):
    """The text as a module."""
    folder = Path(tempfile.mkdtemp(prefix="hybridc-kernels-"))
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@cache
def kernels():
    """All groups and routers."""
    return load(emit_kernels(map(use, (*GROUPS, *ROUTERS)), "All groups."), "emitted_kernels")
