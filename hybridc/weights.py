"""Weights between public files and emitted modules: streamed in, handed out bit for bit. Safetensors only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Sink
from hybridc.frontend.hf import Imported
from hybridc.frontend.hf.weightmap import Source

if TYPE_CHECKING:
    from torch import Tensor, nn

SHOWN = 20
"""Names listed in a diagnostic; the rest is counted."""


class Files:
    """The tensors of a checkpoint folder by name, read one at a time from mapped files."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open

        self.stack = ExitStack()
        self.handles: dict[str, Any] = {}
        for path in shards(folder):
            try:
                handle = self.stack.enter_context(safe_open(str(path), framework="pt"))
            except Exception as error:  # safetensors raises its own error for what is no such file
                label = f"`{path.name}` is not a safetensors file: {str(error)[:120]}"
                raise DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, "download it again")]) from error
            for name in list(handle.keys()):
                self.handles[name] = handle

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def names(self) -> set[str]:
        return set(self.handles)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.handles[name].get_slice(name).get_shape())

    def tensor(self, name: str) -> Tensor:
        return self.handles[name].get_tensor(name)  # type: ignore[no-any-return]


def shards(folder: Path) -> list[Path]:
    """The safetensors files of a folder: those that the index names, or the only one. Raises DiagnosticError
    (HYB512)."""

    def bad(label: str, help: str) -> DiagnosticError:
        return DiagnosticError([Diagnostic("HYB512", NO_SPAN, label, help)])

    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if not index.exists():
        if single.exists():
            return [single]
        if any(folder.glob("*.bin")) or any(folder.glob("*.pt")):
            raise bad("the weights are pickled files, which can run code", "convert them to safetensors first")
        raise bad(f"`{folder.name}` has no model.safetensors and no index of shards", "name a checkpoint folder")
    try:
        listed = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise bad(f"`{index.name}` is not an index of shards", "download it again") from error
    for name in listed:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(".safetensors"):
            raise bad(f"the index names the shard {name!r}", "a shard is a safetensors file in the same folder")
        if not (folder / name).exists():
            raise bad(f"the shard `{name}` is missing", "download it")
    return [folder / name for name in listed]


@dataclass(frozen=True)
class Binding:
    """What ties an emitted net to the public checkpoint that it came from."""

    imported: Imported


def bind(net: nn.Module, imported: Imported) -> Binding:
    """Remembers on the net which public model it is, for `to_hf_state_dict`."""
    binding = Binding(imported)
    net.hf = binding  # type: ignore[assignment]
    return binding


def load_hf(net: nn.Module, folder: Path) -> None:
    """Fills a bound net from a checkpoint folder, tensor by tensor; a net on the meta device gets its parameters here.

    Raises DiagnosticError that lists all tensors which are missing (HYB510), of another shape or left over (HYB511).
    """
    import torch

    binding = _binding(net)
    parameters = dict(net.named_parameters(remove_duplicate=True))
    weights = binding.imported.weights
    sink = Sink()
    with Files(folder) as files, torch.no_grad():
        have = files.names()
        used: set[str] = set()
        missing: list[str] = []
        misshapen: list[str] = []
        for name, parameter in parameters.items():
            options = [weights.sources.get(name), *weights.alternatives.get(name, ())]
            known = [s for s in options if s is not None]
            source = next((s for s in known if set(s.names) <= have), None)
            if source is None:
                wanted = known[0].names if known else (name,)
                missing += [n for n in wanted if n not in have]
                continue
            used.update(source.names)
            wrong = _misshapen(source, files, tuple(parameter.shape))
            if wrong:
                misshapen.append(wrong)
                continue
            if not missing and not misshapen:
                value = assemble(source, files.tensor)
                _assign(net, name, parameter, value)
        extra = sorted(n for n in have - used if n not in weights.ignored and not n.endswith("rotary_emb.inv_freq"))
        for code, names, what in (
            ("HYB510", missing, "missing from the files"),
            ("HYB511", misshapen, "of another shape"),
            ("HYB511", extra, "in the files, but not in the model"),
        ):
            if names:
                shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
                help = "check that config.json and the weights belong together"
                sink.report(code, NO_SPAN, f"{len(names)} tensors are {what}: {shown}", help)
    sink.check()
    if hasattr(net, "tie_weights"):
        net.tie_weights()


