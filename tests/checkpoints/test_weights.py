"""Weights of public files into emitted nets and back: made here without transformers, from the published names and
shapes."""

import json
import pickle
import subprocess
import sys
import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file

import hybridc
from hybridc.checkpoints.files import Files
from hybridc.checkpoints.names import folded
from hybridc.checkpoints.weights import assemble, bind, load_hf, take_apart, to_hf_state_dict
from hybridc.diagnostics import DiagnosticError
from hybridc.frontend.hf import read
from hybridc.frontend.hf.weightmap import Grouped, Source

LLAMA = dict(
    model_type="llama",
    vocab_size=11,
    hidden_size=8,
    intermediate_size=6,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=4,
)
MIXTRAL = dict(LLAMA, model_type="mixtral", num_local_experts=3, num_experts_per_tok=2)
MAMBA2 = dict(
    model_type="mamba2",
    vocab_size=11,
    hidden_size=8,
    num_heads=4,
    head_dim=4,
    state_size=3,
    n_groups=2,
    num_hidden_layers=2,
    tie_word_embeddings=True,
)


def llama_shapes(config):
    """Names and shapes of a file of the family, written down from the published ones."""
    yield "model.embed_tokens.weight", (11, 8)
    for i in range(2):
        at = f"model.layers.{i}."
        yield at + "self_attn.q_proj.weight", (16, 8)
        yield at + "self_attn.k_proj.weight", (8, 8)
        yield at + "self_attn.v_proj.weight", (8, 8)
        yield at + "self_attn.o_proj.weight", (8, 16)
        yield at + "input_layernorm.weight", (8,)
        yield at + "post_attention_layernorm.weight", (8,)
        if config["model_type"] == "llama":
            yield at + "mlp.gate_proj.weight", (6, 8)
            yield at + "mlp.up_proj.weight", (6, 8)
            yield at + "mlp.down_proj.weight", (8, 6)
            continue
        yield at + "block_sparse_moe.gate.weight", (3, 8)
        for e in range(3):
            yield at + f"block_sparse_moe.experts.{e}.w1.weight", (6, 8)
            yield at + f"block_sparse_moe.experts.{e}.w2.weight", (8, 6)
            yield at + f"block_sparse_moe.experts.{e}.w3.weight", (6, 8)
    yield "model.norm.weight", (8,)
    if not config.get("tie_word_embeddings"):
        yield "lm_head.weight", (11, 8)


def mamba2_shapes(config):
    yield "backbone.embeddings.weight", (11, 8)
    for i in range(2):
        at = f"backbone.layers.{i}."
        yield at + "norm.weight", (8,)
        yield at + "mixer.in_proj.weight", (2 * 16 + 2 * 2 * 3 + 4, 8)
        yield at + "mixer.conv1d.weight", (28, 1, 4)
        yield at + "mixer.conv1d.bias", (28,)
        yield at + "mixer.dt_bias", (4,)
        yield at + "mixer.A_log", (4,)
        yield at + "mixer.D", (4,)
        yield at + "mixer.norm.weight", (16,)
        yield at + "mixer.out_proj.weight", (8, 16)
    yield "backbone.norm_f.weight", (8,)


SHAPES = {"llama": llama_shapes, "mixtral": llama_shapes, "mamba2": mamba2_shapes}


@pytest.fixture
def checkpoint(tmp_path):
    """Writes a folder of random weights for a config; returns its tensors."""

    def make(config, dtype=torch.float32, **edits):
        generator = torch.Generator().manual_seed(0)
        tensors = {
            name: torch.randn(shape, generator=generator).to(dtype)
            for name, shape in SHAPES[config["model_type"]](config)
        }
        for name, value in edits.items():
            del tensors[name]
            tensors.update(value or {})
        (tmp_path / "config.json").write_text(json.dumps(config))
        save_file(tensors, tmp_path / "model.safetensors")
        return tensors

    return make


