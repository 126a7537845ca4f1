"""The files that make an emitted package a model of the library transformers, loaded with `trust_remote_code`."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hybridc.codegen.torch_code import camel
from hybridc.ir.graph import Module
from hybridc.ir.ops.embedding import Embedding, LMHead
from hybridc.version import VERSION

WEIGHTS_PREFIX = "model."
"""What stands before the net's own parameter names in the weights of a transformers model."""

MODEL_TYPE = "hybridc_"
"""How the `model_type` of emitted models begins."""

CONFIG = '''"""The config of {name} for transformers, emitted by hybridc {version}. Its sizes are those of model.py."""

from hybridc.runtime.transformers_model import CausalLMConfig


class {camel}Config(CausalLMConfig):
    """Sizes of {name}."""

    model_type = "{model_type}"

    def __init__(
        self,
        vocab_size={vocab_size},
        hidden_size={hidden_size},
        num_hidden_layers={num_hidden_layers},
        tie_word_embeddings={tie_word_embeddings},
        **kwargs,
    ):
        super().__init__(vocab_size, hidden_size, num_hidden_layers, tie_word_embeddings=tie_word_embeddings, **kwargs)
'''

MODEL = '''"""{name} as a transformers model, emitted by hybridc {version}: model.py has the layers."""

from hybridc.runtime.transformers_model import CausalLM

from .configuration_{name} import {camel}Config
from .model import Model


class {camel}ForCausalLM(CausalLM):
    """{name} with what generate(), Trainer and PEFT ask for."""

    NET = Model
    config_class = {camel}Config
'''


def transformers_files(module: Module, token_ids: Mapping[str, object]) -> dict[str, str]:
    """`config.json`, `configuration_NAME.py` and `modeling_NAME.py` of a typed module.

    `token_ids` are entries of the config such as `eos_token_id`, where they are known.
    """
    name = module.name
    sizes = _sizes(module)
    words = {"name": name, "camel": camel(name), "version": VERSION, "model_type": MODEL_TYPE + name, **sizes}
    config = {
        "model_type": words["model_type"],
        "architectures": [f"{camel(name)}ForCausalLM"],
        "auto_map": {
            "AutoConfig": f"configuration_{name}.{camel(name)}Config",
            "AutoModelForCausalLM": f"modeling_{name}.{camel(name)}ForCausalLM",
        },
        **sizes,
        "dtype": module.dtype.torch_name,
        **token_ids,
    }
    return {
        "config.json": json.dumps(config, indent=2, sort_keys=True) + "\n",
        f"configuration_{name}.py": CONFIG.format(**words),
        f"modeling_{name}.py": MODEL.format(**words),
    }


def _sizes(module: Module) -> dict[str, int | bool]:
    table = next(n.op for n in module.embed.nodes if isinstance(n.op, Embedding))
    return {
        "vocab_size": table.vocab,
        "hidden_size": table.dim,
        "num_hidden_layers": len(module.layers),
        "tie_word_embeddings": any(isinstance(n.op, LMHead) and n.op.tied for n in module.head.nodes),
    }


def with_transformers(source: Mapping[str, str], module: Module, token_ids: Mapping[str, object]) -> dict[str, str]:
    """A package's files and those for transformers, which the manifest lists."""
    files = transformers_files(module, token_ids)
    if "kernels.py" in source:
        modeling = f"modeling_{module.name}.py"
        copied = "from .kernels import VARIANTS  # noqa: F401 (transformers copies what is imported here)\n"
        files[modeling] = files[modeling].replace("from .model import", f"{copied}from .model import")
    manifest = json.loads(source["manifest.json"]) | {"transformers": sorted(files)}
    return {**source, "manifest.json": json.dumps(manifest, indent=2) + "\n", **files}
