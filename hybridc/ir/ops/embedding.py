"""embedding and lm_head: the two ends of a language model."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from hybridc.ir.attrs import Flag, Float, Int, attr
from hybridc.ir.emit import ATOM, MUL, Code, Emit, call, lit
from hybridc.ir.kernels import Kernel, inside
from hybridc.ir.ops.base import ZEROS, Fill, Op, Param, Widths, op
from hybridc.ir.places import PARTIAL, REDUCED, REPLICATED, split
from hybridc.ir.sharding import CUT, Rule, Sharded, cut
from hybridc.ir.types import TensorType, activation


@op("embedding", "ends")
class Embedding(Op):
    """Rows of a table by token id: ids [B, S] -> scale x [B, S, dim]. Weight [vocab, dim]."""

    vocab: int = attr(Int(), doc="number of token ids")
    dim: int = attr(Int(), 0, doc="width of the residual stream", derived="the model's param `dim`")
    scale: float = attr(Float(), 1.0, doc="multiplies the rows")

    def result(self, operands: tuple[TensorType, ...]) -> TensorType:
        return activation(self.dim)

    def params(self, ins: Widths) -> tuple[Param, ...]:
        return (Param("weight", (self.vocab, self.dim), Fill("embedding")),)

    def flops(self, ins: Widths, seq: int) -> float:
        return 0.0 if self.scale == 1.0 else float(self.dim)

    def saved(self, ins: Widths, seq: int) -> float:
        return 0.0

    def rules(self, ins: Widths, ranks: int) -> tuple[Rule, ...]:
        return (Rule(CUT.name, (REPLICATED,), PARTIAL),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        """Each rank looks up the ids whose rows it has, and has zeros for the others."""
        op = VocabEmbedding(-(-self.vocab // ranks), self.dim, self.scale)
        return Sharded(op, {"weight": cut(ranks, (self.vocab, self.vocab))})

    def constructor(self, ins: Widths, emit: Emit) -> str:
        return call(emit.part("embedding"), self.vocab, self.dim)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        rows = f"{module}({args[0].text})"
        return Code(rows, ATOM) if self.scale == 1.0 else Code(f"{lit(self.scale)} * {rows}", MUL)


@op("vocab_embedding", "ends")
class VocabEmbedding(Embedding):
    """One rank's rows of an `embedding`: the rows of ids that it does not have are zeros."""

    inserted: ClassVar[bool] = True

    def constructor(self, ins: Widths, emit: Emit) -> str:
        return call("ops.VocabEmbedding", self.vocab, self.dim)


@op("lm_head", "ends")
class LMHead(Op):
    """Logits over the vocabulary: scale (x Wᵀ + b), then c tanh(logit / c) with a `softcap` c (Gemma 2).

    Weight [vocab, dim], the embedding's own tensor when tied.
    """

    vocab: int = attr(Int(), doc="number of logits")
    scale: float = attr(Float(), 1.0, doc="multiplies the logits")
    tied: bool = attr(Flag(), False, doc="use the embedding's weight")
    bias: bool = attr(Flag(), False, doc="add a bias")
    softcap: float | None = attr(
        Float(0.0, strict=True), None, doc="logits become c tanh(logit / c)", optional=True
    )  # fmt: skip

    def width(self, ins: Widths) -> int:
        return self.vocab

    def params(self, ins: Widths) -> tuple[Param, ...]:
        weight = Param("weight", (self.vocab, ins[0]), Fill("linear", fan_in=ins[0]), tied=self.tied)
        return (weight, Param("bias", (self.vocab,), ZEROS)) if self.bias else (weight,)

    def rules(self, ins: Widths, ranks: int) -> tuple[Rule, ...]:
        return (Rule(CUT.name, (REDUCED,), split(2)),)

    def sharded(self, rule: str, ins: Widths, ranks: int) -> Sharded | None:
        parts = cut(ranks, (self.vocab, self.vocab))
        op = replace(self, vocab=-(-self.vocab // ranks))
        return Sharded(op, {"weight": parts, "bias": parts})

    def kernels(self, ins: Widths) -> tuple[Kernel, ...]:
        return (
            () if self.softcap is None else (inside("softcap", self.vocab, "softcap", constants={"cap": self.softcap}),)
        )

    def entries(self, ins: Widths) -> tuple[str, ...]:
        return ("",)

    def constructor(self, ins: Widths, emit: Emit) -> str:
        return emit.linear("", ins[0], self.vocab, bias=self.bias)

    def loss(self, module: str, x: str, targets: str, emit: Emit) -> str:
        """A call for the mean cross entropy of the logits, which never exist as a whole; "" where there is no kernel
        for it, as there is none for quantized products."""
        if emit.formats or not emit.serves("cross_entropy"):
            return ""
        options: dict[str, object] = {"scale": self.scale} if self.scale != 1.0 else {}
        if self.softcap is not None:
            options["softcap"] = self.softcap
        bias = (f"{module}.bias",) if self.bias else ()
        return call(emit.part("cross_entropy"), x, f"{module}.weight", targets, *bias, **options)

    def call(self, module: str, args: tuple[Code, ...], ins: Widths, emit: Emit) -> Code:
        logits = Code(f"{module}({args[0].text})", ATOM)
        if self.scale != 1.0:
            logits = Code(f"{lit(self.scale)} * {logits.text}", MUL)
        if self.softcap is None:
            return logits
        if made := emit.generated("softcap", logits.text):
            return Code(made, ATOM)
        return Code(f"{lit(self.softcap)} * ({logits.at(MUL)} / {lit(self.softcap)}).tanh()", MUL)
