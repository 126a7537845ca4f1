"""Emitted source to a module object in this process, without a file; tracebacks still show its lines."""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType


def load_source(name: str, text: str, kernels: str = "") -> ModuleType:
    """The module that `text`, which hybridc emitted, defines; the same text gives the same module.

    `kernels` is the text of the module of that name beside it.
    """
    digest = hashlib.sha256((text + kernels).encode()).hexdigest()[:12]
    full = f"hybridc_emitted_{name}_{digest}"
    if full not in sys.modules:
        module = ModuleType(full)
        if kernels:
            # a package of one module: `from . import kernels` finds it there
            module.__package__, module.__path__ = full, []
            sys.modules[full] = module
            try:
                module.__dict__["kernels"] = _made(f"{full}.kernels", kernels, ModuleType(f"{full}.kernels"))
                _made(full, text, module)
            except BaseException:
                del sys.modules[full]
                raise
        else:
            _made(full, text, module)
    return sys.modules[full]


def _made(full: str, text: str, module: ModuleType) -> ModuleType:
    """Runs a module's text; classes are looked up under its name, as pickle and inspect do."""
    module.__file__ = f"<{full}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[full] = module
    exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)
    return module
