"""Kernels compiled ahead of time in a process of their own, since the tests' process interprets them."""

import json
import os
import subprocess
import sys
from functools import cache

SCRIPT = """
import importlib, json, sys
from hybridc.codegen.cubin import compile_kernel
found = {}
for variant in importlib.import_module(sys.argv[1]).VARIANTS:
    for capability in variant.targets:
        if capability in map(int, sys.argv[2:]):
            made = compile_kernel(variant, capability)
            name = f"{variant.name or variant.kernel.fn.__name__}:{capability}"
            assert name not in found, name
            found[name] = dict(registers=made.registers, shared=made.shared, stack=made.stack, spills=made.spills,
                               fits=made.fits(capability), bytes=len(made.cubin), mix=made.mix)
print(json.dumps(found))
"""

CAPABILITIES = (80, 90, 100) if os.environ.get("HYBRIDC_EXAMPLES") else (90,)
"""All targets in `make test-all`, one in `make test`."""


@cache
def compiled(module: str) -> dict[str, dict[str, object]]:
    """What each variant of a module comes to on each target, by `name:capability`."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    words = [sys.executable, "-W", "ignore", "-c", SCRIPT, module, *map(str, CAPABILITIES)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_fits(module: str) -> None:
    """Every variant compiles for its targets, spills nothing, and fits into their shared memory."""
    found = compiled(module)
    assert found
    assert not {name: r for name, r in found.items() if not r["fits"]}
    assert all(r["bytes"] for r in found.values())
