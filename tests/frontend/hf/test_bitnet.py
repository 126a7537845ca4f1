"""BitNet checkpoints with weights that are ternary in the file, in each form that transformers reads, held against
transformers' own modules of that form."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitNetConfig
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights, replace_with_bitnet_linear
from transformers.utils.quantization_config import BitNetQuantConfig

import hybridc
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.hf import export_config, read

SIZES = dict(
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
)
FORMS = {
    "bitlinear": {"linear_class": "bitlinear"},
    "packed": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
    "plain": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
}
IDS = torch.randint(3, 96, (2, 21), generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def eager():
    """transformers compiles the few lines of its ternary products, which changes none of them."""
    with torch.compiler.set_stance("force_eager"):
        yield


def write(folder, form, **changes):
    """A checkpoint of random ternary weights in a form, and transformers' modules with these weights."""
    config = BitNetConfig(**{**SIZES, **changes})
    quantized = {"quant_method": "bitnet", "modules_to_not_convert": ["lm_head"], **FORMS[form]}
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").float().eval()
    settings = BitNetQuantConfig(**{k: v for k, v in quantized.items() if k != "quant_method"})
    replace_with_bitnet_linear(model, ["lm_head"], settings)
    generator = torch.Generator().manual_seed(1)
    state = {}
    for name, module in model.named_modules():
        if isinstance(module, (BitLinear, AutoBitLinear)):
            levels = torch.randint(-1, 2, (module.out_features, module.in_features), generator=generator).float()
            packed = pack_weights(levels.clone())
            scale = torch.rand(1, generator=generator) * 0.2 + 0.05  # no scale is another's
            state[f"{name}.weight"] = levels if form == "plain" else packed
            state[f"{name}.weight_scale"] = 1 / scale if form == "bitlinear" else scale
            module.weight = torch.nn.Buffer(packed) if form == "bitlinear" else torch.nn.Parameter(levels, False)
            module.weight_scale = torch.nn.Buffer(state[f"{name}.weight_scale"])
            module.dtype = torch.float32
            if module.bias is not None:
                state[f"{name}.bias"] = torch.randn(module.out_features, generator=generator)
                module.bias = torch.nn.Buffer(state[f"{name}.bias"])
    for name, p in model.named_parameters():
        if name not in state:
            with torch.no_grad():
                p.copy_(torch.randn(p.shape, generator=generator) * (0.5 if "embed" in name else 0.2) + (p.dim() == 1))
            state[name] = p.detach().clone()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    folder.mkdir()
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**config.to_dict(), "quantization_config": quantized}))
    return model, state


def close(got, wanted):
    assert (got - wanted).abs().max() <= 1e-4 * wanted.std().clamp(min=1.0)


@pytest.mark.parametrize("form", FORMS)
def test_logits(form, tmp_path):
    model, _ = write(tmp_path / "public", form)
    net = hybridc.from_hf(tmp_path / "public").eval()
    with torch.no_grad():
        wanted = model(IDS, use_cache=False).logits
        close(net(IDS).logits, wanted)
        cache = net.new_cache(2, 32)
        parts = [net(IDS[:, a:b], cache=cache).logits for a, b in ((0, 9), (9, 10), (10, 21))]
        close(torch.cat(parts, 1), wanted)


def test_biases_behind_the_scales(tmp_path):
    model, _ = write(tmp_path / "public", "bitlinear", attention_bias=True, tie_word_embeddings=True)
    with torch.no_grad():
        close(hybridc.from_hf(tmp_path / "public")(IDS).logits, model(IDS, use_cache=False).logits)


