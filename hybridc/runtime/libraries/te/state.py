"""State dicts of Transformer Engine's modules that are those of ours."""

from __future__ import annotations

import torch
from torch import nn


class ParametersOnly:
    """A base that goes before Transformer Engine's: no `_extra_state` in state dicts, written or asked for.

    Transformer Engine keeps the histories of delayed scaling there, and nothing for the recipes used here. Torch asks
    for it unless a class has nn.Module's own two methods.
    """

    get_extra_state = nn.Module.get_extra_state
    set_extra_state = nn.Module.set_extra_state


def device() -> str:
    """Where new parameters go, as torch's modules have it; Transformer Engine's default is the GPU."""
    return str(torch.get_default_device())
