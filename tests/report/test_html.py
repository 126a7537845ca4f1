"""The page: well formed, self-contained, escaped."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser

import hybridc
from hybridc.report.html import render
from hybridc.report.svg import DRAWN, dataflow

SPEC = """model page {
  block M { x += rmsnorm() >> (attn: attention(heads=4) | ssm: mamba2(heads=4, state=16) >> scale(0.5)) }
  block E { x += rmsnorm() >> moe(experts=4, hidden=32, top_k=2)
    x += concat(x, x0) >> linear(64) }
  embed = embedding(50, 64)
  layers = (M M E) * 2 | E
  head = rmsnorm() >> lm_head(50)
}
precision { default bf16
  fp32 on **.router except ssm }
mesh { dp = fsdp(4) }
"""
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Checks that tags nest, and collects tags, attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]
        if tag not in VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(k, v or "") for k, v in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.stack and self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_page_is_well_formed_and_complete() -> None:
    page = Page(render(hybridc.compile(SPEC).ir, seq=1024))
    text = " ".join(page.words)
    assert page.tags.count("svg") == 1 + 4  # the stack; embed, M, E and head
    assert page.tags.count("table") == 4
    for word in ("page", "(M M E) × 2 | E", "attn", "ssm", "× 0.5", "moe", "fsdp(4)", "**.router", "1,024"):
        assert word in text


def test_page_needs_no_network_and_runs_nothing() -> None:
    text = render(hybridc.compile(SPEC).ir)
    page = Page(text)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not [k for k, _ in page.attributes if k in ("src", "href") or k.startswith("on")]
    assert re.findall(r"url\(|@import|http", text.replace('xmlns="http://www.w3.org/2000/svg"', "")) == []


def test_texts_are_escaped() -> None:
    module = hybridc.compile(SPEC).ir
    evil = "<script>alert('&\"')</script>"
    block = module.by_name["M"]
    nodes = tuple(dataclasses.replace(n, text=evil, path=evil if n.path else "") for n in block.nodes)
    bad = dataclasses.replace(block, name=evil, title=f"{evil}(a=1)", source=(evil,), nodes=nodes)
    layers = tuple(dataclasses.replace(layer, block=evil) if layer.block == "M" else layer for layer in module.layers)
    blocks = tuple(bad if b is block else b for b in module.blocks)
    rules = tuple(dataclasses.replace(r, format=evil, on=(evil,), exclude=(evil,)) for r in module.precision)
    axes = tuple(dataclasses.replace(a, name=evil, form=evil) for a in module.mesh)
    whole = dataclasses.replace(
        module, name=evil, blocks=blocks, layers=layers, precision=rules, mesh=axes
    )  # fmt: skip
    text = render(whole)
    assert "<script" not in text
    Page(text)


def test_light_and_dark_and_phones() -> None:
    text = render(hybridc.compile(SPEC).ir)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport"' in text


def test_dataflow_draws_every_op_and_every_edge() -> None:
    block = hybridc.compile(SPEC).ir.by_name["M"]
    svg = dataflow(block)
    assert svg.count("<g>") == len(block.nodes)
    assert svg.count('class="line"') == sum(len(n.operands) for n in block.nodes) + 1


def test_deep_models_stay_small() -> None:
    spec = SPEC.replace("(M M E) * 2 | E", " | ".join("M" * (1 + n % 2) for n in range(3)) + " | (M E) * 600")
    text = render(hybridc.compile(spec.replace("MM", "M M")).ir)
    assert "× 600" in text
    assert text.count("<g>") < DRAWN + 100
