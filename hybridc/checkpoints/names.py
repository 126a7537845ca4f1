"""Names of tensors in messages: many of them in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable


def folded(names: Iterable[str]) -> list[str]:
    """Names in order, those that differ in one number written once: `layers.{0-3,5}.norm.weight`.

    The last number that differs is folded first, so that the experts of all layers become one entry.
    """
    rows = {tuple(re.split(r"(\d+)", name)) for name in names}
    for at in range(max(map(len, rows), default=0) - 1, -1, -1):
        groups: dict[tuple[str, ...], set[str]] = {}
        for row in rows:
            if at < len(row) and row[at].isdigit():
                groups.setdefault((*row[:at], "", *row[at + 1 :]), set()).add(row[at])
            else:
                groups[row] = set()
        rows = {(*row[:at], _ranges(found), *row[at + 1 :]) if found else row for row, found in groups.items()}
    return sorted("".join(row) for row in rows)


def _ranges(found: Iterable[str]) -> str:
    """`7`, or `{0-3,5}` for several."""
    numbers = sorted(map(int, found))
    if len(numbers) == 1:
        return str(numbers[0])
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return "{" + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) + "}"
