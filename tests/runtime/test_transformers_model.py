"""An emitted model under transformers: what it loads and keeps, generate() against solo runs, Trainer, PEFT."""

import copy
import logging

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM, DataCollatorWithFlattening, Trainer, TrainingArguments

import hybridc
from hybridc.runtime.errors import UsageError
from hybridc.runtime.transformers_model import CACHE
from tests.runtime import transformers_zoo, zoo

GREEDY = {"do_sample": False, "pad_token_id": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("models") / "zoo"
    transformers_zoo.write(made)
    return made


@pytest.fixture(scope="module")
def net(folder):
    return transformers_zoo.write(folder)


@pytest.fixture(scope="module")
def model(folder):
    return transformers_zoo.load(folder)


@pytest.fixture
def fresh(folder):
    """A model of one's own, to be changed."""
    return transformers_zoo.load(folder)


# --- loading and saving --------------------------------------------------------------------------------------------


def test_gives_the_net_s_logits(model, net):
    ids = zoo.ids(2, 11)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, net(ids).logits, rtol=0, atol=0)


def test_all_weights_are_loaded(folder, net):
    model, found = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"] and not found["mismatched_keys"]
    assert all(torch.equal(p, net.get_parameter(n)) for n, p in model.model.named_parameters())
    assert model.model.head.lm_head.weight is model.model.embed.embedding.weight
    assert model.model.layers[1] is model.model.layers[5]


def test_saves_what_it_loads(model, tmp_path):
    model.save_pretrained(tmp_path / "again")
    again = transformers_zoo.load(tmp_path / "again")
    assert type(again).__name__ == "ZooForCausalLM"
    assert model.state_dict().keys() == again.state_dict().keys()
    assert all(torch.equal(p, again.state_dict()[n]) for n, p in model.state_dict().items())


def test_a_missing_weight_starts_as_the_spec_says(folder, net, tmp_path):
    from safetensors.torch import load_file, save_file

    model = transformers_zoo.load(folder)
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    lost = ["layers.0.mamba2.A_log", "layers.1.linear.weight", "layers.2.attn.qkv.weight", "embed.embedding.weight"]
    lost = [f"model.{name}" for name in lost]
    save_file({n: w for n, w in weights.items() if n not in lost}, tmp_path / "model.safetensors", {"format": "pt"})
    model, start = transformers_zoo.load(tmp_path), hybridc.compile(zoo.SPEC).load(seed=0)
    assert model.model.head.lm_head.weight is model.model.embed.embedding.weight
    for name, p in model.named_parameters():
        other = start if name in lost else net
        assert torch.equal(p, other.get_parameter(name.removeprefix("model."))), name


def test_from_config_starts_as_the_spec_says(folder):
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True, init_seed=7)
    model = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    start = hybridc.compile(zoo.SPEC).load(seed=7)
    assert all(torch.equal(p, start.get_parameter(n)) for n, p in model.model.named_parameters())


def test_a_model_made_without_the_auto_classes_is_saved_with_its_code(folder, model, tmp_path):
    type(model)(type(model.config)()).save_pretrained(tmp_path / "made")
    assert isinstance(transformers_zoo.load(tmp_path / "made").model.layers[0], torch.nn.Module)


KEPT = {"A_log", "D", "dt_bias", "dt_proj.bias", "router.weight"}


@pytest.mark.parametrize("way", ["from_pretrained", "from_config", "to"])
def test_bf16_keeps_what_stays_fp32(folder, model, way):
    if way == "from_pretrained":
        cast = transformers_zoo.load(folder, dtype=torch.bfloat16)
    elif way == "to":
        cast = transformers_zoo.load(folder).to(torch.bfloat16)
    else:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        cast = AutoModelForCausalLM.from_config(config, trust_remote_code=True, dtype=torch.bfloat16)
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    for name, p in cast.named_parameters():
        wide = any(name.endswith(f".{k}") for k in KEPT)
        assert p.dtype == (torch.float32 if wide else torch.bfloat16), name
        assert torch.equal(p, model.get_parameter(name).to(p.dtype)), name


@pytest.mark.parametrize(
    "change",
    [{"vocab_size": 51}, {"hidden_size": 64}, {"num_hidden_layers": 3}, {"tie_word_embeddings": False}],
)
def test_a_config_of_another_net_is_refused(folder, change):
    with pytest.raises(UsageError, match=next(iter(change))):
        transformers_zoo.load(folder, **change)


