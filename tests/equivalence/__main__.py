"""`python -m tests.equivalence --budget 10m [--seed N] [--axes tp,dp,pp]`: random models on random meshes until the
time is over; a failure is shrunk to a small spec and mesh, which are printed with the seed that made them."""

from __future__ import annotations

import argparse
import sys
import time

from tests.equivalence.cases import Case, random_case, shrunk
from tests.equivalence.ranks import RanksFailed
from tests.equivalence.run import differences


def seconds(text: str) -> float:
    """`90`, `90s`, `10m` or `2h` in seconds."""
    units = {"s": 1, "m": 60, "h": 3600}
    return float(text[:-1]) * units[text[-1]] if text[-1] in units else float(text)


def problems(case: Case) -> list[str]:
    """What is wrong with a case: differences, or what a rank raised."""
    try:
        return differences(case)
    except RanksFailed as error:
        return [str(error)]


def fails(case: Case) -> bool:
    """Whether there is anything wrong with a case; one that is refused is none."""
    try:
        found = problems(case)
    except Exception:
        return False
    return bool(found) and not any("UsageError" in text for text in found)


def main() -> int:
    """Exit status 1 where a case fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.equivalence", description=__doc__)
    parser.add_argument("--budget", type=seconds, default=600.0, help="time, such as 90s, 10m or 2h")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case")
    parser.add_argument("--axes", default="tp,dp,pp", help="axes that meshes are drawn from")
    options = parser.parse_args()
    end, seed = time.monotonic() + options.budget, options.seed
    while time.monotonic() < end:
        case = random_case(seed, tuple(options.axes.split(",")))
        if found := problems(case):
            print(f"seed {seed} fails on {dict(case.mesh)}; shrinking", *found[:4], case, sep="\n", flush=True)
            small = shrunk(case, fails)
            print(f"\n{small.spec}\n\nmesh {dict(small.mesh)}\n{small}\n")
            print("\n".join(problems(small)[:20] or found[:20]))
            return 1
        seed += 1
    print(f"{seed - options.seed} cases, seeds {options.seed} to {seed - 1}: the same on every mesh")
    return 0


if __name__ == "__main__":
    sys.exit(main())
