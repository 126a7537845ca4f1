"""A typed module to the text of `model.py`: one class for each distinct block, one for each composite op in it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hybridc.codegen.forward_code import WIDTH, forward_lines, loss_lines
from hybridc.codegen.init_code import filler
from hybridc.codegen.layerwise import Names, Shared, classes
from hybridc.codegen.place import enter
from hybridc.codegen.stage_code import stage_methods
from hybridc.ir.emit import ClassBody, Emit, broken, call, quote
from hybridc.ir.folding import fold, runs
from hybridc.ir.graph import Block, Module
from hybridc.ir.ops.base import Param
from hybridc.ir.ops.collectives import Collective
from hybridc.ir.ops.embedding import Embedding, LMHead
from hybridc.ir.sharding import FIRST, SAME, Cut
from hybridc.ir.types import DType

RESERVED = frozenset("F Context LanguageModel Embed Head Model".split())  # noqa: SIM905
"""Names at the top of model.py that a composite op's class must not take; functions and modules are in lower case."""


@dataclass
class _File:
    """A model.py in the making."""

    module: Module
    emit: Emit = field(default_factory=Emit)
    classes: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    fused_loss: bool = False

    def class_name(self, wanted: str) -> str:
        if wanted in RESERVED or wanted.startswith("ROPE"):
            wanted += "Op"
        name, n = wanted, 1
        while name in self.taken:
            n += 1
            name = f"{wanted}_{n}"
        self.taken.add(name)
        return name


def emit_model(module: Module, origin: str, emit: Emit | None = None) -> str:
    """The text of `model.py`. `origin` says in its first line what it was made from, `emit` for which target; it takes
    down what was used there."""
    file = _File(module, emit or Emit())
    reserved = {b.name for b in module.blocks}
    file.taken |= reserved | {"Embed", "Head", "Model"}
    shared = classes(module)
    _block_class(file, module.embed)
    for block in module.blocks:
        if shared[block.name].name == block.name:
            _block_class(file, block, shared[block.name].arguments)
    _block_class(file, module.head)
    file.classes.append(_model_class(module, shared, fused_loss=file.fused_loss))
    body = "\n\n\n".join(file.classes)
    named = (broken(f"{name} = {text}", WIDTH + 4) for text, name in file.emit.constants.items())
    constants = "".join(f"{line}\n" for lines in named for line in lines)
    parts = [*docstring(origin.splitlines()), "", *_imports(body + constants, file.emit)]
    head = "\n".join(parts)
    return f"{head}\n\n{constants}\n\n{body}\n" if constants else f"{head}\n\n\n{body}\n"


def _imports(text: str, emit: Emit) -> list[str]:
    """Import lines for what the text uses."""
    fillers = sorted(
        {
            m
            for m in re.findall(
                r"\b(a_log_range|a_log|constant|dt_bias|normal|ones|softplus_decay|ternary|uniform|zeros)\(", text
            )
        }
    )
    lines = ["from functools import partial", ""] if re.search(r"\bpartial\(", text) else []
    lines += ["import torch"] if re.search(r"\btorch\.", text) else []
    lines.append("from torch import nn")
    if re.search(r"\bF\.", text):
        lines.append("from torch.nn import functional as F")
    lines.append("")
    if runtime := [name for name in ("gpu", "ops") if re.search(rf"\b{name}\.", text)]:
        lines.append(f"from hybridc.runtime import {', '.join(runtime)}")
    lines.append("from hybridc.runtime.context import Context")
    if fillers:
        lines.append(f"from hybridc.runtime.init import {', '.join(fillers)}")
    named = {u.choice.offer.module for u in emit.uses if u.choice.offer is not None} - {"", "gpu", "ops"}
    if libraries := [name for name in sorted(named) if re.search(rf"\b{name}\.", text)]:
        lines.append(f"from hybridc.runtime.libraries import {', '.join(libraries)}")
    lines.append("from hybridc.runtime.module import LanguageModel")
    if shards := [name for name in ("first", "split", "whole") if re.search(rf'": {name}\(', text)]:
        lines.append(f"from hybridc.runtime.parallel.shards import {', '.join(shards)}")
    if re.search(r"\bkernels\.", text):
        lines += ["", "from . import kernels"]
    return lines


