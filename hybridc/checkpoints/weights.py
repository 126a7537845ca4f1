"""Weights between public files and emitted modules: streamed in, handed out bit for bit. Safetensors only."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from hybridc.checkpoints.names import folded
from hybridc.checkpoints.ternary import packed, unpacked
from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Sink
from hybridc.frontend.hf import Imported
from hybridc.frontend.hf.weightmap import Source, WeightMap

if TYPE_CHECKING:
    from torch import Tensor, nn

SHOWN = 50
"""Patterns of names listed in a diagnostic; the rest is counted. All layers of a model have fewer kinds of tensors."""

MAX_INDEX_BYTES = 256 << 20
"""An index has about a hundred bytes a tensor."""

FORMATS = ("F64", "F32", "F16", "BF16")
"""Formats of tensors that are read, in safetensors' names. Bytes are read where the net has bytes too; other quantized
ones have scales beside them and are refused."""


class Tensors(Protocol):
    """Tensors under their public names: shapes and formats before the numbers."""

    def names(self) -> set[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def format(self, name: str) -> str: ...

    def tensor(self, name: str) -> Tensor: ...


WINDOW_BYTES = 64 << 20
"""What is read of a mapped file before it is mapped anew: pages that were read count as the process's memory."""


class Files:
    """The tensors of a checkpoint folder by name, read one at a time from mapped files.

    A tensor is a window onto its file: it is to be copied before the next one is asked for.
    """

    def __init__(self, folder: Path) -> None:
        self.paths: dict[str, Path] = {}
        self.handles: dict[Path, Any] = {}
        listed = shards(folder)
        self.read = dict.fromkeys(listed, 0)
        held = {path: list(self._open(path).keys()) for path in listed}
        for path, names in held.items():
            self.paths |= dict.fromkeys(names, path)
        placed = {name: path for path, names in listed.items() for name in names}
        if lost := [name for name, path in placed.items() if name not in held[path]]:
            self.close()
            label = f"{_tensors(len(lost))} not in the shards that the index names: {', '.join(folded(lost)[:SHOWN])}"
            raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "download the index and the shards again")])
        self.paths |= placed  # of a tensor that two shards hold, the index says which counts

    def _open(self, path: Path) -> Any:
        from safetensors import SafetensorError, safe_open

        try:
            self.handles[path] = safe_open(str(path), framework="pt").__enter__()  # type: ignore[no-untyped-call]
        except (SafetensorError, OSError, ValueError) as error:
            self.close()
            label = f"`{path.name}` is not a safetensors file: {str(error)[:120]}"
            raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "download it again")]) from error
        return self.handles[path]

    def close(self) -> None:
        """Unmaps the files."""
        for handle in self.handles.values():
            handle.__exit__(None, None, None)
        self.handles.clear()

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self) -> set[str]:
        return set(self.paths)

    def _slice(self, name: str) -> Any:
        return self.handles[self.paths[name]].get_slice(name)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def format(self, name: str) -> str:
        return str(self._slice(name).get_dtype())

    def dtype(self) -> str:
        """torch's name of the format that most numbers are in; float32 where they are in none that is read."""
        counts: dict[str, int] = {}
        for name in self.paths:
            if (format := self.format(name)) in FORMATS:
                counts[format] = counts.get(format, 0) + math.prod(self.shape(name))
        most = max(counts, key=lambda f: counts[f], default="F32")
        return {"BF16": "bfloat16", "F16": "float16"}.get(most, "float32")

    def tensor(self, name: str) -> Tensor:
        path = self.paths[name]
        if self.read[path] > WINDOW_BYTES:
            self.handles.pop(path).__exit__(None, None, None)
            self._open(path)
            self.read[path] = 0
        value: Tensor = self.handles[path].get_tensor(name)
        self.read[path] += value.numel() * value.element_size()
        return value


def shards(folder: Path) -> dict[Path, list[str]]:
    """The safetensors files of a folder, each with the tensors that the index puts there: those that the index names,
    or the only one. Raises DiagnosticError (HYB512)."""

    def bad(label: str, help: str) -> DiagnosticError:
        return DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, help)])

    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if not index.exists():
        if single.exists():
            if not single.is_file():
                raise bad(f"`{single.name}` is no plain file", "name a checkpoint folder")
            return {single: []}
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise bad("the weights are pickled files, which can run code", "convert them to safetensors first")
        raise bad(f"`{folder.name}` has no model.safetensors and no index of shards", "name a checkpoint folder")
    try:
        if not index.is_file():
            raise bad(f"`{index.name}` is no plain file", "name a checkpoint folder")
        if index.stat().st_size > MAX_INDEX_BYTES:
            raise bad(f"`{index.name}` is larger than {MAX_INDEX_BYTES} bytes", "name a checkpoint folder")
        places = dict(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        listed = sorted(set(places.values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise bad(f"`{index.name}` is not an index of shards", "download it again") from error
    for name in listed:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise bad(f"the index names the shard {name!r}", "a shard is a safetensors file in the same folder")
        if not _exists(folder / name):
            raise bad(f"the shard `{_shorter(name)}` is missing", "download it")
    out: dict[Path, list[str]] = {folder / name: [] for name in listed}
    for tensor, name in places.items():
        out[folder / name].append(tensor)
    return out


def _exists(path: Path) -> bool:
    """Whether a plain file is there; a name that no file can have is not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _shorter(name: str) -> str:
    return name if len(name) <= 100 else name[:97] + "..."


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
            label = f"{_tensors(len(names))} {what}: {', '.join(shown[:SHOWN])}{more}"
            sink.report(code, NO_SPAN, label, "check that config.json and the weights belong together")
    sink.check()
    return plan


def _tensors(count: int) -> str:
    return "1 tensor is" if count == 1 else f"{count} tensors are"


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

    Parameters without a gradient are left out of "grad". Raises DiagnosticError (HYB513) for a net that was not made
    from a public checkpoint, ValueError for another `of`.
    """
    if of not in ("param", "grad"):
        raise ValueError(f'of is {of!r}; give "param" or "grad"')
    sources = _binding(net).sources
    out: dict[str, Tensor] = {}
    for name, parameter in net.named_parameters(remove_duplicate=True):
        value = parameter.detach() if of == "param" else parameter.grad
        if value is None or name not in sources:
            continue
        for public, part in take_apart(sources[name], value):
            out[public] = part.contiguous()
    return out
