"""Emitted source to a module object in this process, without a file; tracebacks still show its lines."""

from __future__ import annotations

import hashlib
import linecache
import sys
from types import ModuleType


def load_source(name: str, text: str) -> ModuleType:
    """The module that `text`, which hybridc emitted, defines; the same text gives the same module."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    full = f"hybridc_emitted_{name}_{digest}"
    if full not in sys.modules:
        module = ModuleType(full)
        module.__file__ = f"<{full}>"
        linecache.cache[module.__file__] = (len(text), None, text.splitlines(keepends=True), module.__file__)
        exec(compile(text, module.__file__, "exec", dont_inherit=True), module.__dict__)
        # classes are looked up here by name, as pickle and inspect do
        sys.modules[full] = module
    return sys.modules[full]
