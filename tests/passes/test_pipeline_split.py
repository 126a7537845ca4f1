"""pipeline_split: the slowest stage is as fast as any cut makes it, and `|` and measured times are obeyed."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.ir.graph import Layer
from hybridc.ir.pipelines import Schedule, schedule
from hybridc.ir.text import parse_module, print_module
from hybridc.passes.pipeline_split import cuts, work


def model(layers="A * 3 B * 3", *, tail="", times=None, **mesh):
    text = f"""block A {{ x += rmsnorm() >> attention(heads=4)
  x += rmsnorm() >> swiglu(64) }}
block B {{ x += rmsnorm() >> swiglu(512) }}
model m {{
  param dim = 64
  embed = embedding(96, dim)
  layers = {layers}
  head = rmsnorm() >> lm_head(96)
}}
{tail}
"""
    return hybridc.compile(text, mesh=mesh, stage_times=times)


def stages(made):
    return [layer.stage for layer in made.ir.layers]


def sums(times, ends):
    return [sum(times[a:b]) for a, b in itertools.pairwise([0, *ends])]


@given(st.data())
def test_no_cut_is_better(data):
    """Against all cuts there are."""
    times = data.draw(st.lists(st.floats(0, 1e6) | st.integers(0, 3).map(float), min_size=1, max_size=9))
    count = data.draw(st.integers(1, len(times)))
    ends = cuts(times, count)
    assert len(ends) == count and all(a < b for a, b in itertools.pairwise([0, *ends])) and ends[-1] == len(times)
    every = ([*inner, len(times)] for inner in itertools.combinations(range(1, len(times)), count - 1))
    best = min(max(sums(times, ends)) for ends in every)
    assert max(sums(times, ends)) == pytest.approx(best, rel=1e-12, abs=sum(times) * 1e-12)


@given(st.lists(st.integers(0, 40), min_size=8, max_size=60), st.integers(1, 8))
def test_the_first_stages_are_no_larger_than_their_share(times, count):
    """A first stage keeps the activations of as many micro-batches as there are stages."""
    ends = cuts(times, count)
    largest = max(sums(times, ends))
    share = sum(times) / count
    assert sums(times, ends)[0] <= max(share, times[0]) or ends[0] == 1 or largest > share


def test_a_thousand_layers_take_milliseconds():
    times = [float(n * 37 % 101 + 1) for n in range(1000)]
    start = time.perf_counter()
    ends = cuts(times, 64)
    assert time.perf_counter() - start < 0.1
    assert max(sums(times, ends)) < 1.1 * sum(times) / 64


def test_even_layers_are_cut_evenly():
    assert cuts([1.0] * 12, 4) == [3, 6, 9, 12]
    assert cuts([0.0] * 5, 5) == [1, 2, 3, 4, 5]
    assert sums([1.0] * 10, cuts([1.0] * 10, 4)) == [2, 2, 3, 3]


def test_layers_are_cut_by_their_work():
    """An attention over 4,096 tokens does more than an mlp: stages of A have fewer layers."""
    made = model("A * 6 B * 3", pp=3)
    cost = work(made.ir)
    times = [cost[layer.block] for layer in made.ir.layers]
    times[0] += cost["embed"]
    times[-1] += cost["head"]
    assert stages(made) == [n for n, (a, b) in enumerate(itertools.pairwise([0, *cuts(times, 3)])) for _ in range(a, b)]
    assert stages(made) != [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_without_stages_nothing_changes():
    assert stages(model()) == [0] * 6
    assert stages(model("A * 2 | B", pp=1)) == [0, 0, 1]


def test_the_specs_own_stages_are_kept():
    assert stages(model("A | A A A A A", pp=2)) == [0, 1, 1, 1, 1, 1]
    assert stages(model("A | A | B B | A", pp="interleaved(2, chunks=2)")) == [0, 1, 2, 2, 3]


def test_more_of_the_specs_stages_than_ranks_are_joined():
    """1F1B has one stage a rank: neighbours come together where that is fastest."""
    assert stages(model("A | A | A | A", pp=2)) == [0, 0, 1, 1]
    assert stages(model("A A A A | B | B | B", pp=2)) == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("pp", "wanted"),
    [
        (2, Schedule("1f1b", 2)),
        ("interleaved(2, chunks=3)", Schedule("interleaved", 2, 3)),
        ("zero_bubble(3, chunks=1)", Schedule("zero_bubble", 3)),
        ("zbv(2)", Schedule("zbv", 2, 2)),
    ],
)
def test_schedules_say_how_many_stages_there_are(pp, wanted):
    made = model(pp=pp)
    assert schedule(made.ir) == wanted
    assert sorted(set(stages(made))) == list(range(wanted.stages))
    assert parse_module(print_module(made.ir)) == made.ir
    assert hybridc.compile(made.source["spec.hyb"]).ir == made.ir


def test_numbers_of_forms_may_be_params():
    made = model(tail="mesh { pp = interleaved(2, chunks=1+1) }")
    assert made.ir.mesh[0].form == "interleaved(2, chunks=2)"


@pytest.mark.parametrize(
    ("layers", "pp", "code"),
    [
        ("A * 6", "interleaved(2)", "HYB219"),
        ("A * 6", "interleaved(2, 2)", "HYB219"),
        ("A * 6", "interleaved(2, chunk=2)", "HYB219"),
        ("A * 6", "zero_bubble(2, chunks=0)", "HYB219"),
        ("A * 6", "zbv(2, chunks=2)", "HYB219"),
        ("A * 6", "zbv(0)", "HYB219"),
        ("A * 6", "gpipe(2)", "HYB219"),
        ("A * 6", "interleaved(2, chunks=true)", "HYB111"),
        ("A | A", "interleaved(2, chunks=2)", "HYB217"),
        ("A * 3", "zbv(2)", "HYB217"),
    ],
)
def test_forms_that_are_none(layers, pp, code):
    with pytest.raises(DiagnosticError) as raised:
        model(layers, tail=f"mesh {{ pp = {pp} }}")
    assert [d.code for d in raised.value.diagnostics] == [code]


def test_measured_times_cut_too():
    even = {"embed": 0.0, "A": 1.0, "B": 1.0, "head": 0.0}
    assert stages(model(pp=2, times=even)) == [0, 0, 0, 1, 1, 1]
    assert stages(model(pp=2, times=even | {"B": 9.0})) == [0, 0, 0, 0, 1, 1]
    assert stages(model(pp=2, times=even | {"head": 3})) == [0, 0, 0, 0, 1, 1]
    assert stages(model(pp=2, times=even | {"embed": 2})) == [0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"C": 1.0}, "`C`, which is no block"),
        ({"A": None}, "no stage time for `A`"),
        ({"A": float("nan")}, "nan"),
        ({"A": -1}, "-1"),
        ({"A": "1"}, "'1'"),
    ],
)
def test_times_that_do_not_fit(change, said):
    times = {k: v for k, v in ({"embed": 0.0, "A": 1.0, "B": 1.0, "head": 0.0} | change).items() if v is not None}
    with pytest.raises(DiagnosticError, match="HYB608") as raised:
        model(pp=2, times=times)
    assert said in str(raised.value)


def test_layers_keep_all_but_their_stage():
    made = model("A * 2 B", pp=3)
    assert made.ir.layers == (Layer("A", 0), Layer("A", 1), Layer("B", 2))
