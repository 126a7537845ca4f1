"""Tiny public models with flags of every kind, made by transformers on the spot: our logits, losses and gradients are
theirs."""

import json

import pytest
import torch

import hybridc

BASE = dict(vocab_size=97, hidden_size=32, pad_token_id=0, bos_token_id=1, eos_token_id=2)
ATTN = dict(
    BASE,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
)
SSM = dict(mamba_d_ssm=48, mamba_n_heads=6, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=4, mamba_chunk_size=8)


def rope(**settings):
    return {"rope_parameters": {"rope_theta": 5000.0, "rope_type": "default", **settings}}


CASES = {
    "llama biases tied": ("llama", dict(ATTN, attention_bias=True, mlp_bias=True, tie_word_embeddings=True)),
    "llama mha head_dim gelu": (
        "llama",
        dict(ATTN, num_key_value_heads=4, head_dim=12, hidden_act="gelu_pytorch_tanh"),
    ),
    "llama linear rope": ("llama", dict(ATTN, **rope(rope_type="linear", factor=3.0))),
    "llama3 rope": (
        "llama",
        dict(
            ATTN,
            **rope(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
        ),
    ),
    "llama yarn rope": ("llama", dict(ATTN, **rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=64))),
    "llama yarn factor": (
        "llama",
        dict(
            ATTN,
            **rope(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=64, attention_factor=1.2, beta_fast=20.0
            ),
        ),
    ),
    "mixtral full attention": ("mixtral", dict(ATTN, num_local_experts=5, num_experts_per_tok=3, sliding_window=None)),
    "mixtral tied window aux": (
        "mixtral",
        dict(
            ATTN,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=7,
            tie_word_embeddings=True,
            output_router_logits=True,
            router_aux_loss_coef=0.05,
        ),
    ),
    "mixtral as many keys as queries": (
        "mixtral",
        dict(ATTN, num_key_value_heads=4, num_local_experts=3, num_experts_per_tok=2, hidden_act="relu"),
    ),
    "mixtral one expert": ("mixtral", dict(ATTN, num_local_experts=4, num_experts_per_tok=1, head_dim=6)),
    "mamba2 biases tied": (
        "mamba2",
        dict(
            BASE,
            num_heads=8,
            head_dim=8,
            state_size=8,
            num_hidden_layers=2,
            n_groups=1,
            chunk_size=4,
            use_bias=True,
            tie_word_embeddings=True,
        ),
    ),
    "mamba2 limits no conv bias": (
        "mamba2",
        dict(
            BASE,
            num_heads=16,
            head_dim=4,
            state_size=4,
            num_hidden_layers=2,
            n_groups=4,
            chunk_size=64,
            use_conv_bias=False,
            time_step_limit=(0.05, 0.4),
            conv_kernel=3,
            layer_norm_epsilon=1e-4,
        ),
    ),
    "falcon_h1 all biases": (
        "falcon_h1",
        dict(ATTN, **SSM, attention_bias=True, mlp_bias=True, mamba_proj_bias=True, projectors_bias=True, head_dim=8),
    ),
    "falcon_h1 llama3 rope, width by expand": (
        "falcon_h1",
        dict(
            ATTN,
            **{**SSM, "mamba_d_ssm": None, "mamba_n_heads": 8, "mamba_d_head": "auto", "mamba_expand": 3},
            **rope(
                rope_type="llama3",
                factor=8.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=32,
            ),
            head_dim=8,
        ),
    ),
    "falcon_h1 multipliers": (
        "falcon_h1",
        dict(
            ATTN,
            **SSM,
            head_dim=8,
            embedding_multiplier=3.0,
            lm_head_multiplier=0.2,
            key_multiplier=0.6,
            attention_in_multiplier=1.4,
            attention_out_multiplier=0.8,
            ssm_in_multiplier=1.2,
            ssm_out_multiplier=0.3,
            ssm_multipliers=[0.4, 0.3, 0.5, 0.6, 0.7],
            mlp_multipliers=[0.9, 0.6],
        ),
    ),
    "falcon_h1 norm first": (
        "falcon_h1",
        dict(
            ATTN,
            **SSM,
            mamba_rms_norm=True,
            mamba_norm_before_gate=True,
            head_dim=8,
            ssm_multipliers=[0.5, 2.0, 1.0, 0.7, 1.1],
        ),
    ),
    "falcon_h1 gate first limits": (
        "falcon_h1",
        dict(
            ATTN,
            **SSM,
            mamba_rms_norm=True,
            mamba_norm_before_gate=False,
            head_dim=8,
            time_step_limit=(0.02, 0.3),
            mamba_conv_bias=False,
            mamba_d_conv=3,
            tie_word_embeddings=True,
            mlp_multipliers=[0.6, 1.7],
            key_multiplier=1.9,
        ),
    ),
}


