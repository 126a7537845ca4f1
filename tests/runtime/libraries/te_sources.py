"""Transformer Engine's own Python sources, imported without its compiled parts, which need a GPU's libraries.

`python -m tests.runtime.libraries.te_sources FOLDER` prints what it finds in the unpacked wheel `transformer-engine`
(1.2 MB of Python): the signatures that the adapters call, which parameters the adapters' modules have, and their
recipes. With `--write`, the signatures go where the tests read them.
"""

import ast
import enum
import importlib.metadata
import inspect
import json
import os
import sys
import types
from pathlib import Path

SIGNATURES = Path(__file__).parent / "signatures" / "transformer_engine.json"

CALLED = {
    "transformer_engine.pytorch": [
        "Linear", "Linear.forward", "GroupedLinear", "GroupedLinear.forward", "RMSNorm", "RMSNorm.forward",
        "LayerNorm", "LayerNorm.forward", "DotProductAttention", "DotProductAttention.forward", "autocast",
    ],
    "transformer_engine.pytorch.ops": ["RMSNorm", "LayerNorm"],
    "transformer_engine.common.recipe": [
        "Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "QParams", "MMParams",
    ],
}  # fmt: skip
"""What the adapters call, by module."""


class _Anything(type):
    """A class of the compiled extension: it has every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = cls(name)
        setattr(cls, name, made)
        return made


class _Thing(metaclass=_Anything):
    def __init__(self, *args, **kwargs):
        self.args = args

    def __call__(self, *args, **kwargs):
        raise RuntimeError("no compiled extension here")

    def __hash__(self):
        return hash(self.args)

    def __eq__(self, other):
        return self.args == getattr(other, "args", None)

    def __int__(self):
        return 0

    __index__ = __int__


class _Missing(types.ModuleType):
    """A module that has every name."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (_Thing,), {}) if name[0].isupper() else _Thing(name)
        setattr(self, name, made)
        return made


def _members(path, name):
    """An enum of the sources, which mirrors one of the compiled extension."""
    (found,) = (n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ClassDef) and n.name == name)
    lines = [n for n in found.body if isinstance(n, ast.Assign)]
    constants = (ast.Constant, ast.UnaryOp)
    return {
        line.targets[0].id: ast.literal_eval(line.value) if isinstance(line.value, constants) else n
        for n, line in enumerate(lines)
    }


def load(folder):
    """Makes `transformer_engine` of an unpacked wheel importable in this process, on a machine without a GPU."""
    import torch
    import torch._dynamo

    sources = Path(folder) / "transformer_engine" / "pytorch"
    extension = _Missing("transformer_engine_torch")
    extension.DType = enum.IntEnum("DType", _members(sources / "constants.py", "DType"))
    backends = _members(sources / "cpp_extensions" / "fused_attn.py", "FusedAttnBackend")
    extension.NVTE_Fused_Attn_Backend = enum.IntEnum("Backends", {f"NVTE_{k}": v for k, v in backends.items()})
    sys.modules["transformer_engine_torch"] = extension
    # its export, which would import onnxscript, and what its own caches rearrange with
    for name in ("transformer_engine.pytorch.onnx_extensions", "einops"):
        sys.modules[name] = _Missing(name)
    properties = types.SimpleNamespace(name="none", major=9, minor=0, multi_processor_count=132, total_memory=80 << 30)
    torch.cuda.get_device_properties = lambda *a, **k: properties
    torch.cuda.get_device_capability = lambda *a, **k: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True
    os.environ["NVTE_PROJECT_BUILDING"] = "1"  # else it looks for its compiled library
    sys.path.insert(0, str(folder))
    import transformer_engine.common

    transformer_engine.common.load_framework_extension = lambda framework: None
    import transformer_engine.pytorch


def signatures():
    """The parameters of each callable of CALLED: name, kind, and whether it may be left out."""
    found = {}
    for module, names in CALLED.items():
        for name in names:
            called = importlib.import_module(module)
            for part in name.split("."):
                called = getattr(called, part)
            given = inspect.signature(called).parameters.values()
            shown = [f"{p.name} {p.kind.name}{' optional' * (p.default is not p.empty)}" for p in given]
            found[f"{module}.{name}"] = shown
    return {"version": importlib.metadata.version("transformer_engine"), "signatures": found}


