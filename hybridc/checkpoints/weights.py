"""Weights between public files and emitted modules: streamed in, handed out bit for bit. Safetensors only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hybridc.checkpoints.files import FORMATS, SHOWN, Files, Tensors, counted
from hybridc.checkpoints.names import folded
from hybridc.checkpoints.ternary import packed, unpacked
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Sink
from hybridc.frontend.hf import Imported
from hybridc.frontend.hf.weightmap import Source, WeightMap

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True)
class Binding:
    """What ties an emitted net to the public checkpoint that it came from.

    `sources` are the names of its weights in the layout of the file that was loaded, of the published files before.
    """

    imported: Imported
    sources: Mapping[str, Source]


def bind(net: nn.Module, imported: Imported) -> Binding:
    """Remembers on the net which public model it is, for `to_hf_state_dict`."""
    binding = Binding(imported, imported.weights.sources)
    net.hf = binding  # type: ignore[assignment]
    return binding


def load_hf(net: nn.Module, folder: Path) -> None:
    """Fills a bound net from a checkpoint folder, tensor by tensor; a net on the meta device gets its parameters here.

    Names, shapes and formats are held against the net before the first tensor is read. Raises DiagnosticError that
    lists all tensors which are missing (HYB510), do not fit or are left over (HYB511), or cannot be read (HYB512).
    """
    with Files(folder) as files:
        load_tensors(net, files)


def load_tensors(net: nn.Module, files: Tensors) -> None:
    """Fills a bound net from named tensors, as `load_hf` from those of a folder."""
    import torch

    imported = _binding(net).imported
    parameters = dict(net.named_parameters(remove_duplicate=True))
    kept = {(id(m), leaf) for m, leaf in net.fp32_parameters()}  # type: ignore[operator]
    with torch.no_grad():
        plan = _plan(parameters, imported.weights, files)
        for name, source in plan.items():
            assemble(source, files.tensor, _made(net, name, parameters[name], kept))
    tie: Callable[[], object] | None = getattr(net, "tie_weights", None)
    if tie is not None:
        tie()
    net.hf = Binding(imported, plan)  # type: ignore[assignment]


def load_parts(net: nn.Module, whole: nn.Module, files: Tensors) -> None:
    """Fills a bound net on its mesh from named tensors, a parameter at a time: each rank takes its parts. `whole` is
    the serial net, without memory."""
    imported = _binding(net).imported
    parameters = dict(whole.named_parameters(remove_duplicate=True))
    plan = _plan(parameters, imported.weights, files)
    first = {id(p): name for name, p in parameters.items()}
    names = {name: first[id(p)] for name, p in whole.named_parameters(remove_duplicate=False)}
    load: Callable[[Mapping[str, Tensor]], object] = net.load_whole_state_dict  # type: ignore[assignment]
    load(_Assembled(names, plan, parameters, files))
    net.hf = Binding(imported, plan)  # type: ignore[assignment]


@dataclass(frozen=True)
class _Assembled(Mapping[str, "Tensor"]):
    """Whole parameters by name, each put together of the files' tensors when it is asked for."""

    names: Mapping[str, str]
    plan: Mapping[str, Source]
    parameters: Mapping[str, nn.Parameter]
    files: Tensors

    def __getitem__(self, name: str) -> Tensor:
        import torch

        first = self.names[name]
        return assemble(self.plan[first], self.files.tensor, torch.empty(self.parameters[first].shape))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def _plan(parameters: Mapping[str, nn.Parameter], weights: WeightMap, files: Tensors) -> dict[str, Source]:
    """Where each parameter comes from. Raises DiagnosticError with everything that is wrong with the files."""
    have = files.names()
    plan: dict[str, Source] = {}
    missing: list[str] = []
    misshapen: list[str] = []
    formats: list[str] = []

    def held(layout: Mapping[str, Source]) -> int:
        """Tensors of the file that are this layout's, where layouts differ."""
        return len(have.intersection(n for a in weights.alternatives if a in layout for n in layout[a].names))

    layouts = sorted(weights.layouts(), key=held, reverse=True)
    for name, parameter in parameters.items():
        known = [layout[name] for layout in layouts if name in layout]
        # the layout that holds this parameter whole, else the one that the file seems to be in
        whole = [s for s in known if have.issuperset(s.names)]
        fitting = (s for s in whole if not _misshapen(s, files, tuple(parameter.shape)))
        source = next(fitting, (whole or known or [Source((name,))])[0])
        plan[name] = source
        lacking = [n for n in source.names if n not in have]
        missing += lacking
        if not lacking:
            misshapen += _misshapen(source, files, tuple(parameter.shape))
            bytes = ("U8",) if parameter.element_size() == 1 and not source.ternary else FORMATS
            formats += [f"{n} ({files.format(n)})" for n in source.names if files.format(n) not in bytes]
    used = {n for source in plan.values() for n in source.names}
    unread = tuple(n.removesuffix("*") for n in weights.ignored if n.endswith(".*"))
    extra = [n for n in have - used if n not in weights.ignored and not n.startswith(unread)]
    extra = [n for n in extra if not n.endswith("rotary_emb.inv_freq")]
    sink = Sink()
    for code, names, what in (
        ("HYB510", missing, "missing from the files"),
        ("HYB511", misshapen, "of another shape"),
        (
            "HYB511",
            formats,
            f"in a format that is not read there: one of {', '.join(FORMATS)} is, U8 for packed weights",
        ),
        ("HYB511", extra, "in the files, but not in the model"),
    ):
        if names:
            shown = folded(names)
            more = f" and {len(shown) - SHOWN} more patterns" if len(shown) > SHOWN else ""
            label = f"{counted(len(names))} {what}: {', '.join(shown[:SHOWN])}{more}"
            sink.report(code, NO_SPAN, label, "check that config.json and the weights belong together")
    sink.check()
    return plan


