"""Lists of layers folded into what repeats: `(M M M A) * 8`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

LONGEST_UNIT = 64
"""Layers of the longest unit whose repetition is looked for."""

MOST = 512
"""Layers of the longest list whose shortest folding is looked for; longer ones are folded greedily."""


def runs(names: Sequence[str]) -> list[tuple[list[str], int]]:
    """`names` as units that repeat, so that the text is shortest: `A A A B (A A B) * 6`, not `(A A A) ...`.

    Of foldings that are equally short, the one whose first repeated unit covers most, and is shortest, is taken.
    """
    chosen = _shortest(names) if len(names) <= MOST else _greedy(names)
    out: list[tuple[list[str], int]] = []
    at = 0
    for unit, count in chosen:
        if count == 1 and out and out[-1][1] == 1:
            out[-1][0].extend(names[at : at + unit])
        else:
            out.append((list(names[at : at + unit]), count))
        at += unit * count
    return out


def _repetitions(names: Sequence[str], at: int) -> list[tuple[int, int]]:
    """The units that repeat from a place on, with the most times that they do."""
    found = []
    for unit in range(1, min(LONGEST_UNIT, (len(names) - at) // 2) + 1):
        count = 1
        while names[at + unit * count : at + unit * (count + 1)] == names[at : at + unit]:
            count += 1
        if count > 1:
            found.append((unit, count))
    return found


def _greedy(names: Sequence[str]) -> list[tuple[int, int]]:
    """Lengths of units and how often each repeats; at each place the unit whose repetition covers most."""
    out = []
    at = 0
    while at < len(names):
        unit, count = max(_repetitions(names, at), key=lambda r: (r[0] * r[1], -r[0]), default=(1, 1))
        out.append((unit, count))
        at += unit * count
    return out


def _shortest(names: Sequence[str]) -> list[tuple[int, int]]:
    """The folding with the fewest names in it, by dynamic programming from the end."""
    best: list[tuple[int, list[tuple[int, int]]]] = [(0, [])]  # of names[at:], the last entry for the present place
    for at in reversed(range(len(names))):
        options = [(1, 1), *_repetitions(names, at)]
        options.sort(key=lambda r: (-r[0] * r[1], r[0]))
        tail = len(names) - at
        found = min(
            ((_cost(names, at, r) + best[tail - r[0] * r[1]][0], n, r) for n, r in enumerate(options)),
            key=lambda o: o[:2],
        )
        _, rest = best[tail - found[2][0] * found[2][1]]
        best.append((found[0], [found[2], *rest]))
    return best[-1][1]


def _cost(names: Sequence[str], at: int, run: tuple[int, int]) -> int:
    """Mostly the names that a run is written with, then its brackets; then whether it ends in more of one name than it
    starts with, since people write `(M M M A) * 8` and not `(A M M M) * 8`."""
    unit, count = run
    alike = [sum(1 for _ in same) for _, same in groupby(names[at : at + unit])]
    return 4 * len(alike) + 2 * (count > 1) + (alike[-1] > alike[0])


def fold(names: Sequence[str]) -> str:
    """The layer pattern as a person writes it: `(M M M A) * 8`."""
    parts = []
    for unit, count in runs(names):
        body = " ".join(unit)
        parts.append(body if count == 1 else f"{body} * {count}" if len(unit) == 1 else f"({body}) * {count}")
    return " ".join(parts)
