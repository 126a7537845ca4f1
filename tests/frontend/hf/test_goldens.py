"""Tiny public models and what transformers computes with them, one folder each in `goldens` (made from `cases`).

In every case: logits, long rows, padding on both sides, packing, loss, gradients, greedy decoding, single steps and
chunked prefill are those of the public library run on each row alone; the weights come back bit for bit; and the config
written from the imported spec gives the same spec again.
"""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import hybridc
from hybridc.frontend.document import print_spec
from hybridc.frontend.hf import export_config, families, read

FOLDER = Path(__file__).parent / "goldens"
CASES = sorted(p.name for p in FOLDER.iterdir() if p.is_dir())
DERIVED = ("_decay", "slope_rate")
"""Ends of names of tensors in public files that follow from the config."""


@pytest.fixture(scope="module", params=CASES)
def case(request):
    folder = FOLDER / request.param
    golden = load_file(folder / "golden.safetensors")
    net = hybridc.from_hf(folder).eval()
    config = json.loads((folder / "config.json").read_text())
    # eight bits of activation round differently where a sum differs in its last bit
    return folder, golden, net, 3e-2 if config.get("quantization_config") else 2e-4


def close(got, want, tolerance):
    """Within `tolerance` of the reference's scale: its standard deviation, at least 1."""
    assert got.shape == want.shape
    assert ((got - want).abs().max() / want.std().clamp(min=1.0)).item() <= tolerance


def test_logits(case):
    _, golden, net, tolerance = case
    with torch.no_grad():
        close(net(golden["input_ids"]).logits, golden["logits"], tolerance)
        close(net(golden["long_input_ids"]).logits[:, -24:], golden["long_logits_tail"], tolerance)


def test_padding_and_packing(case):
    _, golden, net, tolerance = case
    ids, first, last = golden["input_ids"], golden["row1_first29_logits"][0], golden["row1_last29_logits"][0]
    with torch.no_grad():
        close(net(ids, attention_mask=golden["right_pad_mask"]).logits[1, :29], first, tolerance)
        close(net(ids, attention_mask=golden["left_pad_mask"]).logits[1, 8:], last, tolerance)
        row = torch.cat([ids[0], ids[1, :29]])[None]
        logits = net(row, seq=hybridc.PackedSeq([0, 37, 66])).logits[0]
    close(logits[:37], golden["logits"][0], tolerance)
    close(logits[37:], first, tolerance)


def test_cached_steps_and_chunks(case):
    _, golden, net, tolerance = case
    ids = golden["input_ids"]
    with torch.no_grad():
        for cuts in ([20, *range(21, 38)], [11, 26, 27, 37]):
            cache = net.new_cache(2, 40)
            parts = [net(ids[:, a:b], cache=cache).logits for a, b in zip([0, *cuts], cuts, strict=False)]
            close(torch.cat(parts, 1), golden["logits"], tolerance)


def test_greedy_decoding(case):
    _, golden, net, _ = case
    if "greedy_from_20" in golden:
        made = net_generate(net, golden["input_ids"][:, :20], golden["greedy_from_20"].shape[1] - 20)
        assert made == golden["greedy_from_20"][:, 20:].tolist()


def net_generate(net, ids, count):
    from hybridc.runtime.generate import generate

    return generate(net, ids, max_new_tokens=count)


def test_loss_and_gradients(case):
    _, golden, net, tolerance = case
    net.train()
    net.zero_grad(set_to_none=True)
    out = net(golden["input_ids"], labels=golden["labels"])
    assert abs(out.ce_loss.item() - golden["ce_loss"].item()) <= tolerance * max(1.0, golden["ce_loss"].item())
    out.loss.backward()
    gradients = hybridc.to_hf_state_dict(net, of="grad")
    net.eval()
    wanted = {k.removeprefix("grad_norm."): v.item() for k, v in golden.items() if k.startswith("grad_norm.")}
    assert wanted and set(wanted) <= set(gradients)
    for name, norm in wanted.items():
        assert abs(gradients[name].norm().item() - norm) <= 10 * tolerance * max(norm, 1e-3), name


def test_weights_come_back(case):
    folder, _, net, _ = case
    public = {k: v for k, v in load_file(folder / "model.safetensors").items() if not k.endswith(DERIVED)}
    ours = hybridc.to_hf_state_dict(net)
    assert set(public) <= set(ours)
    assert all(torch.equal(public[name], ours[name]) for name in public)


@pytest.mark.parametrize("name", CASES)
def test_import_is_a_fixed_point(name):
    imported = read(FOLDER / name)
    compiled = hybridc.compile(print_spec(imported.spec))
    config = export_config(compiled.ir, imported.family)
    assert read(config).spec == imported.spec


def test_every_family_has_cases_of_its_own():
    counts = {family: 0 for family in families()}
    for name in CASES:
        counts[json.loads((FOLDER / name / "config.json").read_text())["model_type"]] += 1
    assert not {family: count for family, count in counts.items() if count < 2}