def _misshapen(source: Source, files: Tensors, shape: tuple[int, ...]) -> list[str]:
    """`name [have], wanted [want]` for each tensor that does not fit."""
    per = len(source.rows) or 1
    found = []
    for n, name in enumerate(source.names):
        want = list(shape[1:] if source.stack else shape)
        if source.rows:
            want[0] = source.rows[n % per]
        if source.squeeze is not None:
            want.insert(source.squeeze, 1)
        if source.transpose:
            want[-2:] = want[:-3:-1]
        if source.shape:
            want = list(source.shape)
        have = files.shape(name)
        if list(have) != want:
            found.append(f"{name} {list(have)}, wanted {want}")
    return found


def _ours(source: Source, index: int, value: Tensor) -> Tensor:
    """A public tensor as a part of our parameter; gradients and views pass. Raises DiagnosticError (HYB511)."""
    if source.ternary:
        return packed(source.names[index], value)
    if source.inverse:
        value = value.double().reciprocal()
    if source.shape:
        value = value.reshape([n for n in source.shape if n != 1] or [1])
    if source.squeeze is not None:
        value = value.squeeze(source.squeeze)
    if source.transpose:
        value = value.transpose(-1, -2)
    if (group := source.group(index)) is not None:
        dim = group.dim
        apart = value.unflatten(dim, (group.count, sum(group.parts)))  # type: ignore[no-untyped-call]
        parts = apart.split(group.parts, dim=dim + 1)
        value = _cat([p.flatten(dim, dim + 1) for p in parts], dim)
    return value


