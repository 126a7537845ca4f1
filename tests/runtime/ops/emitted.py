"""Layers of one op as they are emitted, held against a function of their input and parameters in float64."""

import re

import torch

import hybridc
from hybridc.runtime.cache import Cache
from tests.runtime.ops.cases import CPU, close, gradients, made, packed, plain
from tests.runtime.ops.reference import documents

DIM = 8


def layer(op, scale=0.5):
    """The module that `op` of a spec becomes on a stream of DIM channels, with parameters far from their first ones."""
    text = f"""model m {{
      block A {{ x += op: {op} }}
      embed = embedding(7, {DIM})
      layers = A
      head = rmsnorm() >> lm_head(7)
    }}"""
    module = hybridc.compile(text).load(seed=0).layers[0].op
    with torch.no_grad():
        for n, p in enumerate(module.parameters()):
            p.copy_(scale * made(30 + n, *p.shape))
    return module


def weights(module):
    """Its parameters by name in float64; `.` stands as `_`."""
    return {re.sub(r"\.", "_", n): p.detach().double() for n, p in module.named_parameters()}


def check_packed(module, reference, borders):
    """Each document of a packed row is what `reference(x [S, DIM], **weights)` makes of it."""
    x = made(1, 1, borders[-1], DIM)
    y = module(x, packed(borders))
    for s, e in documents(borders):
        close(y[0, s:e], reference(x[0, s:e].double(), **weights(module)))


def check_pieces(module, reference, pieces):
    """A sequence in pieces through a cache, two rows at once."""
    total = sum(pieces)
    x, got, at = made(1, 2, total, DIM), [], 0
    state = module.new_state(2, total, CPU, torch.float32)
    cache = Cache([{"op": state}], 2, total)
    with torch.no_grad():
        for n in pieces:
            got.append(module(x[:, at : at + n], plain(2, n, cache), state))
            cache.advance([n] * 2)
            at += n
    for row in range(2):
        close(torch.cat(got, 1)[row], reference(x[row].double(), **weights(module)))


def check_ragged(module, reference):
    """Packed calls and single tokens into one cache: rows without a new token, and rows of different length."""
    x, at, got = made(1, 3, 20, DIM), [0, 0, 0], [[], [], []]
    state = module.new_state(3, 20, CPU, torch.float32)
    cache = Cache([{"op": state}], 3, 20)
    with torch.no_grad():
        for lengths in ([1, 2, 0], [0, 1, 3], [1, 1, 1], [7, 0, 1], [2, 2, 2]):
            parts = [x[r, at[r] : at[r] + n] for r, n in enumerate(lengths)]
            if len(set(lengths)) == 1:
                y = module(torch.stack(parts), plain(3, lengths[0], cache), state)
            else:
                offsets = [0, lengths[0], lengths[0] + lengths[1], sum(lengths)]
                y = module(torch.cat(parts)[None], packed(offsets, cache), state)[0].split(lengths)
            cache.advance(lengths)
            for r, n in enumerate(lengths):
                got[r].append(y[r])
                at[r] += n
    for r in range(3):
        close(torch.cat(got[r]), reference(x[r, : at[r]].double(), **weights(module)))


def check_gradients(module, reference, borders, *, without=()):
    """Of the input and of all parameters but those in `without`, which have none."""
    names = [n for n, _ in module.named_parameters() if n not in without]
    given = [made(1, 1, borders[-1], DIM), *(module.get_parameter(n).detach() for n in names)]

    def ours(x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (x, packed(borders)))

    def sequential(x, *parameters):
        named = weights(module) | {n.replace(".", "_"): p for n, p in zip(names, parameters, strict=True)}
        return torch.cat([reference(x[0, s:e], **named) for s, e in documents(borders)])[None]

    wanted = gradients(sequential, [i.double() for i in given])
    for name, g, w in zip(["x", *names], gradients(ours, given), wanted, strict=True):
        assert g is not None, name
        close(g, w)
