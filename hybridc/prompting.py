"""What `hybridc generate` does between its words and the runtime: a net with weights, a prompt as ids, ids as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hybridc.console import note, wrong
from hybridc.tokens import ByteTokens, Tokens, end_ids, settings, tokens_for

MAX_NEW_TOKENS = 1 << 20
"""Keys and values are reserved for all tokens at the start; more than this is a slip of the keyboard."""


def load_net(source: Path, weights: Path | None, params: dict[str, str], include: Sequence[Path]) -> Any:
    """The net of a spec file, of an emitted package, of a public checkpoint's folder or of a GGUF file, in eval mode.

    `weights` is a safetensors file with the net's own names; without it a package's net has the weights beside it
    in model.safetensors, else it and a spec's net have random initial ones. Raises DiagnosticError; ends the command
    where `source` is none of the four.
    """
    import hybridc
    from hybridc.codegen.loader import load_source
    from hybridc.codegen.package import is_package
    from hybridc.codegen.transformers_code import MODEL_TYPE
    from hybridc.frontend.gguf.file import is_gguf

    # what save_pretrained of an emitted model writes has its code, but no manifest
    saved = (source / "model.py").is_file() and str(settings(source / "config.json").get("model_type", "")).startswith(
        MODEL_TYPE
    )
    if source.is_dir() and (saved or is_package(source)):
        if params:
            wrong("--set belongs to specs: compile the package again with it")
        try:
            own = source / "kernels.py"
            kernels = own.read_text(encoding="utf-8") if own.is_file() else ""
            if (source / "parallel.py").is_file():  # of one rank of a mesh: here there is but one
                net = hybridc.compile(source / "spec.hyb", serial=True).load(init=False)
            else:
                net = load_source(source.name, (source / "model.py").read_text(encoding="utf-8"), kernels).Model()
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            wrong(f"{source / 'model.py'} is missing or broken ({error}): compile the package again")
        net.init_weights(0)
        own = source / "model.safetensors"
        weights = own if weights is None and own.is_file() else weights
    elif source.is_dir() and (source / "config.json").is_file():
        if params or weights:
            wrong("a checkpoint's folder brings its own sizes and weights: leave out --set and --weights")
        net = hybridc.from_hf(source)
    elif is_gguf(source):
        if params or weights:
            wrong("a GGUF file brings its own sizes and weights: leave out --set and --weights")
        net = hybridc.from_gguf(source)
    elif source.is_dir():
        inside = sorted(source.glob("*.gguf"))
        hint = f": name the file in it, {inside[0]}" if inside else ""
        wrong(f"{source} is neither an emitted package nor a checkpoint with a config.json{hint}")
    else:
        net = hybridc.compile(source, params=params, include=include, serial=True).load()
    if weights is not None:
        load_weights(net, weights)
    elif not source.is_dir() and not is_gguf(source):
        note("a spec has no weights, and these are initial ones: --weights FILE brings others")
    return net.eval()


def load_weights(net: Any, path: Path) -> None:
    """Fills a net from a safetensors file with the net's names, or with those that it has as a transformers model.

    Ends the command where names or shapes differ, naming them.
    """
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_model
    from torch import nn

    from hybridc.codegen.transformers_code import WEIGHTS_PREFIX

    try:
        with safe_open(str(path), framework="pt") as file:
            below = all(name.startswith(WEIGHTS_PREFIX) for name in file.keys())  # noqa: SIM118 (no mapping)
        whole = nn.ModuleDict({WEIGHTS_PREFIX[:-1]: net}) if below else net
        missing, extra = load_model(whole, path, strict=False)
    except OSError as error:
        wrong(f"cannot read {path}: {error.strerror or error}")
    except SafetensorError as error:
        wrong(f"cannot read {path}: it is not a safetensors file ({error})")
    except RuntimeError as error:  # torch lists the tensors whose shapes differ
        wrong(f"{path} does not fit the model: {' '.join(str(error).split())}")
    differ = [f"`{n}` is missing" for n in sorted(missing)] + [f"`{n}` is not in the model" for n in sorted(extra)]
    if differ:
        more = f" and {len(differ) - 8} more" if len(differ) > 8 else ""
        wrong(f"{path} does not fit the model: {', '.join(differ[:8])}{more}")


def vocabulary(net: Any) -> int:
    """How many ids a net knows."""
    from torch import nn

    return next((int(m.num_embeddings) for m in net.modules() if isinstance(m, nn.Embedding)), 0)


def ids_of(text: str, vocab: int) -> list[int]:
    """`1,2,3` as ids of a vocabulary. Ends the command where one is none."""
    out = []
    for word in text.replace(",", " ").split():
        if not word.isascii() or not word.isdigit():
            wrong(f"--ids takes numbers, got `{word}`")
        if len(word) > 12 or int(word) >= vocab:
            wrong(f"--ids has {word[:12]}, and the vocabulary ends at {vocab - 1}")
        out.append(int(word))
    return out


def stop_id(text: str, tokens: Tokens) -> int:
    """The id that ends a sample, from its number or from a text that is one id."""
    if text.isascii() and text.isdigit():
        if len(text) > 12:
            wrong(f"--stop has {text[:12]}..., which is no id")
        return int(text)
    found = tokens.pieces(text)
    if len(found) != 1:
        wrong(f"--stop takes an id, or a text that is one id; `{text}` is {len(found)}")
    return found[0]


def complete(
    source: Path,
    *,
    prompt: str | None,
    ids: str | None,
    weights: Path | None,
    params: dict[str, str],
    include: Sequence[Path],
    stop: Sequence[str],
    ignore_eos: bool,
    max_new_tokens: int,
    temperature: float,
    top_k: int,
    top_p: float,
    seed: int,
) -> str:
    """The prompt and what a model makes of it, as text or, for `ids`, as a line of ids.

    A sample ends at the ids that the model's own files call its end, unless `ignore_eos`, and at those of `stop`.
    """
    import torch

    from hybridc.runtime.generate import generate

    net = load_net(source, weights, params, include)
    vocab = vocabulary(net)
    tokens = tokens_for(source, vocab) if ids is None or any(not s.isdigit() for s in stop) else None
    start = ids_of(ids, vocab) if ids is not None else tokens.encode(prompt or "") if tokens is not None else []
    if not start:
        wrong("the prompt is empty: a model needs at least one token to go on from")
    if max_new_tokens > MAX_NEW_TOKENS:
        wrong(f"--max-new-tokens is {max_new_tokens}: use {MAX_NEW_TOKENS} or less")
    over = [i for i in start if i >= vocab]
    if over:
        wrong(f"the tokenizer makes the id {over[0]}, and the model's vocabulary ends at {vocab - 1}")
    own = [] if ignore_eos else end_ids(source)
    with torch.inference_mode():
        made = generate(
            net,
            torch.tensor([start]),
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            stop_ids=(*own, *(stop_id(s, tokens or ByteTokens()) for s in stop)),
        )[0]
    if ids is not None or tokens is None:
        return ",".join(map(str, made)) + "\n"
    return f"{prompt}{continuation(tokens, start, made)}\n"


def continuation(tokens: Tokens, start: list[int], made: list[int]) -> str:
    """The text of new ids behind others: some vocabularies write a space in front of a word only within a text."""
    before, whole = tokens.decode(start), tokens.decode([*start, *made])
    return whole[len(before) :] if whole.startswith(before) else tokens.decode(made)
