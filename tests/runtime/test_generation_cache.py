"""A cache in the hands of generate(): growth, rows that are picked and repeated, what cannot be done."""

import pytest
import torch

from hybridc.runtime.errors import UsageError
from hybridc.runtime.generation_cache import GenerationCache
from tests.runtime.zoo import alone, ids, same


def filled(net, rows, room):
    cache = GenerationCache(net.new_cache(len(rows), room))
    with torch.no_grad():
        net(rows, cache=cache.cache)
    cache.seen = rows.shape[1]
    return cache


def follow(net, cache, rows, more):
    """Logits of `more` behind the cache's rows are those of each row alone."""
    cache.make_room(more.shape[1])
    with torch.no_grad():
        got = net(more, cache=cache.cache).logits
    for n, row in enumerate(rows):
        same(got[n], alone(net, torch.cat((row, more[n])))[-more.shape[1] :])


def test_room_is_made_when_it_is_needed(net):
    rows = ids(2, 5)
    cache = filled(net, rows, 5)
    cache.make_room(0)
    assert cache.cache.max_len == 5
    follow(net, cache, rows, ids(2, 3, seed=1))
    assert cache.cache.max_len == 10
    cache.make_room(90)
    assert cache.cache.max_len == 98


@pytest.mark.parametrize(
    ("change", "order"),
    [
        (lambda c: c.reorder_cache(torch.tensor([1, 1, 0])), [1, 1, 0]),
        (lambda c: c.reorder_cache(torch.tensor([0, 1, 2])), [0, 1, 2]),
        (lambda c: c.batch_select_indices(torch.tensor([2])), [2]),
        (lambda c: c.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    ],
)
def test_rows_are_picked(net, change, order):
    rows = ids(3, 6)
    cache = filled(net, rows, 6)
    change(cache)
    follow(net, cache, rows[order], ids(len(order), 2, seed=4))
    assert cache.get_seq_length() == 6 and cache.get_max_cache_shape() == -1


def test_reset(net):
    cache = filled(net, ids(2, 6), 6)
    cache.reset()
    assert cache.get_seq_length() == 0
    follow(net, cache, ids(2, 0), ids(2, 4))


def test_states_cannot_be_taken_back(net):
    with pytest.raises(UsageError, match="cropped"):
        filled(net, ids(2, 6), 6).crop(3)
