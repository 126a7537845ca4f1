"""All op definitions, one file a family. Importing this package registers every file in it."""

import importlib
import pkgutil

from hybridc.ir.ops.base import ALIASES, OPS, Check, Op, Param, Split, StateTensor, fields, find, names

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

__all__ = ["ALIASES", "OPS", "Check", "Op", "Param", "Split", "StateTensor", "fields", "find", "names"]
