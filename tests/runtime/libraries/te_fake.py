"""A Transformer Engine that computes with torch, in fp32, what its modules are documented to compute.

Every call is bound to the signature that the real package has, and what the real one demands of its operands is
asserted. FP8 is the emulation of `hybridc.runtime.quant`, whose own tests hold it to float64.
"""

import inspect
import json
from itertools import pairwise
from types import ModuleType, SimpleNamespace

import torch
from torch import nn
from torch.nn import functional as F

from hybridc.runtime.ops import FP8Product
from tests.runtime.libraries.te_sources import SIGNATURES

READ = json.loads(SIGNATURES.read_text())["signatures"]
STATE = SimpleNamespace(recipe=None, calls=[])
"""The recipe of the region that is open, and the attention calls so far."""


def signature(name):
    """The signature of a callable of the real package."""
    made = []
    for line in READ[f"transformer_engine.{name}"]:
        parameter, kind, *optional = line.split()
        default = None if optional else inspect.Parameter.empty
        made.append(inspect.Parameter(parameter, getattr(inspect.Parameter, kind), default=default))
    return inspect.Signature(made)


def bound(name, *args, **kwargs):
    """The arguments of a call by name. Raises TypeError for a call that the real package would not take."""
    return signature(name).bind(*args, **kwargs).arguments


class autocast:
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.autocast", *args, **kwargs)
        assert given["enabled"] is True
        self.recipe = given["recipe"]

    def __enter__(self):
        assert STATE.recipe is None
        STATE.recipe = self.recipe

    def __exit__(self, *error):
        STATE.recipe = None


class Stateful(nn.Module):
    """What Transformer Engine's modules put into a state dict besides parameters."""

    def get_extra_state(self):
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state):
        pass


def product(module, name, x, weight, bias, first):
    """x Wᵀ + b in the open region's recipe, or in the dtype; asks what the real one asks."""
    if STATE.recipe is None:
        return F.linear(x, weight, bias)
    multiple = 32 if STATE.recipe.name == "mx" else 16
    assert x.shape[0] % multiple == x.shape[1] % multiple == weight.shape[0] % multiple == 0
    backward = torch.is_grad_enabled() and x.requires_grad
    if first is None or first:
        before = module._fp8_workspaces.get(name)
        kept = weight.detach().clone(), backward if before is None or first is None else before[1]
        module.quantized += 1
        if first:
            module._fp8_workspaces[name] = kept
    else:
        kept = module._fp8_workspaces[name]
    assert torch.equal(kept[0], weight), "a quantized weight is not that of the weight"
    assert kept[1] or not backward, "a quantized weight has no form for the backward"
    r = STATE.recipe
    return FP8Product(r.name, bwd=r.backward, scale="pow2" if r.power else "fp32")(x, weight, bias)


class Linear(Stateful):
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.Linear", *args, **kwargs)
        super().__init__()
        assert isinstance(given["device"], str)
        ins, out = given["in_features"], given["out_features"]
        self.weight = nn.Parameter(torch.empty(out, ins, device=given["device"]).normal_())
        if given["bias"]:
            self.bias = nn.Parameter(torch.zeros(out, device=given["device"]))
        else:
            self.bias = torch.empty(0)
        self._fp8_workspaces, self.quantized = {}, 0

    def forward(self, *args, **kwargs):
        given = bound("pytorch.Linear.forward", self, *args, **kwargs)
        bias = self.bias if self.bias.numel() else None
        return product(self, "weight", given["inp"], self.weight, bias, given.get("is_first_microbatch"))


class GroupedLinear(Stateful):
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.GroupedLinear", *args, **kwargs)
        super().__init__()
        self.count, self.has_bias = given["num_gemms"], given["bias"]
        for n in range(self.count):
            shape = (given["out_features"], given["in_features"])
            self.register_parameter(f"weight{n}", nn.Parameter(torch.empty(shape, device=given["device"])))
            if self.has_bias:
                self.register_parameter(f"bias{n}", nn.Parameter(torch.empty(shape[:1], device=given["device"])))
        self._fp8_workspaces, self.quantized = {}, 0

    def forward(self, *args, **kwargs):
        given = bound("pytorch.GroupedLinear.forward", self, *args, **kwargs)
        assert all(isinstance(n, int) for n in given["m_splits"]) and len(given["m_splits"]) == self.count
        parts = []
        for n, x in enumerate(given["inp"].split(given["m_splits"])):
            bias = getattr(self, f"bias{n}") if self.has_bias else None
            weight, first = getattr(self, f"weight{n}"), given.get("is_first_microbatch")
            parts.append(product(self, f"weight{n}", x, weight, bias, first))
        return torch.cat(parts)


