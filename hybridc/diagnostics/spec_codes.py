"""Codes of what is wrong in a spec: HYB0xx to HYB3xx."""

from __future__ import annotations

from hybridc.diagnostics.code import Code

SPEC_CODES: dict[str, Code] = {
    # --- syntax ----------------------------------------------------------------------------------------------------
    "HYB001": Code(
        "syntax error",
        "The text does not follow the grammar at this place. A statement ends with its line, except inside parentheses "
        "and where the line plainly goes on: behind an operator or a comma, or in front of `>>` or `|` on the next "
        "line. "
        "A call has no space before its parenthesis, since `M (M A)` is a sequence of layers.",
        "x += norm >> attention (heads=4)",
    ),
    "HYB002": Code(
        "text too large",
        "A file is larger than 1 MiB, has brackets or expressions nested more than 100 levels deep, or imports files "
        "through more than 50 others. A sum of many terms is nested too: each `+` holds all that stands before it.",
    ),
    "HYB003": Code(
        "string is broken",
        'Strings stand between double quotes on one line; the escapes are \\" \\\\ \\n and \\t.',
        'import "common.hyb',
    ),
    "HYB004": Code(
        "character has no meaning",
        "A character that the language does not know. Letters of names are ASCII only, so that two names which look "
        "alike are alike. Control characters, and those that change the order in which text is shown, may stand "
        "nowhere, not even in a comment.",
        "x += norm && attn",
    ),
    "HYB005": Code(
        "wrong order",
        "A part stands twice, or an argument without a name behind one with a name.",
        "scale(factor=2, 3)",
    ),
    "HYB006": Code(
        "unknown part of a model",
        "A model has params, lets, blocks, and the entries embed, layers, head, mtp and init.",
        "layer = A * 2",
    ),
    # --- names and types -------------------------------------------------------------------------------------------
    "HYB101": Code(
        "unknown name",
        "A name is used that no param, let, block, block param or named value defines where it stands. Names inside a "
        "block "
        "are visible after the statement that defines them; `x` is the residual stream, `x0` the embedding's result "
        "and "
        "`layer` the index of the layer. On the command line, `--set` takes the params of the model only.",
        "x += nrom >> attention(heads=4)",
    ),
    "HYB102": Code(
        "unknown op",
        "A call names something that is not an op. `hybridc ops` lists all ops with their signatures. An op is always "
        "called, with parentheses even when it takes no argument; blocks are named in `layers`, not called in blocks.",
        "x += norm >> atention(heads=4)",
    ),
    "HYB103": Code(
        "defined twice",
        "A param, let, block, entry, axis, value or submodule name is given twice. Each name has one meaning in its "
        "scope: "
        "values in a block are single assignment, except the residual stream `x`.",
        "let norm = rmsnorm()\nlet norm = layernorm()",
    ),
    "HYB104": Code(
        "unused param", "A param is defined and nothing reads it. Often a sign of a number written out twice."
    ),
    "HYB105": Code("unused block", "A block is defined and no layer pattern names it."),
    "HYB106": Code("unused let", "A let is defined and nothing reads it."),
    "HYB107": Code(
        "unused value",
        "A value is named in a block and nothing reads it. Code that no result needs is dropped, its parameters with "
        "it.",
        "t = linear(64)",
    ),
    "HYB108": Code(
        "name not allowed",
        "Names of models, blocks, submodules and values become Python names in emitted code and keys of the state "
        "dict. "
        "They are made of ASCII letters, digits and underscores, start with a letter, and are neither Python keywords "
        "nor "
        "names that the emitted code or torch modules use themselves.",
        "x += forward: attention(heads=4)",
    ),
    "HYB109": Code(
        "unknown argument",
        "A call gives an argument that the op or block does not have, or one that the name of the op already settles "
        "(`swiglu` is `mlp` with `act` and `gated` set). `hybridc ops NAME` shows what there is.",
        "attention(heads=4, kvheads=2)",
    ),
    "HYB110": Code("missing argument", "A call leaves out an argument that has no default.", "attention(head_dim=64)"),
    "HYB111": Code("wrong type", "A value has another type than is wanted here.", "attention(heads=2.5)"),
    "HYB112": Code("out of range", "A number is outside of the range that makes sense here.", "attention(heads=0)"),
    "HYB113": Code("not a choice", "A word is not one of those that fit here.", "mlp(128, act=sillu)"),
    "HYB114": Code("too many arguments", "A call gives more positional arguments than there are.", "scale(1, 2)"),
    "HYB115": Code(
        "argument given twice",
        "One argument is given twice, by position and name or by name twice.",
        "scale(1, factor=2)",
    ),
    "HYB116": Code(
        "not a layer",
        "An expression stands where a layer or a value is wanted: an op, a named value, a let of one, or several "
        "joined by "
        "`>>`, `|`, `+` and `*`.",
        "x += 3",
    ),
    "HYB117": Code(
        "not a constant",
        "An attribute, a count or a condition must be known at compile time: numbers, words, params, lets of those, "
        "`layer`, "
        "and arithmetic on them.",
        "let a = rmsnorm()\nlayers = H * a",
    ),
    "HYB118": Code(
        "piped value is lost",
        "A named value stands behind `>>`. It takes no input, so what is piped into it would be thrown away.",
        "x += norm >> t",
    ),
    "HYB119": Code(
        "statement has no meaning",
        "A block is empty, or adds to something else than the residual stream.",
        "t += norm >> linear(64)",
    ),
    "HYB120": Code(
        "spec too large",
        "The spec unfolds into more layers (100,000), more ops in one block (10,000) or more steps of evaluation than "
        "any "
        "model has. Usually a repetition inside a repetition.",
        "layers = (M * 100000) * 100000",
    ),
    "HYB121": Code("arithmetic", "A division by zero, or a result that no dim or attribute can hold.", "let a = 1 / 0"),
    "HYB122": Code(
        "missing part of the model",
        "A spec file has one `model`, and a model has `embed`, `layers` and `head`. A file of lets and blocks alone is "
        "a "
        "library, which other files import.",
        "model m { }",
    ),
    "HYB124": Code(
        "let in a circle",
        "A let is defined by itself, directly or through other lets, so it stands for nothing.",
        "let a = b\nlet b = a",
    ),
    "HYB130": Code("empty pattern", "A layer pattern stands for no layer at all.", "layers = M * 0"),
    "HYB131": Code(
        "pattern letter",
        "A letter of a pattern string has no block, or a block's letter does not occur. Blanks are skipped and `|` "
        "cuts "
        "pipeline stages.",
        'layers = pattern("MXM", M=Mamba)',
    ),
    "HYB132": Code("empty pipeline stage", "A `|` in a layer pattern has no layer on one side.", "layers = | M M"),
    "HYB133": Code("negative repetition", "A pattern is repeated a negative number of times.", "layers = M * (2 - 3)"),
    "HYB134": Code(
        "not a layer pattern",
        "A layer pattern is made of block names, calls of blocks, `*`, parentheses, lists, `pattern(...)` and `|`. An "
        "op "
        "belongs in a block.",
        "layers = attention(heads=4) * 3",
    ),
    "HYB135": Code(
        "shared block differs",
        "All occurrences that share one set of weights must compute the same: their parameters are the same tensors.",
        "shared block A(w=1) { ... }\nlayers = A(w=1) A(w=2)",
    ),
    "HYB136": Code(
        "nothing to own",
        "`own(...)` gives each layer weights of its own inside a shared block. In other blocks all weights are the "
        "layer's own.",
        "block A { x += rmsnorm() >> own(linear(64)) }",
    ),
    # --- ops, shapes and mesh --------------------------------------------------------------------------------------
    "HYB201": Code(
        "heads do not divide the width",
        "Without `head_dim`, a head is as wide as the model's width over the number of heads, which must come out "
        "even.",
        "attention(heads=7)   # on a width of 64",
    ),
    "HYB202": Code(
        "key-value heads do not divide heads",
        "In grouped-query attention each key-value head serves the same number of query heads, so `heads` is a "
        "multiple of "
        "`kv_heads`.",
        "attention(heads=8, kv_heads=3)",
    ),
    "HYB203": Code(
        "rope on an odd number of channels",
        "Rotary positions turn pairs of channels: `head_dim` times `partial` must be an even number, 2 or more, and at "
        "most "
        "`head_dim`.",
        "attention(heads=4, head_dim=15, rope=rope())",
    ),
    "HYB204": Code(
        "groups do not divide heads",
        "Mamba-2's groups share B and C among an equal number of heads each.",
        "mamba2(heads=6, groups=4)",
    ),
    "HYB205": Code(
        "widths do not meet",
        "Two values are added or multiplied whose last dims differ. A residual sublayer must give back the width that "
        "it "
        "was given.",
        "x += norm >> linear(32)   # on a width of 64",
    ),
    "HYB206": Code(
        "groups do not divide channels",
        "A grouped norm cuts its channels into equal groups, and so do gates in blocks.",
        "gated_rmsnorm(gate=z, groups=3)",
    ),
    "HYB207": Code(
        "mixture does not work out",
        "`top_k` of a mixture is at most its number of experts, or of those in its `top_groups` groups; `groups` "
        "divide the experts.",
        "moe(experts=4, hidden=64, top_k=5)",
    ),
    "HYB208": Code(
        "token ids and activations",
        "Only an embedding reads token ids, and it reads nothing else.",
        "embed = rmsnorm()",
    ),
    "HYB209": Code("head without lm_head", "The head ends in `lm_head`, which stands nowhere else.", "head = norm"),
    "HYB210": Code(
        "tied weights differ in shape",
        "A tied head uses the embedding's tensor, so both have one vocabulary and width.",
        "",
    ),
    "HYB211": Code("vocabularies differ", "The head has another number of logits than the embedding has rows.", ""),
    "HYB212": Code(
        "not emitted",
        "The checker knows this part of the language, and this version emits no code for it.",
        "mtp = A * 1",
    ),
    "HYB213": Code(
        "op belongs in a layer",
        "Attention, state spaces and mixtures need what only layers have: documents, a cache, router statistics. They "
        "stand in blocks, not in `embed` or `head`.",
        "head = attention(heads=4) >> lm_head(256)",
    ),
    "HYB221": Code(
        "attributes exclude each other",
        "An attribute of an op speaks of a part that its other attributes leave out: `beta` belongs to silu, `limit` "
        "to gated experts, `zero_centered` to a norm that has a weight.",
        "moe(experts=4, hidden=64, top_k=2, shared_gate=true)",
    ),
    "HYB214": Code(
        "attention heads do not divide over tp",
        "Tensor parallelism gives each rank the same number of query heads. Key-value heads may be fewer than ranks: "
        "they "
        "are replicated, if tp is a multiple of them.",
        "attention(heads=9, kv_heads=3)   # with tp = 2",
    ),
    "HYB215": Code(
        "a mesh axis does not divide",
        "Each rank of an axis gets an equal part of what the axis cuts: heads, groups, channels, experts.",
        "",
    ),
    "HYB216": Code(
        "a mesh axis cuts nothing",
        "The mesh has an axis larger than 1 and the model nothing that it could cut.",
        "mesh { ep = 4 }   # without experts",
    ),
    "HYB217": Code(
        "stages and pp",
        "The stages that `|` cuts are a multiple of those of the schedule: pp, or pp times the chunks of a rank. There "
        "are no more stages than layers.",
        "",
    ),
    "HYB218": Code("unknown mesh axis", "The axes are pp, dp, cp, tp and ep.", "mesh { sp = 2 }"),
    "HYB219": Code(
        "mesh axis has no such size",
        "An axis has a size of 1 or more, or one of its forms: pp = interleaved(n, chunks=c), zero_bubble(n, chunks=c) "
        "or zbv(n), dp = fsdp(n) or replicate(n), cp = dynamic(a..b), ep = hybrid(node=n, local=m), flat(n) or "
        "gather(n).",
        "",
    ),
    "HYB220": Code(
        "mesh axis is not emitted",
        "The axis has been checked against the model, and this version emits modules for pp, dp and tp alone.",
        "mesh { cp = 2 }",
    ),
    # --- selectors and precision -----------------------------------------------------------------------------------
    "HYB301": Code(
        "selector matches nothing",
        "A selector is a path over the module tree (`layers[1:-1].attn`, `**.router`, `H.mlp`), or a bare word that "
        "matches "
        "that submodule name or op kind anywhere. One that matches nothing is nearly always misspelt.",
        "bf16 on layers[0].atn",
    ),
    "HYB302": Code(
        "layer index out of range",
        "A selector's index lies outside of the layers, or its slice is empty.",
        "bf16 on layers[40:50]",
    ),
    "HYB303": Code(
        "only layers are indexed", "An index stands behind something else than `layers`.", "bf16 on head[0]"
    ),
    "HYB304": Code(
        "unknown format",
        "Formats are fp32, bf16, fp16, fp8(RECIPE, fwd=e4m3, bwd=e5m2), bitnet and bitnet(packed); a default is one of "
        "the first three. docs/precision.md has the recipes.",
        "fp8(blok128) on mlp",
    ),
    "HYB305": Code(
        "precision is not emitted",
        "Rules with plain dtypes are checked; outside of fp8 and bitnet, emitted modules compute in the default dtype.",
        "",
    ),
    "HYB307": Code(
        "shared weights in two formats",
        "Occurrences of a shared block have one set of weights, which is kept in one number format.",
    ),
    "HYB308": Code(
        "rule quantizes nothing",
        "Formats of few bits are for products with weights: linear maps and experts. Norms, routers, convolutions, "
        "embeddings, A_log, dt and D stay as they are, and so does what a later rule gives another format.",
        "fp8(block128) on norm",
    ),
    "HYB309": Code(
        "no packed form",
        "bitnet(packed) keeps the weights of linear maps at 2 bits. Experts are one tensor of all their weights, and a "
        "tied head has the embedding's weight: these stay in the module's dtype.",
        "bitnet(packed) on moe",
    ),
    "HYB310": Code(
        "blocks of FP8 lie across ranks",
        "fp8(block128) and fp8(mx) have a scale for each 128 or 32 numbers of what tensor parallelism cuts. A rank has "
        "whole blocks of one rank's, so that scales, and results, do not depend on tp.",
        "fp8(block128) on experts   # hidden=1536 with tp = 8: 192 a rank",
    ),
    "HYB312": Code(
        "mixer is whole on each rank",
        "Blocks of fp8(block128) or fp8(mx) in a fused projection would lie across tensor-parallel ranks, such as rows "
        "for each head. So that results do not depend on tp, each rank computes the op whole.",
        "fp8(block128) on mamba2   # with tp = 2",
    ),
    "HYB311": Code(
        "format is not there over ranks",
        "Tensor parallelism cuts this projection in a way in which its format cannot be computed as on one rank: a sum "
        "of quantized parts is not the quantized sum, and bytes of bitnet(packed) hold rows that different ranks have.",
        "bitnet(packed) on mlp   # with tp = 2",
    ),
    "HYB306": Code(
        "selector matches nothing in this model",
        "The selector names a part that ops of the language have and this model does not use, such as the router of a "
        "mixture. It is spelt right and does nothing here.",
        "fp32 on router   # in a model without moe",
    ),
}
