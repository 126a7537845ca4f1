"""Emitted source to a module object in this process, without a file; tracebacks still show its lines."""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import linecache
import sys
from types import ModuleType


class _Emitted(importlib.abc.InspectLoader):
    """Serves one emitted text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get_source(self, fullname: str) -> str:
        return self.text


def load_source(name: str, text: str) -> ModuleType:
    """The module that `text`, which hybridc emitted, defines; the same text gives the same module."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    full = f"hybridc_emitted_{name}_{digest}"
    if full in sys.modules:
        return sys.modules[full]
    loader = _Emitted(text)
    spec = importlib.util.spec_from_loader(full, loader, origin=f"<emitted {name}>")
    if spec is None:
        raise ImportError(f"cannot make a module of {full}")
    module = importlib.util.module_from_spec(spec)
    module.__file__ = f"<{full}>"
    linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
    sys.modules[full] = module
    try:
        code = compile(text, module.__file__, "exec", dont_inherit=True)
        loader.exec_module(module) if code is None else exec(code, module.__dict__)
    except BaseException:
        del sys.modules[full]
        raise
    return module
