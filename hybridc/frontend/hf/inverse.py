"""The way back from a spec to a public config: what families read off the ops of a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError
from hybridc.frontend.hf.config import ACTIVATIONS
from hybridc.ir.graph import Block, Module
from hybridc.ir.ops.base import Op

_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"} | {
    ours: theirs for theirs, ours in reversed(ACTIVATIONS.items()) if ours != "gelu_tanh"
}


_KINDS = {
    "attn": ("attention", "mla"),
    "mlp": ("mlp",),
    "moe": ("moe",),
    "norm": ("rmsnorm", "layernorm"),
    "ssm": ("mamba2", "mamba"),
}
"""Kinds of the ops that imported specs call so."""


def misfit(why: str) -> DiagnosticError:
    """A model that a family cannot express (HYB514)."""
    help = "name another family, or bring the spec into the form that `hybridc import hf` gives this one"
    return DiagnosticError([Diagnostic("HYB514", NO_SPAN, why, help)])


@dataclass(frozen=True)
class Found:
    """A typed model, asked for what stands in it."""

    module: Module

    @property
    def kinds(self) -> list[str]:
        """The block of each layer, in order."""
        return [layer.block for layer in self.module.layers]

    def blocks(self) -> list[Block]:
        """The block of each layer, in order."""
        return [self.module.by_name[name] for name in self.kinds]

    def all(self, label: str) -> list[Any]:
        """The ops called `label` in all distinct blocks; `norm` finds the head's too. A model that calls nothing so is
        asked for ops of the kinds that imported specs give the label to."""
        blocks = (*self.module.blocks, self.module.head)
        found = [n.op for b in blocks for n in b.nodes if n.path == label]
        return found or [n.op for b in blocks for n in b.nodes if type(n.op).kind in _KINDS.get(label, ())]

    def op(self, label: str) -> Any:
        """The first op called `label`. Raises DiagnosticError (HYB514) where no block has one."""
        found = self.all(label)
        if not found:
            raise misfit(f"no block of the model has a `{label}`")
        return found[0]

    def maybe(self, label: str) -> Any:
        """The first op called `label`, or None."""
        return next(iter(self.all(label)), None)

    def has(self, label: str) -> bool:
        """Whether any block has an op called `label`."""
        return bool(self.all(label))

    def each(self, label: str) -> list[Any]:
        """The op called `label` of each layer. Raises DiagnosticError (HYB514) where one has none."""
        ops = self.all(label)
        found = [next((n.op for n in b.nodes if any(n.op is o for o in ops)), None) for b in self.blocks()]
        if None in found:
            raise misfit(f"layer {found.index(None)} has no `{label}`")
        return found

    def layers_with(self, label: str) -> list[bool]:
        """For each layer, whether its block has an op called `label`."""
        ops = self.all(label)
        return [any(n.op is o for n in b.nodes for o in ops) for b in self.blocks()]

    def of_kind(self, kind: str) -> list[Any]:
        """All ops of a kind in distinct blocks, embedding and head."""
        blocks = (self.module.embed, *self.module.blocks, self.module.head)
        return [n.op for b in blocks for n in b.nodes if type(n.op).kind == kind]

    def scale_behind(self, label: str) -> float:
        """The factor of the `scale` that reads the op called `label`; 1 without one."""
        for block in self.module.blocks:
            for node in block.nodes:
                if any(node.op is o for o in self.all(label)):
                    readers = [n for n in block.nodes if node.name in n.operands and type(n.op).kind == "scale"]
                    return float(readers[0].op.factor) if readers else 1.0  # type: ignore[attr-defined]
        return 1.0

    def kept_beside(self, label: str) -> float:
        """The factor of the stream to which the result of the op called `label` is added; 1 without one."""
        for block in self.module.blocks:
            made = {n.name: n for n in block.nodes}
            for node in block.nodes:
                if any(node.op is o for o in self.all(label)):
                    value = node.name
                    readers = [n for n in block.nodes if value in n.operands]
                    if readers and type(readers[0].op).kind == "scale":
                        value = readers[0].name
                        readers = [n for n in block.nodes if value in n.operands]
                    others = [o for o in readers[0].operands if o != value] if readers else []
                    return float(getattr(getattr(made.get(others[0]), "op", None), "factor", 1.0)) if others else 1.0
        return 1.0

    def scale_before(self, label: str) -> float:
        """The factor of the `scale` that the op called `label` reads; 1 without one."""
        for block in self.module.blocks:
            made = {n.name: n.op for n in block.nodes}
            for node in block.nodes:
                if any(node.op is o for o in self.all(label)):
                    return float(getattr(made.get(node.operands[0]), "factor", 1.0))
        return 1.0

    @property
    def embedding(self) -> Any:
        """The embedding."""
        return next(iter(self.of_kind("embedding")))

    @property
    def lm_head(self) -> Any:
        """The head's projection to logits."""
        return next(iter(self.of_kind("lm_head")))


def ends(m: Found) -> dict[str, Any]:
    """Sizes that all families name alike."""
    fields: dict[str, Any] = {
        "vocab_size": m.embedding.vocab,
        "hidden_size": m.embedding.dim,
        "num_hidden_layers": len(m.kinds),
        "tie_word_embeddings": m.lm_head.tied,
    }
    if m.module.init.kind == "normal":
        fields["initializer_range"] = m.module.init.std
    return fields


def heads_of(attn: Op) -> dict[str, Any]:
    """Sizes of an attention."""
    return {
        "num_attention_heads": attn.heads,  # type: ignore[attr-defined]
        "num_key_value_heads": attn.kv_heads,  # type: ignore[attr-defined]
        "head_dim": attn.head_dim,  # type: ignore[attr-defined]
    }