def refusal(folder):
    """The text of the one error that loading a folder ends with."""
    with pytest.raises(DiagnosticError) as caught:
        hybridc.from_hf(folder)
    return str(caught.value)


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL, MAMBA2], ids=lambda c: c["model_type"])
def test_weights_and_gradients_come_back_under_their_public_names(checkpoint, tmp_path, config):
    tensors = checkpoint(config)
    net = hybridc.from_hf(tmp_path)
    got = hybridc.to_hf_state_dict(net)
    assert set(got) == set(tensors)
    assert all(torch.equal(got[n], tensors[n]) and got[n].shape == tensors[n].shape for n in tensors)
    assert all(p.requires_grad and not p.is_meta for p in net.parameters())
    assert hybridc.to_hf_state_dict(net, of="grad") == {}
    for p in net.parameters():
        p.grad = 2 * p.detach()
    grads = hybridc.to_hf_state_dict(net, of="grad")
    assert set(grads) == set(tensors)
    assert all(torch.equal(grads[n], 2 * tensors[n]) for n in tensors)


def test_where_the_parts_of_a_joined_parameter_lie(checkpoint, tmp_path):
    t = checkpoint(MIXTRAL)
    layer = hybridc.from_hf(tmp_path).layers[1]
    at = "model.layers.1."
    assert torch.equal(layer.attn.qkv.weight[16:24], t[at + "self_attn.k_proj.weight"])
    assert torch.equal(layer.moe.experts.gate_up[2, :6], t[at + "block_sparse_moe.experts.2.w1.weight"])
    assert torch.equal(layer.moe.experts.gate_up[2, 6:], t[at + "block_sparse_moe.experts.2.w3.weight"])
    assert torch.equal(layer.moe.experts.down[0], t[at + "block_sparse_moe.experts.0.w2.weight"])


def test_mixtures_in_the_fused_layout_of_transformers_5(checkpoint, tmp_path):
    tensors = checkpoint(MIXTRAL)
    old = hybridc.from_hf(tmp_path)
    fused = {n: t for n, t in tensors.items() if "block_sparse_moe" not in n}
    for i in range(2):
        theirs, ours = f"model.layers.{i}.block_sparse_moe.", f"model.layers.{i}.mlp."
        experts = [[tensors[f"{theirs}experts.{e}.{w}.weight"] for w in ("w1", "w2", "w3")] for e in range(3)]
        fused[ours + "gate.weight"] = tensors[theirs + "gate.weight"]
        fused[ours + "experts.gate_up_proj"] = torch.stack([torch.cat([w1, w3]) for w1, _, w3 in experts])
        fused[ours + "experts.down_proj"] = torch.stack([w2 for _, w2, _ in experts])
    save_file(fused, tmp_path / "model.safetensors")
    new = hybridc.from_hf(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(old.parameters(), new.parameters(), strict=True))
    back = to_hf_state_dict(new)
    assert set(back) == set(fused) and all(torch.equal(back[n], fused[n]) for n in fused)
    # what is missing is named in the layout that the file has
    del fused["model.layers.1.mlp.experts.down_proj"]
    save_file(fused, tmp_path / "model.safetensors")
    text = refusal(tmp_path)
    assert "1 tensor is missing from the files: model.layers.1.mlp.experts.down_proj" in text
    assert "block_sparse_moe" not in text


