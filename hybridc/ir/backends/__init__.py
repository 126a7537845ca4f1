"""Who computes what on which target: one file a backend. Importing this package registers every file in it."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hybridc.ir.backends.base import Backend, Facts, Offer

BACKENDS: dict[str, Backend] = {}
"""By name."""

for _module in pkgutil.iter_modules(__path__):
    _found = vars(importlib.import_module(f"{__name__}.{_module.name}")).values()
    BACKENDS.update({made.name: made for made in _found if isinstance(made, Backend)})

OURS = ("triton", "torch")
"""What is asked behind the libraries, in this order."""

TARGETS = BACKENDS["torch"].targets
"""What can be compiled for."""

LIBRARIES = tuple(name for name in BACKENDS if name not in OURS)
"""What `--with` can name."""


@dataclass(frozen=True)
class Choice:
    """Who computes a use of a part, by name ("" for nobody), and how; and why those asked before could not."""

    part: str
    facts: Facts
    backend: str
    offer: Offer | None
    refusals: tuple[tuple[str, str], ...] = ()

    @property
    def why(self) -> str:
        """The reasons against the others, in words."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.refusals)


def capability(target: str) -> int:
    """90 of `cuda:sm90`; 0 for the CPU."""
    return int(target.partition("sm")[2] or 0)


def choose(part: str, facts: Facts, target: str, libraries: Sequence[str] = ()) -> Choice:
    """The first that can compute a part on a target: of the libraries in their order, then kernels of our own, torch.

    `facts` are the use's, as `base.Facts` has them; `dtype` and `capability` may be left out. With `formats`, those of
    several products, each must be served as the fact `format`.
    """
    known = {"dtype": "bf16", **facts, "capability": capability(target)}
    formats = known.get("formats")
    cases = [{**known, "format": f} for f in formats] if isinstance(formats, tuple) else [known]
    refusals: list[tuple[str, str]] = []
    for name in (*libraries, *OURS):
        backend = BACKENDS[name]
        offer = backend.offers.get(part)
        if offer is None:
            continue
        reason = f"not for {target}"
        if target in backend.targets:
            reason = next(filter(None, map(offer.unfit, cases)), "")
        if not reason:
            return Choice(part, known, name, offer, tuple(refusals))
        refusals.append((name, reason))
    return Choice(part, known, "", None, tuple(refusals))


def offering(part: str, names: Iterable[str] = LIBRARIES) -> list[str]:
    """The libraries that compute a part on some target."""
    return [name for name in names if part in BACKENDS[name].offers]


__all__ = [
    "BACKENDS",
    "LIBRARIES",
    "OURS",
    "TARGETS",
    "Backend",
    "Choice",
    "Facts",
    "Offer",
    "capability",
    "choose",
    "offering",
]
