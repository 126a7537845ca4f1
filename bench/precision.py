"""Trains one small hybrid in bf16, fp8(block128) and bitnet on the same text, and draws the three losses.

    python bench/precision.py [--steps 300] [--out docs/precision_losses.svg]

bf16 is emulated as the formats are: operands of each linear map are rounded to bf16, products are summed in fp32. All
runs have the same weights to start from, the same batches and the same schedule.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

import hybridc
from examples.demo_train import standard_library

SPEC = """model small_hybrid {
  param dim = 128
  let norm = rmsnorm()
  block Ssm {
    x += norm >> mamba2(heads=8, head_dim=32, state=32)
    x += norm >> swiglu(384)
  }
  block Attn {
    x += norm >> attention(heads=4, kv_heads=2, rope=rope())
    x += norm >> moe(experts=4, hidden=128, top_k=2, aux_coef=0.01)
  }
  embed = embedding(256)
  layers = (Ssm Attn) * 2
  head = norm >> lm_head(256, tied=true)
}
"""

RUNS = {
    "bf16": "",
    "fp8(block128)": "precision { fp8(block128) on layers.** }",
    "bitnet": "precision { bitnet on layers.** }",
}

HELD = 200_000
"""Bytes at the end of the text that no step sees."""

COLOURS = {"bf16": "#4c7f3f", "fp8(block128)": "#2c7396", "bitnet": "#b5702a"}


class Rounded(torch.autograd.Function):
    """x Wᵀ of operands rounded to bf16, summed in fp32; the gradients' products likewise."""

    @staticmethod
    def forward(ctx, x, weight):  # type: ignore[no-untyped-def]
        x, weight = x.bfloat16().float(), weight.bfloat16().float()
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, dy):  # type: ignore[no-untyped-def]
        x, weight = ctx.saved_tensors
        dy = dy.bfloat16().float()
        return dy @ weight, dy.flatten(0, -2).t() @ x.flatten(0, -2)


class BF16Product(nn.Module):
    """What experts multiply with."""

    def forward(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, index: int = 0) -> Tensor:
        return Rounded.apply(x, weight)  # type: ignore[no-any-return]


def in_bf16(net: nn.Module) -> None:
    """Makes the linear maps of the layers compute in emulated bf16; routers and the head stay as they are."""
    for name, module in net.layers.named_modules():  # type: ignore[union-attr]
        if type(module) is nn.Linear and not name.endswith("router"):
            module.forward = lambda x, m=module: Rounded.apply(x, m.weight)  # type: ignore[method-assign, assignment]
        elif hasattr(module, "down_product"):
            module.first_product = module.down_product = BF16Product()


def train(rule: str, data: Tensor, steps: int) -> tuple[list[float], float]:
    """The cross entropy of each step, and in the end that on text which no step has seen."""
    net = hybridc.compile(f"{SPEC}{rule}").load(seed=0)
    if not rule:
        in_bf16(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.05)
    random = torch.Generator().manual_seed(0)
    losses = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / steps))
        at = torch.randint(len(data) - HELD - 128, (8,), generator=random)
        ids = torch.stack([data[i : i + 128] for i in at])
        out = net(ids, labels=ids)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(out.ce_loss.item())
    with torch.inference_mode():
        kept = torch.stack([data[-HELD:][i : i + 128] for i in range(0, HELD - 128, HELD // 256)])
        held = statistics.mean(net(ids, labels=ids).ce_loss.item() for ids in kept.split(16))
    return losses, held


def svg(curves: dict[str, list[float]], finals: dict[str, float]) -> str:
    """The curves, each smoothed over 10 steps, as a picture of 640 x 360."""
    smooth = {n: [statistics.mean(c[max(0, i - 9) : i + 1]) for i in range(len(c))] for n, c in curves.items()}
    low, high = min(map(min, smooth.values())), 5.6
    steps = max(map(len, curves.values()))

    def at(i: int, value: float) -> str:
        return f"{50 + 560 * i / max(1, steps - 1):.1f},{20 + 290 * (high - value) / (high - low):.1f}"

    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 360" font-family="sans-serif" font-size="12">']
    parts.append('<rect width="640" height="360" fill="#fff"/>')
    for value in range(math.ceil(low), math.floor(high) + 1):
        y = at(0, value).partition(",")[2]
        parts.append(
            f'<path d="M50,{y}H610" stroke="#ddd"/><text x="42" y="{y}" dy="4" text-anchor="end">{value}</text>'
        )
    for n, (name, curve) in enumerate(smooth.items()):
        points = " ".join(at(i, v) for i, v in enumerate(curve))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>')
        parts.append(f'<text x="400" y="{50 + 18 * n}" fill="{COLOURS[name]}">{name}: {finals[name]:.3f}</text>')
    parts.append(f'<text x="50" y="335">step 1</text><text x="610" y="335" text-anchor="end">{steps}</text>')
    parts.append(
        '<text x="330" y="350" text-anchor="middle">cross entropy in nats a byte, mean of 10 steps</text></svg>'
    )
    return "\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", type=Path, default=Path("docs/precision_losses.svg"))
    options = parser.parse_args()
    data = standard_library()
    curves: dict[str, list[float]] = {}
    finals: dict[str, float] = {}
    for name, rule in RUNS.items():
        start = time.perf_counter()
        curves[name], finals[name] = train(rule, data, options.steps)
        ratio, seconds = finals[name] / finals["bf16"], time.perf_counter() - start
        print(f"{name:14s} {finals[name]:.4f}  {ratio:.4f} of bf16  {seconds:.0f} s", flush=True)
    options.out.write_text(svg(curves, finals), encoding="utf-8")


if __name__ == "__main__":
    main()