def test_the_vocabulary_is_the_spec_s(fresh):
    assert fresh.resize_token_embeddings(zoo.VOCAB) is fresh.get_input_embeddings()
    with pytest.raises(UsageError, match="51"):
        fresh.resize_token_embeddings(51)
    with pytest.raises(UsageError, match="cannot be replaced"):
        fresh.set_input_embeddings(torch.nn.Embedding(3, 4))


def test_a_spec_in_bf16(tmp_path):
    spec = zoo.SPEC + "\nprecision { default bf16 }"
    net = transformers_zoo.write(tmp_path / "zoo", spec)
    model = transformers_zoo.load(tmp_path / "zoo")
    assert model.dtype == torch.bfloat16
    assert all(torch.equal(p, net.get_parameter(n)) for n, p in model.model.named_parameters())
    assert transformers_zoo.load(tmp_path / "zoo", dtype=torch.float32).dtype == torch.float32


# --- forward -------------------------------------------------------------------------------------------------------


def test_refuses_by_name_what_it_does_not_do(model):
    ids = zoo.ids(1, 4)
    with pytest.raises(UsageError, match="inputs_embeds"):
        model(inputs_embeds=torch.zeros(1, 4, 32))
    with pytest.raises(UsageError, match="inputs_embeds"):
        model.generate(inputs_embeds=torch.zeros(1, 4, 32), max_new_tokens=2)
    with pytest.raises(UsageError, match="output_hidden_states"):
        model(ids, output_hidden_states=True)
    with pytest.raises(UsageError, match="token_type_ids"):
        model(ids, token_type_ids=ids)
    with pytest.raises(UsageError, match="DynamicCache"):
        from transformers import DynamicCache

        model(ids, cache=DynamicCache())
    with pytest.raises(UsageError, match="no input_ids"):
        model()


def test_keeps_the_logits_that_are_asked_for(model):
    ids, mask = transformers_zoo.padded([zoo.ids(1, n, seed=n)[0] for n in (3, 7)], "left")
    with torch.no_grad():
        for options in ({}, {"attention_mask": mask}):
            whole = model(ids, **options).logits
            torch.testing.assert_close(model(ids, logits_to_keep=2, **options).logits, whole[:, -2:])
            some = torch.tensor([1, 4])
            torch.testing.assert_close(model(ids, logits_to_keep=some, **options).logits, whole[:, some])


def test_gives_a_tuple(model):
    ids = zoo.ids(1, 4)
    loss, logits = model(ids, labels=ids, return_dict=False)
    assert loss.dim() == 0 and logits.shape == (1, 4, zoo.VOCAB)


def test_the_loss_is_the_net_s(model, net):
    ids = zoo.ids(2, 9)
    labels = ids.masked_fill(ids % 5 == 0, -100)
    out = model(ids, labels=labels)
    torch.testing.assert_close(out.loss, net(ids, labels).loss)
    assert out.get("cache") is None
    count = int((labels[:, 1:] != -100).sum())
    scaled = model(ids, labels=labels, num_items_in_batch=2 * count).loss
    torch.testing.assert_close(scaled, out.loss / 2)


def test_positions_that_start_again_are_documents(model):
    rows = [zoo.ids(1, n, seed=n)[0] for n in (4, 9, 1)]
    batch = DataCollatorWithFlattening()([{"input_ids": r.tolist()} for r in rows])
    with torch.no_grad():
        packed = model(batch["input_ids"], position_ids=batch["position_ids"]).logits[0]
        for part, row in zip(packed.split([len(r) for r in rows]), rows, strict=True):
            torch.testing.assert_close(part, model(row[None]).logits[0])


def test_position_ids_move_a_row(model, net):
    ids, far = zoo.ids(1, 6), torch.arange(40, 46)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids, position_ids=far).logits, net(ids, positions=far).logits)


# --- generate() ----------------------------------------------------------------------------------------------------

PROMPTS = [zoo.ids(1, n, seed=n)[0] for n in (3, 8, 5, 1)]
MODES = [
    {},
    {"num_beams": 4},
    {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.5},
    {"num_beams": 3, "use_cache": False},
    {"repetition_penalty": 1.5, "eos_token_id": 7},
]


