"""Documents: padding and packing change no logit, and the losses count what they should."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridc.runtime import Context, PackedSeq
from hybridc.runtime.errors import UsageError
from tests.runtime.zoo import alone, ids, same


def test_weights_are_large_enough_to_tell(net):
    a = ids(1, 20)
    b = a.clone()
    b[0, 0] = 49 - b[0, 0]
    assert (alone(net, a[0]) - alone(net, b[0]))[-1].abs().max() > 1e-2


@given(rows=st.lists(st.lists(st.booleans(), min_size=11, max_size=11), min_size=1, max_size=4))
@settings(max_examples=25)
def test_a_real_token_gets_what_it_gets_alone_under_any_mask(net, rows):
    tokens, mask = ids(len(rows), 11), torch.tensor(rows).long()
    with torch.no_grad():
        out = net(tokens, attention_mask=mask).logits
    for n in range(len(rows)):
        real = mask[n].bool()
        if real.any():
            same(out[n, real], alone(net, tokens[n, real]))
        if not mask.bool().all():
            assert not out[n, ~real].any()


@pytest.mark.parametrize("side", ["left", "right", "holes"])
def test_what_stands_at_a_pad_is_never_seen(net, side):
    tokens, mask = ids(2, 9), torch.ones(2, 9, dtype=torch.int64)
    mask[1] = torch.tensor({"left": [0, 0, 0, 1, 1, 1, 1, 1, 1], "right": [1, 1, 1, 1, 1, 1, 0, 0, 0],
                            "holes": [1, 0, 1, 1, 0, 0, 1, 1, 1]}[side])  # fmt: skip
    other = torch.where(mask.bool(), tokens, 49)
    with torch.no_grad():
        a, b = net(tokens, attention_mask=mask).logits, net(other, attention_mask=mask).logits
        assert torch.equal(a, b)
        full = net(tokens, attention_mask=torch.ones_like(mask)).logits
        assert torch.equal(full, net(tokens).logits)


@given(cuts=st.lists(st.integers(0, 40), max_size=8))
@settings(max_examples=25)
def test_a_packed_document_gets_what_it_gets_alone(net, cuts):
    offsets = [0, *sorted(cuts), 40]
    row = ids(1, 40)
    with torch.no_grad():
        out = net(row, seq=PackedSeq(torch.tensor(offsets, dtype=torch.int32))).logits
    for s, e in pairwise(offsets):
        if e > s:
            same(out[0, s:e], alone(net, row[0, s:e]))


@given(lengths=st.lists(st.integers(1, 30), min_size=2, max_size=5), changed=st.integers(0, 4), seed=st.integers(1, 99))
@settings(max_examples=30)
def test_a_document_changes_no_bit_of_another(net, lengths, changed, seed):
    offsets = [0]
    for n in lengths:
        offsets.append(offsets[-1] + n)
    changed %= len(lengths)
    s, e = offsets[changed], offsets[changed + 1]
    row = ids(1, offsets[-1])
    other = row.clone()
    other[0, s:e] = ids(e - s, seed=seed)
    seq = PackedSeq(offsets)
    with torch.no_grad():
        a, b = net(row, seq=seq).logits, net(other, seq=seq).logits
    assert torch.equal(a[0, :s], b[0, :s]) and torch.equal(a[0, e:], b[0, e:])
    assert torch.equal(row, other) or not torch.equal(a[0, s:e], b[0, s:e])


def test_rows_of_a_batch_are_borders(net):
    rows = ids(2, 12)
    with torch.no_grad():
        out = net(rows, seq=PackedSeq(torch.tensor([0, 5, 24]))).logits
    same(out[0, :5], alone(net, rows[0, :5]))
    same(out[0, 5:], alone(net, rows[0, 5:]))
    same(out[1], alone(net, rows[1]))


def test_gradients_of_a_padded_batch_are_those_of_its_rows(net):
    tokens, mask = ids(2, 9), torch.ones(2, 9, dtype=torch.int64)
    mask[1, :4] = 0

    def gradients(run):
        net.zero_grad(set_to_none=True)
        run()
        found = {n: p.grad.clone() for n, p in net.named_parameters() if p.grad is not None}
        net.zero_grad(set_to_none=True)
        return found

    def padded():
        (net(tokens, labels=tokens, attention_mask=mask).ce_loss * (8 + 4)).backward()

    def rows():
        for row in (tokens[0], tokens[1, 4:]):
            (net(row[None], labels=row[None]).ce_loss * (len(row) - 1)).backward()

    got, want = gradients(padded), gradients(rows)
    assert got.keys() == want.keys()
    for name in want:
        scale = want[name].abs().max().clamp(min=1e-3)
        assert (got[name] - want[name]).abs().max() / scale < 2e-4, name


def test_given_positions_stand_for_the_own_ones(net):
    row = ids(1, 14)
    mask = torch.ones(1, 14, dtype=torch.int64)
    mask[0, 3:5] = 0
    own = torch.arange(14)[None]
    with torch.no_grad():
        assert torch.equal(net(row, positions=own).logits, net(row).logits)
        # rotary attention sees differences of positions only
        same(net(row, positions=own + 7).logits, net(row).logits, 1e-4)
        gapped = net(row, positions=own, attention_mask=mask).logits[0, mask[0].bool()]
        real = mask[0].bool()
        same(gapped, net(row[:, real], positions=own[:, real]).logits[0])
        assert (gapped - alone(net, row[0, real])).abs().max() > 1e-4


def test_loss_counts_real_tokens_of_documents_only(net):
    tokens = ids(2, 10)
    labels = tokens.clone()
    labels[0, 4] = -100
    mask = torch.ones_like(tokens)
    mask[1, :3] = 0
    out = net(tokens, labels=labels, attention_mask=mask)
    rows = [(alone(net, tokens[0]), labels[0]), (alone(net, tokens[1, 3:]), labels[1, 3:])]
    terms = [
        -row.double().log_softmax(-1)[t, want[t + 1]]
        for row, want in rows
        for t in range(len(want) - 1)
        if want[t + 1] != -100
    ]
    assert out.ce_loss.item() == pytest.approx((sum(terms) / len(terms)).item(), abs=1e-5)
    extra = out.aux["aux_loss"] + out.aux["z_loss"]
    assert out.loss.item() == pytest.approx((out.ce_loss + extra).item())
    assert out.aux["aux_loss"] > 0 and out.aux["z_loss"] > 0
    assert all(int(c.sum()) == 2 * 17 for c in out.aux["tokens_per_expert"])


def test_routers_with_one_coefficient_share_a_loss_and_others_add_theirs():
    """One that sends all tokens to one of 4 experts has balance loss 4 a coefficient, an even one z loss log² 4."""
    tokens = ids(1, 3)
    certain = torch.tensor([200.0, 0.0, 0.0, 0.0]).expand(1, 3, 4)
    ctx = Context(tokens)
    first, even = torch.zeros(1, 3, 1, dtype=torch.int64), torch.zeros(1, 3, 4)
    ctx.router_stats("a", certain, first, experts=4, aux_coef=0.5, z_coef=0.0)
    ctx.router_stats("b", certain, first, experts=4, aux_coef=0.25, z_coef=0.0)
    ctx.router_stats("c", even, first, experts=4, aux_coef=0.0, z_coef=2.0)
    out = ctx.output(torch.zeros(1, 3, 50), tokens)
    assert out.aux["aux_loss"].item() == pytest.approx(0.5 * 4 + 0.25 * 4)
    assert out.aux["z_loss"].item() == pytest.approx(2 * math.log(4) ** 2)
    assert out.loss.item() == pytest.approx(math.log(50) + 3 + 2 * math.log(4) ** 2, rel=1e-6)
    assert [t.tolist() for t in out.aux["tokens_per_expert"]] == [[3, 0, 0, 0]] * 3


def test_no_labels_no_loss(net):
    out = net(ids(1, 5))
    assert out.loss is None and out.ce_loss is None


def test_no_label_at_all_gives_zero_and_a_graph(net):
    tokens = ids(1, 5)
    out = net(tokens, labels=torch.full_like(tokens, -100))
    assert out.ce_loss.item() == 0.0
    out.loss.backward()
    assert all(p.grad.isfinite().all() for p in net.parameters() if p.grad is not None)
    net.zero_grad(set_to_none=True)


def test_borders_are_no_targets(net):
    row = ids(1, 12)
    seq = PackedSeq(torch.tensor([0, 5, 12]))
    with torch.no_grad():
        out = net(row, labels=row, seq=seq)
        one, two = (net(row[:, s:e], labels=row[:, s:e]).ce_loss for s, e in ((0, 5), (5, 12)))
    assert out.ce_loss.item() == pytest.approx(((4 * one + 6 * two) / 10).item(), abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: n(torch.zeros(5, dtype=torch.int64)), "batch, tokens"),
        (lambda n: n(ids(1, 0)), "one token or more"),
        (lambda n: n(ids(1, 5), seq=PackedSeq(torch.tensor([0, 4]))), "cover all tokens"),
        (lambda n: n(ids(1, 5), attention_mask=torch.ones(2, 5)), "attention_mask"),
        (lambda n: n(ids(1, 5), attention_mask=torch.ones(1, 9)), "attention_mask"),
        (lambda n: n(ids(1, 2), attention_mask=torch.tensor([[0.0, -1e9]])), "negative"),
        (lambda n: n(ids(1, 5), attention_mask=torch.ones(1, 5), seq=PackedSeq([0, 5])), "give one of them"),
        (lambda n: n(ids(1, 5), labels=ids(1, 4)), "label for each token"),
        (lambda n: n(ids(1, 5), positions=torch.arange(4)[None]), "one for each token"),
        (lambda n: n(ids(2, 5), cache=n.new_cache(1, 9)), "rows"),
        (lambda n: PackedSeq(torch.tensor([1, 4])), "starts with 0"),
        (lambda n: PackedSeq(torch.tensor([0.0, 4.0])), "integers"),
        (lambda n: PackedSeq(torch.tensor([0, 4, 2])), "rising"),
    ],
)
def test_misuse_is_named(net, call, message):
    with pytest.raises(UsageError, match=message):
        call(net)
