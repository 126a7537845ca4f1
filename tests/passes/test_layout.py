"""layout: the collectives of layers are those that hand-written ones have, and no choice of places is cheaper."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.diagnostics import Sink
from hybridc.ir.graph import MeshAxis
from hybridc.ir.ops.collectives import MOVES, Collective, Redistribute, sent
from hybridc.ir.places import REPLICATED
from hybridc.ir.sharding import TOKENS
from hybridc.ir.text import parse_module, print_module
from hybridc.passes.collectives import collectives, localize
from hybridc.passes.layout import NOMINAL_TOKENS, layout

DIM = 64


def model(body, **mesh):
    text = f"""block A {{ {body} }}
model m {{
  param dim = {DIM}
  embed = embedding(96, dim)
  layers = A
  head = rmsnorm() >> lm_head(96)
}}
"""
    return hybridc.compile(text, mesh=mesh or {"tp": 2}).ir


def moved(block):
    return [(n.op.kind, n.op.back) for n in block.nodes if isinstance(n.op, Collective)]


def bytes_sent(block):
    return sum(n.op.sends + n.op.sends_back for n in block.nodes if isinstance(n.op, Collective))


IN, OUT = ("all_gather", "reduce_scatter"), ("reduce_scatter", "all_gather")


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_layer_has_megatrons_collectives(ranks):
    """Sequence parallelism (Korthikanti et al., 2022): an all-gather in front of each half of a layer, a reduce-scatter
    behind it, and the other way round in the backward: each sends (n - 1) / n of the activations."""
    block = model("x += rmsnorm() >> attention(heads=4)\nx += rmsnorm() >> swiglu(128)", tp=ranks).blocks[0]
    assert moved(block) == [IN, OUT, IN, OUT]
    assert bytes_sent(block) == 8 * (ranks - 1) / ranks * DIM * 4


def test_parallel_branches_share_theirs():
    """What two branches read is gathered once, and their sum is scattered once."""
    block = model("x += rmsnorm() >> (attention(heads=4) | scale(0.5) >> swiglu(128) >> scale(2.0))").blocks[0]
    assert moved(block) == [IN, OUT]


def test_the_two_ends():
    """The embedding's sum is scattered to tokens; the head gathers tokens and leaves the vocabulary split."""
    made = model("x += rmsnorm() >> swiglu(128)")
    assert moved(made.embed) == [OUT] and moved(made.head) == [IN]
    assert str(made.head.types[made.head.result]) == "[B, S, 96/tp] fp32"


def test_moves_that_undo_each_other_are_not_there():
    """A value is where its readers want it: a linear between two cut ops needs no more than they do."""
    block = model("x += rmsnorm() >> swiglu(128) >> scale(0.5) >> dropout(0.0) >> scale(2.0)").blocks[0]
    assert moved(block) == [IN, OUT]


def test_replicated_data_is_split_over_the_batch():
    made = model("x += rmsnorm() >> swiglu(128)", dp="replicate(2)")
    assert {str(t) for b in made.by_name.values() for t in b.types.values() if t.dtype.value == "fp32"} == {
        "[B/dp, S, 64] fp32",
        "[B/dp, S, 96] fp32",
    }
    assert not any(moved(b) for b in made.by_name.values())


def test_the_text_of_layouts_reads_back():
    made = model("x += rmsnorm() >> (attention(heads=4) | swiglu(64))\nx = x >> linear(48) >> linear(dim)", tp=2, dp=2)
    assert parse_module(print_module(made)) == made


def test_what_a_rank_computes():
    made = localize(model("x += rmsnorm() >> attention(heads=8, kv_heads=2)\nx += rmsnorm() >> swiglu(128)", tp=4))
    ops = {n.op.kind: n.op for n in made.blocks[0].nodes}
    assert (ops["attention"].heads, ops["attention"].kv_heads, ops["mlp"].hidden) == (2, 1, 32)
    (lm_head,) = (n.op for n in made.head.nodes if n.op.kind == "lm_head")
    assert lm_head.vocab == 24


PARTS = ("rmsnorm()", "scale(0.5)", "linear(dim)", "linear(2*dim) >> linear(dim)", "swiglu(64)", "attention(heads=2)")


