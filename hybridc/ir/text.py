"""The textual IR: `print_module` and `parse_module`, an exact round trip; golden tests and `--print-after` use it."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

from hybridc.ir.attrs import changed, show
from hybridc.ir.folding import fold
from hybridc.ir.graph import Arg, Block, InitScheme, Layer, MeshAxis, Module, Node, PrecisionRule
from hybridc.ir.ops import OPS, fields
from hybridc.ir.types import DType, TensorType, parse_tensor


def print_type(type: TensorType | None) -> str:
    """`[B, S, 64] fp32`, or `?` before types are inferred."""
    return "?" if type is None else str(type)


def print_node(node: Node) -> str:
    """`%1 = attention %0 {heads = 8} as (qkv bitnet) : [B, S, 64] fp32  // attn`; `own` in front of the op for a node
    whose parameters are each layer's own. Behind: `in rmsnorm.0`, the kernel that computes it, and `with (act
    silu_glu)`, kernels for parts of it."""
    operands = ", ".join(f"%{o}" for o in node.operands)
    attributes = ", ".join(f"{k} = {show(v)}" for k, v in changed(node.op))
    own = "own " if node.own else ""
    text = f"%{node.name} = {own}{type(node.op).kind} {operands}" + (f" {{{attributes}}}" if attributes else "")
    if node.formats:
        text += f" as ({'; '.join(f'{part} {format}'.lstrip() for part, format in node.formats)})"
    if node.kernel:
        text += f" in {node.kernel}"
    if node.inner:
        text += f" with ({'; '.join(f'{part} {kernel}' for part, kernel in node.inner)})"
    return f"{text} : {print_type(node.type)}" + (f"  // {node.path}" if node.path else "")


def print_block(block: Block, indent: str = "") -> str:
    """A block, an op a line."""
    args = ", ".join(f"%{a.name}: {print_type(a.type)}" for a in block.args)
    result = print_type(block.types.get(block.result))
    lines = [f"block @{block.name}({args}) -> {result} {{"]
    lines += [f"  {print_node(n)}" for n in block.nodes]
    residuals = f"  // residuals = {block.residuals}" if block.residuals else ""
    lines += [f"  return %{block.result}{residuals}", "}"]
    return "\n".join(indent + line for line in lines)


def print_layers(layers: Iterable[Layer]) -> str:
    """Repetitions folded as `(@M @M @A) * 8`, shared weights as `@A#A.0`, a stage boundary as `|`."""
    parts = []
    for _, stage in itertools.groupby(layers, key=lambda layer: layer.stage):
        parts.append(fold([f"@{x.block}" + (f"#{x.weights}" if x.weights else "") for x in stage]))
    return " | ".join(parts)


def print_module(module: Module) -> str:
    """The whole module as text that `parse_module` reads back to an equal one."""
    init = module.init
    lines = [f"module @{module.name} {{"]
    lines += [f"  param {name} = {show(value)}" for name, value in module.params]
    lines.append(f"  init {init.kind} std = {show(init.std)} depth = {show(init.depth)}")
    lines.append(f"  dtype {module.dtype.value}")
    for rule in module.precision:
        exclude = f" except {', '.join(rule.exclude)}" if rule.exclude else ""
        lines.append(f"  precision {rule.format} on {', '.join(rule.on)}{exclude}")
    lines += [f"  mesh {a.name} = {a.size} as {a.form}" for a in module.mesh]
    lines += [print_block(b, "  ") for b in (module.embed, *module.blocks, module.head)]
    lines.append(f"  layers {print_layers(module.layers)}")
    if module.mtp:
        lines.append(f"  mtp {print_layers(module.mtp)}")
    return "\n".join([*lines, "}", ""])


class IRSyntaxError(ValueError):
    """The text is not IR; the message names the line."""


