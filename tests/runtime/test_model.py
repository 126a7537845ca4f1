"""A whole hybrid through the contract at its border: padding, packing, caching, losses, casts, initialisation,
generation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import hybridc
from hybridc.runtime.errors import UsageError

SPEC = """model zoo {
  param dim = 32
  let norm = rmsnorm()
  block M { x += norm >> mamba2(heads=4, head_dim=8, state=8, groups=2, chunk=8, norm=gated_rmsnorm(groups=2)) }
  block V { x += norm >> mamba(state=4) }
  block A(window=none) {
    x += norm >> (attn: attention(heads=4, kv_heads=2, rope=rope(), window=window, qk_norm=norm)
      | mamba2(heads=2, head_dim=16, state=4, chunk=4))
    x += norm >> moe(experts=4, hidden=24, top_k=2, shared=8, aux_coef=0.01, z_coef=0.001)
  }
  shared(2) block S { x += concat(x, x0) >> norm >> linear(32) >> swiglu(16) }
  embed = embedding(50)
  layers = M S A S V S A(window=5)
  head = norm >> lm_head(50, tied=true)
}"""


@pytest.fixture(scope="module")
def net():
    made = hybridc.compile(SPEC).load(seed=1).eval()
    with torch.no_grad():
        for name, p in made.named_parameters():
            # large weights, so that an error anywhere shows in the logits
            if p.dim() >= 2 and "A_log" not in name:
                p.mul_(6.0)
    return made


def ids(*shape, seed=0):
    return torch.randint(1, 50, shape, generator=torch.Generator().manual_seed(seed))


def alone(net, row):
    with torch.no_grad():
        return net(row[None]).logits[0]


def same(a, b, tolerance=2e-5):
    worst = (a - b).abs().max().item() / max(1.0, b.abs().max().item()) if a.numel() else 0.0
    assert worst < tolerance, worst


def test_weights_are_large_enough_to_tell(net):
    a = ids(1, 20)
    b = a.clone()
    b[0, 0] = 49 - b[0, 0]
    assert (alone(net, a[0]) - alone(net, b[0]))[-1].abs().max() > 1e-2


@given(st.lists(st.lists(st.booleans(), min_size=11, max_size=11), min_size=1, max_size=4))
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


def test_documents_do_not_see_each_other_bit_for_bit(net):
    row, other = ids(1, 30), ids(1, 30)
    other[0, :13] = ids(13, seed=9)
    seq = hybridc.PackedSeq(torch.tensor([0, 13, 14, 30]))
    with torch.no_grad():
        a, b = net(row, seq=seq).logits, net(other, seq=seq).logits
    assert torch.equal(a[0, 13:], b[0, 13:])
    assert not torch.equal(a[0, :13], b[0, :13])
    for s, e in ((0, 13), (13, 14), (14, 30)):
        same(a[0, s:e], alone(net, row[0, s:e]))


def test_packed_rows_of_a_batch(net):
    rows = ids(2, 12)
    with torch.no_grad():
        out = net(rows, seq=hybridc.PackedSeq(torch.tensor([0, 5, 24]))).logits
    same(out[0, :5], alone(net, rows[0, :5]))
    same(out[0, 5:], alone(net, rows[0, 5:]))
    same(out[1], alone(net, rows[1]))


@pytest.mark.parametrize("pieces", [[24], [1] * 24, [10, 1, 1, 12], [7, 17]], ids=str)
def test_cached_pieces_equal_one_pass(net, pieces):
    rows = ids(3, 24)
    cache = net.new_cache(3, 24)
    with torch.no_grad():
        got, at = [], 0
        for n in pieces:
            got.append(net(rows[:, at : at + n], cache=cache).logits)
            at += n
    for r in range(3):
        same(torch.cat(got, 1)[r], alone(net, rows[r]))


@pytest.mark.parametrize("pieces", [[1, 1, 1], [4, 1]], ids=str)
def test_rows_of_different_length_in_one_cache(net, pieces):
    rows = ids(2, 12)
    mask = torch.ones(2, 12, dtype=torch.int64)
    mask[1, :5] = 0
    more = ids(2, sum(pieces), seed=5)
    cache = net.new_cache(2, 20)
    with torch.no_grad():
        net(rows, attention_mask=mask, cache=cache)
        got, at = [], 0
        for n in pieces:
            got.append(net(more[:, at : at + n], cache=cache).logits)
            at += n
    assert cache.lengths == [12 + sum(pieces), 7 + sum(pieces)]
    got = torch.cat(got, 1)
    for r, prompt in enumerate((rows[0], rows[1, 5:])):
        same(got[r], alone(net, torch.cat((prompt, more[r])))[len(prompt) :])


def test_fork_and_reset(net):
    prompt, more = ids(2, 9), ids(3, 4, seed=3)
    cache = net.new_cache(2, 16)
    with torch.no_grad():
        net(prompt, cache=cache)
        forked = cache.fork(1, 3)
        got = net(more, cache=forked).logits
        for r in range(3):
            same(got[r], alone(net, torch.cat((prompt[1], more[r])))[9:])
        cache.reset([0])
        assert cache.lengths == [0, 9]
        cache.reset()
        same(net(prompt, cache=cache).logits[0], alone(net, prompt[0]))


def test_a_full_cache_says_so_before_it_writes(net):
    cache = net.new_cache(1, 8)
    with torch.no_grad():
        net(ids(1, 6), cache=cache)
        before = [s.k.clone() for layer in cache.layers for s in layer.values() if hasattr(s, "k")]
        with pytest.raises(UsageError, match="max_len"):
            net(ids(1, 3), cache=cache)
    after = [s.k for layer in cache.layers for s in layer.values() if hasattr(s, "k")]
    assert all(map(torch.equal, before, after)) and cache.lengths == [6]


def test_a_cache_of_older_weights_is_refused(net):
    cache = net.new_cache(1, 8)
    with torch.no_grad():
        net(ids(1, 3), cache=cache)
        net.head.norm.weight.add_(0.0)
        with pytest.raises(UsageError, match="weights have changed"):
            net(ids(1, 1), cache=cache)
        cache.version = net.weights_version
        net(ids(1, 1), cache=cache)


def cross_entropy(logits, targets):
    total = logits.double().log_softmax(-1)
    return -sum(total[i, t] for i, t in targets) / len(targets)


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
    assert [int(c.sum()) for c in out.aux["tokens_per_expert"]] == [2 * 17, 2 * 17]


def test_no_label_at_all_gives_zero_and_a_graph(net):
    tokens = ids(1, 5)
    out = net(tokens, labels=torch.full_like(tokens, -100))
    assert out.ce_loss.item() == 0.0
    out.loss.backward()
    net.zero_grad(set_to_none=True)


def test_borders_are_no_targets(net):
    row = ids(1, 12)
    seq = hybridc.PackedSeq(torch.tensor([0, 5, 12]))
    with torch.no_grad():
        out = net(row, labels=row, seq=seq)
        one, two = (net(row[:, s:e], labels=row[:, s:e]).ce_loss for s, e in ((0, 5), (5, 12)))
    assert out.ce_loss.item() == pytest.approx(((4 * one + 6 * two) / 10).item(), abs=1e-5)


def test_casts_leave_what_stays_fp32():
    made = hybridc.compile(SPEC).load()
    before = {n: p.detach().clone() for n, p in made.named_parameters()}
    made.to(torch.bfloat16)
    kept = {n for n, p in made.named_parameters() if p.dtype == torch.float32}
    assert kept == {
        n
        for n in before
        if n.rsplit(".", 1)[-1] in ("A_log", "D", "dt_bias") or "router" in n or n.endswith("dt_proj.bias")
    }
    for name, p in made.named_parameters():
        if name in kept:
            assert torch.equal(p, before[name])
    assert made.head.lm_head.weight is made.embed.embedding.weight
    made.load_state_dict({n: p.to(torch.bfloat16) for n, p in before.items()}, strict=False)
    assert {n for n, p in made.named_parameters() if p.dtype == torch.float32} == kept
    tokens = ids(1, 6)
    assert made(tokens, labels=tokens).loss.isfinite()


def test_a_bf16_spec_makes_a_bf16_module():
    text = SPEC + "\nprecision { default bf16 }"
    made = hybridc.compile(text).load()
    assert made.embed.embedding.weight.dtype == torch.bfloat16
    assert made.layers[0].mamba2.A_log.dtype == torch.float32


def test_initialisation_depends_on_seed_and_name_only():
    a, b, c = (hybridc.compile(SPEC).load(seed=s) for s in (3, 3, 4))
    one, two, other = (dict(m.named_parameters()) for m in (a, b, c))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert not torch.equal(one["embed.embedding.weight"], other["embed.embedding.weight"])
    deeper = hybridc.compile(SPEC.replace("layers = M", "layers = M")).load(seed=3)
    assert torch.equal(dict(deeper.named_parameters())["layers.0.mamba2.A_log"], one["layers.0.mamba2.A_log"])


def test_initial_spreads():
    """GPT-2's: N(0, 0.02), residual outputs over the root of the number of residual sublayers (here 9)."""
    spec = SPEC.replace("param dim = 32", "param dim = 256").replace("linear(32)", "linear(256)")
    made = hybridc.compile(spec).load()
    first = made.layers[0].mamba2
    assert first.in_proj.weight.std().item() == pytest.approx(0.02, rel=0.05)
    assert first.out_proj.weight.std().item() == pytest.approx(0.02 / 3, rel=0.1)
    assert (first.D == 1).all() and (made.layers[0].norm.weight == 1).all()
    a = first.A_log.exp()
    assert ((a >= 1) & (a <= 16)).all()
    dt = torch.nn.functional.softplus(first.dt_bias)
    assert ((dt > 0.0009) & (dt < 0.101)).all()
    assert torch.equal(made.layers[4].mamba.A_log[0], torch.arange(1.0, 5.0).log())


