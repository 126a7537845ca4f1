"""The whole way from a spec to a module that runs: what `hybridc.compile` and the command line call."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, Sink, did_you_mean
from hybridc.frontend import ast
from hybridc.frontend.imports import load, load_text
from hybridc.frontend.lower import lower
from hybridc.frontend.overrides import override
from hybridc.frontend.regions import lower_rules
from hybridc.frontend.scope import Report
from hybridc.frontend.selectors import PLACES
from hybridc.ir.backends import TARGETS
from hybridc.ir.emit import Emit
from hybridc.ir.formats import parse
from hybridc.ir.graph import Module
from hybridc.passes.choices import known_libraries, report_choices, takes_quantized
from hybridc.passes.collectives import collectives
from hybridc.passes.fuse import fuse
from hybridc.passes.layout import layout
from hybridc.passes.pipeline import Pass, Timing, run
from hybridc.passes.pipeline_split import pipeline_split
from hybridc.passes.precision import assign

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Compiled:
    """A compiled spec: the IR, the emitted files by name, what was worth a warning, how long each pass took."""

    ir: Module
    spec: ast.Spec
    source: dict[str, str]
    target: str
    warnings: tuple[Diagnostic, ...]
    sources: dict[str, str]
    timings: tuple[Timing, ...]
    libraries: tuple[str, ...] = ()

    def load(self, *, init: bool = True, seed: int = 0) -> nn.Module:
        """The emitted `Model`, made in this process; its weights initialised by `seed` unless `init` is false, or it is
        one rank's of a mesh, which it has to be put on first."""
        from hybridc.codegen.loader import load_source

        net: Any = load_source(self.ir.name, self.source["model.py"], self.source.get("kernels.py", "")).Model()
        net.ir, net.compiled_for = self.ir, (self.target, self.libraries)
        if init and not net.MESH:
            net.init_weights(seed)
        return net  # type: ignore[no-any-return]

    def shard(self, net: nn.Module, mesh: DeviceMesh) -> nn.Module:
        """Puts a model that `load` has made on its mesh, as `shard` of the package's parallel.py does. Its weights are
        filled afterwards, by `init_weights` or `load_whole_state_dict`. Raises UsageError for another mesh than that it
        was compiled for."""
        from hybridc.codegen.loader import load_source

        if "parallel.py" not in self.source:
            return net
        made: nn.Module = load_source(f"{self.ir.name}_parallel", self.source["parallel.py"]).shard(net, mesh)
        return made

    def skeleton(self) -> nn.Module:
        """The emitted `Model` on the meta device: what weights are loaded into, without memory of its own."""
        from hybridc.runtime.meta import on_meta

        return on_meta(lambda: self.load(init=False))

    def save(self, folder: str | Path) -> Path:
        """Writes the package into `folder` (atomically) and returns its path. Raises DiagnosticError."""
        from hybridc.codegen.package import write_package

        write_package(self.source, Path(folder))
        return Path(folder)

    def report(self, *, batch: int = 1, seq: int = 2048) -> str:
        """The layer pattern as a picture and the cost tables, as text for a terminal."""
        from hybridc.report.terminal import render

        return render(self.ir, batch=batch, seq=seq)


def read(source: Any, include: Sequence[str | Path] = ()) -> tuple[ast.Spec, Sink]:
    """The AST of a spec given as a path, a text, an AST or a built model.

    A string is a text when it has a brace, an equals sign or a line break.
    """
    if isinstance(source, ast.Spec):
        return source, Sink()
    if isinstance(source, str) and any(mark in source for mark in "{=\n"):
        return load_text(source, include=include)
    if isinstance(source, (str, Path)):
        return load(source, include=include)
    made = getattr(source, "ast", None)
    if isinstance(made, ast.Spec):
        return made, Sink()
    raise TypeError(f"expected a path, a spec's text, an AST or a Model, got {type(source).__name__}")