def docstring(lines: list[str]) -> list[str]:
    """Lines of text as a docstring, wrapped; what a spec says in it can neither end nor escape it."""
    safe = [line.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') for line in lines]
    wrapped = [
        w for line in safe for w in textwrap.wrap(line, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    ]
    wrapped = wrapped or [""]
    if len(wrapped) == 1 and not wrapped[0].endswith('"'):
        return [f'"""{wrapped[0]}"""']
    return [f'"""{wrapped[0]}', *wrapped[1:], '"""']


def _class(name: str, doc: list[str], sections: list[list[str]], base: str = "nn.Module") -> str:
    lines = [f"class {name}({base}):", *(f"    {line}" for line in docstring(doc))]
    for section in sections:
        if section:
            lines += ["", *(f"    {line}" if line else "" for line in section)]
    return "\n".join(lines)


def _init_table(params: list[tuple[str, Param]], module: Module) -> list[str]:
    """`INIT = {...}` for the parameters that a class holds itself; `FP32 = (...)` for those that stay fp32; `SHARDS =
    {...}` for those that ranks have parts of, or of whose gradients they have."""
    lines = []
    if keep := [name for name, p in params if p.fp32]:
        lines.append(f"FP32 = ({', '.join(map(quote, keep))}{',' if len(keep) == 1 else ''})")
    entries = [f"{quote(name)}: {filler(p.fill, module)}" for name, p in params if not p.tied]
    if entries:
        lines += wrapped("INIT = {", entries, "}")
    shards = [f"{quote(name)}: {_shard(p.cut)}" for name, p in params if p.cut is not None and p.cut != SAME]
    if shards:
        lines += wrapped("SHARDS = {", shards, "}")
    return lines


def _shard(cut: Cut) -> str:
    """The entry of `SHARDS` for a parameter that ranks have parts of."""
    if cut.kind != "split":
        return "first()" if cut == FIRST else "whole()"
    options = {"dim": cut.dim or "", "copies": repr(cut.copies) if cut.copies else ""}
    return call("split", *cut.parts, **{k: v for k, v in options.items() if v})


def wrapped(head: str, items: list[str], tail: str) -> list[str]:
    """`head items tail` on one line if it fits, else filled lines between."""
    line = head + ", ".join(items) + tail
    if len(line) <= WIDTH - 4:
        return [line]
    rows: list[str] = [""]
    for item in items:
        piece = f"{item},"
        if rows[-1] and len(rows[-1]) + 1 + len(piece) > WIDTH - 8:
            rows.append("")
        rows[-1] += (" " if rows[-1] else "") + piece
    return [head, *(f"    {row}" for row in rows), tail]


def _composite(
    file: _File,
    name: str,
    doc: str,
    body: ClassBody,
    params: list[Param],
    *,
    mixed: bool = False,
    given: Sequence[str] = (),
) -> None:
    """Adds the class of a composite op, its composite parts first. `mixed`: some of its parts are shared between
    layers, and the others each layer's own. `given` are attributes that the constructor takes."""
    members = list(body.members)
    rest = list(params)
    for attribute, inner in body.inner:
        inner_name = file.class_name(name + camel(attribute))
        own = [p for p in rest if p.name.startswith(attribute + ".")]
        rest = [p for p in rest if p not in own]
        stripped = [replace(p, name=p.name.removeprefix(attribute + "."), own=False) for p in own]
        _composite(file, inner_name, f"{attribute} of {name}", inner, stripped)
        members.append(f"self.{attribute} = {inner_name}()")
    arguments = ", ".join(("self", *body.args))
    sections = [
        _init_table([(p.name, p) for p in rest], file.module),
        _constructor(
            [*(f"self.{n} = {n}" for n in given), *members],
            {p.name.partition(".")[0] for p in params if p.own} if mixed else None,
            given,
        ),
        [f"def forward({arguments}):", *(f"    {part}" for line in body.forward for part in broken(line, WIDTH - 4))],
    ]
    if body.state:
        sections.insert(2, ["def new_state(self, batch, max_len, device, dtype):", *_returned(body.state)])
    file.classes.append(_class(name, [doc], sections))


def _constructor(members: list[str], own: set[str] | None = None, given: Iterable[str] = ()) -> list[str]:
    """`__init__` with its members and the arguments `given`. All but those in `own`, if there is such a set, are taken
    from `shared`, an earlier layer, if there is one."""
    if own is None:
        lines = (part for m in members for part in broken(m, WIDTH - 4))
        head = f"def __init__({', '.join(('self', *given))}):"
        return [head, "    super().__init__()", *(f"    {line}" for line in lines)]
    paths = {m: m.removeprefix("self.").partition(" = ")[0] for m in members}
    made = [m for m, path in paths.items() if path not in own and not m.endswith(" = nn.Module()")]
    ours, theirs = ([f"{owner}.{paths[m]}" for m in made] for owner in ("self", "shared"))
    taken = f"{', '.join(ours)} = {', '.join(theirs)}"
    each = [taken] if len(taken) <= WIDTH - 12 else [" = ".join(pair) for pair in zip(ours, theirs, strict=True)]
    either = ["    if shared is None:", *(f"        {m}" for m in made), "    else:", *(f"        {m}" for m in each)]
    return [
        "def __init__(self, shared=None):",
        "    super().__init__()",
        *(f"    {m}" for m in members if m.endswith(" = nn.Module()")),
        *(either if made else []),
        *(f"    {m}" for m, path in paths.items() if path in own),
    ]


def _returned(expression: str) -> list[str]:
    """`return expression`, its arguments on lines of their own where it is long."""
    line = f"    return {expression}"
    if len(line) <= WIDTH - 4:
        return [line]
    function, _, arguments = expression.partition("(")
    return [f"    return {function}(", f"        {arguments[:-1]}", "    )"]


def camel(path: str) -> str:
    """`attn` -> `Attn`, `in_proj.up` -> `InProjUp`."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[._]", path))


def _block_class(file: _File, block: Block, arguments: Names | None = None) -> None:
    """Adds the classes of a block's composite ops, then the block's own, which takes `arguments`."""
    arguments = arguments or {}
    name = {"embed": "Embed", "head": "Head"}.get(block.name, block.name)
    members: list[str] = []
    leaves: list[tuple[str, Param]] = []
    groups: set[str] = set()
    split = is_split(file.module, block)
    own: set[str] = set()
    for node in block.nodes:
        if not node.path:
            continue
        widths = block.widths(node)
        given = {name: argument for (path, name), argument in arguments.items() if path == node.path}
        enter(file.emit, block, node, given)
        for group in _groups(node.path):
            if group not in groups:
                groups.add(group)
                members.append(f"self.{group} = nn.Module()")
        body = node.op.body(widths, file.emit)
        params = list(block.params_of(node))
        mixed = split and not node.own and any(p.own for p in params)
        if mixed or node.own:
            own.add(node.path)
        if body is not None:
            made = file.class_name(name + camel(node.path))
            _composite(file, made, f"{node.path}: {node.text}", body, params, mixed=mixed, given=tuple(given))
            argument = f"None if shared is None else shared.{node.path}" if mixed else ", ".join(given.values())
            members.append(f"self.{node.path} = {made}({argument})")
        elif constructor := node.op.constructor(widths, file.emit):
            members.append(f"self.{node.path} = {constructor}")
            leaves += [(f"{node.path}.{p.name}", p) for p in params]
    stream = ("x", "x0") if reads_embedding(file.module) else ("x",)
    ends = ("ctx",) if moves(block) else ()
    args = {"embed": ("ids", *ends), "head": ("x", *ends)}.get(block.name, (*stream, "ctx", "state"))
    doc = list(block.source) or [block.title]
    if block.title not in ("", block.name, "embed", "head"):
        doc.insert(0, f"{block.title}:")
    init = _constructor(members, own if split else None, arguments.values()) if members else []
    sections = [
        _init_table(leaves, file.module),
        init,
        [f"def forward(self, {', '.join(args)}):", *(f"    {line}" for line in forward_lines(block, file.emit))],
    ]
    if block.name == "head" and not ends and (lines := loss_lines(block, file.emit)):
        sections.append(["def loss(self, x, targets):", *(f"    {line}" for line in lines)])
        file.fused_loss = True
    file.classes.append(_class(name, doc, sections))


def moves(block: Block) -> bool:
    """Whether ranks send each other values in a block."""
    return any(isinstance(node.op, Collective) for node in block.nodes)


def _groups(path: str) -> list[str]:
    """The containers above a dotted path."""
    parts = path.split(".")
    return [".".join(parts[:n]) for n in range(1, len(parts))]


def is_split(module: Module, block: Block) -> bool:
    """Whether layers share some of a block's weights and have others of their own."""
    return any(layer.weights and layer.block == block.name for layer in module.layers) and any(
        node.own or param.own for node, param in block.params()
    )


def reads_embedding(module: Module) -> bool:
    """Whether a block reads `x0`; then all blocks take it, so that the loop over layers treats them alike."""
    return any(a.name == "x0" for b in module.blocks for a in b.args)


def _model_class(module: Module, shared: Mapping[str, Shared], *, fused_loss: bool) -> str:
    """`Model`: embedding, layers in order, head."""
    tied = _tied(module)
    init = ["def __init__(self):", "    super().__init__()", "    self.embed = Embed()"]
    init += [f"    {line}" for line in _layer_list(module, shared)]
    init.append("    self.head = Head()")
    if tied:
        init.append("    self.tie_weights()")
    if module.dtype is not DType.FP32 and not is_fsdp(module):
        init.append(f"    self.to(torch.{module.dtype.torch_name})")
    uses_x0 = reads_embedding(module)
    layer = "x = layer(x, ctx, ctx.state(i))"
    if uses_x0:
        layer = "x = layer(x, x0, ctx, ctx.state(i))"
    given = "attention_mask=attention_mask, seq=seq, positions=positions, cache=cache"
    if emitted_axes(module):
        given += ", mesh=self.mesh"
    ctx = ", ctx" if module.axis("tp") > 1 else ""
    output = "output_of(self.head, x, labels)" if fused_loss else f"output(self.head(x{ctx}), labels)"
    weight = next(iter(module.head.nodes[-1].held or ()), None)
    if ctx and weight is not None and weight.cut is not None:
        output = f"output_over({weight.cut.parts[0]}, self.head(x, ctx), labels)"
    forward = [
        "def forward(self, input_ids, labels=None, *, attention_mask=None, seq=None, positions=None, cache=None):",
        *(f"    {line}" for line in broken(f"ctx = Context(input_ids, {given})", WIDTH - 4)),
        f"    x = x0 = self.embed(ctx.input_ids{ctx})" if uses_x0 else f"    x = self.embed(ctx.input_ids{ctx})",
        "    for i, layer in enumerate(self.layers):",
        f"        {layer}",
        f"    return ctx.{output}",
    ]
    sections = [init, forward]
    if module.axis("pp") > 1:
        sections = [init, *stage_methods(ctx, layer.replace("layer(", "self.layers[i](", 1), output, x0=uses_x0)]
    if sizes := emitted_axes(module):
        shown = ", ".join(f"{quote(name)}: {size}" for name, size in sizes.items())
        sections.insert(0, [f"MESH = {{{shown}}}"])
    if tied:
        sections.insert(-1, ["def tie_weights(self):", *(f"    self.{a} = self.{b}" for a, b in tied)])
    doc = f"{module.name}: {fold([shared[layer.block].name for layer in module.layers])}"
    if len(doc) > 200:
        doc = f"{module.name}: {len(module.layers)} layers"
    return _class("Model", [doc], sections, "LanguageModel")


def emitted_axes(module: Module) -> dict[str, int]:
    """The axes of more than one rank that a module is emitted for."""
    return {axis: module.axis(axis) for axis in ("pp", "dp", "tp") if module.axis(axis) > 1}


def is_fsdp(module: Module) -> bool:
    """Whether data-parallel ranks have shards of parameters, which stay fp32 and are cast as they are gathered."""
    return any(a.name == "dp" and a.size > 1 and a.form.startswith("fsdp") for a in module.mesh)


def _tied(module: Module) -> list[tuple[str, str]]:
    """Pairs (a head's weight, the embedding's weight) that are one tensor."""
    source = next((n.path for n in module.embed.nodes if isinstance(n.op, Embedding)), "")
    heads = [n.path for n in module.head.nodes if isinstance(n.op, LMHead) and n.op.tied]
    return [(f"head.{path}.weight", f"embed.{source}.weight") for path in heads]


def _layer_list(module: Module, shared: Mapping[str, Shared]) -> list[str]:
    """The lines that make `self.layers`; shared sets are made first and stand in the list as often as they occur."""
    lines = []
    held: dict[str, str] = {}
    for layer in module.layers:
        if layer.weights and layer.weights not in held:
            held[layer.weights] = "_shared_" + re.sub(r"\W", "_", layer.weights)
            lines.append(f"{held[layer.weights]} = {layer.block}()")
    if held:
        split = {b.name for b in module.blocks if is_split(module, b)}
        entries, seen = [], set()
        for layer in module.layers:
            entry = held.get(layer.weights, shared[layer.block].call())
            if layer.block in split and layer.weights in seen:
                entry = f"{layer.block}({entry})"
            entries.append(entry)
            seen.add(layer.weights)
        return [*lines, *wrapped("self.layers = nn.ModuleList([", entries, "])")]
    if any(s.arguments for s in shared.values()):
        calls = [shared[layer.block].call() for layer in module.layers]
        return wrapped("self.layers = nn.ModuleList([", calls, "])")
    order = tuple_text([layer.block for layer in module.layers])
    line = f"self.layers = nn.ModuleList(block() for block in {order})"
    if len(line) <= WIDTH - 8:
        return [line]
    return [
        *wrapped("_order = [", [layer.block for layer in module.layers], "]"),
        "self.layers = nn.ModuleList(block() for block in _order)",
    ]


def tuple_text(names: list[str]) -> str:
    """A list of names as Python, repeated units folded: `(M, M, M, A) * 8`, `(M,) * 3 + (A,)`."""
    parts = [
        f"({', '.join(unit)}{',' if len(unit) == 1 else ''})" + (f" * {n}" if n > 1 else "") for unit, n in runs(names)
    ]
    return " + ".join(parts)