@st.composite
def bodies(draw):
    """Straight-line blocks of one to four values."""
    names, lines = ["x"], []
    for n in range(draw(st.integers(1, 3))):
        source = draw(st.sampled_from(names))
        text = f"{source} >> {draw(st.sampled_from(PARTS))}"
        if draw(st.booleans()):
            text += f" + {draw(st.sampled_from(names))}"
        names.append(f"t{n}")
        lines.append(f"t{n} = {text}")
    return "\n".join([*lines, f"x += {names[-1]}"])


def cheapest(block, ranks):
    """The fewest bytes over all choices of rules; a value's places are reached from one another in any order."""
    nodes = block.nodes
    best = float("inf")
    for rules in itertools.product(*(n.op.rules(block.widths(n), ranks) for n in nodes)):
        wanted, start = {}, {a.name: TOKENS if a.type.dtype.value != "int64" else REPLICATED for a in block.args}
        cost = 0.0
        for node, rule in zip(nodes, rules, strict=True):
            for operand, place in zip(node.operands, rule.takes, strict=True):
                wanted.setdefault(operand, set()).add(place)
            start[node.name] = rule.gives
            work = 1e-3 * sum(block.widths(node)) * (1 / ranks if rule.gives == TOKENS else 1)
            whole = 0 if rule.name or rule.gives == REPLICATED else sum(p.elements for p in block.params_of(node))
            cost += work + 4 * whole * sent("all_reduce", ranks) / NOMINAL_TOKENS
        wanted.setdefault(block.result, set()).add(TOKENS)
        for value, places in wanted.items():
            type = block.types[value]
            cost += tree(start[value], places - {start[value]}, type.width * type.dtype.bytes, ranks)
        best = min(best, cost)
    return best


def tree(source, places, size, ranks):
    """The cheapest way to have a value at all places, each reached from one that is there."""
    best = 0.0 if not places else float("inf")
    for order in itertools.permutations(places):
        there, cost = [source], 0.0
        for place in order:
            prices = (
                size * sum(sent(m, ranks) for m in MOVES[p.kind, place.kind]) if (p.kind, place.kind) in MOVES else best
                for p in there
            )
            cost += min(prices)
            there.append(place)
        best = min(best, cost)
    return best


def paid(block, ranks):
    """What the pass has chosen costs, counted anew."""
    cost = 0.0
    for node in block.nodes:
        type = block.types[node.operands[0]]
        if isinstance(node.op, Redistribute):
            before = type.place("tp")
            moves = MOVES[before.kind, node.op.to]
            cost += type.width * type.dtype.bytes * sum(sent(m, ranks) for m in moves)
            continue
        gives = node.type.place("tp")
        cost += 1e-3 * sum(block.widths(node)) * (1 / ranks if gives == TOKENS else 1)
        places = tuple(block.types[o].place("tp") for o in node.operands)
        rule = next(r for r in node.op.rules(block.widths(node), ranks) if r.takes == places and r.gives == gives)
        whole = 0 if rule.name or gives == REPLICATED else sum(p.elements for p in block.params_of(node))
        cost += 4 * whole * sent("all_reduce", ranks) / NOMINAL_TOKENS
    return cost


@settings(deadline=None, max_examples=60)
@given(bodies(), st.sampled_from([2, 4, 8]))
def test_no_choice_is_cheaper(body, ranks):
    serial = model(body, dp=1)
    if len(serial.blocks[0].nodes) > 7:
        return
    meshed = dataclasses.replace(serial, mesh=(MeshAxis("tp", ranks, str(ranks)),))
    laid = layout(meshed, Sink())
    assert paid(laid.blocks[0], ranks) == pytest.approx(cheapest(serial.blocks[0], ranks))
    assert not any(n.op.kind == "redistribute" for n in collectives(laid, Sink()).blocks[0].nodes)


def test_many_values_at_a_time():
    """A block whose values are all alive at once, of which all combinations of places would be 3 ** 40."""
    values = [f"t{n}" for n in range(40)]
    lines = [f"{value} = x >> scale(1.{n + 1})" for n, value in enumerate(values)]
    made = model("\n".join([*lines, f"x += {' + '.join(values)}"]))
    assert not moved(made.blocks[0])
