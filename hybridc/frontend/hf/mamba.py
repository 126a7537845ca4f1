"""mamba: a stack of Mamba mixers (Gu and Dao, 2023)."""

from __future__ import annotations

from typing import Any

from hybridc.frontend import ast
from hybridc.frontend.hf.build import call, pipe
from hybridc.frontend.hf.config import Config
from hybridc.frontend.hf.decoder import decoder, layer
from hybridc.frontend.hf.fields import sizes
from hybridc.frontend.hf.inverse import Found, ends
from hybridc.frontend.hf.mamba2 import NAMES
from hybridc.frontend.hf.mambas import mixer, mixer_of
from hybridc.frontend.hf.weightmap import WeightMap


def from_config(c: Config) -> tuple[ast.Spec, WeightMap]:
    """The spec and the names of the weights."""
    return stack(c, "mamba", None)


def stack(c: Config, name: str, norm: ast.Call | None) -> tuple[ast.Spec, WeightMap]:
    """A stack of mixers with `norm` on dt, B and C."""
    dim, vocab, depth = sizes(c, 768, 50280, 32)
    eps = c.number("layer_norm_epsilon", 1e-5)
    # says that the stream is fp32, which it is here unless the net is cast; how torch code of theirs scans
    c.ignore("residual_in_fp32", "use_mambapy", "use_falcon_mambapy", "use_associative_scan")
    # of the checkpoints' first library, whose conversions carry them
    c.ignore("d_inner", "d_model", "n_layer", "fused_add_norm", "pad_vocab_size_multiple", "ssm_cfg")
    c.refuse_unless("rms_norm", True, [True], "the norms of this family are RMS norms")
    return decoder(
        name,
        dim,
        vocab,
        [layer("M", pipe("norm", "ssm"), parts={"ssm": mixer(c, dim, norm)}, norms=("norm",))] * depth,
        call("rmsnorm", eps=eps),
        tied=c.flag("tie_word_embeddings", True),
        names=NAMES,
        init=ast.Entry("init", call("kaiming", depth=c.flag("rescale_prenorm_residual", False))),
    )


def to_config(m: Found) -> dict[str, Any]:
    """The config of a spec in this family's form."""
    return {
        **ends(m),
        **mixer_of(m.op("ssm"), m.embedding.dim),
        "layer_norm_epsilon": m.op("norm").eps,
        "rescale_prenorm_residual": m.module.init.depth,
    }
