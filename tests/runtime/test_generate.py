"""Generation: greedy equals passes without a cache; padding, stops and neighbours change no row."""

import pytest
import torch

from hybridc.runtime.errors import UsageError
from hybridc.runtime.generate import generate, next_token_logits
from tests.runtime.zoo import alone, ids


def test_greedy_generation_equals_passes_without_a_cache(net):
    prompt = ids(2, 7)
    got = generate(net, prompt, max_new_tokens=6)
    for r in range(2):
        row = prompt[r]
        for token in got[r]:
            assert alone(net, row)[-1].argmax().item() == token
            row = torch.cat((row, torch.tensor([token])))


def test_generation_of_padded_prompts_and_stops(net):
    prompt = ids(3, 9)
    mask = torch.ones_like(prompt)
    mask[1, :4] = 0
    mask[2, 6:] = 0
    got = generate(net, prompt, attention_mask=mask, max_new_tokens=5)
    for r in range(3):
        assert got[r] == generate(net, prompt[r, mask[r].bool()][None], max_new_tokens=5)[0]
    stop = got[0][2]
    cut = generate(net, prompt, attention_mask=mask, max_new_tokens=5, stop_ids=[stop])
    for r in range(3):
        want = got[r][: got[r].index(stop)] if stop in got[r] else got[r]
        assert cut[r] == want


def test_samples_depend_on_seed_and_row_only(net):
    prompt = ids(2, 5)
    options = dict(max_new_tokens=8, temperature=1.5, top_k=30, top_p=0.95)
    a = generate(net, prompt, seed=1, **options)
    assert a == generate(net, prompt, seed=1, **options)
    assert a != generate(net, prompt, seed=2, **options)
    assert a[0] == generate(net, prompt[:1], seed=1, **options)[0]
    twins = generate(net, prompt[:1].expand(2, 5), seed=1, **options)
    assert twins[0] == a[0] and twins[1] != a[0]


def test_top_k_and_top_p():
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    kept = lambda **k: next_token_logits(logits, temperature=1.0, **k).exp()  # noqa: E731
    torch.testing.assert_close(kept(top_k=2, top_p=1.0), torch.tensor([0.625, 0.375, 0, 0]))
    torch.testing.assert_close(kept(top_k=0, top_p=0.7), torch.tensor([0.625, 0.375, 0, 0]))
    torch.testing.assert_close(kept(top_k=0, top_p=0.81), torch.tensor([0.5, 0.3, 0.15, 0]) / 0.95)
    torch.testing.assert_close(kept(top_k=0, top_p=0.1), torch.tensor([1.0, 0, 0, 0]))
    cold = next_token_logits(logits, temperature=0.5, top_k=0, top_p=1.0).exp()
    torch.testing.assert_close(cold, torch.tensor([0.25, 0.09, 0.0225, 0.0025]) / 0.365)


def test_frequencies_of_samples_are_the_distribution():
    class Constant(torch.nn.Module):
        """Always the same logits."""

        weights = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()

        def new_cache(self, batch, max_len):
            return None

        def forward(self, ids, attention_mask=None, cache=None):
            from hybridc.runtime import Output

            return Output(self.weights.expand(*ids.shape, 4))

    counts = torch.zeros(4)
    for row in generate(Constant(), torch.zeros(40, 1, dtype=torch.int64), max_new_tokens=50, temperature=1.0, seed=3):
        counts += torch.bincount(torch.tensor(row), minlength=4)
    expected = Constant.weights.exp() * 2000
    # chi square with 3 degrees of freedom: 16.3 is passed once in a thousand
    assert ((counts - expected).square() / expected).sum() < 16.3


def test_tokens_are_reported_as_they_come(net):
    told = []
    got = generate(net, ids(2, 4), max_new_tokens=3, on_token=lambda row, token: told.append((row, token)))
    assert told == [(r, got[r][n]) for n in range(3) for r in range(2)]


def test_training_mode_comes_back(net):
    net.train()
    generate(net, ids(1, 3), max_new_tokens=1)
    assert net.training
    net.eval()
    assert generate(net, ids(2, 3), max_new_tokens=0) == [[], []]


@pytest.mark.parametrize(
    "options",
    [dict(temperature=-1.0), dict(top_p=0.0), dict(top_p=1.5), dict(top_k=-1), dict(max_new_tokens=-1),
     dict(attention_mask=torch.tensor([[1, 1], [0, 0]]))],
    ids=str,
)  # fmt: skip
def test_settings_that_make_no_sense(net, options):
    with pytest.raises(UsageError):
        generate(net, ids(2, 2), **{"max_new_tokens": 2, **options})
