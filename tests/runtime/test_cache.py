"""Caches: any cutting of a sequence into calls gives what one call gives; misuse is refused before it does harm."""

import inspect

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import PackedSeq
from hybridc.runtime.errors import UsageError
from tests.runtime.zoo import alone, ids, same


@given(pieces=st.lists(st.integers(1, 20), min_size=1, max_size=6))
@settings(max_examples=20)
def test_pieces_equal_one_pass(net, pieces):
    rows = ids(2, sum(pieces))
    cache = net.new_cache(2, sum(pieces))
    with torch.no_grad():
        got = torch.cat([net(part, cache=cache).logits for part in rows.split(pieces, dim=1)], 1)
    for r in range(2):
        same(got[r], alone(net, rows[r]))


@given(
    prompts=st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any),
    pieces=st.lists(st.integers(1, 7), max_size=3),
)
@settings(max_examples=30)
def test_rows_of_different_length(net, prompts, pieces):
    """A masked prefill, then dense steps of one or more tokens, rows with their own pasts."""
    rows, longest = len(prompts), max(prompts)
    tokens, more = ids(rows, longest), ids(rows, sum(pieces), seed=5) if pieces else ids(rows, 0)
    mask = torch.arange(longest) >= longest - torch.tensor(prompts)[:, None]
    cache = net.new_cache(rows, longest + sum(pieces))
    with torch.no_grad():
        first = net(tokens, attention_mask=mask, cache=cache).logits
        steps = [net(part, cache=cache).logits for part in more.split(pieces, dim=1)] if pieces else []
    assert cache.lengths == [n + sum(pieces) for n in prompts]
    for r, n in enumerate(prompts):
        whole = torch.cat((tokens[r, longest - n :], more[r]))
        if not len(whole):
            continue
        want = alone(net, whole)
        same(first[r, longest - n :], want[:n])
        if steps:
            same(torch.cat(steps, 1)[r], want[n:])


def test_ragged_pieces_after_ragged_pieces(net):
    tokens = ids(3, 12)
    first = torch.tensor([[1] * 6, [0, 1, 1, 0, 1, 1], [0] * 6])
    second = torch.tensor([[0, 0, 1, 1, 0, 0], [1] * 6, [1, 0, 1, 0, 1, 0]])
    cache = net.new_cache(3, 12)
    with torch.no_grad():
        a = net(tokens[:, :6], attention_mask=first, cache=cache).logits
        b = net(tokens[:, 6:], attention_mask=second, cache=cache).logits
    assert cache.lengths == [8, 10, 3]
    real = torch.cat((first, second), 1).bool()
    for r in range(3):
        same(torch.cat((a, b), 1)[r, real[r]], alone(net, tokens[r, real[r]]))


def test_a_packed_prefill_fills_a_row_a_document(net):
    tokens, more = ids(1, 17), ids(3, 2, seed=4)
    offsets = [0, 4, 5, 17]
    cache = net.new_cache(3, 20)
    with torch.no_grad():
        net(tokens, seq=PackedSeq(offsets), cache=cache)
        got = net(more, cache=cache).logits
    for r in range(3):
        s, e = offsets[r], offsets[r + 1]
        same(got[r], alone(net, torch.cat((tokens[0, s:e], more[r])))[e - s :])


def test_a_mask_may_reach_back_over_the_past(net):
    tokens, more = ids(2, 7), ids(2, 3, seed=2)
    mask = torch.ones(2, 7, dtype=torch.int64)
    mask[1, :3] = 0
    cache = net.new_cache(2, 12)
    with torch.no_grad():
        net(tokens, attention_mask=mask, cache=cache)
        got = []
        for t in range(3):
            mask = torch.cat((mask, mask.new_ones(2, 1)), 1)
            got.append(net(more[:, t : t + 1], attention_mask=mask, cache=cache).logits)
    same(torch.cat(got, 1)[1], alone(net, torch.cat((tokens[1, 3:], more[1])))[4:])


@pytest.mark.parametrize("pieces", [[5], [1, 1, 1, 1, 1], [2, 3]], ids=str)
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_of_new_tokens_behind_a_past(net, ragged, pieces):
    """What a piece's logits owe to its own tokens is the same with the past in a cache as with the past in the row."""
    prompt, more = ids(2, 6), ids(2, 5, seed=3)
    mask = torch.ones(2, 6, dtype=torch.int64)
    if ragged:
        mask[1, :2] = 0
    seen = []
    hook = net.embed.register_forward_hook(
        lambda module, args, out: seen.append(out.detach().requires_grad_()) or seen[-1]
    )
    try:
        cache = net.new_cache(2, 11)
        with torch.no_grad():
            net(prompt, attention_mask=mask, cache=cache)
        at = 0
        for part in more.split(pieces, 1):
            n = part.shape[1]
            net(part, cache=cache).logits.logsumexp(-1).sum().backward()
            got = seen[-1].grad
            for r in range(2):
                whole = torch.cat((prompt[r, mask[r].bool()], more[r, : at + n]))[None]
                net(whole).logits[:, -n:].logsumexp(-1).sum().backward()
                want = seen[-1].grad[0, -n:]
                assert (got[r] - want).abs().max() <= 1e-4 * want.abs().max()
            at += n
    finally:
        hook.remove()
        net.zero_grad(set_to_none=True)


