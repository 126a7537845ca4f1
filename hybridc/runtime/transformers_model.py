"""An emitted net as a model of the library transformers: what the emitted `modeling_*.py` inherits.

This module alone imports transformers. Written for its version 5; where a version changed a name, both are taken.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NoReturn

import torch
from torch import Tensor, nn
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from hybridc.runtime.cache import Cache
from hybridc.runtime.context import PackedSeq
from hybridc.runtime.errors import UsageError
from hybridc.runtime.generation_cache import ROOM, GenerationCache
from hybridc.runtime.module import LanguageModel

CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
"""What the library's version calls the cache."""


class CausalLMConfig(PretrainedConfig):
    """The sizes of an emitted net. They say what it is, and do not make it: for others, compile the spec again.

    `init_seed` seeds the weights that a checkpoint does not have.
    """

    _auto_class: ClassVar[str] = "AutoConfig"  # so that the code is saved with a model, however it was made
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["cache", "past_key_values"]

    def __init__(
        self,
        vocab_size: int = 0,
        hidden_size: int = 0,
        num_hidden_layers: int = 0,
        use_cache: bool = True,
        init_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.hidden_size, self.num_hidden_layers = vocab_size, hidden_size, num_hidden_layers
        self.use_cache, self.init_seed = use_cache, init_seed
        super().__init__(**kwargs)


class CausalLM(PreTrainedModel, GenerationMixin):
    """A net `NET` as transformers, its Trainer and PEFT use it. The parameters are the net's, below `model.`."""

    NET: type[LanguageModel]
    config_class = CausalLMConfig
    _auto_class = "AutoModelForCausalLM"
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    accepts_loss_kwargs = True
    _supports_sdpa = True
    _is_stateful = True  # so that generate() refuses assistants: a scan's state cannot be taken back

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        self.model = self.NET().to(torch.get_default_dtype())
        # made in the default dtype, which from_pretrained sets to that of the file
        for module, name in self.model.fp32_parameters():
            parameter = module._parameters[name]
            module.register_parameter(name, nn.Parameter(parameter.float(), parameter.requires_grad))
        self.model.tie_weights()
        self._check(config)
        self._tied_weights_keys = _ties(self.model)
        self._keys_to_ignore_on_save = list(self._tied_weights_keys)
        self._keys_to_ignore_on_load_missing = [f"^{re.escape(name)}$" for name in self._tied_weights_keys]
        self._tied_alone = {a: b for a, b in self._tied_weights_keys.items() if not self._same_module(a, b)}
        for name in self._tied_alone:
            self._part(name)
        self.gradient_checkpointing = False
        self._adapters: tuple[str, ...] = ()
        self.post_init()

    def _check(self, config: PretrainedConfig) -> None:
        """Raises UsageError for a config that describes another net: its numbers would silently have no effect."""
        table = self.get_input_embeddings()
        tied = self.get_output_embeddings() is not None and self.get_output_embeddings().weight is table.weight
        have = {
            "vocab_size": table.num_embeddings,
            "hidden_size": table.embedding_dim,
            "num_hidden_layers": len(self.model.layers),
            "tie_word_embeddings": tied,
        }
        for name, value in have.items():
            if (given := getattr(config, name, None)) != value:
                raise UsageError(
                    f"{name} is {given} in the config and {value} in the emitted model",
                    "change the spec and compile it again",
                )

    def _same_module(self, one: str, other: str) -> bool:
        """Whether two names of a parameter lead to one module that occurs twice."""
        return self.get_submodule(one.rpartition(".")[0]) is self.get_submodule(other.rpartition(".")[0])

    def _part(self, name: str) -> None:
        """On the meta device, makes a tied parameter one of its own: the library fills the first and then ties them."""
        parameter = self.get_parameter(name)
        if parameter.is_meta:
            owner, _, leaf = name.rpartition(".")
            setattr(self.get_submodule(owner), leaf, nn.Parameter(torch.empty_like(parameter)))

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Names of tied parameters with those of their sources; modules that occur twice need no tying."""
        return dict(self._tied_alone)

    def _move_missing_keys_from_meta_to_device(self, missing_keys: set[str], *args: Any, **kwargs: Any) -> None:
        """As the library's, without second names of modules that occur twice: the first one's weights are theirs."""
        shared = self._tied_weights_keys.keys() - self._tied_alone.keys()
        super()._move_missing_keys_from_meta_to_device(set(missing_keys) - shared, *args, **kwargs)

    def initialize_weights(self) -> None:
        """Fills what no checkpoint has filled as the spec says."""
        self.model.init_weights(self.config.init_seed, wanted=lambda p: not getattr(p, "_is_hf_initialized", False))

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: `initialize_weights` knows all parameters by name."""

    def get_input_embeddings(self) -> nn.Embedding:
        """The embedding of token ids."""
        return next(m for m in self.model.embed.modules() if isinstance(m, nn.Embedding))

    def get_output_embeddings(self) -> nn.Linear | None:
        """The projection to the vocabulary."""
        found = [m for m in self.model.head.modules() if isinstance(m, nn.Linear)]
        return found[-1] if found else None

    def set_input_embeddings(self, value: nn.Module) -> NoReturn:
        """Raises UsageError: the spec says what the net is made of."""
        raise UsageError("the embedding of an emitted model cannot be replaced", "change the spec and compile it again")

    set_output_embeddings = set_input_embeddings

    def resize_token_embeddings(self, new_num_tokens: int | None = None, *_: Any, **__: Any) -> nn.Embedding:
        """The embedding; raises UsageError for another size, which the spec sets."""
        table = self.get_input_embeddings()
        if new_num_tokens not in (None, table.num_embeddings):
            raise UsageError(
                f"the model has {table.num_embeddings} token ids, not {new_num_tokens}",
                "change the vocabulary in the spec and compile it again",
            )
        return table

    def new_cache(self, batch: int, max_len: int = ROOM) -> GenerationCache:
        """An empty cache for `batch` rows, to be handed to `forward` or `generate()`; it grows beyond `max_len`."""
        return GenerationCache(self.model.new_cache(batch, max_len))

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """No: `forward` makes the cache."""
        return False

    def _prepare_position_ids_for_generation(self, *_: Any, **__: Any) -> None:
        """None: the net counts each row's places itself, behind padding on either side."""

    def _set_gradient_checkpointing(
        self,
        enable: bool = True,
        gradient_checkpointing_func: Callable[..., Any] | None = None,
        every_n_layers: int = 1,
    ) -> None:
        """Runs every nth layer again in the backward instead of keeping what it computed."""
        if enable and getattr(gradient_checkpointing_func, "keywords", {}).get("use_reentrant"):
            raise UsageError(
                "reentrant checkpoints lose the gradients of router losses",
                'set gradient_checkpointing_kwargs={"use_reentrant": False}',
            )
        self.gradient_checkpointing = enable
        for n, layer in enumerate(dict.fromkeys(self.model.layers)):
            layer.__dict__.pop("forward", None)
            if enable and n % every_n_layers == 0:
                layer.forward = functools.partial(_checkpointed, layer, gradient_checkpointing_func)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: GenerationCache | Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        past_key_values: GenerationCache | Cache | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits [B, S or those to keep, vocab] for input_ids [B, S], with a loss for labels and with the cache.

        Padding is where attention_mask [B, S or past + S] is 0, on either side. position_ids that start again, without
        a mask, are documents packed in a row. The loss is the mean over labels plus the spec's router losses; with
        `num_items_in_batch` it is scaled by this call's share of so many labels.
        """
        kwargs.pop("cache_position", None)
        asked = {n: getattr(self.config, n, None) for n in ("output_attentions", "output_hidden_states")}
        asked |= {"inputs_embeds": inputs_embeds, **kwargs}
        if wrong := [name for name, value in asked.items() if value is not None and value is not False]:
            raise UsageError(f"{', '.join(wrong)}: an emitted model does not take this", "leave it out")
        if input_ids is None:
            raise UsageError("there are no input_ids", "give token ids [batch, tokens]")
        seq = None
        held = cache if cache is not None else past_key_values
        if position_ids is not None and attention_mask is None and held is None:
            seq = _documents(position_ids, input_ids)
        if held is None and use_cache is None:
            use_cache = self.config.use_cache and not self.training and labels is None and seq is None
        if held is None and use_cache:
            held = self.new_cache(input_ids.shape[0], input_ids.shape[1] + ROOM)
        held = GenerationCache(held) if isinstance(held, Cache) else held
        if held is not None:
            if not isinstance(held, GenerationCache):
                raise UsageError(f"the cache is a {type(held).__name__}", "make it with model.new_cache(batch)")
            held.make_room(input_ids.shape[1])
        plain = seq is None and (attention_mask is None or bool(attention_mask[:, -input_ids.shape[1] :].all()))
        early = plain and labels is None and isinstance(logits_to_keep, int) and logits_to_keep > 0
        with self._adapters_run(), _last_rows(self.model.head, logits_to_keep if early else 0):
            out = self.model(
                input_ids,
                labels,
                attention_mask=attention_mask,
                seq=seq,
                positions=position_ids,
                cache=None if held is None else held.cache,
            )
        if held is not None:
            held.seen += input_ids.shape[1]
        logits, loss = out.logits, out.loss
        if not plain and labels is None and attention_mask is not None:
            logits = _carried(logits, attention_mask[:, -input_ids.shape[1] :])
        if not early and not (isinstance(logits_to_keep, int) and logits_to_keep == 0):
            logits = logits[:, -logits_to_keep:] if isinstance(logits_to_keep, int) else logits[:, logits_to_keep]
        if loss is not None and num_items_in_batch is not None:
            loss = loss * out.targets / num_items_in_batch
        result = CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: held})
        return (
            result.to_tuple() if (self.config.return_dict if return_dict is None else return_dict) is False else result
        )

    @contextmanager
    def _adapters_run(self) -> Iterator[None]:
        """At the first training step with new adapters, raises UsageError for those that took no part: a few weights
        are read by a formula instead of by calling their module, and an adapter around it would never learn."""
        names = tuple(getattr(self, "peft_config", None) or ())
        if not self.training or names == self._adapters:
            yield
            return
        ran: set[nn.Module] = set()
        around = {name: m for name, m in self.model.named_modules() if hasattr(m, "base_layer")}
        hooks = [m.register_forward_hook(lambda m, *_: ran.add(m)) for m in around.values()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        idle = sorted({name.rpartition(".")[2] for name, m in around.items() if m not in ran})
        if idle:
            raise UsageError(
                f"adapters on {', '.join(idle)} take no part: these weights are read without calling their modules",
                f"leave them out of target_modules, or give exclude_modules={idle}",
            )
        self._adapters = names


def _ties(net: LanguageModel) -> dict[str, str]:
    """Second and later names of parameters, below `model.`, with their first ones."""
    first: dict[int, str] = {}
    ties = {}
    for name, parameter in net.named_parameters(prefix="model", remove_duplicate=False):
        source = first.setdefault(id(parameter), name)
        if source != name:
            ties[name] = source
    return ties


def _checkpointed(layer: nn.Module, checkpoint: Callable[..., Any], *args: Any) -> Any:
    """A layer's forward, under a checkpoint where a backward will come."""
    run = functools.partial(type(layer).forward, layer)
    return checkpoint(run, *args) if layer.training and torch.is_grad_enabled() else run(*args)


def _documents(position_ids: Tensor, input_ids: Tensor) -> PackedSeq | None:
    """The documents of rows in which positions start again, as collators without padding make them."""
    if position_ids.dim() != 2 or position_ids.shape[1] != input_ids.shape[1]:
        return None  # the net says what is wrong with it
    rows, length = input_ids.shape
    starts = torch.ones(rows, length, dtype=torch.bool, device=position_ids.device)
    starts[:, 1:] = position_ids[:, 1:] != position_ids[:, :-1] + 1
    if int(starts.sum()) == rows:
        return None
    return PackedSeq([*starts.reshape(-1).nonzero().squeeze(1).tolist(), rows * length])


@contextmanager
def _last_rows(head: nn.Module, keep: int) -> Iterator[None]:
    """Lets the head see only the last `keep` tokens of each row, or all for 0."""
    hooks = []
    if keep:
        hooks.append(head.register_forward_pre_hook(lambda _, args: (args[0][:, -keep:], *args[1:])))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _carried(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits [B, S, vocab], those of padding behind a row's last token made that token's: generate() reads the last
    column, whichever side the padding is on."""
    places = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask.bool(), places, 0).amax(1, keepdim=True)
    index = torch.minimum(places[None], last)
    return logits.gather(1, index[..., None].expand_as(logits))