def test_shared_blocks_are_one_set_of_weights(net):
    assert net.layers[1] is net.layers[5] and net.layers[1] is not net.layers[3]
    count = sum(p.numel() for p in net.parameters())
    from hybridc.passes.analysis.cost import parameter_count

    assert count == parameter_count(hybridc.compile(SPEC).ir)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda n: n(torch.zeros(5, dtype=torch.int64)), "batch, tokens"),
        (lambda n: n(ids(1, 5), seq=hybridc.PackedSeq(torch.tensor([0, 4]))), "cover all tokens"),
        (lambda n: n(ids(1, 5), attention_mask=torch.ones(2, 5)), "attention_mask"),
        (lambda n: n(ids(1, 5), labels=ids(1, 4)), "label for each token"),
        (lambda n: n(ids(2, 5), cache=n.new_cache(1, 9)), "rows"),
        (lambda n: n.new_cache(0, 9), "1 or more"),
        (lambda n: hybridc.PackedSeq(torch.tensor([1, 4])), "starts with 0"),
        (lambda n: hybridc.PackedSeq(torch.tensor([0, 4, 2])), "rising"),
    ],
)
def test_misuse_is_named(net, call, message):
    with pytest.raises(UsageError, match=message):
        call(net)


def test_greedy_generation_equals_passes_without_a_cache(net):
    prompt = ids(2, 7)
    got = hybridc.generate(net, prompt, max_new_tokens=6)
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
    got = hybridc.generate(net, prompt, attention_mask=mask, max_new_tokens=5)
    for r in range(3):
        assert got[r] == hybridc.generate(net, prompt[r, mask[r].bool()][None], max_new_tokens=5)[0]
    stop = got[0][2]
    cut = hybridc.generate(net, prompt, attention_mask=mask, max_new_tokens=5, stop_ids=[stop])
    for r in range(3):
        want = got[r][: got[r].index(stop)] if stop in got[r] else got[r]
        assert cut[r] == want