def test_gradients_of_a_prefill_are_those_without_a_cache(net):
    tokens = ids(2, 9)
    found = []
    for cache in (None, net.new_cache(2, 9)):
        net.zero_grad(set_to_none=True)
        net(tokens, labels=tokens, cache=cache).loss.backward()
        found.append({n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None})
    net.zero_grad(set_to_none=True)
    for name, want in found[0].items():
        assert (found[1][name] - want).abs().max() <= 1e-4 * want.abs().max().clamp(min=1e-3), name


def test_fork_select_and_reset(net):
    prompt, more = ids(2, 9), ids(3, 4, seed=3)
    cache = net.new_cache(2, 16)
    with torch.no_grad():
        net(prompt, cache=cache)
        forked = cache.fork(1, 3)
        got = net(more, cache=forked).logits
        for r in range(3):
            same(got[r], alone(net, torch.cat((prompt[1], more[r])))[9:])
        assert cache.lengths == [9, 9] and forked.lengths == [13] * 3
        swapped = cache.select([1, 0])
        same(net(more[:2], cache=swapped).logits[0], got[0])
        cache.reset([0])
        assert cache.lengths == [0, 9]
        both = net(more[:2], cache=cache).logits
        same(both[0], alone(net, more[0]))
        same(both[1], alone(net, torch.cat((prompt[1], more[1])))[9:])
        cache.reset()
        same(net(prompt, cache=cache).logits[0], alone(net, prompt[0]))


def test_a_full_cache_says_so_before_it_writes(net):
    cache = net.new_cache(1, 8)

    def contents():
        return [t.clone() for layer in cache.layers for entry in layer.values() for t in vars(entry).values()]

    with torch.no_grad():
        net(ids(1, 6), cache=cache)
        before = contents()
        with pytest.raises(UsageError, match="max_len"):
            net(ids(1, 3), cache=cache)
        assert all(map(torch.equal, before, contents())) and cache.lengths == [6]
        net(ids(1, 2), cache=cache)


def test_a_forward_that_breaks_off_leaves_a_cache_that_says_so(net):
    cache = net.new_cache(1, 8)
    with torch.no_grad():
        net(ids(1, 2), cache=cache)
        with pytest.raises(UsageError, match="label for each"):
            net(ids(1, 2), labels=ids(1, 1), cache=cache)
        with pytest.raises(UsageError, match="broke off"):
            net(ids(1, 1), cache=cache)
        cache.reset()
        same(net(ids(1, 3), cache=cache).logits[0], alone(net, ids(1, 3)[0]))


def test_a_cache_of_older_weights_is_refused(net):
    cache = net.new_cache(2, 8)
    with torch.no_grad():
        net(ids(2, 3), cache=cache)
        net.head.norm.weight.add_(0.0)
        cache.reset([0])
        with pytest.raises(UsageError, match="weights have changed"):
            net(ids(2, 1), cache=cache)
        cache.version = net.weights_version
        net(ids(2, 1), cache=cache)
        net.head.norm.weight.add_(0.0)
        cache.reset()
        net(ids(2, 1), cache=cache)


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.fork(2, 1), lambda c: c.fork(0, 0), lambda c: c.reset([2]), lambda c: c.reset([-1]),
        lambda c: c.select([0, 5]),
    ],
)  # fmt: skip
def test_rows_that_are_not_there(net, call):
    with pytest.raises(UsageError):
        call(net.new_cache(2, 4))


def test_sizes(net):
    for sizes in ((0, 9), (1, 0)):
        with pytest.raises(UsageError, match="1 or more"):
            net.new_cache(*sizes)


def test_an_occurrence_of_a_shared_block_has_its_own_entry(net):
    cache = net.new_cache(1, 4)
    entries = [entry for layer in cache.layers for entry in layer.values()]
    assert len({id(e) for e in entries}) == len(entries) >= 5
    assert len(cache.layers) == len(net.layers)


def test_a_cache_grows_and_keeps_what_it_holds(net):
    """Rows with pasts of their own go on behind the growth as in a cache that was large from the start."""
    tokens, mask = ids(2, 6), torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    small, large = net.new_cache(2, 6), net.new_cache(2, 30)
    with torch.no_grad():
        for cache in (small, large):
            net(tokens, attention_mask=mask, cache=cache)
        small.grow(4)
        assert small.max_len == 6
        small.grow(30)
        for n in range(4):
            more = ids(2, 1 + n, seed=n)
            torch.testing.assert_close(net(more, cache=small).logits, net(more, cache=large).logits)
        with pytest.raises(UsageError, match="do not fit a cache of 30"):
            net(ids(2, 25), cache=small)


def test_every_entry_of_limited_length_grows():
    """An entry that takes `max_len` and has no `grow` would be written beyond its end."""
    from hybridc.runtime import cache

    classes = [c for c in vars(cache).values() if isinstance(c, type) and c.__module__ == cache.__name__]
    sized = [c for c in classes if "max_len" in inspect.signature(c).parameters]
    assert cache.KVState in sized and all(hasattr(c, "grow") for c in sized)
