"""Lists of layers folded into what repeats: `(M M M A) * 8`."""

from __future__ import annotations

from collections.abc import Sequence


def runs(names: Sequence[str]) -> list[tuple[list[str], int]]:
    """`names` as units that repeat, found greedily: at each place the unit whose repetition covers most, shortest
    first."""
    out: list[tuple[list[str], int]] = []
    at = 0
    while at < len(names):
        best_unit, best_count = 1, 1
        for unit in range(1, min(64, (len(names) - at) // 2) + 1):
            count = 1
            while names[at + unit * count : at + unit * (count + 1)] == names[at : at + unit]:
                count += 1
            if count > 1 and unit * count > best_unit * best_count:
                best_unit, best_count = unit, count
        if best_count == 1 and out and out[-1][1] == 1:
            out[-1][0].append(names[at])
        else:
            out.append((list(names[at : at + best_unit]), best_count))
        at += best_unit * best_count
    return out


def fold(names: Sequence[str]) -> str:
    """The layer pattern as a person writes it: `(M M M A) * 8`."""
    parts = []
    for unit, count in runs(names):
        body = " ".join(unit)
        parts.append(body if count == 1 else f"{body} * {count}" if len(unit) == 1 else f"({body}) * {count}")
    return " ".join(parts)
