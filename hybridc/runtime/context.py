"""What all ops of one forward share: documents, positions, rotary tables, the cache, and the losses on the way out.

Everything ragged is documents. In a plain run each row is one. Packed rows and padded ones become a single row [1, T]
of real tokens with a document for each part, so that no op knows of padding: a token computes what it computes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hybridc.runtime.errors import UsageError
from hybridc.runtime.ops.losses import RouterSums, token_cross_entropy
from hybridc.runtime.parallel.agree import agree_on_tokens
from hybridc.runtime.parallel.axis import Tokens
from hybridc.runtime.parallel.mesh import SERIAL, Mesh
from hybridc.runtime.parallel.vocab import vocab_cross_entropy, whole_logits

if TYPE_CHECKING:
    from hybridc.runtime.cache import Cache
    from hybridc.runtime.ops.rope import Rope, Tables


class PackedSeq:
    """Documents packed in rows: `cu_seqlens` [n + 1] are their offsets into the flattened [B * S] tokens, 0 first.

    Borders of rows are borders of documents in any case. Raises UsageError for offsets that do not rise from 0.
    """

    def __init__(self, cu_seqlens: Tensor | Sequence[int]) -> None:
        values = torch.as_tensor(cu_seqlens)
        if values.dim() != 1 or values.is_floating_point() or not values.numel() or int(values[0]) != 0:
            raise UsageError(
                "cu_seqlens is not a vector of integers that starts with 0",
                "give the documents' offsets and the end, as [0, 37, 66]",
            )
        self.offsets: list[int] = values.tolist()
        if any(b < a for a, b in pairwise(self.offsets)):
            raise UsageError("cu_seqlens falls somewhere", "give the offsets in rising order")


class Output:
    """What a forward returns.

    `logits` [B, S, vocab]; `ce_loss`, the mean cross entropy over labels other than -100, shifted by one; `loss`, that
    plus the auxiliary losses that the spec gives a coefficient; `targets`, how many labels the mean is over; `aux`,
    router losses and statistics by name (none from a forward that only fills a cache). Logits may be given as what
    computes them: where a kernel makes the loss without them, they are made when they are asked for.
    """

    def __init__(self, logits: Tensor | Callable[[], Tensor], aux: dict[str, Any] | None = None) -> None:
        self._logits = logits
        self.loss: Tensor | None = None
        self.ce_loss: Tensor | None = None
        self.targets: Tensor | None = None
        self.aux: dict[str, Any] = {} if aux is None else aux

    @property
    def router_loss(self) -> Tensor | float:
        """The auxiliary losses that the spec gives a coefficient."""
        return sum(self.aux[name] for name in ("aux_loss", "z_loss") if name in self.aux)

    @property
    def logits(self) -> Tensor:
        if not isinstance(self._logits, Tensor):
            self._logits = self._logits()
        return self._logits


@dataclass(frozen=True)
class RouterLosses:
    """What the routers have in common whose layers share their losses: experts, choices and coefficients."""

    experts: int
    top_k: int
    aux_coef: float
    z_coef: float


class Context:
    """One forward's shared state.

    `input_ids` [B, S] are the tokens that the layers see: the caller's, or the packed row [1, T]. `borders` is None
    when each row is one document, else the offsets of the documents in the packed row. `lengths` are the documents'
    new tokens, `past` those that the cache holds of them already: document n belongs to the cache's row n. On a `mesh`,
    tokens are those of this rank's batch, and losses are over those of all ranks.
    """

    def __init__(
        self,
        input_ids: Tensor,
        *,
        attention_mask: Tensor | None = None,
        seq: PackedSeq | None = None,
        positions: Tensor | None = None,
        cache: Cache | None = None,
        mesh: Mesh = SERIAL,
    ) -> None:
        self.mesh = mesh
        agree_on_tokens(mesh.tp, (input_ids, attention_mask, None if seq is None else seq.offsets, positions))
        if input_ids.dim() != 2 or not input_ids.numel():
            raise UsageError(
                f"input_ids are {list(input_ids.shape)}", "give token ids as [batch, tokens], one token or more"
            )
        self.shape = tuple(input_ids.shape)
        if positions is not None and tuple(positions.shape) not in (self.shape, (1, self.shape[1])):
            raise UsageError(
                f"positions are {list(positions.shape)} for ids {list(self.shape)}", "give one for each token"
            )
        self.cache = cache
        self.borders: list[int] | None = None
        self.kept: Tensor | None = None
        self._ropes: dict[Rope, Tables] = {}
        self._plans: dict[object, object] = {}
        self._routers: list[tuple[RouterLosses, Tensor, Tensor]] = []
        self._sums: dict[RouterLosses, RouterSums] = {}
        self._tokens_per_expert: list[Tensor] = []
        if seq is not None and attention_mask is not None:
            raise UsageError(
                "both seq and attention_mask are given", "packed documents have no padding: give one of them"
            )
        rows, length = input_ids.shape
        lengths = [length] * rows
        if seq is not None:
            input_ids = self._pack(input_ids, seq)
        elif attention_mask is not None:
            input_ids = self._unpad(input_ids, attention_mask, cached=cache is not None)
        if self.borders is not None:
            lengths = [b - a for a, b in pairwise(self.borders)]
        self.input_ids = input_ids
        self.tp: Tokens = mesh.tp.tokens(input_ids.shape[1])
        self.lengths = lengths
        self.past = [0] * len(lengths)
        if cache is not None:
            cache.reserve(lengths)
            self.past = cache.lengths
        self.positions = self._positions(positions)

    def _pack(self, input_ids: Tensor, seq: PackedSeq) -> Tensor:
        rows, length = input_ids.shape
        if seq.offsets[-1] != rows * length:
            raise UsageError(
                f"cu_seqlens ends at {seq.offsets[-1]} for {rows * length} tokens", "cover all tokens of the batch"
            )
        inside = set(seq.offsets)
        # offsets that come twice are empty documents, and stay
        starts_of_rows = [n for n in range(length, rows * length, length) if n not in inside]
        self.borders = sorted(seq.offsets + starts_of_rows)
        return input_ids.reshape(1, -1)

    def _unpad(self, input_ids: Tensor, mask: Tensor, *, cached: bool) -> Tensor:
        rows, length = input_ids.shape
        if mask.dim() != 2 or mask.shape[0] != rows or not (
            mask.shape[1] == length or (cached and mask.shape[1] > length)
        ):  # fmt: skip
            raise UsageError(
                f"attention_mask is {list(mask.shape)} for ids {[rows, length]}",
                "give [batch, tokens] of ones and zeros",
            )
        # with a cache, the mask may reach back over tokens that the cache has seen
        mask = mask[:, mask.shape[1] - length :]
        if mask.is_floating_point() and bool((mask < 0).any()):
            raise UsageError("attention_mask has negative numbers", "give ones for tokens and zeros for padding")
        mask = mask.bool()
        if bool(mask.all()):
            return input_ids
        counts = mask.sum(1).tolist()
        self.borders = [0]
        for count in counts:
            self.borders.append(self.borders[-1] + count)
        self.kept = mask.reshape(-1).nonzero().squeeze(1)
        return input_ids.reshape(-1)[self.kept][None]

    def _positions(self, positions: Tensor | None) -> Tensor:
        """[1 or B, S]: places within the documents, the cached ones counted."""
        if positions is not None:
            if self.borders is None:
                return positions
            flat = positions.expand(self.shape).reshape(-1)
            return (flat if self.kept is None else flat[self.kept])[None]
        device = self.input_ids.device
        if self.borders is None:
            steps = torch.arange(self.shape[1], device=device)[None]
            if min(self.past) == max(self.past):
                return steps + self.past[0]
            return steps + torch.tensor(self.past, device=device)[:, None]
        # a token's place in the row, less its document's start, plus that document's past
        shift = [p - start for p, start in zip(self.past, self.borders, strict=False)]
        counts = torch.tensor(self.lengths, device=device)
        shifts = torch.tensor(shift, device=device).repeat_interleave(counts, output_size=sum(self.lengths))
        return (torch.arange(self.input_ids.shape[1], device=device) + shifts)[None]

    def rope(self, rope: Rope) -> Tables:
        """cos and sin [1 or B, S, 1, dim / 2], fp32, made once a forward."""
        if rope not in self._ropes:
            lengths = self._document_lengths() if rope.by_length else None
            self._ropes[rope] = rope.tables(self.positions, lengths)
        return self._ropes[rope]

    def rope_rows(self, rope: Rope) -> tuple[Tensor, Tensor]:
        """cos and sin of each token, [B, S, dim / 2] fp32 one after the other in memory, as kernels take them."""

        def make() -> tuple[Tensor, Tensor]:
            rows = self.input_ids.shape[0]
            cos, sin = (t[:, :, 0].expand(rows, -1, -1).contiguous() for t in self.rope(rope)[:2])
            return cos, sin

        made: tuple[Tensor, Tensor] = self.plan(("rope rows", rope), make)
        return made

    def _document_lengths(self) -> Tensor:
        """For each token, how many its document has by now: [1 or B, S]."""
        device = self.input_ids.device
        total = torch.tensor([n + p for n, p in zip(self.lengths, self.past, strict=True)], device=device)
        if self.borders is None:
            return total[:, None]
        counts = torch.tensor(self.lengths, device=device)
        return total.repeat_interleave(counts, output_size=sum(self.lengths))[None]

    def plan(self, key: object, make: Callable[[], Any]) -> Any:
        """An index plan that several layers share, made once a forward."""
        if key not in self._plans:
            self._plans[key] = make()
        return self._plans[key]

    def state(self, layer: int) -> dict[str, Any]:
        """The cache entries of a layer by submodule path; empty without a cache."""
        return {} if self.cache is None else self.cache.layers[layer]

    def router_stats(
        self, name: str, logits: Tensor, ids: Tensor, *, experts: int, aux_coef: float, z_coef: float
    ) -> None:
        """Takes down a router's logits [..., experts] and chosen ids [..., k] for the losses and statistics."""
        losses = RouterLosses(experts, ids.shape[-1], aux_coef, z_coef)
        self._routers.append((losses, logits.reshape(-1, experts), ids.reshape(-1, ids.shape[-1])))

    @property
    def router_sums(self) -> dict[RouterLosses, RouterSums]:
        """What routers with coefficients have for their losses so far, by what their layers have in common."""
        self._settle()
        return self._sums

    @router_sums.setter
    def router_sums(self, sums: dict[RouterLosses, RouterSums]) -> None:
        self._routers, self._sums = [], sums

    def _settle(self) -> None:
        """Counts what routers chose, and adds up what their losses are made of: late, since a forward whose losses
        nobody asks for has no use for it."""
        routers, self._routers = self._routers, []
        for losses, logits, ids in routers:
            self._tokens_per_expert.append(torch.bincount(ids.reshape(-1), minlength=losses.experts))
            if losses.aux_coef or losses.z_coef:
                # what all ranks compute alike is a share of each one's gradient
                self.add_router_sums(losses, RouterSums.of(self.mesh.tp.copy(logits, back="share"), ids))

    def add_router_sums(self, losses: RouterLosses, sums: RouterSums) -> None:
        """Adds what a layer, or an earlier pipeline stage, has to the routers' losses."""
        if losses in self._sums:
            sums = RouterSums.unpacked(self._sums[losses].packed() + sums.packed())
        self._sums[losses] = sums

    def take_tokens_per_expert(self) -> list[Tensor]:
        """Those of the routers since it was last called: what a pipeline stage has of them."""
        self._settle()
        taken, self._tokens_per_expert = self._tokens_per_expert, []
        return taken

    def output(self, logits: Tensor, labels: Tensor | None = None) -> Output:
        """The layers' logits [B, S, vocab] or [1, T, vocab] to what the caller gets; ends the cache's step."""
        out = Output(self._unpacked(logits), self._aux_of(labels))
        return self._finished(out, labels, lambda targets: token_cross_entropy(logits.flatten(0, 1), targets.flatten()))

    def output_over(self, vocab: int, logits: Tensor, labels: Tensor | None = None) -> Output:
        """As `output`, of the logits of a rank's part of the vocabulary; all of them are put together when they are
        asked for, by all ranks or by none."""
        axis = self.mesh.tp
        out = Output(lambda: self._unpacked(whole_logits(logits, vocab, axis)), self._aux_of(labels))
        return self._finished(
            out, labels, lambda targets: vocab_cross_entropy(logits.flatten(0, 1), targets.flatten(), vocab, axis)
        )

    def output_of(self, head: Any, x: Tensor, labels: Tensor | None = None) -> Output:
        """As `output`, of the module that makes logits of x [B, S, D]; with labels its `loss(x, targets)` gives the
        mean cross entropy, and logits are made when they are asked for."""
        if labels is None:
            return self.output(head(x))
        out = Output(lambda: self._unpacked(head(x)), self._aux_of(labels))
        return self._finished(out, labels, lambda targets: head.loss(x, targets.view(x.shape[:2])))

    def _aux_of(self, labels: Tensor | None) -> dict[str, Any]:
        return self._aux() if labels is not None or self.cache is None else {}

    def _finished(self, out: Output, labels: Tensor | None, loss: Callable[[Tensor], Tensor]) -> Output:
        """The output with losses of targets [T], if there are labels."""
        if labels is not None:
            targets = self.targets(labels)
            count = (targets != -100).sum()
            out.targets, out.ce_loss = count, loss(targets)
            if self.mesh.dp.size > 1:
                out.targets = self.mesh.dp.summed(count)
                out.ce_loss = self.mesh.dp.all_reduce(out.ce_loss * count) / out.targets.clamp(min=1)
            out.loss = out.ce_loss + out.router_loss
        if self.cache is not None:
            self.cache.advance(self.lengths)
        return out

    def targets(self, labels: Tensor) -> Tensor:
        """For each token the label that its logits predict, -100 where there is none: the next one of its document."""
        if tuple(labels.shape) != self.shape:
            raise UsageError(
                f"labels are {list(labels.shape)} for ids {list(self.shape)}", "give a label for each token"
            )
        flat = labels.reshape(-1)
        if self.kept is not None:
            flat = flat[self.kept]
        targets = torch.full_like(flat, -100)
        targets[:-1] = flat[1:]
        rows, length = self.shape
        ends = self.borders[1:] if self.borders is not None else range(length, rows * length + 1, length)
        targets[torch.tensor([e - 1 for e in ends if e > 0], dtype=torch.int64, device=targets.device)] = -100
        return targets

    def _unpacked(self, logits: Tensor) -> Tensor:
        if self.borders is None:
            return logits
        flat = logits[0]
        if self.kept is not None:
            padded = flat.new_zeros(self.shape[0] * self.shape[1], flat.shape[-1])
            flat = padded.index_copy(0, self.kept, flat)
        return flat.view(*self.shape, -1)

    def _aux(self) -> dict[str, Any]:
        """Router losses as means over the layers that have them, and tokens per expert for each such layer."""
        aux: dict[str, Any] = {}
        dp, counted = self.mesh.dp, 0 if self.mesh.idle else 1
        sums_of = self.router_sums
        if self._tokens_per_expert:
            aux["tokens_per_expert"] = [dp.summed(counts * counted) for counts in self._tokens_per_expert]
        for losses, sums in sums_of.items():
            whole = RouterSums.unpacked(dp.all_reduce(sums.packed() * counted))
            if losses.aux_coef:
                aux["aux_loss"] = aux.get("aux_loss", 0.0) + losses.aux_coef * whole.load_balancing_loss()
            if losses.z_coef:
                aux["z_loss"] = aux.get("z_loss", 0.0) + losses.z_coef * whole.z_loss()
        return aux
