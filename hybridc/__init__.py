"""hybridc: a declarative graph compiler for hybrid language models.

Everything here loads on first use: `import hybridc` imports neither torch nor the compiler.
"""

from __future__ import annotations

from typing import Any

_HOMES = {
    "compile": "hybridc.compiler",
    "check": "hybridc.compiler",
    "Compiled": "hybridc.compiler",
    "import_hf": "hybridc.checkpoints.hub",
    "from_hf": "hybridc.checkpoints.hub",
    "import_nemotron": "hybridc.checkpoints.hub",
    "import_gguf": "hybridc.checkpoints.gguf",
    "from_gguf": "hybridc.checkpoints.gguf",
    "gguf_to_hf": "hybridc.checkpoints.gguf",
    "to_hf": "hybridc.checkpoints.export",
    "to_hf_state_dict": "hybridc.checkpoints.weights",
    "pack_bitnet": "hybridc.checkpoints.ternary",
    "as_transformers": "hybridc.checkpoints.transformers_package",
    "save_transformers": "hybridc.checkpoints.transformers_package",
    "Model": "hybridc.frontend.builder",
    "parse": "hybridc.frontend.parser",
    "format_source": "hybridc.frontend.document",
    "PackedSeq": "hybridc.runtime.context",
    "generate": "hybridc.runtime.generate",
    "DiagnosticError": "hybridc.diagnostics",
    "VERSION": "hybridc.version",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return __getattr__("VERSION")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name.startswith("__"):
        raise AttributeError(name)
    builder = importlib.import_module("hybridc.frontend.builder")

    try:
        return getattr(builder, name) if name in builder.PUBLIC else builder.op_factory(name)
    except (AttributeError, LookupError):
        raise AttributeError(f"module 'hybridc' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted(_HOMES)
