"""What the goldens of starcoder2 cannot hold: dropout in training drops what transformers drops."""

import copy

import pytest
import torch

import hybridc
from hybridc.frontend.hf import export_config, read

CONFIG = dict(
    model_type="starcoder2",
    vocab_size=96,
    hidden_size=32,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
DROPOUTS = [dict(embedding_dropout=0.3), dict(residual_dropout=0.2), dict(embedding_dropout=0.4, residual_dropout=0.1)]


@pytest.mark.parametrize("dropouts", DROPOUTS)
def test_dropout_in_training_is_that_of_transformers(tmp_path, dropouts):
    from transformers import AutoConfig, AutoModelForCausalLM

    values = copy.deepcopy({**CONFIG, **dropouts})
    torch.manual_seed(0)
    peer = AutoModelForCausalLM.from_config(AutoConfig.for_model(values.pop("model_type"), **values))
    peer.save_pretrained(tmp_path)
    net = hybridc.from_hf(tmp_path)
    ids = torch.randint(3, 96, (2, 17))
    logits = []
    for model in (peer.train(), net.train()):
        torch.manual_seed(5)  # both draw one mask for each dropout, in the order of the layers
        logits.append(model(ids).logits)
    torch.testing.assert_close(logits[1], logits[0], atol=1e-5, rtol=1e-5)
    assert (net.eval()(ids).logits - logits[1]).abs().max() > 1e-2


@pytest.mark.parametrize("dropouts", [{}, *DROPOUTS])
def test_dropouts_are_exported(dropouts):
    spec = read({**CONFIG, **dropouts}).spec
    config = export_config(hybridc.compile(spec).ir, "starcoder2")
    assert {k: config[k] for k in ("embedding_dropout", "residual_dropout")} == {
        "embedding_dropout": 0.0,
        "residual_dropout": 0.0,
        **dropouts,
    }
    assert read(config).spec == spec