def analyse(
    spec: ast.Spec,
    sink: Sink,
    *,
    passes: Collection[str] | None = None,
    print_after: Collection[str] = (),
    out: Callable[[str], object] = print,
    target: str = "cpu",
    libraries: Sequence[str] = (),
    stage_times: Mapping[str, float] | None = None,
) -> tuple[Module | None, tuple[Timing, ...]]:
    """Everything up to codegen: lowering, passes, precision rules, kernels for targets that run them. Mistakes go to
    `sink`; None where there are any."""
    try:
        module = lower(spec, sink)
    except RecursionError:
        label = "lets lead from one to the next too often"
        sink.report("HYB120", NO_SPAN, label, "put values where they are used, instead of in chains of lets")
        return None, ()
    if module is None:
        return None, ()
    module, timings = run(module, sink, passes=passes, print_after=print_after, out=out)
    if any(b.types.get(b.result) is None for b in module.by_name.values()):
        return None, timings
    rules, formats = lower_rules(spec.precision, module, Report(sink))
    if sink.errors:
        return None, timings
    typed = replace(module, precision=rules)
    apart = takes_quantized(target, libraries)
    later: list[tuple[str, Pass]] = [("precision", lambda m, s: assign(m, formats, s, apart))]
    if any(a.size > 1 for a in module.mesh) or {"layout", "collectives"} & set(print_after):
        later += [("layout", layout), ("collectives", collectives)]
    if module.axis("pp") > 1 or "pipeline_split" in print_after:
        later.append(("pipeline_split", lambda m, s: pipeline_split(m, s, stage_times)))
    module, more = run(typed, sink, later, passes=passes, print_after=print_after, out=out)
    timings += more
    wanted = target != "cpu" and (passes is None or "fuse" in passes)
    printed = "fuse" in print_after or (wanted and "all" in print_after)
    if sink.errors or not (wanted or printed):
        return module, timings
    fused, more = run(module, sink, (("fuse", lambda m, s: fuse(m, s, apart)),), print_after=print_after, out=out)
    return (fused if wanted else module), timings + more


def check(
    source: Any,
    *,
    params: Mapping[str, Any] | None = None,
    mesh: Mapping[str, Any] | None = None,
    include: Sequence[str | Path] = (),
) -> Sink:
    """All diagnostics of a spec. Never raises for a wrong spec."""
    spec, sink = read(source, include)
    analyse(override(spec, sink, params=params, mesh=mesh), sink)
    sink.sort()
    return sink


def compile(
    source: Any,
    *,
    target: str = "cpu",
    mesh: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    libraries: Sequence[str] = (),
    passes: Collection[str] | None = None,
    include: Sequence[str | Path] = (),
    print_after: Collection[str] = (),
    out: Callable[[str], object] = print,
    stage_times: Mapping[str, float] | None = None,
    serial: bool = False,
) -> Compiled:
    """Compiles a spec (path, text, AST or built `Model`) for a target.

    `libraries` may be called by the emitted code, the first of them that can compute a part of an op before kernels of
    our own ("found" stands for those that are installed here). `mesh` and `params` override the spec's, `passes`
    restricts the optional passes, `print_after` names passes whose IR goes to `out` ("all" for each). `stage_times` are
    measured milliseconds of blocks by name, by which pipeline stages are cut. `serial` leaves out the spec's mesh.
    Raises DiagnosticError with everything that is wrong. Imports no torch.
    """
    from hybridc.codegen.package import emit_package
    from hybridc.frontend.document import print_spec

    spec, sink = read(source, include)
    if target not in TARGETS:
        sink.report("HYB601", NO_SPAN, f"there is no target `{target}`", did_you_mean(target, TARGETS))
    if serial:
        spec = replace(spec, mesh=None)
    named = known_libraries(libraries, target, sink)
    spec = override(spec, sink, params=params, mesh=mesh)
    module, timings = analyse(
        spec,
        sink,
        passes=passes,
        print_after=print_after,
        out=out,
        target=target,
        libraries=named,
        stage_times=stage_times,
    )
    sink.sort()
    sink.check()
    assert module is not None
    _not_yet(module, sink)
    emit = Emit(target=target, dtype=module.dtype.value, libraries=named)
    files = emit_package(module, print_spec(spec), emit)
    report_choices(emit, sink)
    sink.check()
    warnings = tuple(d for d in sink.diagnostics if d.severity == "warning")
    return Compiled(module, spec, files, target, warnings, sink.sources, timings, tuple(named))


def _not_yet(module: Module, sink: Sink) -> None:
    """Says what a spec asks for that the emitted module does not do: it computes serially, in the default dtype."""
    ranks = [a for a in module.mesh if a.size > 1 and a.name in ("cp", "ep")]
    if ranks:
        shown = ", ".join(f"{a.name} = {a.form}" for a in ranks)
        label = f"{shown}: checked, but nothing is emitted for it"
        sink.report("HYB220", ranks[0].span, label, f"run with {ranks[0].name} = 1", severity="warning")
    for rule in module.precision:
        places = [name for name in rule.on if name in PLACES]
        if places:
            label = f"`{rule.format} on {', '.join(places)}`: checked, but nothing is emitted for it"
            sink.report("HYB305", NO_SPAN, label, "leave it out", severity="warning")
        elif rule.format != module.dtype.value and parse(rule.format) is None:
            shown = f"`{rule.format} on {', '.join(rule.on)}`"
            label = f"{shown}: checked, but the emitted module computes in {module.dtype.value}"
            help = "A_log, D, dt_bias and routers stay fp32 without a rule"
            sink.report("HYB305", NO_SPAN, label, help, severity="warning")
    if module.mtp:
        sink.report("HYB212", NO_SPAN, "`mtp` layers are checked, but cannot be emitted", "leave out `mtp` to compile")
