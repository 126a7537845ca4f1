"""Each group as a person would write it in torch, op by op, and inputs for it: what generated kernels are held against.

All of it works in the dtype of its inputs, fp64 in the tests.
"""

import torch
from torch.nn import functional as F

EPS, CAP, FACTOR, BETA, LIMIT, OFFSET = 1e-5, 3.0, 0.3, 1.702, 1.25, 1.0
CONSTANTS = {"eps": EPS, "cap": CAP, "factor": FACTOR, "beta": BETA, "limit": LIMIT, "offset": OFFSET}
SEGMENTS = 3

ACTIVATIONS = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
    "sigmoid": torch.sigmoid,
}

NORMS = {
    "rmsnorm": lambda x, weight: F.rms_norm(x, x.shape[-1:], weight, EPS),
    "zero_centered_rmsnorm": lambda x, weight: F.rms_norm(x, x.shape[-1:], 1 + weight, EPS),
    "plain_rmsnorm": lambda x: F.rms_norm(x, x.shape[-1:], None, EPS),
    "layernorm": lambda x, weight, bias: F.layer_norm(x, x.shape[-1:], weight, bias, EPS),
    "layernorm_without_bias": lambda x, weight: F.layer_norm(x, x.shape[-1:], weight, None, EPS),
}


def added(norm):
    def run(x, residual, *parameters):
        h = x + residual
        return h, norm(h, *parameters)

    return run


def gated(act):
    def run(gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return act(gate) * up

    return run


def clamped_swiglu(gate, up):
    gate, up = gate.clamp(max=LIMIT), up.clamp(-LIMIT, LIMIT)
    return gate * torch.sigmoid(BETA * gate) * (up + OFFSET)


def scaled_added(norm):
    def run(x, residual, *parameters):
        h = FACTOR * x + residual
        return h, norm(h, *parameters)

    return run


def norm_added(norm):
    return lambda x, residual, *parameters: residual + norm(x, *parameters)


def by_head(norm):
    return lambda x, *parameters: norm(x.unflatten(-1, (SEGMENTS, -1)), *parameters).flatten(-2)


def gated_norm(act, first):
    def run(x, gate, weight):
        y = x * act(gate) if first else x
        y = y.unflatten(-1, (SEGMENTS, -1))
        weight = weight if weight.shape[0] == y.shape[-1] else weight.unflatten(-1, (SEGMENTS, -1))
        y = (F.rms_norm(y, y.shape[-1:], None, EPS) * weight).flatten(-2)
        return y if first else y * act(gate)

    return run


def rope(interleaved):
    def run(x, cos, sin):
        """Each pair as a complex number, times e^(i angle)."""
        heads = x.unflatten(-1, (SEGMENTS, -1))
        width = cos.shape[-1]
        turning, rest = heads[..., : 2 * width], heads[..., 2 * width :]
        pairs = (
            turning.unflatten(-1, (width, 2)) if interleaved else turning.unflatten(-1, (2, width)).transpose(-1, -2)
        )
        turned = torch.complex(pairs[..., 0], pairs[..., 1]) * torch.complex(cos, sin)[..., None, :]
        pairs = torch.view_as_real(turned)
        turned = pairs.flatten(-2) if interleaved else pairs.transpose(-1, -2).flatten(-2)
        return torch.cat((turned, rest), dim=-1).flatten(-2)

    return run


def dequantize_block(codes, factor, scale):
    return codes * factor.repeat_interleave(128, -1)[..., : codes.shape[-1]] * scale


UNFUSED = {
    **NORMS,
    **{f"add_{name}": added(norm) for name, norm in NORMS.items()},
    **{f"scaled_add_{name}": scaled_added(norm) for name, norm in NORMS.items()},
    **{f"{name}_add": norm_added(norm) for name, norm in NORMS.items()},
    **{f"head_{name}": by_head(norm) for name, norm in NORMS.items()},
    **{name: act for name, act in ACTIVATIONS.items() if name != "sigmoid"},
    **{f"{name}_glu": gated(act) for name, act in ACTIVATIONS.items()},
    **{f"{name}_gate": lambda x, gate, act=act: x * act(gate) for name, act in ACTIVATIONS.items()},
    "scaled_silu_glu": gated(lambda x: F.silu(FACTOR * x)),
    **{f"gated_rmsnorm_{a}": gated_norm(ACTIVATIONS[a], True) for a in ("silu", "sigmoid")},
    **{f"rmsnorm_gated_{a}": gated_norm(ACTIVATIONS[a], False) for a in ("silu", "sigmoid")},
    **{f"head_gated_rmsnorm_{a}": gated_norm(ACTIVATIONS[a], True) for a in ("silu", "sigmoid")},
    **{f"head_rmsnorm_gated_{a}": gated_norm(ACTIVATIONS[a], False) for a in ("silu", "sigmoid")},
    "clamped_swiglu": lambda gate_up: clamped_swiglu(*gate_up.chunk(2, -1)),
    "clamped_swiglu_pairs": lambda gate_up: clamped_swiglu(gate_up[..., ::2], gate_up[..., 1::2]),
    "rope_halves": rope(False),
    "rope_pairs": rope(True),
    "softcap": lambda x: CAP * torch.tanh(x / CAP),
    "softmax": lambda x: torch.softmax(x, -1),
    "l2norm": lambda x: x * torch.rsqrt((x * x).sum(-1, keepdim=True) + EPS),
    "dequantize_row": lambda codes, scale, weight: codes * scale * weight,
    "dequantize_block": dequantize_block,
    "sigmoid_row_gate": lambda x, gate, residual: x * torch.sigmoid(gate) + residual,
    "scaled_add": lambda x, residual: residual + FACTOR * x,
    "layer_scaled_add": lambda x, residual, weight: residual + weight * x,
}
"""Results of a group's inputs, in its order; quantized groups are under the name of what they quantize."""


def unfused(name):
    """The function for a group, and the format of its last result ("" where that is stored as it is)."""
    for form in ("e4m3_block", "e4m3_row", "int8_row"):
        if name.endswith(f"_{form}"):
            return UNFUSED[name.removesuffix(f"_{form}")], form
    return UNFUSED[name], ""


def make(group, lead, width, dtype, seed=0):
    """Random inputs of a group by name, the same numbers in any dtype; strides are those of slices of larger
    tensors."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for item in group.inputs:
        segments = SEGMENTS if group.segmented and not item.shared else 1
        across = {
            "full": segments * (max(1, len(item.parts)) * width + (5 if group.rest and item.parts else 0)),
            "vector": segments * width,
            "row": segments,
            "block": -(-width // 128),
        }[item.kind]
        shape = (across,) if item.kind == "vector" else (*lead, across + 3)
        made = torch.randn(shape, generator=generator, dtype=torch.float64)
        if item.name in ("weight", "scale", "factor"):
            made = 0.7 + 0.2 * made
        made = made.to(dtype)
        made = made if item.kind == "vector" else made[..., 2 : across + 2]
        out[item.name] = made.requires_grad_(item.gradient)
    return out