class RMSNorm(Stateful):
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.RMSNorm", *args, **kwargs)
        bound("pytorch.ops.RMSNorm", given["normalized_shape"], **given.get("kwargs", {}))
        super().__init__()
        self.weight = nn.Parameter(torch.ones(given["normalized_shape"], device=given["kwargs"]["device"]))
        self.eps, self.shift = given["eps"], float(given.get("zero_centered_gamma", False))

    def forward(self, *args, **kwargs):
        x = bound("pytorch.RMSNorm.forward", self, *args, **kwargs)["input"]
        y = x.float() * (x.float().square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (y * (self.shift + self.weight.float())).to(self.weight.dtype)


class LayerNorm(Stateful):
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.LayerNorm", *args, **kwargs)
        bound("pytorch.ops.LayerNorm", given["normalized_shape"], **given.get("kwargs", {}))
        super().__init__()
        device = given["kwargs"]["device"]
        self.weight = nn.Parameter(torch.ones(given["normalized_shape"], device=device))
        self.bias, self.eps = nn.Parameter(torch.zeros(given["normalized_shape"], device=device)), given["eps"]

    def forward(self, *args, **kwargs):
        x = bound("pytorch.LayerNorm.forward", self, *args, **kwargs)["input"].float()
        centred = x - x.mean(-1, keepdim=True)
        y = centred * (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (y * self.weight + self.bias).to(self.weight.dtype)


class DotProductAttention(Stateful):
    def __init__(self, *args, **kwargs):
        given = bound("pytorch.DotProductAttention", *args, **kwargs)
        super().__init__()
        self.given = given
        self.softmax_offset = None
        if given["softmax_type"] == "learnable":
            self.softmax_offset = nn.Parameter(torch.zeros(given["num_attention_heads"]))

    def forward(self, *args, **kwargs):
        given = bound("pytorch.DotProductAttention.forward", self, *args, **kwargs)
        q, k, v = (given[f"{n}_layer"] for n in ("query", "key", "value"))
        width = self.given["kv_channels"]
        width = width if isinstance(width, tuple) else (width, width)
        assert q.dtype == k.dtype == v.dtype and k.shape[:-1] == v.shape[:-1]
        assert (q.shape[-1], k.shape[-1], v.shape[-1]) == (width[0], *width)
        assert (q.shape[-2], k.shape[-2]) == (self.given["num_attention_heads"], self.given["num_gqa_groups"])
        mask, window = given["attn_mask_type"], given["window_size"]
        assert window == (-1, -1) if mask == "no_mask" else window[0] >= -1 and window[1] == 0
        STATE.calls.append((given["qkv_format"], mask, window))
        if given["qkv_format"] == "bshd":
            rows = [self.document(*row, mask, window[0]) for row in zip(q, k, v, strict=True)]
            return torch.stack(rows).flatten(-2)
        assert given["qkv_format"] == "thd" and "padding" in mask
        ends = []
        for t, name in ((q, "q"), (k, "kv")):
            borders = given[f"cu_seqlens_{name}"]
            assert borders.dtype == torch.int32 and borders[0] == 0 and borders[-1] == t.shape[0]
            lengths = borders.diff().tolist()
            assert min(lengths) > 0 and given[f"max_seqlen_{name}"] == max(lengths)
            ends.append(list(pairwise(borders.tolist())))
        parts = [self.document(q[a:b], k[c:d], v[c:d], mask, window[0]) for (a, b), (c, d) in zip(*ends, strict=True)]
        return torch.cat(parts).flatten(-2)

    def document(self, q, k, v, mask, left):
        """q [L, heads, dim], k and v [T, kv_heads, ...] -> [L, heads, value_dim]."""
        length, total = q.shape[0], k.shape[0]
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
        scores = torch.einsum("lhd,thd->hlt", q, k) * self.given["softmax_scale"]
        if self.given["softcap"]:
            scores = self.given["softcap"] * (scores / self.given["softcap"]).tanh()
        if mask != "no_mask":
            row = torch.arange(length)[:, None] + (total - length if "bottom_right" in mask else 0)
            column = torch.arange(total)
            seen = (column <= row) & ((column >= row - left) if left >= 0 else True)
            scores = scores.masked_fill(~seen, -torch.inf)
        if self.softmax_offset is not None:
            sinks = self.softmax_offset.reshape(-1, 1, 1).expand(-1, length, 1)
            weights = torch.cat((scores, sinks), -1).softmax(-1)[..., :-1]
        else:
            weights = scores.softmax(-1)
        dropout = self.given["attention_dropout"] if self.training else 0.0
        return torch.einsum("hlt,thv->lhv", F.dropout(weights, dropout), v)


class Recipe:
    """A recipe by the name that specs have for it: what its operands are quantized by is read where it is used."""

    def __init__(self, name, backward):
        self.name, self.backward = name, {"E4M3": "e4m3", "HYBRID": "e5m2"}[backward]

    @property
    def power(self):
        """Whether scales are powers of two."""
        if self.name == "mx":
            return False  # said by the recipe itself
        asked = {self.fp8_quant_fwd_inp, self.fp8_quant_fwd_weight, self.fp8_quant_bwd_grad}
        (power,) = asked
        return power


def _recipe(class_name, name):
    def make(*args, **kwargs):
        given = bound(f"common.recipe.{class_name}", *args, **kwargs)
        made = Recipe(name, given["fp8_format"])
        # the class's, whatever the arguments say
        made.fp8_quant_fwd_inp = made.fp8_quant_fwd_weight = made.fp8_quant_bwd_grad = name == "block128"
        return made

    return make


def _option(class_name, key):
    return lambda *args, **kwargs: bound(f"common.recipe.{class_name}", *args, **kwargs)[key]


def modules():
    """The modules of the package by name."""
    made = {n: ModuleType(f"transformer_engine{n}") for n in ("", ".pytorch", ".common", ".common.recipe")}
    for kind in (Linear, GroupedLinear, RMSNorm, LayerNorm, DotProductAttention, autocast):
        setattr(made[".pytorch"], kind.__name__, kind)
    recipes = made[".common.recipe"]
    recipes.Recipe = Recipe
    recipes.Format = SimpleNamespace(E4M3="E4M3", HYBRID="HYBRID")
    names = {"Float8CurrentScaling": "tensor", "Float8BlockScaling": "block128", "MXFP8BlockScaling": "mx"}
    for class_name, name in names.items():
        setattr(recipes, class_name, _recipe(class_name, name))
    recipes.QParams = _option("QParams", "power_2_scale")
    recipes.MMParams = _option("MMParams", "use_split_accumulator")
    made[""].pytorch, made[""].common, made[".common"].recipe = made[".pytorch"], made[".common"], recipes
    return {module.__name__: module for module in made.values()}
