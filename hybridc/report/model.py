"""The module that a report is about: from a spec file, or from an emitted package with the sizes it was made for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hybridc.codegen.package import is_package
from hybridc.compiler import analyse, read
from hybridc.diagnostics import Sink
from hybridc.ir.graph import Module


def read_module(
    source: Path, params: Mapping[str, str], mesh: Mapping[str, str], include: Sequence[Path] = ()
) -> tuple[Module, Sink]:
    """The typed module and a sink with the warnings. A spec need not be one that can be emitted.

    Raises DiagnosticError.
    """
    given: dict[str, object] = dict(params)
    axes: dict[str, object] = dict(mesh)
    if is_package(source):
        manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
        given = {**manifest.get("params", {}), **given}
        axes = {**manifest.get("mesh", {}), **axes}
        source = source / "spec.hyb"
    spec, sink = read(source, include)
    module, _ = analyse(spec, sink, params=given, mesh=axes)
    sink.check()
    if module is None:
        raise ValueError("a spec without mistakes has a module")
    return module, sink