def mlp_of(mlp: Any) -> dict[str, Any]:
    """Width, activation and bias of a feed-forward layer."""
    return {"intermediate_size": mlp.hidden, "hidden_act": activation_of(mlp), "mlp_bias": mlp.bias}


def activation_of(op: Any) -> str:
    """The public name of an op's activation."""
    return _ACTIVATIONS[op.act]


def types_of(m: Found, label: str = "attn") -> list[str]:
    """`layer_types` of layers whose attention has a window or sees all."""
    return ["full_attention" if a.window is None else "sliding_attention" for a in m.each(label)]


def windows_of(m: Found, label: str = "attn") -> dict[str, Any]:
    """`layer_types` and the window where layers have one."""
    windows = [a.window for a in m.each(label) if a.window is not None]
    if not windows:
        return {"use_sliding_window": False}
    return {"use_sliding_window": True, "sliding_window": windows[0], "layer_types": types_of(m, label)}


def divisor_of(factor: float) -> float:
    """The number that dividing by is `factor`, as near as floats come."""
    first = 1.0 / factor
    near = (first, round(first), math.nextafter(first, math.inf), math.nextafter(first, 0.0))
    return float(next((d for d in near if d and 1.0 / d == factor), first))


def limit_of(ssm: Any) -> list[Any]:
    """A mixer's range of time steps; JSON has no infinity, and transformers writes it so."""
    return [{"__float__": "Infinity"} if math.isinf(v) else v for v in ssm.dt_limit]


def scalar_of(scale: float) -> float:
    """The number whose power of -0.5 is `scale`, as near as floats come; whole where that is it."""
    first = scale**-2
    whole = round(first)
    if whole and whole**-0.5 == scale:
        return whole
    near = (first, math.nextafter(first, math.inf), math.nextafter(first, 0.0))
    return next((v for v in near if v**-0.5 == scale), first)


def mla_of(attn: Any) -> dict[str, Any]:
    """Sizes and rope of latent attention in DeepSeek's names; the rope's part in the scale becomes mscale_all_dim."""
    fields: dict[str, Any] = {
        "num_attention_heads": attn.heads,
        "num_key_value_heads": attn.heads,
        "kv_lora_rank": attn.kv_rank,
        "qk_nope_head_dim": attn.nope_dim,
        "qk_rope_head_dim": attn.rope_dim,
        "v_head_dim": attn.value_dim,
        "q_lora_rank": attn.q_rank or None,
    }
    if attn.rope is None:
        return fields
    rope = rope_of(attn.rope)["rope_parameters"]
    grown = attn.scale * (attn.nope_dim + attn.rope_dim) ** 0.5
    if attn.rope.kind_ != "default" and attn.rope.factor > 1 and abs(grown - 1) > 1e-9:
        weight = (math.sqrt(grown) - 1) / (0.1 * math.log(attn.rope.factor))
        # the published weights have few digits, and the scale must come out to the last bit
        rope["mscale_all_dim"] = round(weight, 9)
    return {**fields, "rope_parameters": rope, "rope_interleave": attn.rope.interleaved}


def kda_of(mixer: Any) -> dict[str, Any]:
    """Sizes of Kimi delta attention in Kimi Linear's names."""
    return {
        "linear_num_heads": mixer.heads,
        "linear_head_dim": mixer.head_dim,
        "linear_conv_kernel_dim": mixer.conv,
        "hidden_act": activation_of(mixer),
    }


def sigmoid_moe_of(experts: Any) -> dict[str, Any]:
    """DeepSeek-V3's names of its experts' settings; nothing for a model without experts."""
    if experts is None:
        return {}
    return {
        "n_routed_experts": experts.experts,
        "num_experts_per_tok": experts.top_k,
        "moe_intermediate_size": experts.hidden,
        "n_shared_experts": experts.shared // experts.hidden,
        "n_group": experts.groups,
        "topk_group": experts.top_groups,
        "norm_topk_prob": experts.renormalize,
        "routed_scaling_factor": experts.scaling,
    }


def aux_of(experts: Any) -> dict[str, Any]:
    """The balancing loss of a mixture."""
    return {"output_router_logits": True, "router_aux_loss_coef": experts.aux_coef} if experts.aux_coef else {}


def rope_of(rope: Any, *, partial: bool = False) -> dict[str, Any]:
    """`rope_parameters` as transformers 5 writes them; `partial` for families that rotate a part of each head."""
    if rope is None:
        raise misfit("the attention has no rope")
    settings: dict[str, Any] = {"rope_type": rope.kind_, "rope_theta": rope.theta}
    if partial:
        settings["partial_rotary_factor"] = rope.partial
    if rope.kind_ != "default":
        settings["factor"] = rope.factor
    if rope.kind_ == "longrope":
        del settings["factor"]
        settings |= {"short_factor": list(rope.short), "long_factor": list(rope.long)}
        settings["attention_factor"] = rope.attention_factor
        return {"rope_parameters": settings, "original_max_position_embeddings": rope.original_max}
    if rope.kind_ in ("llama3", "yarn"):
        settings["original_max_position_embeddings"] = rope.original_max
    names = {"llama3": ("low_freq_factor", "high_freq_factor"), "yarn": ("beta_fast", "beta_slow", "truncate")}
    settings |= {name: getattr(rope, name) for name in names.get(rope.kind_, ())}
    if rope.kind_ == "yarn" and rope.attention_factor is not None:
        settings["attention_factor"] = rope.attention_factor
    return {"rope_parameters": settings}
