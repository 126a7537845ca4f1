"""Float64 models of the mixers, token after token and written from the papers' formulae, for one document each."""

from itertools import pairwise

import torch


def attention(q, k, v, scale, window=None, softcap=None, sinks=None):
    """q [S, H, D], k [S, K, D], v [S, K, V], sinks [H] -> [S, H, V]."""
    q, k, v = q.double(), k.double(), v.double()
    share = q.shape[1] // k.shape[1]
    rows = []
    for t in range(q.shape[0]):
        first = 0 if window is None else max(0, t - window + 1)
        for h in range(q.shape[1]):
            scores = scale * (k[first : t + 1, h // share] @ q[t, h])
            if softcap is not None:
                scores = softcap * torch.tanh(scores / softcap)
            weights = torch.exp(scores - scores.detach().max())
            extra = 0.0 if sinks is None else torch.exp(sinks[h].double() - scores.detach().max())
            rows.append(weights / (weights.sum() + extra) @ v[first : t + 1, h // share])
    return torch.stack(rows).view(*q.shape[:2], -1)


def turned(x, frequencies, positions=None, interleaved=False, magnitude=1.0):
    """x [S, H, D], whose first pairs of channels (i, i + n), or neighbours, are complex numbers that are turned by
    position times frequency; frequencies [n] or [S, n]."""
    positions = torch.arange(x.shape[0]) if positions is None else positions
    angles = positions.double()[:, None, None] * frequencies.double().view(-1, 1, frequencies.shape[-1])
    n = angles.shape[-1]
    first = range(0, 2 * n, 2) if interleaved else range(n)
    second = range(1, 2 * n, 2) if interleaved else range(n, 2 * n)
    pairs = torch.complex(x[..., list(first)].double(), x[..., list(second)].double())
    pairs = pairs * torch.polar(torch.full_like(angles, magnitude), angles)
    out = x.double().clone()
    out[..., list(first)], out[..., list(second)] = pairs.real, pairs.imag
    return out


def ssd(x, dt, a, b, c, d, state=None):
    """x [S, H, P], dt [S, H], a and d [H], b and c [S, G, N], state [H, P, N] -> y [S, H, P] and the last state."""
    x, dt, a, b, c, d = (t.double() for t in (x, dt, a, b, c, d))
    heads, share = x.shape[1], x.shape[1] // b.shape[1]
    h = torch.zeros(heads, x.shape[2], b.shape[2], dtype=torch.float64) if state is None else state.double()
    ys = []
    for t in range(x.shape[0]):
        rows = []
        for i in range(heads):
            g = i // share
            rows.append(torch.exp(dt[t, i] * a[i]) * h[i] + dt[t, i] * torch.outer(x[t, i], b[t, g]))
        h = torch.stack(rows)
        ys.append(torch.stack([h[i] @ c[t, i // share] + d[i] * x[t, i] for i in range(heads)]))
    return torch.stack(ys), h


def selective_scan(u, dt, a, b, c, d, state=None):
    """u and dt [S, D], a [D, N], b and c [S, N], d [D], state [D, N] -> y [S, D] and the last state."""
    u, dt, a, b, c, d = (t.double() for t in (u, dt, a, b, c, d))
    h = torch.zeros_like(a) if state is None else state.double()
    ys = []
    for t in range(u.shape[0]):
        h = torch.exp(dt[t][:, None] * a) * h + (dt[t] * u[t])[:, None] * b[t]
        ys.append(h @ c[t] + d * u[t])
    return torch.stack(ys), h


def delta_rule(q, k, v, g, beta, state=None):
    """S_t = (I - β k kᵀ) diag(exp g) S_{t-1} + β k vᵀ and y_t = S_tᵀ q, with q and k of length 1 (to a square of 1e-6)
    and q / sqrt(K) (Yang et al., 2024; a decay for each channel: Kimi Linear, 2025).

    q and k [S, G, K], v [S, H, V], g [S, H] or [S, H, K], beta [S, H], state [H, K, V] -> y [S, H, V] and the last
    state.
    """
    q, k, v, g, beta = (t.double() for t in (q, k, v, g, beta))
    q, k = (t / torch.sqrt((t * t).sum(-1, keepdim=True) + 1e-6) for t in (q, k))
    heads, width, share = v.shape[1], k.shape[2], v.shape[1] // k.shape[1]
    forget = torch.exp(g if g.dim() == 3 else g[..., None].expand(-1, -1, width))
    zero = torch.zeros(heads, width, v.shape[2], dtype=torch.float64)
    states = list(zero if state is None else state.double())
    ys = []
    for t in range(v.shape[0]):
        for h in range(heads):
            key, query = k[t, h // share], q[t, h // share] / width**0.5
            moved = (torch.eye(width).double() - beta[t, h] * torch.outer(key, key)) @ torch.diag(forget[t, h])
            states[h] = moved @ states[h] + beta[t, h] * torch.outer(key, v[t, h])
            ys.append(states[h].T @ query)
    return (torch.stack(ys).view(v.shape) if ys else v), torch.stack(states)


def conv(x, weight, bias):
    """x [S, C], weight [C, K], bias [C] or None -> [S, C]."""
    x, weight = x.double(), weight.double()
    taps = weight.shape[1]
    rows = []
    for t in range(x.shape[0]):
        terms = [weight[:, k] * x[t - taps + 1 + k] for k in range(taps) if t - taps + 1 + k >= 0]
        rows.append(sum(terms) if bias is None else sum(terms) + bias.double())
    return torch.stack(rows)


def route(logits, k, scores, *, renormalize=True, eps=0.0, bias=None, groups=1, top_groups=1, scaling=1.0):
    """logits [T, E] -> weights [T, k] and choices [T, k], the best first, chosen as in DeepSeek-V3, 2024."""

    def best(values, n, among=None):
        return sorted(range(len(values)) if among is None else among, key=lambda e: -values[e])[:n]

    rows, choices = [], []
    for x in logits.double():
        s = torch.exp(x) / torch.exp(x).sum() if scores == "softmax" else 1 / (1 + torch.exp(-x))
        ranked = (s if bias is None else s + bias.double()).tolist()
        size = len(ranked) // groups
        two_best = [sum(sorted(ranked[g * size : g * size + size])[-2:]) for g in range(groups)]
        allowed = best(two_best, top_groups)
        chosen = best(ranked, k, [e for e in range(len(ranked)) if e // size in allowed])
        rows.append(s[chosen] * scaling / (s[chosen].sum() + eps if renormalize else 1.0))
        choices.append(chosen)
    return torch.stack(rows), torch.tensor(choices)


def experts(x, weights, ids, gate_up, down):
    """x [T, D], weights and ids [T, k], gate_up [E, 2F, D], down [E, D, F] -> [T, D]; silu."""
    x, weights, gate_up, down = (t.double() for t in (x, weights, gate_up, down))
    rows = []
    for t in range(x.shape[0]):
        row = torch.zeros_like(x[t])
        for w, e in zip(weights[t], ids[t].tolist(), strict=True):
            gate, up = (gate_up[e] @ x[t]).chunk(2)
            row = row + w * (down[e] @ (gate / (1 + torch.exp(-gate)) * up))
        rows.append(row)
    return torch.stack(rows)


def documents(borders):
    return [(s, e) for s, e in pairwise(borders) if e > s]
