"""The formatter: comments stay, long lines break, twice is once."""

import pytest

import hybridc
from hybridc.diagnostics import DiagnosticError

MESSY = """# head of file

import "common.hyb"   # where norms live
let   a=1


model m{   # the model
  param dim=64 # width
  let norm=rmsnorm(  eps = 1e-5 )
  # a block


  # of two lines
  block A( window = none ){ x+=norm>>attn:attention(heads=8,kv_heads=2,head_dim=64,rope=rope(theta=1e11),
    key_scale=0.39,window=window)|ssm:mamba2(heads=24) # both
    # before
    t=(norm) ; x += t
    x += norm >> (  # inside
      swiglu(96))
    # last in block
  }
  embed=embedding(32_784,dim)
  layers=((A)A(window=16))*(2)|A
  head=norm>>lm_head(3e4)
  # last in model
}
precision{default bf16; fp32 on **.A_log,layers[1:-1].*  except norm}
#end
"""

CLEAN = """# head of file

import "common.hyb"  # where norms live
let a = 1

model m {  # the model
  param dim = 64  # width
  let norm = rmsnorm(eps=1e-5)
  # a block

  # of two lines
  block A(window=none) {
    x += norm
      >> attn: attention(
        heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11), key_scale=0.39, window=window,
      )
      | ssm: mamba2(heads=24)  # both
    # before
    t = norm
    x += t
    # inside
    x += norm >> swiglu(96)
    # last in block
  }
  embed = embedding(32_784, dim)
  layers = (A A(window=16)) * 2 | A
  head = norm >> lm_head(3e4)
  # last in model
}
precision {
  default bf16
  fp32 on **.A_log, layers[1:-1].* except norm
}
# end
"""


def test_comments_and_meaning_stay():
    formatted = hybridc.format_source(MESSY)
    for comment in (
        "head of file",
        "where norms live",
        "the model",
        "width",
        "a block",
        "of two lines",
        "both",
        "before",
    ):
        assert formatted.count(f"# {comment}") == 1
    for comment in ("inside", "last in block", "last in model", "end"):
        assert formatted.count(f"# {comment}") == 1
    assert hybridc.parse(formatted) == hybridc.parse(MESSY)
    assert hybridc.format_source(formatted) == formatted
    assert max(map(len, formatted.splitlines())) <= 100


def test_messy_text_becomes_clean_and_clean_text_stays_as_it_is():
    assert hybridc.format_source(MESSY) == CLEAN
    assert hybridc.format_source(CLEAN) == CLEAN


LONG = """let sum = attention(heads=10, head_dim=64) + attention(heads=11, head_dim=64)
  + attention(heads=12, head_dim=64) - attention(heads=13, head_dim=64)
let choice = attention(heads=10, head_dim=64) if layer % 2 == 0 else mamba2(heads=24, state=128)
  if layer % 3 == 0 else mamba(state=16)
let picked = [
  attention(heads=8, head_dim=64, window=4096) if layer % 8 == 4
  else mamba2(heads=24, head_dim=64, state=128)
  for layer in 0..32
  if layer > 0
]
let nested = f(
  g(
    argument_0=rope(theta=1e6, factor=2.0), argument_1=rope(theta=1e6, factor=2.0),
    argument_2=rope(theta=1e6, factor=2.0),
  ),
  3, 4,
)
let hugged = rmsnorm(eps=1e-5) >> (
  attn: attention(heads=8, kv_heads=2, head_dim=64, rope=rope(theta=1e11)) >> scale(0.9375)
  | ssm: mamba2(heads=24, head_dim=64)
)
let layers = (
  attention_block mamba_block mamba_block mamba_block attention_block mamba_block mamba_block
  mamba_block attention_block mamba_block mamba_block mamba_block
) * 4
block Many(
  window_0=none, window_1=none, window_2=none, window_3=none, window_4=none, window_5=none,
  window_6=none,
) {
  x += rmsnorm()
}
precision {
  fp8(block128, fwd=e4m3, bwd=e5m2) on layers[0:4].attention, layers[4:8].attention,
      layers[8:12].attention, layers[12:16].attention
    except **.router, **.A_log, **.dt_bias, norm, conv, head.lm_head
}
"""


def test_long_lines_are_broken_where_the_parser_goes_on():
    assert hybridc.format_source(LONG) == LONG
    joined = " ".join(LONG.replace("let ", "; let ").split()).replace("block Many", "; block Many")
    joined = joined.replace("precision {", "; precision {")
    assert hybridc.parse(joined) == hybridc.parse(LONG)
    assert hybridc.format_source(joined) == LONG
    assert max(map(len, LONG.splitlines())) <= 100


def test_deep_nesting_is_formatted_in_no_time():
    """Work that doubles with each level would not end."""
    text = "x"
    for n in range(30):
        text = f"a_name_of_some_length_{n} >> another_name_of_some_length_to_break_lines(first, second={text})"
    formatted = hybridc.format_source(f"let v = {text}")
    assert hybridc.format_source(formatted) == formatted


def test_a_wrong_text_is_not_formatted():
    with pytest.raises(DiagnosticError):
        hybridc.format_source("model m { x += }")


@pytest.mark.parametrize(
    "text",
    [
        "a - (b - c)",
        "(a + b) * c",
        "-(a + b)",
        "not (a and b)",
        "(a if b else c) if d else e",
        "a >> (b | c) >> d",
        "(a | b) | c",
        "((a >> b) >> c)",
        "(M M M A) * 8",
        "M * 3 A(w=1) (M A) * 2",
        "a: b(1)",
        "a: (b >> c)",
        "(a,)",
        "[A if layer % 8 == 4 else M for layer in 0..32]",
        "[a for i in (0, 1) if i > 0]",
        'pattern("M-", "-"=X)',
        "1..(a + 2)",
        "(a == b) == c",
        "a (-b) c",
        "-a * b",
        "a // b // c",
        "a // (b // c)",
        "none",
        "inf",
        "0.5",
        '"a\\"b\\\\"',
    ],
)
def test_parentheses_are_those_that_are_needed(text):
    from hybridc.frontend.printer import print_expr

    expr = hybridc.parse(f"let v = {text}").members[0].value
    printed = print_expr(expr)
    assert hybridc.parse(f"let v = {printed}").members[0].value == expr
    assert len(printed) <= len(text)
