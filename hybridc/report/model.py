"""The module that a report is about: from a spec file, or from an emitted package with the sizes it was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hybridc.codegen.package import is_package
from hybridc.compiler import analyse, read
from hybridc.diagnostics import Sink
from hybridc.frontend.overrides import override
from hybridc.ir.graph import Module


def read_module(
    source: Path, params: Mapping[str, str], mesh: Mapping[str, str], include: Sequence[Path] = ()
) -> tuple[Module, Sink]:
    """The typed module and a sink with the warnings. A spec need not be one that can be emitted.

    Raises DiagnosticError.
    """
    if is_package(source):
        source = source / "spec.hyb"
    spec, sink = read(source, include)
    module, _ = analyse(override(spec, sink, params=params, mesh=mesh), sink)
    sink.check()
    if module is None:
        raise ValueError("a spec without mistakes has a module")
    return module, sink
