"""A public config.json, read so that no field is overlooked: each is used, known to change nothing, or an error by
name."""

from __future__ import annotations

import json
import math
import stat
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hybridc.diagnostics import NO_SPAN, Diagnostic, DiagnosticError, Sink, did_you_mean

MAX_BYTES = 1 << 20

MAX_COUNT = (1 << 31) - 1
"""Larger than any size of a model: sizes beyond it are mistakes."""

MAX_NUMBER_OF = 10_000
"""The largest `num_...` that is read: layers, heads and experts are listed one by one."""

_MAX_FLOAT = sys.float_info.max

_SPECIAL = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}

IGNORED = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path add_cross_attention architectures
    attn_implementation auto_map bad_words_ids begin_suppress_tokens bos_token_id cache_implementation
    chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id hidden_dropout id2label
    initializer_range is_decoder is_encoder_decoder keys_to_ignore_at_inference label2id length_penalty max_length
    max_position_embeddings min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_logits_to_keep
    num_return_sequences output_attentions output_hidden_states output_scores pad_token_id prefix pretraining_tp
    problem_type pruned_heads remove_invalid_values repetition_penalty return_dict return_dict_in_generate
    sep_token_id suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
    top_k top_p torch_dtype torchscript transformers_version typical_p unsloth_fixed unsloth_version use_bfloat16
    transformers.js_config use_cache use_mamba_kernels
    """.split()  # noqa: SIM905
)
"""Fields that change no number of a forward without dropout.

`pad_token_id` is among them: transformers gives that row of the embedding no gradient, here it has the one it earns.
"""


def read_config(folder: Path) -> dict[str, Any]:
    """The config.json of a checkpoint folder. Raises DiagnosticError (HYB500) for what is none."""
    path = folder / "config.json" if folder.is_dir() else folder
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a device has no size, and a pipe may never end
            raise _bad(f"`{path}` is no plain file", "name a folder with a config.json in it")
        if status.st_size > MAX_BYTES:
            raise _bad(f"`{path.name}` is larger than {MAX_BYTES} bytes", "name a checkpoint folder")
        value = json.loads(path.read_text(encoding="utf-8"), object_hook=special)
    except OSError as error:
        cause = error.strerror or str(error)
        raise _bad(f"`{path}` cannot be read: {cause}", "name a folder with a config.json in it") from error
    except (ValueError, RecursionError) as error:
        raise _bad(f"`{path.name}` is not JSON", "name a folder with a config.json of a checkpoint") from error
    if not isinstance(value, dict):
        raise _bad(f"`{path.name}` does not hold an object", "name a folder with a config.json of a checkpoint")
    return value


def special(value: dict[str, Any]) -> Any:
    """transformers writes numbers that JSON lacks as {"__float__": "Infinity"}."""
    if set(value) == {"__float__"}:
        return _SPECIAL.get(str(value["__float__"]), value)
    return value


def plain(source: Mapping[str, Any]) -> dict[str, Any]:
    """A config given as a dict, as it would be read from a file.

    Raises DiagnosticError (HYB500) for what no config.json can hold.
    """
    try:
        return dict(json.loads(json.dumps(source), object_hook=special))
    except (TypeError, ValueError, RecursionError) as error:
        raise _bad(f"the config is not JSON: {error}", "give the object that a config.json holds") from error


def _bad(label: str, help: str) -> DiagnosticError:
    return DiagnosticError([Diagnostic("HYB500", NO_SPAN, label, help)])


def _short(value: object) -> str:
    """A value for a message: a config may hold numbers of thousands of digits and lists of any length."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MAX_FLOAT:
        return "a number that is far too large"
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


