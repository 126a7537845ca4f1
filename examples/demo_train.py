"""Trains an emitted package on the source text of Python's standard library, and lets it write some.

python examples/demo_train.py build/demo [--seconds 140]

Everything that learns is the plain torch loop in `train`; the model comes from the spec.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
import sysconfig
import time
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_model

from hybridc.runtime.generate import generate

LIMIT = 4_000_000
PROMPT = "def "


def standard_library() -> torch.Tensor:
    """Up to LIMIT bytes of the standard library's modules, as ids [N] int64."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py"))
    text = b""
    for file in files:
        if len(text) < LIMIT and "site-packages" not in file.parts and "test" not in file.parts:
            text += file.read_bytes()
    return torch.frombuffer(bytearray(text[:LIMIT]), dtype=torch.uint8).long()


def train(net: torch.nn.Module, data: torch.Tensor, *, steps: int, seconds: float, batch: int, seq: int) -> float:
    """AdamW with a warm-up and a cosine, for `steps` steps or `seconds`, whichever ends first. Returns the loss."""
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.0, betas=(0.9, 0.95))
    random = torch.Generator().manual_seed(0)
    columns = (
        TextColumn("loss {task.fields[loss]:.3f}"),
        BarColumn(None),
        TextColumn("{task.fields[speed]:,.0f} tokens/s"),
    )
    start, step, loss = time.perf_counter(), 0, math.log(256)
    with Progress(*columns, TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=1.0, loss=loss, speed=0.0)
        while (done := max(step / steps, (time.perf_counter() - start) / seconds)) < 1:
            for group in optimizer.param_groups:
                group["lr"] = 3e-3 * min(1.0, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * done))
            at = torch.randint(len(data) - seq, (batch,), generator=random)
            ids = torch.stack([data[i : i + seq] for i in at])
            out = net(ids, labels=ids)
            out.loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            loss += (out.ce_loss.item() - loss) * max(0.05, 1 / step)
            bar.update(task, completed=done, loss=loss, speed=step * batch * seq / (time.perf_counter() - start))
        bar.update(task, completed=1.0)
    return loss


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", type=Path, help="a folder that `hybridc compile` wrote")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seconds", type=float, default=140.0, help="stop after this time, if the steps take longer")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=400, help="bytes of the sample")
    options = parser.parse_args()

    sys.path.insert(0, str(options.package.resolve().parent))
    net = importlib.import_module(options.package.resolve().name).Model()
    net.init_weights(seed=0)
    data = standard_library()
    print(f"{sum(p.numel() for p in net.parameters()):,} parameters, {len(data):,} bytes of Python")
    loss = train(net, data, steps=options.steps, seconds=options.seconds, batch=options.batch, seq=options.seq)
    weights = options.package.with_name(f"{options.package.name}.safetensors")
    save_model(net, str(weights))
    print(f"loss {loss:.3f} nats a byte; weights in {weights}; a sample:\n")

    net.eval()
    with torch.inference_mode():
        prompt = torch.tensor([list(PROMPT.encode())])
        ids = generate(net, prompt, max_new_tokens=options.tokens, temperature=0.6, top_p=0.95, seed=0)[0]
    print(PROMPT + bytes(ids).decode("utf-8", errors="replace"))
    print(f'\nmore: hybridc generate {options.package} --weights {weights} --prompt "class " --temperature 0.6')


if __name__ == "__main__":
    main()
