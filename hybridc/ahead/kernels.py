"""All kernels that a package launches, compiled for its target: binaries, and what a manifest says of each."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from hybridc.ahead.launches import Launch, Place
from hybridc.codegen.cubin import Binary, compile_kernel


@dataclass(frozen=True)
class Kernel:
    """A form of a kernel by a name of its own, where it is launched, and its binary; what the compiler says instead
    where it cannot be compiled."""

    name: str
    launch: Launch
    places: tuple[Place, ...]
    binary: Binary | None
    error: str = ""

    def row(self, capability: int) -> dict[str, Any]:
        """What the manifest has of a kernel that compiled."""
        if self.binary is None:
            raise ValueError(f"{self.name} has no binary: {self.error}")
        launch, made = self.launch, self.binary
        return {
            "name": self.name,
            "from": origin(launch),
            "signature": dict(launch.signature),
            "constants": {k: _plain(v) for k, v in launch.constants.items()},
            "options": {k: _plain(v) for k, v in launch.options.items()},
            "launched_in": [{"where": p.where, "run": p.run} for p in self.places],
            "registers": made.registers,
            "shared": made.shared,
            "stack": made.stack,
            "spills": made.spills,
            "instructions": made.mix,
            "fits": made.fits(capability),
        }


def origin(launch: Launch) -> str:
    """The module that has the kernel: `kernels` for one generated into the package."""
    module: str = launch.kernel.fn.__module__
    return module.rpartition(".")[2] if module.startswith(PACKAGE) else module


PACKAGE = "hybridc_emitted_"
"""How the names of packages start that are loaded from a folder."""


def _plain(value: Any) -> Any:
    """A value as JSON has it; in words where it has none."""
    value = getattr(value, "value", value)
    if isinstance(value, (bool, int, str)) or value is None:
        return value
    if isinstance(value, float):
        return json.loads(json.dumps(value)) if value - value == 0 else str(value)
    return getattr(value, "__name__", None) or str(value)


def names(launches: Sequence[Launch]) -> list[str]:
    """`ssd_forward.scan_kernel` for each, the file and the function, numbered from the second of a name on."""
    seen: dict[str, int] = {}
    out = []
    for launch in launches:
        fn = launch.kernel.fn
        stem = f"{origin(launch).rpartition('.')[2]}.{fn.__name__.strip('_')}"
        seen[stem] = seen.get(stem, 0) + 1
        out.append(stem if seen[stem] == 1 else f"{stem}.{seen[stem]}")
    return out


def compile_all(found: Sequence[tuple[Launch, tuple[Place, ...]]], capability: int) -> list[Kernel]:
    """Every launch compiled, on all cores of this machine. Triton's cache on disk keeps what it has compiled before."""
    launches = [launch for launch, _ in found]
    with _reproducible():
        made = list(_compiled(launches, capability))
    titles = names(launches)
    return [
        Kernel(name, launch, places, binary, error)
        for name, (launch, places), (binary, error) in zip(titles, found, made, strict=True)
    ]


@contextmanager
def _reproducible() -> Iterator[None]:
    """Keeps lines and paths of sources out of binaries, which would differ with the folder of the package."""
    variable = "TRITON_DISABLE_LINE_INFO"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


_work: list[tuple[Sequence[Launch], int]] = []
"""What the processes that compile inherit: kernels are functions of modules that they could not load by name."""


def _compiled(launches: Sequence[Launch], capability: int) -> Iterator[tuple[Binary | None, str]]:
    jobs = min(len(os.sched_getaffinity(0)), len(launches))
    _work.append((launches, capability))
    try:
        if jobs < 2:
            yield from map(_one, range(len(launches)))
            return
        with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
            yield from pool.map(_one, range(len(launches)))
    finally:
        _work.pop()


def _one(index: int) -> tuple[Binary | None, str]:
    """A kernel's binary, or why there is none."""
    launches, capability = _work[-1]
    try:
        return compile_kernel(launches[index], capability), ""
    except Exception as error:  # whatever a compiler raises is said of the kernel, and the others go on
        return None, f"{type(error).__name__}: {error}".strip().replace("\n", " ")[-300:]
