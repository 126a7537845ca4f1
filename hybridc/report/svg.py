"""SVG pictures: the stack of layers, and the inside of a block as a dataflow graph.

Colours are CSS classes (`fam-attention`, `ink`, `line`), which the page defines for light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from hybridc.ir.graph import Block, Node
from hybridc.ir.ops.basic import Add, Mul, Scale
from hybridc.report.layout import grid
from hybridc.report.palette import family
from hybridc.report.summary import Run, Summary, count, mixers, short

LABELLED = 48
"""Layers up to which the stack's cells are tall enough for their names."""
DRAWN = 400
"""Cells that are drawn in all; further ones are counted in words."""

ROW, COLUMN, BOX_HEIGHT, STEM = 58, 164, 38, 56


def stack(report: Summary) -> str:
    """The layers from embedding to head, repeated units once with how often; a cell shows what its block is made of."""
    width, left, cell = 340, 10, 226
    units = [run for stage in report.stages for run in stage]
    named = sum(len(run.unit) for run in units) <= LABELLED
    height, gap = (30, 5) if named else (9, 2)
    parts: list[str] = []
    y = 8

    def put(block: Block, at: int, tall: int, label: bool) -> None:
        parts.extend(_cell(block, left + 12, at, cell - 24, tall, label))

    put(report.module.embed, y, 30, True)
    y += 44
    drawn = 0
    for number, stage in enumerate(report.stages):
        if number:
            parts.append(f'<line class="cut" x1="{left}" x2="{left + cell + 86}" y1="{y}" y2="{y}"/>')
            parts.append(_text(left + cell + 86, y - 4, f"stage {number + 1}", "small end"))
            y += 14
        for run in stage:
            shown = run.unit[: max(0, DRAWN - drawn)]
            drawn += len(shown)
            tall = len(shown) * (height + gap) - gap if shown else 0
            if run.count > 1 and shown:
                parts.append(
                    f'<rect class="frame" x="{left}" y="{y - 7}" width="{cell}" height="{tall + 14}" rx="10"/>'
                )
                parts.append(_text(left + cell + 10, y + tall / 2 + 6, f"× {count(run.count)}", "times"))
            for name in shown:
                put(report.module.by_name[name], y, height, named)
                y += height + gap
            if len(run.unit) > len(shown):
                y += 12
                parts.append(_text(left + 12, y, f"and {count(len(run.unit) - len(shown))} more layers", "small"))
                y += 8
            y += 14 if run.count > 1 or not named else 0
    y += 10
    put(report.module.head, y, 30, True)
    y += 38
    label = f"{report.module.name}: {len(report.module.layers)} layers"
    return _svg(width, y, label, parts)


def words(stages: tuple[tuple[Run, ...], ...]) -> str:
    """The layer pattern as text: `(M M A) × 8 | M`."""
    out = []
    for stage in stages:
        runs = []
        for run in stage:
            body = " ".join(run.unit[:DRAWN]) + (" ..." if len(run.unit) > DRAWN else "")
            if run.count > 1:
                body = f"({body}) × {count(run.count)}" if len(run.unit) > 1 else f"{body} × {count(run.count)}"
            runs.append(body)
        out.append(" ".join(runs))
    return " | ".join(out)


def _cell(block: Block, x: int, y: int, width: int, height: int, label: bool) -> Iterator[str]:
    """A layer: as many coloured parts as its block has mixers, its name on it."""
    kinds = [kind for _, kind in mixers(block)] or [""]
    step = width / len(kinds)
    made = ", ".join(kinds)
    yield f"<g><title>{escape(block.name)}: {escape(made)}</title>"
    for n, kind in enumerate(kinds):
        at, wide = x + n * step, step - (1 if n + 1 < len(kinds) else 0)
        name = family(kind, parameters=bool(kind))
        yield f'<rect class="fam-{name}" x="{at:.1f}" y="{y}" width="{wide:.1f}" height="{height}" rx="4"/>'
    if label:
        yield _text(x + 8, y + height / 2 + 4.5, _cut(block.name, 26), "name")
    yield "</g>"


