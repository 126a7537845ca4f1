"""What emitted models inherit: initialisation by name, fp32 islands, the weights' version."""

import copy

import pytest
import torch

from tests.runtime.zoo import Zoo, ids


def fresh(seed=0):
    net = Zoo()
    net.init_weights(seed)
    return net


def stays(name):
    return name.rsplit(".", 1)[-1] in ("A_log", "D", "dt_bias") or "router" in name or name.endswith("dt_proj.bias")


def test_initialisation_depends_on_seed_and_name_only():
    one, two, other = (dict(fresh(s).named_parameters()) for s in (3, 3, 4))
    assert all(torch.equal(one[n], two[n]) for n in one)
    assert not torch.equal(one["embed.embedding.weight"], other["embed.embedding.weight"])
    assert not torch.equal(one["layers.0.moe.experts.down"], one["layers.1.moe.experts.down"])
    shorter = Zoo()
    del shorter.layers[1]
    shorter.init_weights(3)
    assert torch.equal(shorter.layers[0].mixer.A_log, one["layers.0.mixer.A_log"])
    assert torch.equal(shorter.embed.embedding.weight, one["embed.embedding.weight"])


def test_what_is_not_wanted_stays_as_it_is():
    net, one, other = fresh(3), dict(fresh(3).named_parameters()), dict(fresh(4).named_parameters())
    matrices = {id(p) for p in net.parameters() if p.dim() == 2}
    net.init_weights(4, wanted=lambda p: id(p) in matrices)
    for name, p in net.named_parameters():
        assert torch.equal(p, (other if p.dim() == 2 else one)[name]), name


def test_initialisation_of_a_cast_net_is_the_rounded_one():
    plain, cast = fresh(1), Zoo().to(torch.bfloat16)
    cast.init_weights(1)
    for (name, a), (_, b) in zip(plain.named_parameters(), cast.named_parameters(), strict=True):
        assert torch.equal(a.to(b.dtype), b), name


@pytest.mark.parametrize("cast", [lambda n: n.to(torch.bfloat16), lambda n: n.bfloat16(), lambda n: n.half()])
def test_casts_leave_what_stays_fp32(cast):
    net = fresh()
    before = {n: p.detach().clone() for n, p in net.named_parameters()}
    cast(net)
    kept = {n for n, p in net.named_parameters() if p.dtype == torch.float32}
    assert kept == {n for n in before if stays(n)}
    assert all(torch.equal(p, before[n]) for n, p in net.named_parameters() if n in kept)
    assert net.head.lm_head.weight is net.embed.embedding.weight
    cast(net)
    assert {n for n, p in net.named_parameters() if p.dtype == torch.float32} == kept


def test_a_cast_net_trains_with_gradients_of_each_dtype():
    net = fresh().to(torch.bfloat16)
    tokens = ids(1, 6)
    net(tokens, labels=tokens).loss.backward()
    assert all(p.grad.dtype == p.dtype and p.grad.isfinite().all() for p in net.parameters())
    net.to(torch.float16)
    assert all(p.grad.dtype == p.dtype for p in net.parameters())


@pytest.mark.parametrize("assign", [False, True])
def test_a_bf16_checkpoint_is_widened_where_fp32_stays(assign):
    source, net = fresh(2), fresh(0).to(torch.bfloat16)
    net.load_state_dict({n: p.to(torch.bfloat16) for n, p in source.state_dict().items()}, assign=assign)
    for name, p in net.named_parameters():
        assert p.dtype == (torch.float32 if stays(name) else torch.bfloat16), name
        assert torch.equal(p.float(), dict(source.named_parameters())[name].to(torch.bfloat16).float())
    assert net.head.lm_head.weight is net.embed.embedding.weight


def test_a_net_made_on_meta_and_emptied_is_tied_and_shared():
    with torch.device("meta"):
        net = Zoo()
    net.to_empty(device="cpu")
    net.init_weights(5)
    want = dict(fresh(5).named_parameters())
    assert all(torch.equal(p, want[n]) for n, p in net.named_parameters())
    assert net.head.lm_head.weight is net.embed.embedding.weight
    assert net.layers[0] is net.layers[3]


def test_version_follows_every_way_to_change_weights():
    net = fresh()
    seen = {net.weights_version}

    def changed():
        version = net.weights_version
        assert version == net.weights_version and version not in seen
        seen.add(version)

    with torch.no_grad():
        net.layers[1].mixer.D.add_(1)
    changed()
    net.head.norm.weight = torch.nn.Parameter(net.head.norm.weight.detach().clone())
    changed()
    net.head.norm.weight.data = torch.zeros(32)
    changed()
    net.load_state_dict(net.state_dict())
    changed()
    net.to(torch.bfloat16)
    changed()
    net(ids(1, 4), labels=ids(1, 4)).loss.backward()
    assert net.weights_version in seen
    torch.optim.SGD(net.parameters(), lr=0.1).step()
    changed()


def test_cache_entries_have_the_layers_dtype_and_fp32_states():
    cache = fresh().to(torch.bfloat16).new_cache(2, 7)
    assert [list(layer) for layer in cache.layers] == [["mixer"]] * 5
    mamba, scan, kv = (cache.layers[n]["mixer"] for n in (0, 1, 2))
    assert kv.k.dtype == kv.v.dtype == torch.bfloat16 and kv.k.shape == (2, 2, 7, 8)
    assert mamba.ssm.dtype == mamba.conv.dtype == torch.float32 and mamba.ssm.shape == (2, 4, 8, 8)
    assert scan.ssm.shape == (2, 64, 4)


def test_a_copy_is_independent():
    net = fresh()
    twin = copy.deepcopy(net)
    assert twin.head.lm_head.weight is twin.embed.embedding.weight
    with torch.no_grad():
        twin.embed.embedding.weight.zero_()
    assert net.embed.embedding.weight.abs().max() > 0


def test_the_net_learns():
    net = fresh()
    optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
    tokens = torch.arange(24).remainder(7).add(3).repeat(2, 1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        out = net(tokens, labels=tokens)
        losses.append(out.ce_loss.item())
        out.loss.backward()
        optimizer.step()
    assert losses[-1] < 0.3 * losses[0]