def test_tied_weights(checkpoint, tmp_path):
    tensors = checkpoint(dict(LLAMA, tie_word_embeddings=True))
    net = hybridc.from_hf(tmp_path)
    assert net.head.lm_head.weight is net.embed.embedding.weight
    assert "lm_head.weight" not in hybridc.to_hf_state_dict(net)
    # some files hold the second name too, and some the tables of older versions: they follow from the config
    more = {
        **tensors,
        "lm_head.weight": tensors["model.embed_tokens.weight"].clone(),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2),
    }
    save_file(more, tmp_path / "model.safetensors")
    again = hybridc.from_hf(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_formats_become_that_of_the_net(checkpoint, tmp_path, dtype):
    tensors = checkpoint(MAMBA2, dtype)
    net = hybridc.from_hf(tmp_path)
    got = hybridc.to_hf_state_dict(net)
    assert all(got[n].dtype == torch.float32 and torch.equal(got[n], tensors[n].float()) for n in tensors)


@pytest.mark.parametrize("on_meta", [False, True])
def test_a_net_in_half_precision_keeps_its_fp32_parameters(checkpoint, tmp_path, on_meta):
    tensors = checkpoint(MAMBA2)
    imported = read(tmp_path)
    with torch.device("meta" if on_meta else "cpu"):
        net = hybridc.compile(imported.spec).load(init=False).to(torch.bfloat16)
    bind(net, imported)
    load_hf(net, tmp_path)
    mixer = net.layers[1].ssm
    for name in ("A_log", "D", "dt_bias"):
        assert torch.equal(getattr(mixer, name), tensors[f"backbone.layers.1.mixer.{name}"])
    assert torch.equal(mixer.out_proj.weight, tensors["backbone.layers.1.mixer.out_proj.weight"].bfloat16())
    assert net.head.lm_head.weight is net.embed.embedding.weight


def test_loading_in_place_keeps_the_parameters(checkpoint, tmp_path):
    tensors = checkpoint(LLAMA)
    net = hybridc.from_hf(tmp_path)
    before = dict(net.named_parameters())
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    load_hf(net, tmp_path)
    assert all(p is before[n] for n, p in net.named_parameters())
    assert torch.equal(to_hf_state_dict(net)["model.norm.weight"], tensors["model.norm.weight"])


def test_a_loaded_net_outlives_its_file(checkpoint, tmp_path):
    tensors = checkpoint(LLAMA)
    net = hybridc.from_hf(tmp_path)
    path = tmp_path / "model.safetensors"
    with path.open("r+b") as file:  # in place: a mapping of the file would show it
        file.seek(-4000, 2)
        file.write(b"\0" * 4000)
    assert all(torch.equal(t, tensors[n]) for n, t in to_hf_state_dict(net).items())


def test_one_parameter_is_read_at_a_time(checkpoint, tmp_path, monkeypatch):
    """When the parts of a parameter are read, those of the one before are gone."""
    checkpoint(MIXTRAL)
    alive: list[weakref.ref] = []
    most = 0
    original = Files.tensor

    def tensor(self, name):
        nonlocal most
        value = original(self, name)
        alive.append(weakref.ref(value))
        most = max(most, sum(ref() is not None for ref in alive))
        return value

    monkeypatch.setattr(Files, "tensor", tensor)
    hybridc.from_hf(tmp_path)
    assert len(alive) == 2 * (6 + 1 + 9) + 3
    assert most <= 7  # the gates and ups of three experts, and the one that is being replaced


def test_all_that_does_not_fit_is_named_at_once_and_nothing_is_read(checkpoint, tmp_path, monkeypatch):
    checkpoint(
        LLAMA,
        **{
            "model.norm.weight": None,
            "model.layers.1.self_attn.k_proj.weight": {"surprise": torch.zeros(1)},
            "model.layers.0.mlp.up_proj.weight": {"model.layers.0.mlp.up_proj.weight": torch.zeros(3, 8)},
            "model.layers.0.mlp.gate_proj.weight": {"model.layers.0.mlp.gate_proj.weight": torch.zeros(6, 9)},
            "lm_head.weight": {"lm_head.weight": torch.zeros(11, 8, dtype=torch.int8)},
        },
    )
    monkeypatch.setattr(Files, "tensor", lambda self, name: pytest.fail(f"{name} was read"))
    text = refusal(tmp_path)
    for wanted in (
        "HYB510",
        "HYB511",
        "model.norm.weight",
        "model.layers.1.self_attn.k_proj.weight",
        "model.layers.0.mlp.up_proj.weight [3, 8], wanted [6, 8]",
        "model.layers.0.mlp.gate_proj.weight [6, 9], wanted [6, 8]",
        "surprise",
        "lm_head.weight (I8)",
    ):
        assert wanted in text


def test_names_of_all_layers_are_folded():
    names = [f"layers.{i}.experts.{e}.w{k}.weight" for i in (0, 1, 2, 5) for e in range(8) for k in (1, 3)]
    assert folded([*names, "norm.weight", "layers.9.norm.weight"]) == [
        "layers.9.norm.weight",
        "layers.{0-2,5}.experts.{0-7}.w{1,3}.weight",
        "norm.weight",
    ]
    assert folded([]) == []
    assert folded(["a.2.b", "a.2.c.3"]) == ["a.2.b", "a.2.c.3"]
    # another set of experts in one layer is not hidden behind a pattern
    assert folded(["l.0.e.0", "l.0.e.1", "l.1.e.0"]) == ["l.0.e.{0-1}", "l.1.e.0"]


def test_a_whole_other_checkpoint_gives_a_short_answer(checkpoint, tmp_path):
    tensors = checkpoint(LLAMA)
    save_file({f"other.{n}": t for n, t in tensors.items()}, tmp_path / "model.safetensors")
    text = refusal(tmp_path)
    assert "21 tensors are missing" in text and "model.layers.{0-1}.mlp.down_proj.weight" in text
    assert "21 tensors are in the files" in text and "other.model.layers.{0-1}.input_layernorm.weight" in text


def split(folder, tensors):
    """Writes two shards and their index; returns the index."""
    names = sorted(tensors)
    parts = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({n: tensors[n] for n in some}, folder / file)
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {n: f for f, some in parts.items() for n in some}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return index


def test_shards(checkpoint, tmp_path):
    tensors = checkpoint(MIXTRAL)
    split(tmp_path, tensors)
    got = to_hf_state_dict(hybridc.from_hf(tmp_path))
    assert all(torch.equal(got[n], tensors[n]) for n in tensors)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "the shard `model-00002-of-00002.safetensors` is missing" in refusal(tmp_path)


@pytest.mark.parametrize(
    "shard",
    [
        "../a.safetensors",
        "/a.safetensors",
        "sub/a.safetensors",
        "a.bin",
        "..",
        "",
        3,
        None,
        "a\0.safetensors",
        "a" * 300 + ".safetensors",
    ],
)
def test_shards_elsewhere_are_refused(checkpoint, tmp_path, shard):
    tensors = checkpoint(LLAMA)
    index = split(tmp_path, tensors)
    index["weight_map"]["model.norm.weight"] = shard
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "HYB512" in refusal(tmp_path)


def test_the_index_says_where_a_tensor_is(checkpoint, tmp_path):
    """Of a tensor that two shards hold, the one counts that the index names, whatever the shards are called."""
    tensors = checkpoint(LLAMA)
    index = split(tmp_path, tensors)
    for shard in sorted(set(index["weight_map"].values())):
        mine = load_file(tmp_path / shard)
        strange = {n: torch.full_like(v, 7.0) for n, v in tensors.items() if n not in mine}
        save_file({**mine, **strange}, tmp_path / shard)
    got = to_hf_state_dict(hybridc.from_hf(tmp_path))
    assert all(torch.equal(got[n], tensors[n]) for n in tensors)


def test_a_tensor_that_is_not_where_the_index_says(checkpoint, tmp_path):
    index = split(tmp_path, checkpoint(LLAMA))
    places = index["weight_map"]
    (other,) = set(places.values()) - {places["model.norm.weight"]}
    places["model.norm.weight"] = other
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    text = refusal(tmp_path)
    assert "HYB512" in text and "model.norm.weight" in text


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}', '{"a":' * 100_000, "\xff"]
)
def test_a_broken_index(checkpoint, tmp_path, text):
    checkpoint(LLAMA)
    (tmp_path / "model.safetensors.index.json").write_text(text, encoding="latin-1")
    assert "HYB51" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 64, b"\xff" * 64, pickle.dumps({"a": 1}), b"\x08" + b"\0" * 7 + b"{}      "]
)
def test_what_is_no_safetensors_file(checkpoint, tmp_path, content):
    checkpoint(LLAMA)
    (tmp_path / "model.safetensors").write_bytes(content)
    assert "HYB51" in refusal(tmp_path)


