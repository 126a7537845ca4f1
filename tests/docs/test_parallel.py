"""The page on many ranks: its training code runs on ranks as it stands, but for the device and the model's size."""

import importlib
import sys
from pathlib import Path

import torch

import hybridc
from tests.equivalence.ranks import on_ranks

PAGE = Path(__file__).parents[2] / "docs" / "parallel.md"

SPEC = """model falcon {
  param dim = 32
  block H { x += rmsnorm() >> (attention(heads=4, head_dim=8) | mamba2(heads=4, head_dim=8, state=4, chunk=4)) }
  embed = embedding(50, dim)
  layers = H * 2
  head = rmsnorm() >> lm_head(50)
}
"""


def code():
    """The page's training code."""
    blocks = PAGE.read_text().split("```python\n")[1:]
    return next(b.partition("```")[0] for b in blocks if "net.step(" in b)


def train(folder):
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    ids = torch.arange(24).view(2, 12)
    names = {"data": [[{"input_ids": ids, "labels": ids}] for _ in range(3)]}
    losses = []
    text = code().replace('"cuda"', '"cpu"').replace("optimizer.zero_grad()", "optimizer.zero_grad(); seen(result)")
    names["seen"] = lambda result: losses.append(float(result.loss))
    exec(text, names)
    return losses


def test_the_training_code(tmp_path):
    hybridc.compile(SPEC, mesh={"dp": "fsdp(2)", "tp": 2}).save(tmp_path / "build" / "falcon")
    assert code().count("from build.falcon") == 2
    losses = on_ranks(4, train, tmp_path)
    assert all(each == losses[0] for each in losses) and losses[0][2] < losses[0][0]
    net = hybridc.compile(SPEC).load(seed=0)
    ids = torch.arange(24).view(2, 12).repeat(2, 1)  # both dp ranks were given the same
    assert abs(net(ids, labels=ids).loss.item() - losses[0][0]) < 1e-5
