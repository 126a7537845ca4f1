"""`python -m hybridc.runtime.parallel.measure PACKAGE > times.json`: milliseconds of its blocks on this machine.

PACKAGE is compiled without a mesh, for the target that will run it. `hybridc compile SPEC --mesh pp=4 --stage-times
times.json` cuts the layers into stages by them.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hybridc.runtime.context import Context
from hybridc.runtime.errors import UsageError
from hybridc.runtime.meta import on_meta
from hybridc.runtime.module import LanguageModel

REPEATS = 5


def measure(
    model: LanguageModel, names: Sequence[str], *, batch: int = 1, seq: int = 2048, device: str | torch.device = "cpu"
) -> dict[str, float]:
    """Milliseconds of forward and backward of each distinct block, by the names of the layers' blocks, and of "embed"
    and "head". A model on the meta device has one block in memory at a time.

    Raises UsageError for a model of a mesh.
    """
    if model.MESH:
        raise UsageError("the model is one rank's of a mesh", "measure a package that is compiled without one")
    device = torch.device(device)
    rows = next((m.num_embeddings for m in model.embed.modules() if isinstance(m, nn.Embedding)), 1)
    ids = torch.randint(rows, (batch, seq), generator=torch.Generator().manual_seed(0)).to(device)
    ctx = Context(ids)
    given: dict[str, Any] = {"ids": ids, "ctx": ctx, "state": {}}
    times = {}
    with _there(model.embed, device):
        times["embed"] = _milliseconds(partial(_called, model.embed, given), device)
        x = torch.randn_like(_called(model.embed, given)).requires_grad_()
    given |= {"x": x, "x0": x}
    for name, layer in zip(names, model.layers, strict=True):
        if name not in times:
            with _there(layer, device):
                times[name] = _milliseconds(partial(_called, layer, given), device)
    with _there(model.head, device):
        times["head"] = _milliseconds(partial(_loss, model.head, x, ctx), device)
    return times


def _called(block: nn.Module, given: Mapping[str, Any]) -> Tensor:
    """A block's result of what its forward asks for."""
    given["ctx"].router_sums = {}  # the last run's graph is gone
    out: Tensor = block(*(given[name] for name in inspect.signature(block.forward).parameters))
    return out


def _loss(head: Any, x: Tensor, ctx: Context) -> Tensor:
    ctx.router_sums = {}
    labels = ctx.input_ids
    loss = (ctx.output_of(head, x, labels) if hasattr(head, "loss") else ctx.output(head(x), labels)).loss
    assert loss is not None
    return loss


@contextmanager
def _there(block: nn.Module, device: torch.device) -> Iterator[None]:
    """A block of the meta device in memory for a while, with some numbers."""
    if not any(p.is_meta for p in block.parameters()):
        yield
        return
    block.to_empty(device=device)
    with torch.no_grad():
        for t in (*block.parameters(), *block.buffers()):
            t.normal_(std=0.02) if t.is_floating_point() else t.zero_()
    yield
    block.to("meta")


def _milliseconds(run: Callable[[], Tensor], device: torch.device) -> float:
    """The median of several runs with their backwards, the first of which does not count."""
    found = []
    for _ in range(REPEATS + 1):
        _wait(device)
        start = time.perf_counter()
        out = run()
        out.backward(torch.ones_like(out))
        _wait(device)
        found.append(1e3 * (time.perf_counter() - start))
    return statistics.median(found[1:])


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def layers_of(folded: str) -> list[str]:
    """The names of a manifest's `layers`, such as `(M M A) * 8 M`."""
    names = []
    for unit, name, count in re.findall(r"(?:\(([^)]*)\)|([^\s()*]+))(?: \* (\d+))?", folded):
        names += (unit.split() or [name]) * int(count or 1)
    return names


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures a package and prints what was found."""
    parser = argparse.ArgumentParser(prog="python -m hybridc.runtime.parallel.measure", description=__doc__)
    parser.add_argument("package", type=Path)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    manifest = json.loads((options.package / "manifest.json").read_text(encoding="utf-8"))
    spec = importlib.util.spec_from_file_location(
        "measured", options.package / "__init__.py", submodule_search_locations=[str(options.package)]
    )
    assert spec is not None and spec.loader is not None
    module = sys.modules["measured"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    net: Any = on_meta(module.Model)
    names = layers_of(manifest["layers"])
    times = measure(net, names, batch=options.batch, seq=options.seq, device=options.device)
    print(json.dumps({name: round(ms, 4) for name, ms in times.items()}, indent=2))


if __name__ == "__main__":
    main()
