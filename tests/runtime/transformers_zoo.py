"""The hybrid of every mixer as transformers loads it from a folder."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

import hybridc
from hybridc.checkpoints.transformers_package import save_transformers
from tests.runtime import zoo


def write(folder: Path, spec: str = zoo.SPEC, seed: int = 3, **options):
    """Writes a spec as a transformers model with loud weights into `folder`; returns the net that has them."""
    compiled = hybridc.compile(spec)
    net = zoo.loud(compiled.load(seed=seed))
    save_transformers(compiled, folder, net=net, **options)
    return net


def load(folder: Path, **options):
    """The model in a folder."""
    return AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, **options)


def padded(rows, side: str):
    """Rows of tokens as a batch [B, S] and its mask, padded on one side."""
    length = max(map(len, rows))
    ids, mask = torch.zeros(2, len(rows), length, dtype=torch.int64)
    for n, row in enumerate(rows):
        place = slice(length - len(row), length) if side == "left" else slice(0, len(row))
        ids[n, place], mask[n, place] = row, 1
    return ids, mask
