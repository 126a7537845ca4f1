"""Random calls of ops, made of what their definitions declare; some are right, the others are to be refused."""

from hypothesis import strategies as st

from hybridc.ir.attrs import AttrError, Choice, Flag, Float, Floats, Int, Record, coerce, show
from hybridc.ir.ops import fields, find

WIDTH = 16
"""Width of the stream that calls are made for."""

NUMBERS = {
    "out": (WIDTH,),
    "out_dim": (WIDTH,),
    "heads": (1, 2, 4),
    "experts": (1, 2, 4, 6),
    "groups": (1, 2, 3),
    "top_k": (1, 2),
    "top_groups": (1, 2),
    "theta": (10.0, 1e4),
    "eps": (1e-5, 0.01),
    "original_max": (1, 64),  # documents are longer than 1 and shorter than 64
}
"""Values of attributes that seldom come out right by chance."""


def _value(draw, name, field, depth):
    kind = field.metadata["type"]
    if isinstance(kind, Int):
        return str(draw(st.sampled_from(NUMBERS[name]) if name in NUMBERS else st.integers(max(kind.low, 0), 6)))
    if isinstance(kind, Flag):
        return draw(st.sampled_from(["true", "false"]))
    if isinstance(kind, Choice):
        return draw(st.sampled_from(kind.options))
    if isinstance(kind, Float):
        return str(draw(st.sampled_from(NUMBERS.get(name, (-5.0, 0.0, 0.01, 0.3, 0.9, 1.0, 1.7)))))
    if isinstance(kind, Floats):
        count = kind.count or draw(st.integers(1, 4))
        numbers = draw(st.lists(st.sampled_from([0.1, 0.5, 1.0, 2.0]), min_size=count, max_size=count))
        return show(tuple(numbers if draw(st.booleans()) else sorted(numbers)))
    assert isinstance(kind, Record)
    return draw(calls(draw(st.sampled_from(kind.kinds)), depth + 1))


def _fits(field, text):
    """Whether a number is one that the attribute takes: what it refuses by itself is tested elsewhere."""
    try:
        coerce(field, float(text))
    except AttrError:
        return False
    except ValueError:
        pass
    return True


@st.composite
def calls(draw, name, depth=0):
    """A call of the op in the language, with some of its arguments."""
    kind, given_by_name = find(name)
    arguments = []
    for argument, field in fields(kind).items():
        if argument in given_by_name:
            continue
        if field.metadata["required"] or draw(st.integers(0, 2)) == 0:
            value = _value(draw, argument, field, depth)
            if field.metadata["optional"] and draw(st.integers(0, 4)) == 0:
                value = "none"
            if _fits(field, value) or field.metadata["required"]:
                arguments.append(f"{argument}={value}")
    return f"{name}({', '.join(arguments)})"