def modules():
    """The adapters' modules on two devices: their parameters, what their state dicts hold, and their recipes."""
    import torch

    from hybridc.runtime.libraries import te

    made = {
        "Linear": lambda: te.Linear(32, 48),
        "Linear without bias": lambda: te.Linear(32, 48, bias=False),
        "FP8Linear": lambda: te.FP8Linear(32, 48, "block128", bias=True),
        "RMSNorm": lambda: te.RMSNorm(32, eps=1e-5),
        "ZeroCenteredRMSNorm": lambda: te.ZeroCenteredRMSNorm(32, eps=1e-5),
        "LayerNorm": lambda: te.LayerNorm(32, eps=1e-5),
        "Experts": lambda: te.Experts(3, 32, 48, bias=True, products=(te.FP8Product("tensor"), None)),
    }
    shapes = {}
    for name, make in made.items():
        for device in ("meta", "cpu"):
            with torch.device(device):
                module = make()
            shapes[f"{name} on {device}"] = {k: [*v.shape, v.device.type] for k, v in module.state_dict().items()}
            if device == "cpu":
                module.load_state_dict(module.state_dict())
    core = te.attention.__globals__["_core"](4, 2, 64, 32, False, True, scale=0.125, softcap=0.0, dropout=0.1)
    return {"parameters": shapes, "core": [type(core).__name__, core.softmax_scale, core.num_gqa_groups]}


def slices():
    """What a grouped product computes with, and the gradient that its stacked weight gets."""
    import torch
    import transformer_engine.pytorch as engine

    from hybridc.runtime.libraries import te

    def forward(self, x, counts, **options):
        self.allow_different_data_and_param_types = False
        self.set_activation_dtype(x)
        parts = zip(x.split(counts), self._get_weight_tensors(), self._get_bias_tensors(), strict=True)
        return torch.cat([torch.nn.functional.linear(*part) for part in parts])

    engine.GroupedLinear.forward = forward
    with torch.device("cpu"):
        layer = te.Experts(3, 4, 5, bias=True)
        ones = {name: torch.ones_like(p) for name, p in layer.named_parameters()}
        y = torch.func.functional_call(layer, ones, (torch.ones(2, 4), torch.ones(2, 1), torch.tensor([[0], [2]])))
        layer.load_state_dict(ones)
        layer(torch.ones(2, 4), torch.ones(2, 1), torch.tensor([[0], [2]])).sum().backward()
    return {
        "result": y.tolist(),
        "gradients": {n: p.grad.flatten(1).any(1).tolist() for n, p in layer.named_parameters()},
    }


def recipes():
    """For each recipe and options: the class, format, and what its quantizers and products go by."""
    import torch
    from transformer_engine.pytorch.quantization import RecipeState

    from hybridc.runtime.libraries.te.recipes import recipe

    found = {}
    for name, options in (
        ("tensor", {}), ("tensor", {"bwd": "e4m3"}), ("block128", {}), ("block128", {"scale": "pow2"}),
        ("block128", {"bwd": "e5m2"}), ("mx", {}), ("mx", {"bwd": "e5m2"}),
    ):  # fmt: skip
        made = recipe(name, **options)
        states = [
            RecipeState.create(made, mode=m, num_quantizers=n, device=torch.device("cpu")).make_quantizers()
            for m, n in (("forward", 2), ("backward", 1))
        ]
        quantizers = [q for state in states for q in state]
        operands = [getattr(made, f"fp8_quant_{n}", None) for n in ("fwd_inp", "fwd_weight", "bwd_grad")]
        products = [getattr(made, f"fp8_gemm_{n}", None) for n in ("fprop", "dgrad", "wgrad")]
        found[f"{name} {options}"] = {
            "class": type(made).__name__,
            "format": made.fp8_format.name,
            "numbers": [q.dtype.name for q in quantizers],
            "powers": [getattr(q, "force_pow_2_scales", True) for q in quantizers],
            "blocks": [getattr(q, "block_scaling_dim", None) for q in quantizers],
            "asked": [q and q.power_2_scale for q in operands],
            "fp32 sums": [p and p.use_split_accumulator for p in products],
        }
    return found


def main(folder, *words):
    load(folder)
    found = signatures()
    if "--write" in words:
        SIGNATURES.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps({**found, **modules(), "recipes": recipes(), "slices": slices()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
