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


def test_clean_text_stays_as_it_is():
    assert hybridc.format_source(CLEAN) == hybridc.format_source(hybridc.format_source(MESSY))


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
