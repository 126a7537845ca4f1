"""Fused groups to the text of `kernels.py`: for each a Triton kernel forward and one backward, and what calls them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hybridc.codegen.triton.derive import Pair, pair
from hybridc.codegen.triton.group import Group, Router
from hybridc.codegen.triton.groups import GROUPS, ROUTERS, derived
from hybridc.codegen.triton.kernel_code import accesses, kernel
from hybridc.codegen.triton.program import Program
from hybridc.codegen.triton.router_code import LIMIT, NUMBERS, router
from hybridc.codegen.triton.share import shared
from hybridc.codegen.triton.wrapper_code import fit, wrapper
from hybridc.ir.emit import call, filled, lit, quote

SHARED = re.compile(
    r"\b(add_columns|at_least|at_most|e4m3_factor|form|int8_factor|load_pairs|magnitude|Rows|store_pairs|tanh|tile"
    r"|to_e4m3|to_e4m3_blocks|to_int8|vector|within_groups)\b(?=[(.])"
)
"""What emitted code takes from the runtime."""

POINTERS = {"fp32": "fp32", "e4m3_block": "fp8e4nv", "e4m3_row": "fp8e4nv", "int8_row": "i8"}
"""Triton's words for what a tensor of a form holds."""


@dataclass(frozen=True)
class Use:
    """A group by name, and a form in which it is launched: rows of `width` numbers of `dtype` (Triton's word), with
    numbers for its constants; for a segmented group so many `segments`. It is what is compiled ahead of time."""

    name: str
    width: int
    dtype: str = "bf16"
    constants: Mapping[str, float | int | bool] = field(default_factory=dict)
    segments: int = 0


def emit_kernels(uses: Iterable[Use], origin: str, groups: Mapping[str, Group] = GROUPS) -> str:
    """The text of `kernels.py` with the groups in use, in order of their names. `origin` says in its first line what
    it was made for.

    It imports torch, triton and the runtime. Raises KeyError for a name that is no group's.
    """
    by_name: dict[str, list[Use]] = {}
    for use in _closed(uses, groups):
        by_name.setdefault(use.name, []).append(use)
    parts: list[str] = []
    forms: list[str] = []
    for name, of_name in sorted(by_name.items()):
        if name in ROUTERS:
            kernels, functions = router(ROUTERS[name])
            forms += [line for use in of_name for line in _router_forms(ROUTERS[name], use)]
        else:
            group = derived(name, groups)
            made = pair(group)
            made = replace(made, forward=shared(made.forward), backward=shared(made.backward))
            kernels, functions = [kernel(made.forward), kernel(made.backward)], wrapper(group, made)
            forms += [line for use in of_name for line in _forms(group, made, use)]
        parts += [*kernels, functions]
    variants = ["VARIANTS = (", *(f"    {line}" for line in forms), ")"]
    parts.append("\n".join([*variants, '"""What is compiled ahead of time."""']))
    body = "\n\n\n".join(parts)
    taken = sorted(set(SHARED.findall(body)), key=lambda n: (n[0].islower(), n))
    stored = "Stored(" in body
    lines = [
        f'"""{origin}"""',
        "",
        *(["from functools import partial", ""] if stored else []),
        "import torch",
        "import triton",
        "import triton.language as tl",
        "from torch.autograd.function import once_differentiable",
        "",
        "from hybridc.runtime.kernels.rowwise import (",
        *(f"    {name}," for name in taken),
        ")",
        *(["from hybridc.runtime.kernels.stored import Stored"] if stored else []),
    ]
    return "\n".join([*lines, "", "", body, ""])


def _closed(uses: Iterable[Use], groups: Mapping[str, Group]) -> Iterator[Use]:
    """The uses, each once, with those of the groups that make quantized results anew."""
    seen: list[Use] = []
    for use in uses:
        wanted = [use]
        if use.name not in ROUTERS:
            names = (use.name, derived(use.name, groups).again)
            wanted = [_narrowed(use, derived(name, groups)) for name in names if name]
        for one in wanted:
            if one not in seen:
                seen.append(one)
                yield one


def _narrowed(use: Use, group: Group) -> Use:
    """The use of a group on the same rows, with the constants that it has."""
    return replace(use, name=group.name, constants={c: use.constants[c] for c in group.constants})


def _forms(group: Group, made: Pair, use: Use) -> list[str]:
    return [*_form(made.forward, use), *_form(made.backward, use)]


def _form(program: Program, use: Use) -> list[str]:
    """The call that describes how a program is compiled."""
    types: dict[str, str] = {}
    for access in accesses(program):
        if access.form:
            types[access.tensor] = POINTERS[access.form]
        if access.form == "e4m3_block":
            types[f"{access.tensor}_scale"] = "fp32"
        if access.kind == "block" or access.tensor in ("cos", "sin"):
            types[access.tensor] = "fp32"
        if access.tensor == "codes":
            types[access.tensor] = "fp8e4nv"
    options: dict[str, object] = dict(fit(program))
    if use.segments:
        options["segments"] = use.segments
    constants = {c: use.constants[c] for c in program.constants}
    return _listed(program.name, use, options, types, constants)


ROUTED = {"renormalize": True, "eps": 0.0, "scaling": 1.0, "groups": 1, "top_groups": 1}


def _router_forms(made: Router, use: Use) -> list[str]:
    constants = {**ROUTED, **use.constants}
    backward = {n: constants[n] for n in NUMBERS}
    constants["SLOTS"] = 1 << (int(constants["k"]) - 1).bit_length()
    types = {"weights": "fp32", "ids": "i64", **({"bias": "fp32"} if made.bias else {})}
    return [
        *_listed(f"{made.name}_forward", use, {"whole": LIMIT}, types, constants),
        *_listed(f"{made.name}_backward", use, {"whole": LIMIT}, {"ids": "i64", "dweights": "fp32"}, backward),
    ]


def _listed(
    kernel: str, use: Use, options: Mapping[str, object], types: Mapping[str, str], constants: Mapping[str, object]
) -> list[str]:
    """The lines of a call of `form` in a list."""
    given = dict(options)
    if use.dtype != "bf16":
        given["dtype"] = quote(use.dtype)
    if types:
        given["types"] = _table(types)
    if constants:
        given["constants"] = _table(constants)
    if "fp8e4nv" in types.values():
        given["targets"] = "(90, 100)"
    line = f"{call('form', kernel, use.width, **given)},"
    if len(line) <= 114:
        return [line]
    arguments = [kernel, str(use.width), *(f"{k}={v}" for k, v in given.items())]
    return ["form(", *(f"    {row}" for row in filled(arguments, 108)), "),"]


def _table(items: Mapping[str, object]) -> str:
    """A dict's literal."""
    return "{" + ", ".join(f"{quote(k)}: {lit(v)}" for k, v in items.items()) + "}"  # type: ignore[arg-type]
