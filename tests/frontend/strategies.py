"""Hypothesis strategies for whole specs, as ASTs, and for mutations of their text."""

import re

from hypothesis import strategies as st

from hybridc.frontend import ast
from hybridc.frontend.tokens import REFUSED

words = st.sampled_from(
    ["x", "x0", "t", "norm", "attn", "A", "M", "Mlp", "dim", "depth", "layer", "router", "a_1", "Zz"]
)
numbers = st.one_of(
    st.integers(0, 10**6), st.floats(0, 1e12, allow_nan=False, allow_infinity=False), st.just(float("inf"))
).map(ast.Num)
strings = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs", "Cc", "Zl", "Zp"]).filter(lambda c: not REFUSED.match(c)),
    max_size=8,
).map(ast.Str)
leaves = st.one_of(numbers, strings, st.booleans().map(ast.Bool), st.just(ast.Nil()), words.map(ast.Name))


def _grow(inner):
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    keywords = st.builds(ast.Keyword, words, inner) | st.builds(
        ast.Keyword, st.sampled_from(["M", "-", "*", '"', "\\"]), inner, st.just(True)
    )
    calls = st.builds(
        ast.Call, words, st.lists(inner, max_size=2).map(tuple), st.lists(keywords, max_size=2).map(tuple)
    )
    atoms = st.one_of(calls, words.map(ast.Name))

    def flat(kind):
        field = {ast.Pipe: "stages", ast.Parallel: "branches"}[kind]
        return several.map(
            lambda parts: kind(
                tuple(p for part in parts for p in (getattr(part, field) if isinstance(part, kind) else (part,)))
            )
        )

    return st.one_of(
        calls,
        st.builds(ast.Label, words, atoms),
        flat(ast.Pipe),
        flat(ast.Parallel),
        st.builds(ast.Sequence, several),
        st.builds(ast.Unary, st.sampled_from(["-", "not"]), inner),
        st.builds(
            ast.Binary, st.sampled_from(["+", "-", "*", "/", "//", "%", "==", "<", ">=", "and", "or"]), inner, inner
        ),
        st.builds(ast.Conditional, inner, inner, inner),
        st.builds(ast.Range, inner, inner),
        st.builds(ast.TupleExpr, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(ast.ListExpr, st.lists(inner, max_size=3).map(tuple)),
        st.builds(ast.Comprehension, inner, words, inner, st.none() | inner),
    )


expressions = st.recursive(leaves, _grow, max_leaves=8)
lets = st.builds(ast.Let, words, expressions)
params = st.builds(ast.Param, words, expressions)
statements = st.builds(ast.Statement, words, st.sampled_from(["=", "+="]), expressions)
blocks = st.builds(
    ast.Block,
    words,
    st.lists(st.builds(ast.Param, words, st.none() | expressions), max_size=2).map(tuple),
    st.lists(statements, max_size=3).map(tuple),
    st.sampled_from([None, 1, 2]),
)
entries = st.builds(ast.Entry, st.sampled_from(["embed", "layers", "head", "mtp", "init"]), expressions)
models = st.builds(ast.Model, words, st.lists(st.one_of(params, lets, blocks, entries), max_size=5).map(tuple))
bounds = st.none() | st.integers(-5, 40)
slices = st.one_of(
    st.builds(ast.Slice, st.integers(-5, 40), st.none(), st.just(True)), st.builds(ast.Slice, bounds, bounds)
)
steps = st.builds(ast.Step, words | st.sampled_from(["layers", "*", "**"]), st.none() | slices)
selectors = st.builds(ast.Selector, st.lists(steps, min_size=1, max_size=3).map(tuple))
formats = words.map(ast.Name) | st.builds(ast.Call, st.just("fp8"), st.just((ast.Name("row"),)))
rules = st.builds(
    ast.Rule,
    formats,
    st.lists(selectors, min_size=1, max_size=2).map(tuple),
    st.lists(selectors, max_size=2).map(tuple),
)
precisions = st.builds(ast.Precision, st.lists(rules | st.builds(ast.Default, formats), max_size=3).map(tuple))
meshes = st.builds(ast.Mesh, st.lists(st.builds(ast.Axis, words, expressions), max_size=3).map(tuple))
imports = st.lists(st.builds(ast.Import, st.text("abc/.é ", max_size=6)), max_size=2).map(tuple)
specs = st.builds(
    ast.Spec,
    imports,
    st.lists(st.one_of(lets, blocks), max_size=2).map(tuple),
    st.none() | models,
    st.none() | precisions,
    st.none() | meshes,
)

SPLICES = [
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "=",
    "+=",
    ">>",
    "|",
    ",",
    ":",
    ".",
    "..",
    "*",
    "**",
    "\n",
    ";",
    "#",
    '"',
    "\\",
    "\x00",
    "é",
    "а",
    "if",
    "for",
    "block",
    "model m {",
    "x += ",
    "norm",
    "let a = ",
    "1e999",
    "0" * 500,
    "attention(heads=4)",
    "layers = ",
    "mesh { tp = 2 }",
    "precision { bf16 on layers[0] }",
    "- - - -",
    "((((",
    "\t",
    "import",
    "shared(2)",
    "not",
    "inf",
    "'b'",
    "&&",
    "->",
    "0x1F",
    ".5",
    "1.",
    "\r",
    "\u202e",
    "\ufeff",
    "\ud800",
    "shared.down",
    " # note\n",
    "\n\n\n# own line\n\n",
    " except ",
    "f(" * 60,
    "- " * 120,
    "1 + (" * 60,
    "else",
]
"""Pieces that a mutation puts in."""

BASES = [
    "model m {\n  param dim = 64\n  let norm = rmsnorm()\n  block A(w=none) {\n    x += norm >> attn: "
    "attention(heads=4, window=w)\n"
    "    t = norm >> linear(64)\n    x += (t | norm >> swiglu(96)) * 0.5\n  }\n  embed = embedding(320)\n"
    '  layers = (A A(w=8)) * 2 | pattern("AB", A=A, B=A)\n  head = norm >> lm_head(320)\n}\n'
    "precision {\n  default bf16\n  fp8(block128) on layers[1:-1].** except norm\n}\nmesh { tp = 2 }\n",
    "shared(2) block S { x += concat(x, x0) >> rmsnorm() >> linear(8) }\nmodel m {\n  embed = embedding(8, 8)\n"
    "  layers = [S if layer % 2 == 0 else S for layer in 0..6]  # a comment\n  head = lm_head(8, tied=true)\n}\n",
]


_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


@st.composite
def mutated(draw):
    """A valid text with characters or whole tokens deleted, doubled, replaced, swapped or put in."""
    text = draw(st.sampled_from(BASES))
    for _ in range(draw(st.integers(1, 6))):
        parts = _TOKEN.findall(text) if draw(st.booleans()) else list(text)
        at = draw(st.integers(0, len(parts)))
        end = min(len(parts), at + draw(st.integers(0, 12)))
        match draw(st.integers(0, 4)):
            case 0:
                middle = []
            case 1:
                middle = [draw(st.sampled_from(SPLICES)), *parts[at:end]]
            case 2:
                middle = parts[at:end] * 2
            case 3:
                middle = [draw(st.sampled_from(SPLICES))]
            case _:
                middle = parts[at:end][::-1]
        text = "".join([*parts[:at], *middle, *parts[end:]])
    return text
