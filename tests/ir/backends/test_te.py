"""What Transformer Engine is not asked for: limits that its sources (2.20) and cuDNN's support matrix (9.18) state."""

import pytest

from hybridc.ir.backends import choose
from hybridc.ir.backends.te import TE

ALL = {80, 90, 100}


def reasons(part, **facts):
    """The reason against a use, by capability, where there is one."""
    known = {"dtype": "bf16", **facts}
    return {n: r for n in ALL if (r := TE.offers[part].unfit({**known, "capability": n}))}


def linear(recipe, ins=256, out=512, **options):
    return reasons("fp8_linear", ins=ins, out=out, bias=False, recipe=recipe, **options)


@pytest.mark.parametrize(
    ("recipe", "options", "unfit"),
    [
        ("tensor", {}, {80}),
        ("tensor", {"bwd": "e4m3"}, {80}),
        ("tensor", {"fwd": "e5m2"}, ALL),
        ("block128", {}, {80, 100}),
        ("block128", {"scale": "fp32"}, {80, 100}),
        ("block128", {"scale": "pow2"}, {80}),
        ("mx", {}, {80, 90}),
        ("row", {}, ALL),
        ("delayed", {}, ALL),
    ],
)
def test_recipes(recipe, options, unfit):
    assert set(linear(recipe, **options)) == unfit
    format = f"fp8({', '.join([recipe, *(f'{k}={v}' for k, v in options.items())])})"
    assert set(reasons("experts", experts=8, dim=256, hidden=512, format=format)) == unfit


@pytest.mark.parametrize(
    ("ins", "out", "recipe", "unfit"),
    [(40, 256, "tensor", ALL), (256, 72, "tensor", ALL), (48, 80, "tensor", {80}), (48, 64, "mx", ALL)],
)
def test_widths_of_fp8_products(ins, out, recipe, unfit):
    assert set(linear(recipe, ins, out)) == unfit
    assert set(reasons("experts", experts=8, dim=ins, hidden=out, format=f"fp8({recipe})")) == unfit


def test_a_reason_names_what_is_in_the_way():
    assert linear("tensor", 40)[90] == "a width of 40 is no multiple of 16"
    assert linear("block128")[80] == "sm80 has no FP8"
    assert "scale=pow2" in linear("block128")[100]


@pytest.mark.parametrize(
    ("facts", "unfit"),
    [
        ({}, set()),
        ({"dtype": "fp16", "window": 64}, set()),
        ({"dtype": "fp32"}, ALL),
        ({"head_dim": 192}, {80, 100}),
        ({"head_dim": 192, "value_dim": 128}, {80}),
        ({"head_dim": 256}, {80, 100}),
        ({"head_dim": 264}, ALL),
        ({"head_dim": 60}, ALL),
        ({"value_dim": 60}, ALL),
        ({"softcap": 0.5}, ALL),
        ({"sinks": True, "window": 128}, set()),
        ({"dropout": 0.1}, set()),
        ({"dropout": 0.1, "window": 64}, ALL),
    ],
    ids=str,
)
def test_attention(facts, unfit):
    plain = {"window": None, "softcap": None, "sinks": False, "dropout": 0.0}
    sizes = {"head_dim": 64, "value_dim": facts.get("head_dim", 64)}
    assert set(reasons("attention", **{**plain, **sizes, **facts})) == unfit


def test_norms_and_plain_products():
    assert not reasons("linear", ins=7, out=3, bias=True)
    assert set(reasons("linear", ins=7, out=3, bias=True, dtype="fp32")) == ALL
    assert set(reasons("experts", experts=8, dim=64, hidden=64, format="", dtype="fp32")) == ALL
    assert not reasons("rmsnorm", width=7, affine=True) and not reasons("layernorm", width=7, bias=True)
    assert set(reasons("rmsnorm", width=7, affine=False)) == set(reasons("layernorm", width=7, bias=False)) == ALL
    assert not reasons("zero_centered_rmsnorm", width=7)
    assert not reasons("experts", experts=8, dim=7, hidden=5, format="")
    assert set(reasons("experts", experts=8, dim=64, hidden=64, format="bitnet")) == ALL


def test_the_next_one_serves_what_it_cannot():
    facts = {"ins": 256, "out": 256, "bias": False, "recipe": "row"}
    choice = choose("fp8_linear", facts, "cuda:sm90", ["te"])
    assert (choice.backend, choice.refusals) == ("triton", (("te", "it has no recipe with a scale for each row"),))
    assert choose("fp8_linear", {**facts, "recipe": "tensor"}, "cuda:sm90", ["te"]).offer == TE.offers["fp8_linear"]
    assert choose("linear", facts, "cpu", ["te"]).backend == "torch"