@pytest.mark.parametrize("form", FORMS)
def test_weights_come_back(form, tmp_path):
    _, state = write(tmp_path / "public", form)
    net = hybridc.from_hf(tmp_path / "public")
    hybridc.to_hf(net, tmp_path / "again")
    for again in (hybridc.to_hf_state_dict(net), load_file(tmp_path / "again" / "model.safetensors")):
        assert set(again) == set(state)
        for name, value in state.items():
            if form == "bitlinear" and name.endswith("weight_scale"):  # 1 over 1 over it
                torch.testing.assert_close(again[name], value, rtol=2e-7, atol=0)
            else:
                assert torch.equal(again[name], value.to(again[name].dtype)), name
    assert {k: v.dtype for k, v in again.items()} == {k: v.dtype for k, v in state.items()}
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["dtype"] == "float32" and config["quantization_config"]["quant_method"] == "bitnet"


@pytest.mark.parametrize("form", FORMS)
def test_transformers_loads_what_is_written(form, tmp_path):
    model, _ = write(tmp_path / "public", form)
    hybridc.to_hf(hybridc.from_hf(tmp_path / "public"), tmp_path / "again")
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "again", attn_implementation="eager").eval()
    with torch.no_grad():
        close(loaded(IDS, use_cache=False).logits, model(IDS, use_cache=False).logits)


@pytest.mark.parametrize("form", FORMS)
def test_import_is_a_fixed_point(form, tmp_path):
    write(tmp_path / "public", form)
    imported = read(tmp_path / "public")
    compiled = hybridc.compile(imported.spec)
    assert all(format == "bitnet(packed)" for b in compiled.ir.blocks for n in b.nodes for _, format in n.formats)
    config = export_config(compiled.ir, "bitnet")
    assert config["quantization_config"]["linear_class"] == "bitlinear"
    assert read(config).spec == imported.spec


def test_a_cast_leaves_bytes_and_scales(tmp_path):
    write(tmp_path / "public", "packed")
    net = hybridc.from_hf(tmp_path / "public", dtype="bfloat16")
    qkv = net.layers[0].attn.qkv
    assert qkv.weight.dtype == torch.uint8 and qkv.weight_scale.dtype == torch.float32
    assert net.layers[0].attn.out_norm.weight.dtype == torch.bfloat16
    assert {s.k.dtype for entry in net.new_cache(1, 8).layers for s in entry.values()} == {torch.bfloat16}
    net(IDS)
    assert hybridc.from_hf(tmp_path / "public", dtype="auto").embed.embedding.weight.dtype == torch.float32


def test_weights_that_are_not_ternary(tmp_path):
    _, state = write(tmp_path / "public", "plain")
    name = "model.layers.1.mlp.down_proj.weight"
    save_file({**state, name: state[name] * 0.5}, tmp_path / "public" / "model.safetensors")
    with pytest.raises(DiagnosticError, match="HYB511") as caught:
        hybridc.from_hf(tmp_path / "public")
    assert name in str(caught.value) and "ternary" in str(caught.value)
    save_file({**state, name: state[name][:10]}, tmp_path / "public" / "model.safetensors")
    with pytest.raises(DiagnosticError, match="another shape"):
        hybridc.from_hf(tmp_path / "public")
    packed = pack_weights(state[name].clone()).float()
    save_file({**state, name: packed}, tmp_path / "public" / "model.safetensors")
    with pytest.raises(DiagnosticError, match="U8"):
        hybridc.from_hf(tmp_path / "public")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"linear_class": "linear"}, "linear_class"),
        ({"linear_class": "autobitlinear", "quantization_mode": "never"}, "quantization_mode"),
        ({"use_rms_norm": True}, "use_rms_norm"),
        ({"linear_class": "autobitlinear", "quantization_mode": "offline", "bias": True}, "attention_bias"),
    ],
)
def test_refused_by_name(changes, named):
    config = {**SIZES, "model_type": "bitnet", "attention_bias": changes.pop("bias", False)}
    with pytest.raises(DiagnosticError) as caught:
        read({**config, "quantization_config": {"quant_method": "bitnet", **changes}})
    assert "HYB503" in str(caught.value) and named in str(caught.value)
