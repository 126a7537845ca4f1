"""`--emit cubin`: the kernels of an emitted package beside it, and in its manifest what each needs of the device."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hybridc.codegen.cubin import SHARED_LIMIT
from hybridc.codegen.package import write_package
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.ir.backends import capability

FOLDER = "cubins"
"""Where the binaries lie in a package."""


def write_with_kernels(files: dict[str, str], folder: Path, target: str) -> tuple[list[str], list[Diagnostic]]:
    """Writes a package for `target` as `write_package` does, with its kernels; -> what the folder has, and warnings."""
    warnings: list[Diagnostic] = []
    write_package(files, folder, lambda inside: warnings.extend(add_kernels(inside, target)))
    return [*files, *([f"{FOLDER}/"] if (folder / FOLDER).exists() else [])], warnings


def add_kernels(folder: Path, target: str) -> list[Diagnostic]:
    """Compiles what the package in `folder` launches on `target`, writes `cubins/NAME.cubin` for each and the list
    `kernels` of the manifest; -> a warning for each that does not fit the target.

    In a process where Triton interprets kernels, another one is started for it. Raises DiagnosticError: HYB611 for
    kernels that cannot be compiled, HYB612 where it takes numbers to find out what is launched.
    """
    from triton import knobs

    found = _apart(folder, target) if knobs.runtime.interpret else build(folder, target)
    if reason := found["unreadable"]:
        label = f"without a device, the emitted module cannot be run: {reason}"
        help = "compile without --emit cubin: kernels are then compiled where they are launched first"
        raise DiagnosticError([Diagnostic("HYB612", NO_SPAN, label, help)])
    if found["failed"]:
        help = "compile for another target, or report this with the spec"
        failed = found["failed"].items()
        raise DiagnosticError([Diagnostic("HYB611", NO_SPAN, f"`{n}` on {target}: {e}", help) for n, e in failed])
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    manifest["kernels"] = found["kernels"]
    path.write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8", newline="\n")
    return [misfit(row, target) for row in found["kernels"] if not row["fits"]]


def misfit(row: dict[str, Any], target: str) -> Diagnostic:
    """The warning for a kernel of the manifest that does not fit."""
    limit, wrong = SHARED_LIMIT[capability(target)], []
    help = "it runs, and waits for memory where it need not; widths that are multiples of 16 take fewer registers"
    if row["spills"]:
        wrong.append(f"{row['spills']:,} loads and stores of spilled registers, with {row['registers']} for a thread")
    if row["shared"] > limit:
        wrong.append(f"{row['shared']:,} bytes of shared memory where a block has {limit:,}")
        help = "it cannot be launched there: compile for another target, or make heads or states narrower"
    places = ", ".join(dict.fromkeys(place["where"] for place in row["launched_in"]))
    label = f"`{row['name']}` on {target}, in {places}: {'; '.join(wrong)}"
    return Diagnostic("HYB610", NO_SPAN, label, help, severity="warning")


def build(folder: Path, target: str) -> dict[str, Any]:
    """Writes the binaries of the package in `folder`; -> `kernels`, the manifest's rows, `failed`, what the compiler
    says of those without a binary by name, and `unreadable`, why there are none ("" else)."""
    from hybridc.ahead.dry_run import TARGETS, Unreadable, dry_run
    from hybridc.ahead.kernels import compile_all
    from hybridc.runtime.meta import on_meta

    device = TARGETS[target]
    package: Any = load(folder)
    model: Any = on_meta(package.Model)
    try:
        found = dry_run(model, device)
    except Unreadable as error:
        return {"kernels": [], "failed": {}, "unreadable": str(error)}
    made = compile_all(found, device.capability)
    out = folder / FOLDER
    if made:
        out.mkdir()
    rows: list[dict[str, Any]] = []
    for kernel in made:
        if kernel.binary is not None:
            (out / f"{kernel.name}.cubin").write_bytes(kernel.binary.cubin)
            rows.append(kernel.row(device.capability))
    return {"kernels": rows, "failed": {k.name: k.error for k in made if k.binary is None}, "unreadable": ""}


def _apart(folder: Path, target: str) -> dict[str, Any]:
    """`build` in a process where Triton compiles."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    words = [sys.executable, "-W", "ignore", "-m", "hybridc.ahead", str(folder), target]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"kernels ahead of time: {done.stderr.strip()[-1000:]}")
    made: dict[str, Any] = json.loads(done.stdout)
    return made


def load(folder: Path) -> ModuleType:
    """The package in `folder` as a module; the same contents give the same one."""
    from hybridc.ahead.kernels import PACKAGE

    digest = hashlib.sha256()
    for file in sorted(folder.glob("*.py")):
        digest.update(file.read_bytes())
    name = f"{PACKAGE}{digest.hexdigest()[:12]}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            name, folder / "__init__.py", submodule_search_locations=[str(folder)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"{folder} is no package")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