def _theirs(source: Source, index: int, value: Tensor) -> Tensor:
    """The inverse of `_ours`."""
    if source.ternary:
        return unpacked(value, source.rows[index % len(source.rows)])
    if source.inverse:
        value = value.double().reciprocal().float()
    if (group := source.group(index)) is not None:
        dim = group.dim
        sizes = [group.count * p for p in group.parts]
        parts = value.split(sizes, dim=dim)  # type: ignore[no-untyped-call]
        value = _cat([p.unflatten(dim, (group.count, -1)) for p in parts], dim + 1).flatten(dim, dim + 1)
    if source.transpose:
        value = value.transpose(-1, -2)
    if source.squeeze is not None:
        value = value.unsqueeze(source.squeeze)
    return value.reshape(source.shape) if source.shape else value


def _cat(parts: list[Tensor], dim: int = 0) -> Tensor:
    import torch

    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]


def assemble(source: Source, tensor: Callable[[str], Tensor], out: Tensor) -> Tensor:
    """Fills `out`, our parameter, from the public tensors that `tensor(name)` gives, one after the other."""
    per = len(source.names) // max(1, source.stack)
    row = 0
    for n, name in enumerate(source.names):
        part = _ours(source, n, tensor(name))
        place = out[n // per] if source.stack else out
        if per > 1:
            row = 0 if n % per == 0 else row
            place = place[row : row + part.shape[0]]
            row += part.shape[0]
        place.copy_(part)
    return out


def take_apart(source: Source, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The public tensors that a parameter of ours is made of."""
    per = len(source.names) // max(1, source.stack)
    for e in range(max(1, source.stack)):
        parts = _split(value[e] if source.stack else value, source.own_rows)
        for n, part in enumerate(parts, start=e * per):
            yield source.names[n], _theirs(source, n, part)


def _split(value: Tensor, rows: tuple[int, ...]) -> tuple[Tensor, ...]:
    """The parts of so many rows each, or the whole."""
    return tuple(value.split(rows)) if rows else (value,)  # type: ignore[no-untyped-call]


def _made(net: nn.Module, name: str, parameter: nn.Parameter, kept: set[tuple[int, str]]) -> Tensor:
    """The parameter, with memory in place of one on the meta device; those in `kept` (module id, name) are fp32."""
    import torch

    if not parameter.is_meta:
        return parameter
    owner, _, leaf = name.rpartition(".")
    module = net.get_submodule(owner)
    dtype = torch.float32 if (id(module), leaf) in kept else parameter.dtype
    made = torch.nn.Parameter(torch.empty(parameter.shape, dtype=dtype), parameter.requires_grad)
    setattr(module, leaf, made)
    return made


def _binding(net: nn.Module) -> Binding:
    binding = getattr(net, "hf", None)
    if not isinstance(binding, Binding):
        label = "this net does not come from a public checkpoint, so its weights have no public names"
        raise DiagnosticError([Diagnostic("HYB513", NO_SPAN, label, "load it with hybridc.from_hf")])
    return binding


def to_hf_state_dict(net: nn.Module, of: Literal["param", "grad"] = "param") -> Mapping[str, Tensor]:
    """The net's parameters, or their gradients, under the names and in the shapes of the public file.

    Parameters without a gradient are left out of "grad". Every rank of a mesh calls it, and gets all. Raises
    DiagnosticError (HYB513) for a net that was not made from a public checkpoint, ValueError for another `of`.
    """
    if of not in ("param", "grad"):
        raise ValueError(f'of is {of!r}; give "param" or "grad"')
    sources = _binding(net).sources
    out: dict[str, Tensor] = {}
    values: Iterable[tuple[str, Tensor | None]]
    if getattr(net, "MESH", None):
        whole: Callable[[], Mapping[str, Tensor]] = net.whole_state_dict if of == "param" else net.whole_gradients  # type: ignore[assignment]
        values = whole().items()
    else:
        named = net.named_parameters(remove_duplicate=True)
        values = ((name, p.detach() if of == "param" else p.grad) for name, p in named)
    for name, value in values:
        if value is None or name not in sources:
            continue
        for public, part in take_apart(sources[name], value):
            out[public] = part.contiguous()
    return out
