"""Which names a spec may define: those that become Python names in emitted code must not collide with what is there."""

from __future__ import annotations

import builtins
import keyword
import re

from hybridc.diagnostics import Sink, Span

MODULE_NAMES = frozenset(
    """
    torch nn F ops gpu kernels partial te mamba_ssm causal_conv1d fla flash_attn Context LanguageModel Model Embed Head
    ROPE a_log a_log_range constant dt_bias softplus_decay normal ternary uniform ones zeros
    """.split()  # noqa: SIM905
)
"""What stands at the top of every emitted model.py."""

ATTRIBUTES = frozenset(
    """
    T_destination add_module apply bfloat16 buffers call_super_init children compile cpu cuda double dump_patches
    eval extra_repr float forward get_buffer get_extra_state get_parameter get_submodule half ipu load_state_dict
    modules mtia named_buffers named_children named_modules named_parameters new_state parameters register_buffer
    register_backward_hook register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook register_load_state_dict_pre_hook
    register_module register_parameter register_state_dict_post_hook register_state_dict_pre_hook requires_grad_
    set_extra_state set_submodule share_memory state_dict to to_empty train training type xpu zero_grad INIT FP32
    tie_weights init_weights new_cache loss
    """.split()  # noqa: SIM905
)
"""Attributes of torch.nn.Module and of emitted classes, which a submodule must not hide."""

LOCALS = frozenset(
    """
    self x x0 ids layer ctx state cache i labels input_ids device dtype batch max_len targets
    """.split()  # noqa: SIM905
)
"""Names with a meaning of their own inside a block."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_name(name: str, span: Span, what: str, sink: Sink) -> None:
    """Reports a name that cannot be a `what`: "model", "block", "submodule", "value", "param", "let"."""
    reason = ""
    if not _IDENTIFIER.match(name):
        reason = "is not made of ASCII letters, digits and underscores"
    elif len(name) > 100:
        reason = "is longer than 100 characters"
    elif name.startswith("_"):
        reason = "starts with an underscore"
    elif keyword.iskeyword(name) or (keyword.issoftkeyword(name) and what in ("model", "block")):
        reason = "is a Python keyword"
    elif what == "block" and (name in MODULE_NAMES | LOCALS or name.startswith("ROPE_") or hasattr(builtins, name)):
        reason = "means something else in emitted code"
    elif what == "submodule" and name in ATTRIBUTES:
        reason = "is an attribute that every torch module has"
    elif what == "value" and (name in MODULE_NAMES or hasattr(builtins, name)):
        reason = "means something else in emitted code"
    elif what in ("value", "param", "let") and name in LOCALS:
        reason = "has a meaning of its own inside blocks"
    if reason:
        shown = name if len(name) <= 40 else name[:37] + "..."
        sink.report("HYB108", span, f"the {what} name `{shown}` {reason}", "choose another name")