@pytest.fixture
def made(tmp_path):
    """(our net, their model) of a case, weights randomised so that every parameter matters."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make(family, values, **edits):
        config = AutoConfig.for_model(family, **values)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for name, p in sorted(model.named_parameters()):
                noise = torch.randn(p.shape, generator=generator)
                leaf = name.rsplit(".", 1)[-1]
                if leaf == "A_log":
                    p.copy_(torch.log(1 + 7 * torch.rand(p.shape, generator=generator)))
                elif leaf == "dt_bias":
                    p.copy_(noise * 0.7 - 1.5)
                elif p.dim() == 1:
                    p.copy_((1.0 if "norm" in name or leaf == "D" else 0.0) + 0.3 * noise)
                else:
                    p.copy_(noise * (0.5 if "embed" in name else p.shape[-1] ** -0.5))
        model.tie_weights()
        model.save_pretrained(tmp_path)
        if edits:
            path = tmp_path / "config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **edits}))
        return hybridc.from_hf(tmp_path), model

    return make


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_gradients_are_theirs(made, name):
    net, peer = made(*CASES[name])
    ids = torch.randint(3, 97, (2, 19), generator=torch.Generator().manual_seed(1))
    theirs = peer(ids, labels=ids, use_cache=False)
    ours = net(ids, labels=ids)
    torch.testing.assert_close(ours.logits, theirs.logits, rtol=1e-4, atol=1e-4 * theirs.logits.std().item())
    assert ours.loss.item() == pytest.approx(theirs.loss.item(), rel=1e-4)
    ours.loss.backward()
    theirs.loss.backward()
    got = hybridc.to_hf_state_dict(net, of="grad")
    peers = dict(peer.named_parameters())
    compared = 0
    for public, grad in got.items():
        if public in peers and peers[public].shape == grad.shape:
            torch.testing.assert_close(grad, peers[public].grad, rtol=2e-3, atol=1e-5 + 1e-3 * grad.abs().max().item())
            compared += 1
    assert compared >= 6


@pytest.mark.parametrize("name", CASES)
def test_weights_come_back_bit_for_bit_and_the_spec_reads_back(made, tmp_path, name):
    from safetensors.torch import load_file

    net, _ = made(*CASES[name])
    want = load_file(tmp_path / "model.safetensors")
    got = hybridc.to_hf_state_dict(net)
    assert set(got) == set(want)
    assert all(torch.equal(got[k], want[k]) for k in want)
    spec = hybridc.import_hf(tmp_path)
    from hybridc.frontend.document import print_spec

    text = print_spec(spec)
    assert hybridc.parse(text) == spec
    assert hybridc.check(text).diagnostics == []


def test_old_configs_are_read_alike(made, tmp_path):
    made("llama", dict(ATTN, **rope(rope_type="linear", factor=3.0)))
    path = tmp_path / "config.json"
    values = json.loads(path.read_text())
    new = hybridc.import_hf(tmp_path)
    del values["rope_parameters"], values["dtype"], values["head_dim"]
    values.update(rope_theta=5000.0, rope_scaling={"type": "linear", "factor": 3.0}, torch_dtype="float32")
    path.write_text(json.dumps(values))
    assert hybridc.import_hf(tmp_path) == new
