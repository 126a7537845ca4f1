"""Fields of configs that many families have alike."""

from __future__ import annotations

from collections.abc import Sequence

from hybridc.frontend import ast
from hybridc.frontend.hf.build import normal_init, unless
from hybridc.frontend.hf.config import Config

FULL, SLIDING = "full_attention", "sliding_attention"


def sizes(c: Config, dim: int, vocab: int, depth: int) -> tuple[int, int, int]:
    """`hidden_size`, `vocab_size` and `num_hidden_layers`; the arguments are the family's defaults."""
    return c.integer("hidden_size", dim), c.integer("vocab_size", vocab), c.integer("num_hidden_layers", depth)


def dropout(c: Config, name: str = "attention_dropout") -> float | None:
    """A dropout, or None for none."""
    return unless(c.share(name, 0.0), 0.0)  # type: ignore[no-any-return]


def initial(c: Config, std: float = 0.02) -> ast.Entry:
    """How the family's weights start."""
    return normal_init(c.number("initializer_range", std))


def layer_types(
    c: Config, depth: int, default: Sequence[str], kinds: Sequence[str] = (FULL, SLIDING), name: str = "layer_types"
) -> list[str]:
    """The kind of each layer, the default where the config lists none. Reports another number of them than layers."""
    given = c.words(name, {k: k for k in kinds})
    if given is not None and len(given) != depth:
        c.refuse(name, c.values[name], f"name {depth} layers, as num_hidden_layers says")
        given = None
    return list(default) if given is None else given


def flags(c: Config, name: str, depth: int, default: Sequence[int]) -> list[bool]:
    """A list of 0 and 1, one for each layer; the default where the config has none."""
    given = c.take(name, None, list)
    if given is not None and (len(given) != depth or any(v not in (0, 1) for v in given)):
        c.refuse(name, given, f"give 0 or 1 for each of {depth} layers")
        given = None
    return [bool(v) for v in (default if given is None else given)]


def sparse_layers(c: Config, depth: int) -> list[bool]:
    """Qwen's layers with experts: every `decoder_sparse_step`-th that `mlp_only_layers` does not name."""
    step, dense = c.integer("decoder_sparse_step", 1), indices(c, "mlp_only_layers", depth)
    return [(i + 1) % step == 0 and i not in dense for i in range(depth)]


def indices(c: Config, name: str, depth: int) -> set[int]:
    """A list of layers' indices."""
    given = c.take(name, [], list)
    if any(type(v) is not int or not 0 <= v < depth for v in given):
        c.refuse(name, given, f"give indices from 0 to {depth - 1}")
        return set()
    return set(given)


def window_types(c: Config, depth: int, *, default: int | None = 4096) -> tuple[list[str], int | None]:
    """Qwen's windows: the kind of each layer, and the window; those from `max_window_layers` on have it, where
    `use_sliding_window` says that there is one."""
    window = c.optional("sliding_window", default)
    used, first = c.flag("use_sliding_window", False), c.take("max_window_layers", 28, int, low=0)
    sliding = used and window is not None
    types = layer_types(c, depth, [SLIDING if sliding and i >= first else FULL for i in range(depth)])
    return types if sliding else [FULL] * depth, window if sliding else None
