"""What a group's kernels are called with: an autograd function, and the plain function in front of it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from hybridc.codegen.triton.derive import Pair
from hybridc.codegen.triton.group import BLOCK, Group, Input, Output
from hybridc.codegen.triton.kernel_code import accesses, widest
from hybridc.codegen.triton.program import Access, Program
from hybridc.ir.emit import call, filled

DTYPES = {"e4m3_block": "torch.float8_e4m3fn", "e4m3_row": "torch.float8_e4m3fn", "int8_row": "torch.int8"}
BLOCKS = f"triton.cdiv(width, {BLOCK})"


def wrapper(group: Group, pair: Pair) -> str:
    """The text of the autograd function and of the public one. `pair` has the programs that became kernels."""
    made = _Wrapper(group, pair)
    return "\n".join([*made.function(), "", "", *made.public()])


def class_name(group: str) -> str:
    """`add_rmsnorm` -> `AddRmsnorm`."""
    return "".join(part.capitalize() for part in group.split("_"))


def fit(program: Program) -> dict[str, object]:
    """The keyword arguments of `tile` for a program, but for those that only a launch knows."""
    columns = not program.whole_rows and not program.segmented
    out: dict[str, object] = {"columns": True} if columns else {"limit": widest(program)}
    return {**out, "least": BLOCK} if any(a.form == "e4m3_block" for a in accesses(program)) else out


def definition(
    name: str, doc: str, given: list[str], forward: list[str], gradients: list[str], backward: list[str]
) -> list[str]:
    """An autograd function: the arguments and lines of its forward, and those of its backward."""
    return [
        f"class {name}(torch.autograd.Function):",
        *indented(documented(doc)),
        "",
        "    @staticmethod",
        f"    def forward(ctx, {', '.join(given)}):",
        *(f"        {line}" for line in forward),
        "",
        "    @staticmethod",
        "    @once_differentiable",
        f"    def backward(ctx, {', '.join(gradients)}):",
        *(f"        {line}" for line in backward),
    ]


def indented(lines: list[str]) -> list[str]:
    """Lines one level further in."""
    return [f"    {line}" if line else "" for line in lines]


def documented(*paragraphs: str) -> list[str]:
    """A docstring."""
    lines: list[str] = []
    for text in paragraphs:
        lines += ["", *textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)]
    if len(lines) == 2:
        return [f'"""{lines[1]}"""']
    return [f'"""{lines[1]}', *lines[2:], '"""']


def launched(kernel: str, arguments: list[str]) -> list[str]:
    """The lines that launch a kernel on the grid of `fit`."""
    return [f"{kernel}[fit.grid](", *(f"    {line}" for line in filled(arguments, 104)), ")"]


@dataclass
class _Wrapper:
    """The text in the making."""

    group: Group
    pair: Pair

    def __post_init__(self) -> None:
        self.inputs = {i.name: i for i in self.group.inputs}
        self.segmented = self.group.segmented
        self.first = self.group.inputs[0].name
        self.numbers = [*self.group.constants, *(["segments"] if self.segmented else [])]

    def function(self) -> list[str]:
        gradients = []
        for o in self.group.outputs:
            gradients += [f"{o.name}_unused", f"{o.name}_scale_unused"] if o.form else []
            gradients.append(f"d{o.name}")
        given = [*self.inputs, *self.numbers]
        name = class_name(self.group.name)
        return definition(name, self.group.doc, given, list(self.forward()), gradients, list(self.backward()))

    def forward(self) -> Iterator[str]:
        like = self.group.like
        yield f"rows = Rows.of({self.first}, like=[{', '.join(like)}])" if like else f"rows = Rows.of({self.first})"
        yield from self.measure()
        program = self.pair.forward
        yield from self.matrices(program)
        for o in self.group.outputs:
            yield from self.result(o)
        across = "segments" if self.segmented else "1"
        yield from (f"{name} = rows.empty({across}, torch.float32)" for name in self.pair.statistics)
        yield from self.launch(program)
        yield f"ctx.save_for_backward({', '.join(self.pair.saved)})"
        kept = self.kept()
        yield f"{', '.join(f'ctx.{k}' for k in kept)} = {', '.join(kept)}"
        yield "ctx.set_materialize_grads(False)"
        results: list[str] = []
        marked: list[str] = []
        for o in self.group.outputs:
            results.append(o.name)
            if o.form:
                marked += [o.name, f"{o.name}_scale"]
                results += [f"{o.name}_scale", f"rows.carrier({self.columns(o)})"]
        if marked:
            yield f"ctx.mark_non_differentiable({', '.join(marked)})"
        yield f"return {', '.join(results)}"

    def backward(self) -> Iterator[str]:
        kept = self.kept()
        if self.pair.saved:
            yield f"{', '.join(self.pair.saved)}{',' if len(self.pair.saved) == 1 else ''} = ctx.saved_tensors"
        yield f"{', '.join(kept)} = {', '.join(f'ctx.{k}' for k in kept)}"
        program = self.pair.backward
        yield from self.matrices(program)
        for store in program.stores:
            a = store.access
            if a.kind == "row":
                yield f"{a.tensor} = rows.empty({'segments' if self.own(a) else '1'}, torch.float32)"
            elif self.group.rest:
                used = f"{len(a.parts)} * width"
                yield f"{a.tensor} = rows.handed_through(d{self.group.outputs[0].name}_rows, segments, {used})"
            else:
                yield f"{a.tensor} = rows.empty({self.columns(a)})"
        yield from self.launch(program)
        yield f"return {', '.join(self.gradient(i) for i in self.inputs)}{', None' * len(self.numbers)}"

    def gradient(self, name: str) -> str:
        """What the backward returns for an input."""
        i, tensor = self.inputs[name], self.pair.gradients.get(name)
        if tensor is None:
            return "None"
        if i.kind != "vector":
            return tensor
        if not self.segmented:
            return f"{tensor}.sum(0)"
        return f"{tensor}.sum((0, 1))" if i.shared else f"{tensor}.sum(0).flatten()"

    def kept(self) -> list[str]:
        """What the backward knows besides tensors."""
        return ["rows", "width", *(["segments", "step"] if self.segmented else []), *self.pair.backward.constants]

    def measure(self) -> Iterator[str]:
        """`width`, and in a segmented group `step`, from one segment to the next."""
        by = self.group.measured
        if self.segmented:
            yield f"step = {self.first}.shape[-1] // segments"
        whole = "step" if self.segmented and not by.shared else f"{by.name}.shape[-1]"
        yield f"width = {whole}" + (f" // {len(by.parts)}" if by.parts else "")

    def matrices(self, program: Program) -> Iterator[str]:
        """Views of what a program reads."""
        for a in program.loads:
            if a.kind in ("full", "block"):
                yield f"{a.tensor}_rows = rows.matrix({a.tensor}, {self.columns(a)})"

    def own(self, item: Access | Input | Output) -> bool:
        """Whether each segment has numbers of its own in a tensor."""
        return self.segmented and not getattr(item, "shared", False)

    def columns(self, item: Access | Input | Output) -> str:
        """The expression for the last dim of a tensor with rows."""
        if getattr(item, "kind", "full") == "block":
            return BLOCKS
        if self.own(item):
            return "segments * step"
        return f"{len(item.parts)} * width" if item.parts else "width"

    def result(self, o: Output) -> Iterator[str]:
        """The tensors that a result goes into."""
        if self.group.rest:
            yield f"{o.name} = rows.handed_through({self.first}_rows, segments, {len(o.parts)} * width)"
        else:
            yield f"{o.name} = rows.empty({self.columns(o)}{f', {DTYPES[o.form]}' if o.form else ''})"
        if o.form:
            yield f"{o.name}_scale = rows.empty({BLOCKS if o.form == 'e4m3_block' else '1'}, torch.float32)"

    def launch(self, program: Program) -> Iterator[str]:
        options = dict(fit(program))
        if self.segmented:
            options["segments"] = "segments"
        if program.sums:
            options["programs"] = "rows.shares"
        yield f"fit = {call('tile', 'rows.count', 'width', **options)}"
        for store in program.sums:
            shape = "fit.grid[0], segments, width" if self.segmented else "fit.grid[0], width"
            yield f"{store.access.tensor} = rows.zeros({shape})"
        arguments: list[str] = []
        for a in program.loads:
            arguments += self.read(a)
        for store in (*program.stores, *program.sums):
            a = store.access
            arguments += [a.tensor, self.columns(a)] if a.kind == "full" else [a.tensor]
            if a.form == "e4m3_block":
                arguments.append(f"{a.tensor}_scale")
        arguments += ["step", "rows.count"] if self.segmented else ["rows.count"]
        arguments += ["WIDTH=width", *(f"{c}={c}" for c in program.constants), "**fit.options"]
        yield from launched(program.name, arguments)

    def read(self, a: Access) -> list[str]:
        if a.kind in ("full", "block"):
            return [f"{a.tensor}_rows", f"{a.tensor}_rows.stride(0)"]
        if a.kind == "vector":
            return [f"vector({a.tensor}, {'segments * width' if self.own(a) else 'width'})"]
        if a.tensor in self.inputs:
            return [f"rows.numbers({a.tensor}, {'segments' if self.own(a) else '1'})"]
        return [a.tensor]

    def public(self) -> Iterator[str]:
        numbers = f", *, {', '.join(self.numbers)}" if self.numbers else ""
        yield f"def {self.group.name}({', '.join(self.inputs)}{numbers}):"
        shapes = ", ".join(f"{i.name} {self.shape(i)}" for i in self.group.inputs)
        results = ", ".join(self.words(o) for o in self.group.outputs)
        yield from indented(documented(self.group.doc, f"{shapes} -> {results}."))
        applied = f"{class_name(self.group.name)}.apply({', '.join([*self.inputs, *self.numbers])})"
        *others, last = self.group.outputs
        if not last.form:
            yield f"    return {applied}"
            return
        parts = [last.name, f"{last.name}_scale", f"d{last.name}"]
        yield f"    {', '.join([*(o.name for o in others), *parts])} = {applied}"
        stored = f"Stored({', '.join([*parts, self.again(others)])})"
        yield f"    return {', '.join([*(o.name for o in others), stored])}"

    def again(self, others: list[Output]) -> str:
        """What computes the quantized result anew, as it is."""
        given = [i for i in self.inputs if self.inputs[i].kind == "vector"] if others else list(self.inputs)
        numbers = [n for n in self.numbers if n != "factor" or not others]
        options = [f"{n}={n}" for n in numbers]
        return f"partial({', '.join([self.group.again, *(o.name for o in others), *given, *options])})"

    def shape(self, item: Input | Output) -> str:
        """The shape of a tensor, in words."""
        kind = getattr(item, "kind", "full")
        if kind == "block":
            return f"[..., ceil(width / {BLOCK})]"
        if kind == "row":
            return "[..., segments]" if self.own(item) else "[..., 1]"
        width = f"{len(item.parts)} width" if item.parts else "width"
        if self.own(item):
            width = f"segments ({width} or more)" if self.group.rest else f"segments {width}"
        return f"[{width}]" if kind == "vector" else f"[..., {width}]"

    def words(self, o: Output) -> str:
        if not o.form:
            return f"{o.name} {self.shape(o)}"
        return f"{o.name} {self.shape(o)} as it is stored"