def _misshapen(source: Source, files: Files, shape: tuple[int, ...]) -> str:
    """`name [have], wanted [want]` for the first tensor that does not fit, or ""."""
    per = len(source.rows) or 1
    for n, name in enumerate(source.names):
        want = list(shape[1:] if source.stack else shape)
        if source.rows:
            want[0] = source.rows[n % per]
        if source.squeeze is not None:
            want.insert(source.squeeze, 1)
        have = files.shape(name)
        if list(have) != want:
            return f"{name} {list(have)}, wanted {want}"
    if source.rows and sum(source.rows) != shape[1 if source.stack else 0]:
        return f"{source.names[0]}: {sum(source.rows)} rows, wanted {shape}"
    return ""


def assemble(source: Source, tensor: Any) -> Tensor:
    """Our parameter from the public tensors that `tensor(name)` gives."""
    import torch

    parts = [tensor(n) for n in source.names]
    if source.squeeze is not None:
        parts = [p.squeeze(source.squeeze) for p in parts]
    if source.stack:
        per = len(parts) // source.stack
        rows = [torch.cat(parts[e * per : (e + 1) * per]) if per > 1 else parts[e] for e in range(source.stack)]
        return torch.stack(rows)
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def take_apart(source: Source, value: Tensor) -> Iterator[tuple[str, Tensor]]:
    """The public tensors that a parameter of ours is made of."""
    if source.stack:
        per = len(source.names) // source.stack
        for e in range(source.stack):
            rows = value[e].split(source.rows) if source.rows else (value[e],)
            yield from zip(source.names[e * per : (e + 1) * per], rows, strict=True)
        return
    parts = value.split(source.rows) if source.rows else (value,)
    for name, part in zip(source.names, parts, strict=True):
        yield name, part if source.squeeze is None else part.unsqueeze(source.squeeze)


def _assign(net: nn.Module, name: str, parameter: nn.Parameter, value: Tensor) -> None:
    """Copies in place, or replaces a parameter on the meta device; parameters that stay fp32 are widened."""
    from torch import float32, nn

    owner, _, leaf = name.rpartition(".")
    module = net.get_submodule(owner)
    if not parameter.is_meta:
        parameter.copy_(value)
        return
    keep = any(m is module and n == leaf for m, n in net.fp32_parameters())  # type: ignore[operator]
    dtype = float32 if keep else parameter.dtype
    made = value.to(dtype)
    setattr(module, leaf, nn.Parameter(made.clone() if made is value else made))


def _binding(net: nn.Module) -> Binding:
    binding = getattr(net, "hf", None)
    if not isinstance(binding, Binding):
        label = "this net does not come from a public checkpoint, so its weights have no public names"
        raise DiagnosticError([Diagnostic("HYB513", NO_SPAN, label, "load it with hybridc.from_hf")])
    return binding


def to_hf_state_dict(net: nn.Module, of: Literal["param", "grad"] = "param") -> Mapping[str, Tensor]:
    """The net's parameters, or their gradients, under the names and in the shapes of the public file.

    Parameters without a gradient are left out of "grad". Raises DiagnosticError (HYB513) for a net that was not made
    from a
    public checkpoint, ValueError for another `of`.
    """
    if of not in ("param", "grad"):
        raise ValueError(f'of is {of!r}; give "param" or "grad"')
    sources = _binding(net).imported.weights.sources
    out: dict[str, Tensor] = {}
    for name, parameter in net.named_parameters(remove_duplicate=True):
        value = parameter.detach() if of == "param" else parameter.grad
        if value is None or name not in sources:
            continue
        for public, part in take_apart(sources[name], value):
            out[public] = part.contiguous()
    return out
