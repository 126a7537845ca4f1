"""What is made of weights is made anew once an optimizer has changed them, whichever way it writes."""

import pytest
import torch

import hybridc
from hybridc.runtime.versions import Held, version_of

SPEC = """block A { x += rmsnorm() >> swiglu(32) }
model m {
  embed = embedding(20, 16)
  layers = A
  head = rmsnorm() >> lm_head(20)
}
precision { FORMAT on ** }
"""


@pytest.mark.parametrize("format", ["fp8(block128)", "fp8(mx)", "bitnet"])
@pytest.mark.parametrize("target", ["cpu", "cuda:sm90"])
@pytest.mark.parametrize("how", [{"fused": True}, {"foreach": True}, {"foreach": False}], ids=str)
def test_steps_of_optimizers(format, target, how):
    """Torch's fused ones do not count in `_version` what they write."""
    compiled = hybridc.compile(SPEC.replace("FORMAT", format), target=target)
    net, fresh = compiled.load(seed=0), compiled.load(init=False)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, **how)
    ids = torch.arange(8)[None]
    before = net.weights_version
    net(ids, labels=ids).loss.backward()
    optimizer.step()
    assert net.weights_version != before
    fresh.load_state_dict(net.state_dict())
    assert torch.equal(net(ids).logits, fresh(ids).logits)


def test_what_changes_a_version():
    weight = torch.nn.Parameter(torch.zeros(3))
    before = version_of(weight)
    assert version_of(weight) == before
    with torch.no_grad():
        weight.add_(1)
    written = version_of(weight)
    assert written != before
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
    assert version_of(weight) != written


def test_what_goes_by_parameters_and_not_by_addresses():
    """Memory that is taken anew is no change; a write, another parameter, a cast of the model and a step are."""
    net = hybridc.compile(SPEC.replace("FORMAT", "fp8(row)")).load()
    weight, held = next(p for n, p in net.named_parameters() if n.endswith("down.weight")), Held()

    def made(t, **options):
        before = held.made
        held((t,), t.clone, steady=True, **options)
        return held.made - before

    assert [made(weight), made(weight), made(weight[0], index=1), made(weight[0], index=1)] == [1, 0, 1, 0]
    weight.data = weight.data.clone()
    assert made(weight) == 0
    assert held((weight,), weight.clone) is not None and held.made == 3  # by its address it is another one
    with torch.no_grad():
        weight.add_(1)
    assert [made(weight), made(weight), made(weight[0], index=1)] == [1, 0, 1]
    net.half().float()
    assert [made(weight), made(weight), made(torch.nn.Parameter(weight.detach().clone()))] == [1, 0, 1]
    assert made(weight) == 1
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1).step()
    assert made(weight) == 1