def test_samples_depend_on_seed_and_row_only(net):
    prompt = ids(2, 5)
    options = dict(max_new_tokens=8, temperature=1.5, top_k=30, top_p=0.95)
    a = hybridc.generate(net, prompt, seed=1, **options)
    assert a == hybridc.generate(net, prompt, seed=1, **options)
    assert a != hybridc.generate(net, prompt, seed=2, **options)
    assert a[0] == hybridc.generate(net, prompt[:1], seed=1, **options)[0]


def test_top_k_and_top_p():
    from hybridc.runtime.generate import next_token_logits

    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    kept = lambda **k: next_token_logits(logits, temperature=1.0, **k).exp()  # noqa: E731
    torch.testing.assert_close(kept(top_k=2, top_p=1.0), torch.tensor([0.625, 0.375, 0, 0]))
    torch.testing.assert_close(kept(top_k=0, top_p=0.7), torch.tensor([0.625, 0.375, 0, 0]))
    torch.testing.assert_close(kept(top_k=0, top_p=0.81), torch.tensor([0.5, 0.3, 0.15, 0]) / 0.95)
    torch.testing.assert_close(kept(top_k=0, top_p=0.1), torch.tensor([1.0, 0, 0, 0]))
    cold = next_token_logits(logits, temperature=0.5, top_k=0, top_p=1.0).exp()
    torch.testing.assert_close(cold, torch.tensor([0.25, 0.09, 0.0225, 0.0025]) / 0.365)


def test_the_network_learns(net):
    made = hybridc.compile(SPEC).load(seed=0)
    optimizer = torch.optim.AdamW(made.parameters(), lr=3e-3)
    tokens = torch.arange(24).remainder(7).add(3).repeat(2, 1)
    first = None
    for _ in range(30):
        optimizer.zero_grad()
        out = made(tokens, labels=tokens)
        first = first or out.ce_loss.item()
        out.loss.backward()
        optimizer.step()
    assert out.ce_loss.item() < 0.3 * first
