"""Fields of MiniMax's published config that transformers takes no notice of: `rotary_dim`, and what never differs."""

import pytest
import torch

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.hf import export_config, read
from hybridc.runtime.context import Context

CONFIG = dict(
    model_type="minimax",
    vocab_size=96,
    hidden_size=32,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    head_dim=16,
    num_local_experts=2,
    num_experts_per_tok=1,
    layer_types=["linear_attention", "full_attention"],
    rope_theta=100.0,
)
PUBLISHED = dict(postnorm=True, shared_intermediate_size=0, shared_moe_mode="sigmoid")


@pytest.mark.parametrize("channels", [4, 8])
def test_only_the_first_channels_of_a_head_rotate(channels):
    """Queries and keys are those of MiniMax's own rule: pair i of the first `channels` channels turns by
    position / theta^(2 i / channels), and its partner stands channels / 2 behind it."""
    net = hybridc.compile(read({**CONFIG, **PUBLISHED, "rotary_dim": channels}).spec).load(init=False).double().eval()
    attn = net.layers[1].attn
    torch.manual_seed(0)
    for p in attn.parameters():
        torch.nn.init.normal_(p)
    x = torch.randn(1, 9, 32, dtype=torch.float64)
    q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in attn.qkv(x).chunk(3, dim=-1))

    def turned(t):
        half = channels // 2
        angle = torch.arange(9.0).double()[:, None] / 100.0 ** (torch.arange(half).double() / half)
        a, b = t[..., :half], t[..., half:channels]
        pair = (a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin())
        return torch.cat((*pair, t[..., channels:]), dim=-1)

    wanted = torch.nn.functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)
    ctx = Context(torch.zeros(1, 9, dtype=torch.long))
    made = attn.out(wanted.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(attn(x, ctx), made, atol=1e-4, rtol=1e-4)  # angles are of single precision


def test_a_whole_head_rotates_where_the_field_is_absent_or_says_so():
    spec = read(CONFIG).spec
    assert read({**CONFIG, "rotary_dim": 16}).spec == spec
    assert "rotary_dim" not in export_config(hybridc.compile(spec).ir, "minimax")


def test_rotary_dim_is_exported():
    spec = read({**CONFIG, "rotary_dim": 12}).spec
    config = export_config(hybridc.compile(spec).ir, "minimax")
    assert config["rotary_dim"] == 12
    assert read(config).spec == spec


@pytest.mark.parametrize(
    "change",
    [
        dict(rotary_dim=18),
        dict(rotary_dim=7),
        dict(rotary_dim=0),
        dict(postnorm=False),
        dict(shared_intermediate_size=8),
    ],
)
def test_what_the_family_cannot_is_reported(change):
    with pytest.raises(DiagnosticError) as caught:
        read({**CONFIG, **change})
    [found] = caught.value.diagnostics
    assert found.code == "HYB503"
    assert f"`{next(iter(change))}`" in found.label