def test_a_cut_off_file(checkpoint, tmp_path):
    checkpoint(LLAMA)
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    assert "HYB512" in refusal(tmp_path) and "download it again" in refusal(tmp_path)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "consolidated.00.pth", "model.pt", "pytorch_model-00001-of-2.bin"]
)
def test_pickled_weights_are_refused_and_never_opened(checkpoint, tmp_path, name):
    checkpoint(LLAMA)
    (tmp_path / "model.safetensors").rename(tmp_path / name)
    text = refusal(tmp_path)
    assert "HYB512" in text and "pickled" in text and "safetensors" in text


def test_a_folder_without_weights(checkpoint, tmp_path):
    checkpoint(LLAMA)
    (tmp_path / "model.safetensors").unlink()
    assert "HYB512" in refusal(tmp_path)


def test_what_to_hf_state_dict_needs(checkpoint, tmp_path):
    checkpoint(LLAMA)
    net = hybridc.from_hf(tmp_path)
    with pytest.raises(ValueError, match="param"):
        hybridc.to_hf_state_dict(net, of="grads")
    with pytest.raises(DiagnosticError, match="HYB513"):
        hybridc.to_hf_state_dict(torch.nn.Linear(2, 2))
    loose = hybridc.compile(hybridc.import_hf(tmp_path)).load()
    with pytest.raises(DiagnosticError, match="HYB513"):
        load_hf(loose, tmp_path)