def dataflow(block: Block) -> str:
    """A block as a graph from its arguments down to its result, the residual stream straight on the left."""
    lay = grid(block)
    nodes = {n.name: n for n in block.nodes}
    boxed = any(lay.place[n.name][1] == 0 and not _round(n) for n in block.nodes)
    first = COLUMN if boxed else STEM

    def center(name: str) -> tuple[float, float]:
        row, column = lay.place[name]
        x = first / 2 if column == 0 else first + (column - 0.5) * COLUMN
        return x + 6, row * ROW + 24

    parts: list[str] = []
    for node in block.nodes:
        for operand in node.operands:
            source = nodes.get(operand)
            parts.append(_edge(center(operand), _half(source), center(node.name), node))
    x, y = center(block.result)
    end = lay.rows * ROW + 10
    parts.append(f'<path class="line" d="M {x:.1f} {y + _half(nodes.get(block.result)):.1f} V {end}"/>')
    parts.append(_arrow(x, end))
    for arg in block.args:
        x, y = center(arg.name)
        parts.append(f'<rect class="arg" x="{x - 20:.1f}" y="{y - 13:.1f}" width="40" height="26" rx="13"/>')
        parts.append(_text(x, y + 4.5, arg.name, "mid"))
    for node in block.nodes:
        parts.extend(_node(block, node, *center(node.name)))
    width = first + (lay.columns - 1) * COLUMN + 12
    return _svg(width, end + 8, f"dataflow of {block.name}", parts)


def _round(node: Node) -> bool:
    return isinstance(node.op, (Add, Mul))


def _half(node: Node | None) -> float:
    """Half of the height of what stands for a node, or for an argument (None)."""
    return 13.0 if node is None or _round(node) or isinstance(node.op, Scale) else BOX_HEIGHT / 2


def _edge(source: tuple[float, float], below: float, target: tuple[float, float], node: Node) -> str:
    """A line from the bottom of one to the top of the other; into a sum from the side that it comes from."""
    (x1, y1), (x2, y2) = (source[0], source[1] + below), target
    if _round(node) and abs(x1 - x2) > 1:
        side = 13 if x1 > x2 else -13
        bend = min(abs(x1 - x2) * 0.6, 60) * (1 if side > 0 else -1)
        path = f"M {x1:.1f} {y1:.1f} C {x1:.1f} {y2:.1f} {x2 + side + bend:.1f} {y2:.1f} {x2 + side:.1f} {y2:.1f}"
        return f'<path class="line" d="{path}"/>'
    y2 -= _half(node)
    if abs(x1 - x2) < 1:
        return f'<path class="line" d="M {x1:.1f} {y1:.1f} V {y2:.1f}"/>'
    # straight down to the last gap between rows, and across there
    turn = max(y1, y2 - (ROW - BOX_HEIGHT))
    middle = (turn + y2) / 2
    path = f"M {x1:.1f} {y1:.1f} V {turn:.1f} C {x1:.1f} {middle:.1f} {x2:.1f} {middle:.1f} {x2:.1f} {y2:.1f}"
    return f'<path class="line" d="{path}"/>'


def _node(block: Block, node: Node, x: float, y: float) -> Iterator[str]:
    kind = type(node.op).kind
    params = sum(p.numel for p in node.op.params(block.widths(node)) if not p.tied)
    yield f"<g><title>{escape(node.text or kind)} : {escape(str(node.type))}</title>"
    if _round(node):
        yield f'<circle class="fam-glue edge" cx="{x:.1f}" cy="{y:.1f}" r="13"/>'
        yield _text(x, y + 5, "+" if isinstance(node.op, Add) else "·", "mid sign")
    elif isinstance(node.op, Scale):
        yield f'<rect class="fam-glue edge" x="{x - 46:.1f}" y="{y - 13:.1f}" width="92" height="26" rx="13"/>'
        yield _text(x, y + 4.5, f"× {node.op.factor:.4g}", "mid")
    else:
        wide = COLUMN - 18
        colour = family(kind, parameters=bool(node.path))
        yield (
            f'<rect class="fam-{colour}" x="{x - wide / 2:.1f}" y="{y - BOX_HEIGHT / 2:.1f}" width="{wide}" '
            f'height="{BOX_HEIGHT}" rx="7"/>'
        )
        more = [kind] if node.path not in ("", kind) else []
        more += [short(params) + ("" if more else " params")] if params else []
        top = y - 2 if more else y + 4.5
        yield _text(x, top, _cut(node.path or kind, 20), "mid name")
        if more:
            yield _text(x, y + 12, _cut(" · ".join(more), 26), "mid small")
    yield "</g>"


def _arrow(x: float, y: float) -> str:
    return f'<path class="tip" d="M {x - 4:.1f} {y - 6:.1f} L {x:.1f} {y:.1f} L {x + 4:.1f} {y - 6:.1f}"/>'


def _text(x: float, y: float, text: str, style: str) -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _svg(width: float, height: float, label: str, parts: list[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" xmlns="http://www.w3.org/2000/svg">\n{body}\n</svg>'
    )
