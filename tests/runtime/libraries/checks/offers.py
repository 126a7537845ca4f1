"""What backends offer of these libraries is there, with the arguments of what it stands in for; in a process of its own
(`tests.runtime.libraries.isolated`)."""

import importlib
import inspect

import pytest
import torch

from hybridc.ir.backends import BACKENDS
from hybridc.runtime import ops
from hybridc.runtime.libraries import fla

OFFERS = [o for name in ("mamba_ssm", "causal_conv1d", "fla", "flash_attn") for o in BACKENDS[name].offers.values()]


HOW = ("chunk", "scan")
"""Arguments that say how an op is computed."""


def arguments(function):
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values() if p.name not in HOW]


@pytest.mark.parametrize("offer", OFFERS, ids=lambda o: o.text)
def test_an_offer_has_the_arguments_of_the_op(offer):
    module, _, name = offer.text.partition(".")
    assert module == offer.module
    found, ours = getattr(importlib.import_module(f"hybridc.runtime.libraries.{module}"), name), getattr(ops, name)
    if isinstance(ours, type):
        assert issubclass(found, torch.nn.Module)
        assert arguments(found.__init__) == arguments(ours.__init__)
        assert arguments(found.forward) == arguments(ours.forward)
    else:
        assert arguments(found) == arguments(ours)


def test_lightning_attention_takes_a_chunk():
    assert "chunk" in inspect.signature(fla.lightning_attention).parameters