def test_what_is_handed_out_does_not_follow_the_net_by_surprise(checkpoint, tmp_path):
    """Tensors are detached and contiguous, so that they can be saved as they are."""
    tensors = checkpoint(MIXTRAL)
    got = to_hf_state_dict(hybridc.from_hf(tmp_path))
    assert all(t.is_contiguous() and not t.requires_grad for t in got.values())
    save_file({n: t.clone() for n, t in got.items()}, tmp_path / "again.safetensors")
    again = load_file(tmp_path / "again.safetensors")
    assert all(torch.equal(again[n], tensors[n]) for n in tensors)


@pytest.mark.parametrize(
    ("source", "shapes", "ours"),
    [
        (Source(("a",)), [(3, 2)], (3, 2)),
        (Source(("a", "b", "c"), (3, 1, 2)), [(3, 5), (1, 5), (2, 5)], (6, 5)),
        (Source(("a",), squeeze=1), [(3, 1, 4)], (3, 4)),
        (Source(("a",), shape=(1, 1, 3, 1)), [(1, 1, 3, 1)], (3,)),
        (Source(("a", "b"), (), 2), [(3, 4), (3, 4)], (2, 3, 4)),
        (Source(("a", "b", "c", "d"), (3, 2), 2), [(3, 4), (2, 4), (3, 4), (2, 4)], (2, 5, 4)),
        (Source(("a",), transpose=True, grouped=(Grouped(3, (1, 1), dim=1),)), [(2, 4, 6)], (2, 6, 4)),
        (Source(("a", "b"), (12, 4), grouped=(Grouped(2, (4, 2)), None)), [(12, 3), (4, 3)], (16, 3)),
    ],
)
def test_taking_apart_undoes_assembling(source, shapes, ours):
    tensors = {n: torch.randn(s) for n, s in zip(source.names, shapes, strict=True)}
    apart = dict(take_apart(source, assemble(source, tensors.__getitem__, torch.empty(ours))))
    assert list(apart) == list(tensors)
    assert all(torch.equal(apart[n], t) for n, t in tensors.items())


def test_grouped_rows_are_put_part_by_part():
    """Two groups of two queries and a gate: q0 q1 g0 | q2 q3 g1 becomes q0 q1 q2 q3 g0 g1."""
    rows = torch.tensor([0.0, 1.0, 10.0, 2.0, 3.0, 11.0])[:, None]
    got = assemble(Source(("a",), grouped=(Grouped(2, (2, 1)),)), lambda _: rows, torch.empty(6, 1))
    assert got[:, 0].tolist() == [0.0, 1.0, 2.0, 3.0, 10.0, 11.0]


def test_memory_of_loading(tmp_path):
    """The peak is under 1.2 times the model: pages of the mapped files do not pile up."""
    config = dict(
        model_type="mixtral",
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=10,
        num_attention_heads=4,
        num_key_value_heads=4,
        num_local_experts=24,
        vocab_size=4000,
    )
    imported = read(config)
    net = hybridc.compile(imported.spec).load()
    bind(net, imported)
    hybridc.to_hf(net, tmp_path / "m")
    size = sum(p.numel() * p.element_size() for p in net.parameters())
    code = (
        "import hybridc, torch\n"
        "def memory(what):\n"
        "    return next(int(l.split()[1]) << 10 for l in open('/proc/self/status') if l.startswith(what))\n"
        "text = 'model m { block H { x += linear(8) }; embed = embedding(9, 8); layers = H; head = lm_head(9) }'\n"
        "hybridc.compile(text).load()(torch.zeros(1, 1, dtype=torch.int64))\n"
        "import hybridc.checkpoints.weights, hybridc.frontend.hf.mixtral, safetensors.torch\n"
        "before = memory('VmRSS')\n"
        f"hybridc.from_hf({str(tmp_path / 'm')!r})\n"
        "print(memory('VmHWM') - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1.2 * size
