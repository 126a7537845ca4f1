"""A report as one HTML page that needs nothing else: pictures, tables, precision and mesh, in light and dark."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files

from hybridc.ir.graph import Module
from hybridc.report import palette
from hybridc.report.summary import Summary, count, short, size, summarise
from hybridc.report.svg import dataflow, stack, words
from hybridc.version import VERSION


def render(module: Module, *, batch: int = 1, seq: int = 2048) -> str:
    """The page of a typed module; text from the spec is escaped."""
    report = summarise(module, batch=batch, seq=seq)
    name = escape(module.name)
    sections = [_facts(report), _pictures(report), _blocks(report), _ops(report), _placement(report)]
    body = "\n".join(sections)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{name} - hybridc report</title>\n<style>\n{_css()}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{name}</h1>\n<p><code>{escape(words(report.stages))}</code></p>\n{body}\n"
        f"<footer>Made by hybridc {escape(VERSION)}. FLOPs are forward, a multiply-add counts as two; activations are "
        "those kept for the backward without recomputation.</footer>\n</main>\n</body>\n</html>\n"
    )


def _css() -> str:
    def rules(colors: dict[str, str]) -> str:
        return "".join(f".fam-{name} {{ fill: {c}; background: {c}; }}\n" for name, c in colors.items())

    page = files("hybridc.report").joinpath("page.css").read_text(encoding="utf-8")
    return f"{rules(palette.LIGHT)}@media (prefers-color-scheme: dark) {{\n{rules(palette.DARK)}}}\n{page}"


def _facts(report: Summary) -> str:
    tokens = f"{count(report.batch)} x {count(report.seq)} tokens"
    facts = [
        (count(report.parameters), "parameters"),
        (
            count(len(report.module.layers)),
            f"layers of {len(report.module.counts)} kind{'s' * (len(report.module.counts) != 1)}",
        ),
        (short(report.flops_per_token), "FLOPs per token"),
        (size(report.weight_bytes), f"weights, {report.module.dtype.value}"),
        (size(report.activation_bytes), f"activations, {tokens}"),
        (size(report.cache_bytes), f"caches, {tokens}"),
    ]
    cells = "\n".join(f'<div class="fact"><b>{escape(b)}</b><span>{escape(s)}</span></div>' for b, s in facts)
    return f'<div class="facts">\n{cells}\n</div>'


def _pictures(report: Summary) -> str:
    module = report.module
    cards = []
    for name, layers in (("embed", 1), *module.counts.items(), ("head", 1)):
        block = module.by_name[name]
        source = "<br>".join(f"<code>{escape(line)}</code>" for line in block.source)
        many = f" × {count(layers)}" if layers > 1 else ""
        if "(" in block.title:
            source = f"<code>{escape(block.title)}</code><br>{source}"
        graph = f'<div class="wide">{dataflow(block)}</div>'
        cards.append(f'<div class="card"><h3>{escape(name)}{many}</h3><p>{source}</p>{graph}</div>')
    used = dict.fromkeys(
        palette.family(type(n.op).kind, parameters=bool(n.path)) for b in module.by_name.values() for n in b.nodes
    )
    legend = "".join(
        f'<li><i class="fam-{f}"></i>{escape(title)}</li>' for f, title in palette.TITLES.items() if f in used
    )
    return (
        "<h2>Model</h2>\n"
        f'<ul class="legend">{legend}</ul>\n<div class="pictures">\n<div class="card">{stack(report)}</div>\n'
        f"{''.join(cards)}\n</div>"
    )


def _table(head: list[str], rows: Iterable[tuple[str, list[str]]], *, words: int = 1) -> str:
    """`rows` are (class of the row, cells); the first `words` columns are text, the others numbers."""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = "\n".join(
        f'<tr class="{style}">' + "".join(f"<td>{escape(c)}</td>" for c in cells) + "</tr>" for style, cells in rows
    )
    inner = f"<thead><tr>{top}</tr></thead>\n<tbody>\n{lines}\n</tbody>"
    return f'<div class="card wide"><table class="words{words}">\n{inner}</table></div>'


def _blocks(report: Summary) -> str:
    rows = [
        (
            "",
            [
                b.name,
                count(b.layers),
                count(b.sets),
                count(b.all_parameters),
                f"{100 * b.all_parameters / report.parameters:.1f} %" if report.parameters else "-",
                count(b.all_flops),
                size(b.all_activations),
                size(b.all_caches),
            ],
        )
        for b in report.blocks
    ]
    rows.append(
        (
            "total",
            [
                "total",
                count(len(report.module.layers)),
                "",
                count(report.parameters),
                "",
                count(report.flops_per_token),
                size(report.activation_bytes),
                size(report.cache_bytes),
            ],
        )
    )
    head = ["block", "layers", "weight sets", "parameters", "share", "FLOPs/token", "activations", "cache"]
    return f"<h2>Blocks</h2>\n<p>All layers of a block together.</p>\n{_table(head, rows)}"


def _ops(report: Summary) -> str:
    rows = []
    for b in report.blocks:
        many = f" × {count(b.layers)}" if b.layers > 1 else ""
        cells = [count(b.parameters), count(b.flops_per_token), size(b.activation_bytes), size(b.cache_bytes)]
        rows.append(("block", [b.name + many, "", *cells]))
        for o in b.ops:
            kind = "" if o.kind in (o.name, "glue") else o.kind
            cells = [
                count(o.parameters) if o.parameters else "-",
                count(o.flops_per_token) if o.flops_per_token else "-",
                size(o.activation_bytes),
                size(o.cache_bytes),
            ]
            rows.append(("op", [o.name, kind, *cells]))
    head = ["op", "kind", "parameters", "FLOPs/token", "activations", "cache"]
    return f"<h2>Ops</h2>\n<p>One layer of each block.</p>\n{_table(head, rows, words=2)}"


def _placement(report: Summary) -> str:
    """Precision rules and mesh axes."""
    module = report.module
    rules = [("", ["default", module.dtype.value, ""])]
    rules += [("", [", ".join(r.on), r.format, ", ".join(r.exclude)]) for r in module.precision]
    parts = ["<h2>Precision</h2>", _table(["on", "format", "except"], rules, words=3)]
    axes = [("", [a.name, a.form, count(a.size)]) for a in module.mesh] or [("", ["none", "one rank", "1"])]
    parts += ["<h2>Mesh</h2>", _table(["axis", "form", "ranks"], axes, words=2)]
    return "\n".join(parts)