def test_greedy_is_the_net_s_own(model, net):
    """Over so many tokens that the cache grows."""
    ids = zoo.ids(2, 9)
    made = model.generate(ids, max_new_tokens=150, **GREEDY)
    assert made[:, 9:].tolist() == hybridc.generate(net, ids, max_new_tokens=150)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_padded_batch_gives_what_solo_runs_give(model, mode, side):
    ids, mask = transformers_zoo.padded(PROMPTS, side)
    together = model.generate(ids, attention_mask=mask, max_new_tokens=10, **GREEDY | mode)[:, ids.shape[1] :]
    solo = [model.generate(row[None], max_new_tokens=10, **GREEDY | mode)[:, len(row) :] for row in PROMPTS]
    expected = [row.tolist() + [0] * (together.shape[1] - len(row)) for rows in solo for row in rows]
    assert together.tolist() == expected


def test_a_long_prompt_is_cut_into_chunks(model):
    ids, mask = transformers_zoo.padded(PROMPTS, "left")
    options = {"attention_mask": mask, "max_new_tokens": 6, **GREEDY}
    whole = model.generate(ids, **options)
    chunked = model.generate(ids, **{CACHE: model.new_cache(4, 2)}, prefill_chunk_size=3, **options)
    assert whole.tolist() == chunked.tolist()


def test_goes_on_from_a_cache(model):
    ids, mask = transformers_zoo.padded(PROMPTS, "left")
    whole = model.generate(ids, attention_mask=mask, max_new_tokens=8, **GREEDY)
    cache = model.new_cache(4)
    with torch.no_grad():
        model(ids[:, :5], attention_mask=mask[:, :5], cache=cache)
    assert cache.get_seq_length() == 5
    gone_on = model.generate(ids, attention_mask=mask, **{CACHE: cache}, max_new_tokens=8, **GREEDY)
    assert whole.tolist() == gone_on.tolist()


def test_assistants_are_refused(model):
    with pytest.raises(ValueError, match="stateful"):
        model.generate(zoo.ids(1, 4), assistant_model=copy.deepcopy(model), max_new_tokens=4)


# --- Trainer -------------------------------------------------------------------------------------------------------

DATA = [{"input_ids": row, "labels": row} for row in zoo.ids(16, 24)]


def train(model, folder, steps=20, **options):
    """Loss at each step of a Trainer's run."""
    settings = {
        "output_dir": str(folder / "run"),
        "max_steps": steps,
        "per_device_train_batch_size": 8,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
    }
    trainer = Trainer(model, TrainingArguments(**settings | options), train_dataset=DATA, eval_dataset=DATA)
    trainer.train()
    return [h["loss"] for h in trainer.state.log_history if "loss" in h], trainer


@pytest.fixture
def quiet(folder):
    """A model with the spec's own initial weights, to be trained."""
    config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
    return AutoModelForCausalLM.from_config(config, trust_remote_code=True)


def test_trainer_trains_for_20_steps(quiet, tmp_path):
    losses, trainer = train(quiet, tmp_path, save_strategy="steps", save_steps=10)
    assert len(losses) == 20 and losses[-1] < losses[0] - 0.3
    assert trainer.evaluate()["eval_loss"] < losses[0]
    saved = transformers_zoo.load(tmp_path / "run" / "checkpoint-20")
    assert all(torch.equal(p, quiet.get_parameter(n)) for n, p in saved.named_parameters())


def test_a_broken_off_training_goes_on(quiet, tmp_path, caplog, monkeypatch):
    other = copy.deepcopy(quiet)
    whole, _ = train(quiet, tmp_path / "a", steps=4)
    train(other, tmp_path / "b", steps=2, save_strategy="steps", save_steps=2)
    settings = {"output_dir": str(tmp_path / "b" / "run"), "learning_rate": 3e-3, "lr_scheduler_type": "constant"}
    arguments = TrainingArguments(
        max_steps=4, per_device_train_batch_size=8, use_cpu=True, report_to=[], logging_steps=1, **settings
    )
    trainer = Trainer(other, arguments, train_dataset=DATA)
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    trainer.train(resume_from_checkpoint=True)
    assert [h["loss"] for h in trainer.state.log_history if "loss" in h] == pytest.approx(whole, rel=1e-6)
    assert "missing keys" not in caplog.text