class Config:
    """A config's fields, taken one by one; `done` reports those that nobody took and what was taken and did not fit."""

    def __init__(self, values: Mapping[str, Any], family: str, *, within: str = "") -> None:
        """`within` names the field whose value this is, for messages; "" for the config itself."""
        self.values, self.family, self.within = dict(values), family, within
        self.taken: set[str] = set()
        self.sink = Sink()

    def take(
        self,
        name: str,
        default: Any,
        kind: type | tuple[type, ...],
        *,
        low: float | None = None,
        high: float = math.inf,
    ) -> Any:
        """A field's value, or the default where the config lacks it or has null; reported where it is of another kind
        or out of range."""
        self.taken.add(name)
        value = self.values.get(name)
        if value is None:
            return default
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if isinstance(value, bool) and bool not in kinds:
            fits = False
        else:
            fits = isinstance(value, kinds) or (float in kinds and isinstance(value, int))
        if not fits or (low is not None and not low <= value <= high):
            self.refuse(name, value, "fix the config: see the family's documentation")
            return default
        return value

    def refuse(self, name: str, value: object, help: str) -> None:
        """Reports a value that is not supported (HYB503)."""
        place = f"`{name}` of `{self.within}`" if self.within else f"`{name}`"
        self.sink.report("HYB503", NO_SPAN, f"{place} is {_short(value)}", help)

    def integer(self, name: str, default: int | None) -> Any:
        """A count of 1 or more."""
        return self.take(name, default, int, low=1, high=MAX_NUMBER_OF if name.startswith("num_") else MAX_COUNT)

    def optional(self, name: str, default: int | None) -> int | None:
        """A count of 1 or more; null means none, and is not the default."""
        if name in self.values and self.values[name] is None:
            self.taken.add(name)
            return None
        return self.integer(name, default)  # type: ignore[no-any-return]

    def optional_number(self, name: str, default: float | None) -> float | None:
        """A number above zero; null means none, and is not the default."""
        if name in self.values and self.values[name] is None:
            self.taken.add(name)
            return None
        return self.positive(name, default)

    def number(self, name: str, default: float) -> float:
        """A finite number."""
        return float(self.take(name, default, float, low=-_MAX_FLOAT, high=_MAX_FLOAT))

    def positive(self, name: str, default: float | None) -> float | None:
        """A finite number above zero, or the default, which may be None."""
        value = self.take(name, default, float, low=sys.float_info.min, high=_MAX_FLOAT)
        return None if value is None else float(value)

    def share(self, name: str, default: float) -> float:
        """A number from 0 to below 1, such as a dropout."""
        value = self.number(name, default)
        if not 0 <= value < 1:
            self.refuse(name, value, "use a share from 0 to below 1")
            return default
        return value

    def words(self, name: str, options: Mapping[str, str]) -> list[str] | None:
        """A list of words, each translated by `options`, or None for an absent or null one."""
        value = self.take(name, None, list)
        if value is None:
            return None
        for word in value:
            if not isinstance(word, str) or word not in options:
                self.refuse(name, word, did_you_mean(str(word), options))
                return None
        return [options[word] for word in value]

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.take(name, default, bool))

    def numbers(self, name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        """A list of as many numbers as the default has; they may be infinite."""
        value = self.take(name, list(default), list)
        fits = all(type(v) is float or (type(v) is int and abs(v) <= _MAX_FLOAT) for v in value)
        if not fits or len(value) != len(default):
            self.refuse(name, value, f"give {len(default)} numbers")
            return default
        return tuple(float(v) for v in value)

    def choice(self, name: str, default: str, options: Mapping[str, str]) -> str:
        """A word translated by `options`; one that is not among them is reported."""
        value = self.take(name, default, str)
        if value not in options:
            self.refuse(name, value, did_you_mean(value, options))
            return options[default]
        return options[value]

    def refuse_unless(self, name: str, default: Any, allowed: Iterable[Any], why: str) -> None:
        """A field that is honoured only with some values."""
        value = self.take(name, default, (int, float, bool, str, list, dict))
        if value not in list(allowed):
            self.refuse(name, value, f"this setting is not supported: {why}")

    def rename(self, names: Mapping[str, str]) -> None:
        """Fields that may be spelt in two ways: the first of each pair is read as the second."""
        for old, new in names.items():
            if old not in self.values:
                continue
            value = self.values.pop(old)
            if self.values.setdefault(new, value) != value:
                self.refuse(old, value, f"it is another name of `{new}`, which is {_short(self.values[new])}")

    def ignore(self, *names: str) -> None:
        """Fields that change no number of this family."""
        self.taken.update(names)

    def report_unknown(self) -> None:
        """Reports fields that nobody took and that could change a number (HYB502)."""
        whose = f"`{self.within}` of `{self.family}`" if self.within else f"`{self.family}`"
        for name, value in self.values.items():
            if name == "attention_dropout" and not value:
                continue  # in the config of many a family without attention
            if name == "quantization_config" and name not in self.taken and isinstance(value, dict):
                method = _short(value.get("quant_method", "a method without a name"))
                help = "give a checkpoint in fp32, bf16 or fp16, such as one that has been dequantized"
                self.sink.report("HYB503", NO_SPAN, f"the weights are quantized by {method}", help)
                continue
            if name not in self.taken and (self.within or name not in IGNORED):
                label = f"the field `{name}` is not known to {whose}"
                hint = did_you_mean(name, self.taken)
                help = f"{hint}; a field that changes no number can be removed from the config"
                self.sink.report("HYB502", NO_SPAN, label, help)

    def done(self) -> None:
        """Raises DiagnosticError for all that did not fit, fields that nobody knows included."""
        self.report_unknown()
        self.sink.check()


ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
"""Names of activations in public configs to ours."""
