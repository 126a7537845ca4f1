"""Kernels compiled ahead of time, without a device: what they need of one is read from the binary."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SHARED_LIMIT = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 120: 101_376}
"""Bytes of shared memory that one block may have, by compute capability (CUDA C++ Programming Guide, table of technical
specifications: 163, 99 and 227 KB)."""

REGISTER_LIMIT = 255
"""Registers that one thread may have, on all of them."""

MIX = {
    "tensor": r"(?:H|Q|I|D)MMA|[HQI]GMMA|UTC[HQIO]+MMA",
    "async_copy": r"LDGSTS|UTMALDG|UBLKCP",
    "global": r"LDG|STG|RED|ATOMG",
    "shared": r"LDS|STS|LDSM|STSM",
    "local": r"LDL|STL",
    "special": r"MUFU",
    "float": r"F(?:FMA|ADD|MUL)2?",
}
"""Groups of instructions by the start of their names in SASS. Those of `local` are spills."""


class Form(Protocol):
    """What is compiled: a `Variant` of the runtime's kernels, or a recorded launch."""

    @property
    def kernel(self) -> Any: ...
    @property
    def signature(self) -> Any: ...
    @property
    def constants(self) -> Any: ...
    @property
    def options(self) -> Any: ...


@dataclass(frozen=True)
class Binary:
    """A compiled kernel: registers of a thread, bytes of shared memory of a block, bytes of stack, spilled loads and
    stores, and how many instructions it has of each group in MIX and in all."""

    cubin: bytes
    registers: int
    shared: int
    stack: int
    spills: int
    mix: dict[str, int]

    def fits(self, capability: int) -> bool:
        """Whether a block can be launched on a device of this capability, and nothing is spilled."""
        return self.spills == 0 and self.shared <= SHARED_LIMIT[capability]


def compile_kernel(form: Form, capability: int) -> Binary:
    """A kernel's binary for `sm_<capability>`, compiled by Triton on this machine; no device is needed.

    Raises whatever Triton raises for a kernel that cannot be compiled for the target.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = form.kernel.arg_names
    signature = {
        name: form.signature[name].partition(":")[0] if name in form.signature else "constexpr" for name in names
    }
    constants = {(names.index(name),): value for name, value in form.constants.items()}
    aligned = [["tt.divisibility", 16]]
    attrs = {(n,): aligned for n, name in enumerate(names) if form.signature.get(name, "").endswith(":16")}
    source = ASTSource(form.kernel, signature, constants, attrs)
    # Triton's versions differ in whether a product and a sum become one instruction by default
    options = {"enable_fp_fusion": True, **form.options}
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    return inspect(made.asm["cubin"], made.metadata.shared)


def inspect(cubin: bytes, shared: int) -> Binary:
    """What a binary's own tables and instructions say. `shared` is the shared memory that a launch asks for."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _cuobjdump("-res-usage", file.name)
        listing = _cuobjdump("-sass", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing about registers: {usage[:200]}")
    names = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9]*)", listing)
    counts = Counter(names)
    mix = {group: sum(n for name, n in counts.items() if re.fullmatch(p, name)) for group, p in MIX.items()}
    return Binary(cubin, int(found[1]), shared, int(found[2]), mix["local"], {**mix, "all": len(names)})


def _cuobjdump(option: str, file: str) -> str:
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    done = subprocess.run([str(tool), option, file], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr
