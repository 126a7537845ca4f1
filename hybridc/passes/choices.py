"""Who computes what: libraries that may be called, what their products take, and what is worth a word afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec

from hybridc.diagnostics import NO_SPAN, Sink, did_you_mean
from hybridc.ir.backends import BACKENDS, LIBRARIES, TARGETS, choose, offering
from hybridc.ir.emit import Emit, Use
from hybridc.ir.formats import Format
from hybridc.ir.ops.quantize import Quantize

FOUND = "found"
"""The word for all libraries that are installed."""

IMPORTED = {"te": "transformer_engine"}
"""What a library is imported as, where that is not its name here."""


def known_libraries(names: Sequence[str], target: str, sink: Sink) -> tuple[str, ...]:
    """The libraries of these names, each once; reports those that are none (HYB605) or have nothing for the target."""
    out: list[str] = []
    for name in names:
        if name == FOUND:
            out += [n for n in LIBRARIES if target in BACKENDS[n].targets and find_spec(IMPORTED.get(n, n)) is not None]
        elif name not in LIBRARIES:
            help = did_you_mean(name, [*LIBRARIES, FOUND])
            sink.report("HYB605", NO_SPAN, f"there are no calls for a library `{name}`", help)
        elif target not in BACKENDS[name].targets:
            label = f"`{name}` has nothing for the target {target}"
            help = f"leave it out, or compile for {', '.join(BACKENDS[name].targets)}"
            sink.report("HYB605", NO_SPAN, label, help)
        else:
            out.append(name)
    return tuple(dict.fromkeys(out))


def takes_quantized(target: str, libraries: Sequence[str]) -> Callable[[Format], bool]:
    """Whether products in a format take values that are quantized already: our own do, a library's quantize inside."""

    def apart(format: Format) -> bool:
        if format.name != "fp8":
            return True
        facts = {"recipe": format.recipe, **dict(format.options)}
        return choose("fp8_linear", facts, target, libraries).backend not in libraries

    return apart


def report_choices(emit: Emit, sink: Sink) -> None:
    """Reports parts that nobody computes (HYB606), and those that run as plain torch on a GPU (HYB603), each once."""
    seen: set[tuple[str, str]] = set()
    for use in emit.uses:
        choice = use.choice
        # one word for all parts that lack the same: a format's products, and what is quantized for them
        key = (use.op, choice.why or choice.part)
        if key in seen or use.op == Quantize.kind or (choice.offer is not None and not choice.offer.plain):
            continue
        if emit.target == "cpu":
            continue
        seen.add(key)
        why = f" ({choice.why})" if choice.why else ""
        words = choice.part.replace("_", " ")
        if choice.offer is None:
            label = f"`{use.op}`: nothing computes its {words} on {emit.target}{why}"
            sink.report("HYB606", use.span, label, _remedy(use, emit.target))
        else:
            label = f"`{use.op}` on {emit.target}: its {words} runs as plain torch, without a kernel{why}"
            libraries = [n for n in offering(choice.part) if n not in emit.libraries]
            help = f"compile with --with {libraries[0]}" if libraries else "expect many small steps there"
            sink.report("HYB603", use.span, label, help, severity="warning")

    _report_idle(emit, sink)


def _report_idle(emit: Emit, sink: Sink) -> None:
    """Reports libraries that were named and compute nothing of the model (HYB607), with their reasons."""
    used = {use.choice.backend for use in emit.uses}
    for name in emit.libraries:
        if name in used:
            continue
        refusals = (f"{use.choice.part.replace('_', ' ')}: {r}" for use in emit.uses for n, r in use.choice.refusals
                    if n == name)  # fmt: skip
        why = "; ".join(dict.fromkeys(refusals)) or f"it has {', '.join(BACKENDS[name].offers).replace('_', ' ')}"
        label = f"`{name}` computes nothing of this model ({why})"
        sink.report("HYB607", NO_SPAN, label, "leave it out of --with", severity="warning")


def _remedy(use: Use, target: str) -> str:
    """What would have somebody compute a part."""
    choice = use.choice
    for name in offering(choice.part):
        if choose(choice.part, choice.facts, target, (name,)).offer is not None:
            return f"compile with --with {name}"
    others = [t for t in TARGETS if choose(choice.part, choice.facts, t).offer is not None]
    if not others:
        return "use other attributes, or another format there"
    quantized = "recipe" in choice.facts or choice.facts.get("formats", ("",)) != ("",)
    return f"compile for {' or '.join(others)}" + (f", or keep `{use.op}` out of the rule" if quantized else "")