def test_accumulated_gradients_are_those_of_the_whole_batch(quiet, tmp_path):
    """Cross entropy only: the balance of experts is one of a batch, and no sum over its parts."""
    for block in quiet.model.layers:
        if hasattr(block, "moe"):
            block.moe.forward = lambda x, ctx, state=None: 0 * x
    other = copy.deepcopy(quiet)
    whole, _ = train(quiet, tmp_path, steps=3)
    parts, _ = train(other, tmp_path, steps=3, per_device_train_batch_size=2, gradient_accumulation_steps=4)
    assert whole == pytest.approx(parts, rel=1e-5)


def test_gradient_checkpointing_changes_no_number(quiet, tmp_path):
    other = copy.deepcopy(quiet)
    plain, _ = train(quiet, tmp_path, steps=3)
    again, _ = train(other, tmp_path, steps=3, gradient_checkpointing=True)
    assert plain == again
    with pytest.raises(UsageError, match="reentrant"):
        train(other, tmp_path, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True})


# --- PEFT ----------------------------------------------------------------------------------------------------------

TARGETS = ["qkv", "out", "gate_up", "down", "in_proj", "out_proj", "linear"]


def test_lora_trains_its_adapters_alone(quiet, tmp_path):
    before = {n: p.detach().clone() for n, p in quiet.named_parameters()}
    adapted = get_peft_model(quiet, LoraConfig(r=4, target_modules=TARGETS, task_type="CAUSAL_LM"))
    start = {n: p.detach().clone() for n, p in adapted.named_parameters() if "lora" in n}
    assert {n.split(".lora_")[0].rpartition(".")[2] for n in start} == set(TARGETS)
    losses, _ = train(adapted, tmp_path, learning_rate=3e-2)
    assert losses[-1] < losses[0] - 0.1
    for name, p in adapted.named_parameters():
        if "lora" in name:
            assert not torch.equal(p, start[name]), name
        else:
            own = name.removeprefix("base_model.model.").replace(".base_layer", "")
            assert torch.equal(p, before[own]), name


def test_lora_is_saved_loaded_and_merged(folder, tmp_path):
    adapted = get_peft_model(transformers_zoo.load(folder), LoraConfig(r=4, target_modules=TARGETS))
    with torch.no_grad():
        for name, p in adapted.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.05, generator=torch.Generator().manual_seed(len(name)))
    adapted.eval()
    ids, mask = transformers_zoo.padded(PROMPTS, "left")
    options = {"attention_mask": mask, "max_new_tokens": 6, "num_beams": 2, **GREEDY}
    with torch.no_grad():
        logits = adapted(ids, attention_mask=mask).logits
    made = adapted.generate(input_ids=ids, **options)
    adapted.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(transformers_zoo.load(folder), tmp_path).eval()
    merged = adapted.merge_and_unload()
    with torch.no_grad():
        torch.testing.assert_close(again(ids, attention_mask=mask).logits, logits, rtol=0, atol=0)
        torch.testing.assert_close(merged(ids, attention_mask=mask).logits, logits, rtol=1e-4, atol=1e-4)
        assert (merged(ids).logits - transformers_zoo.load(folder)(ids).logits).abs().max() > 0.01
    assert merged.generate(ids, **options).tolist() == made.tolist()


def test_lora_on_experts(quiet, tmp_path):
    """They are parameters of one module, not modules."""
    names = ["experts.gate_up", "experts.down"]
    adapted = get_peft_model(quiet, LoraConfig(r=2, target_modules=[], target_parameters=names))
    start = {n: p.detach().clone() for n, p in adapted.named_parameters() if "lora_B" in n}
    train(adapted, tmp_path, steps=2)
    assert len(start) == 4
    assert all(not torch.equal(p, start[n]) for n, p in adapted.named_parameters() if n in start)


def test_adapters_that_would_never_learn_are_refused(fresh, tmp_path):
    adapted = get_peft_model(fresh, LoraConfig(r=2, target_modules="all-linear"))
    with pytest.raises(UsageError, match=r"dt_proj, router take no part.*exclude_modules"):
        train(adapted, tmp_path, steps=1)


def test_an_adapted_model_can_be_cast_and_moved(fresh):
    adapted = get_peft_model(fresh, LoraConfig(r=2, target_modules=["lm_head", "qkv"])).to(torch.bfloat16)
    assert adapted.base_model.model.model.layers[0].mamba2.A_log.dtype == torch.float32
    adapted(zoo.ids(1, 5))