_TOKEN = re.compile(
    r'\s*(?:(?P<number>-?(?:inf|\d+(?:\.\d+)?(?:e[+-]?\d+)?))(?![\w.])|(?P<word>[A-Za-z_]\w*)|(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<punct>[(){},=]))"
)


class _Values:
    """Reads attribute values: the inverse of `hybridc.ir.attrs.show`."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if not match:
                raise IRSyntaxError(f"unreadable attributes: {text[at:]!r}")
            self.tokens.append((match.lastgroup or "", match.group(match.lastgroup or 0)))
            at = match.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> tuple[str, str]:
        if self.at >= len(self.tokens) or (expected and self.peek() != expected):
            raise IRSyntaxError(f"expected `{expected}` in attributes, found `{self.peek()}`")
        self.at += 1
        return self.tokens[self.at - 1]

    def pairs(self, close: str) -> dict[str, Any]:
        out: dict[str, Any] = {}
        while self.peek() != close:
            name = self.take()[1]
            self.take("=")
            out[name] = self.value()
            if self.peek() == ",":
                self.take(",")
        self.take(close)
        return out

    def value(self) -> Any:
        group, text = self.take()
        if group == "number":
            return float(text) if any(c in text for c in ".einf") else int(text)
        if group == "string":
            return re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text[1:-1])
        if text == "(":
            items = []
            while self.peek() != ")":
                items.append(self.value())
                if self.peek() == ",":
                    self.take(",")
            self.take(")")
            return tuple(items)
        if text in ("true", "false", "none"):
            return {"true": True, "false": False, "none": None}[text]
        if text == "inf":
            return math.inf
        self.take("(")
        return build(text, self.pairs(")"))


def build(kind: str, attributes: dict[str, Any]) -> Any:
    """The op of a kind with attributes by the names that specs use."""
    if kind not in OPS:
        raise IRSyntaxError(f"unknown op `{kind}`")
    known = fields(OPS[kind])
    if unknown := set(attributes) - set(known):
        raise IRSyntaxError(f"`{kind}` has no attribute {sorted(unknown)}")
    return OPS[kind](**{known[k].name: v for k, v in attributes.items()})


def parse_type(text: str) -> TensorType | None:
    """The type that `print_type` printed. Raises IRSyntaxError."""
    text = text.strip()
    if text == "?":
        return None
    try:
        return parse_tensor(text)
    except (ValueError, KeyError) as error:
        raise IRSyntaxError(str(error)) from error


_FORMAT = re.compile(r"(?:(?P<part>[\w.]+) )?(?P<format>\w+(?:\(.*\))?)")
_NODE = re.compile(
    r"%(\w+) = (own )?(\w+) ((?:%\w+(?:, )?)+)(?: \{(.*?)\})?(?: as \((.*?)\))?"
    r"(?: in ([\w.]+))?(?: with \((.*?)\))? : (\?|\[[^\]]*\] \w+(?: \w+\(\w+\))*)(?:  // ([\w.]+))?"
)
_BLOCK = re.compile(r"block @(\w+)\((.*)\) -> (.*) \{")
_RETURN = re.compile(r"return %(\w+)(?:  // residuals = (\d+))?")


def _parse_block(lines: list[str]) -> Block:
    head = _BLOCK.fullmatch(lines[0])
    tail = _RETURN.fullmatch(lines[-1])
    if not head or not tail:
        raise IRSyntaxError(f"`{lines[0]}` does not open a block that ends in `return`")
    args = re.findall(r"%(\w+): (\?|\[[^\]]*\] \w+(?: \w+\(\w+\))*)", head[2])
    nodes = []
    for line in lines[1:-1]:
        match = _NODE.fullmatch(line)
        if not match:
            raise IRSyntaxError(f"`{line}` is not an op")
        name, own, kind, operands, attributes, formats, kernel, inner, type_text, path = match.groups()
        op = build(kind, _Values(attributes + "}").pairs("}") if attributes else {})
        found = tuple(re.findall(r"%(\w+)", operands))
        apart = [_FORMAT.fullmatch(pair) for pair in formats.split("; ")] if formats else []
        pairs = tuple((m["part"] or "", m["format"]) for m in apart if m)
        if len(pairs) != len(apart):
            raise IRSyntaxError(f"`{formats}` are no formats")
        node = Node(name, op, found, path or "", parse_type(type_text), formats=pairs, own=bool(own))
        nodes.append(dataclasses.replace(node, kernel=kernel or "", inner=_pairs(inner or "")))
    made = tuple(Arg(name, parse_type(t)) for name, t in args)
    return Block(head[1], made, tuple(nodes), tail[1], residuals=int(tail[2] or 0))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    """`act silu_glu; router softmax_router` as pairs."""
    apart = [pair.partition(" ") for pair in text.split("; ")] if text else []
    return tuple((part, kernel) for part, _, kernel in apart)


_LAYER = re.compile(
    r"(?P<cut>\|)|(?P<open>\()|\)(?: \* (?P<times>\d+))?"
    r"|@(?P<block>\w+)(?:#(?P<weights>[\w.]+))?(?: \* (?P<count>\d+))?"
)


def _parse_layers(text: str) -> tuple[Layer, ...]:
    out: list[Layer] = []
    stage, opened = 0, 0
    for match in _LAYER.finditer(text):
        if match["cut"]:
            stage += 1
        elif match["open"]:
            opened = len(out)
        elif match["block"]:
            out += [Layer(match["block"], stage, match["weights"] or "")] * int(match["count"] or 1)
        else:
            out += out[opened:] * (int(match["times"] or 1) - 1)
    return tuple(out)


def parse_module(text: str) -> Module:
    """The module that `print_module` printed. Raises IRSyntaxError."""
    lines = [line.strip() for line in text.strip().splitlines()]
    head = re.fullmatch(r"module @(\w+) \{", lines[0]) if lines else None
    if not head or lines[-1] != "}":
        raise IRSyntaxError("expected `module @name { ... }`")
    blocks: list[Block] = []
    params: list[tuple[str, Any]] = []
    rules: list[PrecisionRule] = []
    mesh: list[MeshAxis] = []
    init, dtype = InitScheme(), DType.FP32
    layers: tuple[Layer, ...] = ()
    mtp: tuple[Layer, ...] = ()
    at = 1
    while at < len(lines) - 1:
        line = lines[at]
        word, _, rest = line.partition(" ")
        if word == "block":
            end = at + lines[at:].index("}")
            blocks.append(_parse_block(lines[at:end]))
            at = end
        elif word == "param":
            name, _, value = rest.partition(" = ")
            params.append((name, _Values(value).value()))
        elif word == "init" and (m := re.fullmatch(r"(\w+) std = (\S+) depth = (\w+)", rest)):
            init = InitScheme(m[1], float(m[2]), m[3] == "true")
        elif word == "dtype":
            dtype = DType(rest)
        elif word == "precision" and (m := re.fullmatch(r"(.+?) on (.+?)(?: except (.+))?", rest)):
            rules.append(PrecisionRule(m[1], tuple(m[2].split(", ")), tuple((m[3] or "").split(", ")) if m[3] else ()))
        elif word == "mesh" and (m := re.fullmatch(r"(\w+) = (\d+) as (.+)", rest)):
            mesh.append(MeshAxis(m[1], int(m[2]), m[3]))
        elif word == "layers":
            layers = _parse_layers(rest)
        elif word == "mtp":
            mtp = _parse_layers(rest)
        else:
            raise IRSyntaxError(f"`{line}` is not part of a module")
        at += 1
    if len(blocks) < 2:
        raise IRSyntaxError("a module has an @embed and a @head block")
    return Module(
        head[1], blocks[0], tuple(blocks[1:-1]), layers, blocks[-1], mtp,
        tuple(params), init, dtype, tuple(rules), tuple(mesh),
    )  # fmt: skip
