"""What each pass does to a module, and the pipeline around them."""

import pytest

import hybridc
from hybridc.diagnostics import Sink
from hybridc.ir.text import parse_module, print_block, print_module
from hybridc.ir.verify import InvalidIR, verify
from hybridc.passes.analysis.cost import block_table, flops_per_token, parameter_count
from hybridc.passes.analysis.memory import cache_bytes, weight_bytes
from hybridc.passes.pipeline import PASSES, run
from hybridc.passes.simplify import simplify

MODEL = """model m {{
  param dim = 64
  let norm = rmsnorm()
  {blocks}
  embed = embedding(100)
  layers = {layers}
  head = norm >> lm_head(100)
}}"""


def compiled(blocks, layers="A * 2", **options):
    return hybridc.compile(MODEL.format(blocks=blocks, layers=layers), **options)


def test_expand_keeps_one_block_for_each_computation():
    module = compiled(
        "block A(w=none) { x += norm >> attention(heads=4, window=8 if layer % 2 == 0 else w) }",
        "A(w=8) A A(w=8) A A",
    ).ir
    # windows 8 none 8 none 8: two computations, whatever wrote them
    assert [(b.name, b.nodes[1].op.window) for b in module.blocks] == [("A", 8), ("A_2", None)]
    assert [x.block for x in module.layers] == ["A", "A_2", "A", "A_2", "A"]


def test_a_thousand_layers_are_as_many_blocks_as_kinds():
    blocks = "block A { x += norm >> swiglu(8) }\n block B { x += norm >> swiglu(16) }"
    assert len(compiled(blocks, "(A B) * 500").ir.blocks) == 2


def test_infer_specialises_a_block_that_meets_two_widths():
    module = compiled("block A { x += norm }\n block W { x = linear(32) }", "A W A")
    assert [(b.name, b.types["x"].width) for b in module.ir.blocks] == [("A", 64), ("W", 64), ("A_2", 32)]
    assert module.load()(__import__("torch").zeros(1, 2, dtype=int)).logits.shape == (1, 2, 100)


SIMPLIFIED = """block @A(%x: [B, S, 64] fp32) -> [B, S, 64] fp32 {
  %0 = scale %x {factor = 2.0} : [B, S, 64] fp32
  %1 = add %0, %0 : [B, S, 64] fp32
  %2 = rmsnorm %1 : [B, S, 64] fp32  // norm
  %3 = rmsnorm %1 : [B, S, 64] fp32  // norm_2
  %4 = add %2, %3 : [B, S, 64] fp32
  return %4
}"""


def test_simplify_merges_what_has_no_parameters_and_drops_what_is_not_used():
    module = compiled(
        "block A { dead = norm >> linear(64)\n s = scale(2) + scale(2)\n x = s >> (norm | norm) }", "A"
    ).ir
    # the norms have weights of their own, so they stay two; the unused projection is gone with the norm before it
    assert print_block(module.blocks[0]) == SIMPLIFIED.replace("norm\n", "norm_2\n").replace(
        "norm_2\n  %4", "norm_3\n  %4"
    )
    assert simplify(module, Sink()) == module


def test_numbers_do_not_change_without_the_optional_passes():
    import torch

    blocks = "block A { s = scale(2) + scale(2)\n x = s >> (norm | norm) }"
    ids = torch.arange(7)[None]
    one, two = (compiled(blocks, passes=p).load(seed=1)(ids).logits for p in (None, ()))
    assert torch.equal(one, two)


NAMES = [*(name for name, _ in PASSES), "precision"]


def test_print_after_and_timings():
    printed = []
    made = compiled("block A { x += norm }", print_after=["all"], out=printed.append)
    assert [p.splitlines()[0] for p in printed] == [f"// after {name}" for name in NAMES]
    assert "?" in printed[0] and "?" not in printed[1]
    assert parse_module(printed[-1].split("\n", 1)[1]) == made.ir
    assert [t.name for t in made.timings] == NAMES
    sink = Sink()
    run(made.ir, sink, print_after=["nowhere"])
    assert [d.code for d in sink.errors] == ["HYB602"]


TEXT = print_module(hybridc.compile(MODEL.format(blocks="block A { x += norm >> linear(64) }", layers="A")).ir)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%1 = linear %0", "%1 = linear %5"),
        ("%1 = linear", "%0 = linear"),
        ("return %2", "return %9"),
        ("{out = 64} : [B, S, 64]", "{out = 64} : [B, S, 32]"),
        ("  // linear", ""),
        ("  // linear", "  // norm"),
        ("layers @A", "layers @B"),
        ("%2 = add %x, %1", "%2 = add %x, %1, %1"),
        ("block @A(%x: [B, S, 64]", "block @A(%x: [B, S, 32]"),
    ],
)
def test_the_verifier_refuses(old, new):
    assert old in TEXT
    verify(parse_module(TEXT))
    with pytest.raises(InvalidIR):
        verify(parse_module(TEXT.replace(old, new, 1)))


def test_costs_by_hand():
    """One layer of attention on a width of 64, by closed forms."""
    module = compiled("block A { x += norm >> attention(heads=4, kv_heads=2) }", "A").ir
    projections = 64 * (64 + 32 + 32) + 64 * 64
    assert parameter_count(module) == 100 * 64 + 64 + projections + 64 + 100 * 64
    # 2 per multiply-add; scores and values over the (S + 1) / 2 tokens that a token sees on average
    attention = 2 * projections + 2 * 2 * 64 * (10 + 1) / 2
    total = attention + 4 * 64 + 64 + 4 * 64 + 2 * 100 * 64
    assert flops_per_token(module, 10) == pytest.approx(total)
    assert cache_bytes(module, batch=3, length=10) == 3 * 10 * 2 * 2 * 16 * 4
    assert weight_bytes(module) == 4 * parameter_count(module)


def test_costs_count_shared_weights_once():
    module = compiled("shared(2) block A { x += norm >> linear(64) }", "A * 6").ir
    assert parameter_count(module) == 100 * 64 + 2 * (64 + 64 * 64) + 64 + 100 * 64


def test_the_table_adds_up_and_the_states_are_those_of_the_cache():
    mixers = "attention(heads=4, window=8) | mamba2(heads=4, head_dim=16, state=8) | rg_lru(blocks=4, inner=24, conv=3)"
    made = compiled(f"block A {{ x += norm >> ({mixers}) }}")
    rows = block_table(made.ir, batch=2, seq=32)
    heads = [r for r in rows if not r.op]
    for head in heads:
        inner = [r for r in rows if r.op and r.block == head.block]
        assert head.parameters == sum(r.parameters for r in inner)
    cache = made.load().new_cache(2, 32)
    tensors = [t for layer in cache.layers for s in layer.values() for t in vars(s).values()]
    assert sum(t.numel() * t.element_size() for t in tensors) == sum(r.cache_bytes * r.count for r in heads)
