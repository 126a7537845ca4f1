"""Records what Triton would launch: host code runs as it is, kernels do not, and no device is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.nn.modules import module as hooks

WORDS = {
    torch.bool: "u1",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.float8_e5m2: "fp8e5",
}
"""Triton's words for what a pointer points at."""

ALIGNED = 16
"""What Triton knows of a number or an address is whether it is a multiple of this."""


@dataclass(frozen=True)
class Launch:
    """A kernel in the form in which it is launched; a `Form` that codegen.cubin compiles.

    `signature` has the types of arguments that are no constants, in Triton's words, with `:16` behind multiples of 16.
    `constants` are the `tl.constexpr` ones, and those that Triton makes constants: None, and whole numbers that are 1.
    `options` are what the launch says to the compiler, such as `num_warps`.
    """

    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> tuple[object, ...]:
        """The same for launches that compile to the same binary."""
        tables = (self.signature, self.constants, self.options)
        name = (self.kernel.fn.__module__, self.kernel.fn.__qualname__)
        return (*name, *(tuple((k, repr(v)) for k, v in sorted(t.items())) for t in tables))


@dataclass(frozen=True, order=True)
class Place:
    """Where a launch comes from: the path of a module, its layer's class for the layer (`Mamba.mixer.conv`), and in
    which run of it (`forward`, `backward`, `prompt`, `step`)."""

    where: str
    run: str


def bind(kernel: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Launch:
    """The form that a call of a `triton.jit` function with these arguments has, by Triton's rules.

    Raises TypeError for arguments that the kernel does not take, and for types that no signature has a word for.
    """
    names = set(kernel.arg_names)
    own = {k: v for k, v in given.items() if k in names}
    options = {k: v for k, v in given.items() if k not in names}
    bound = kernel.signature.bind(*args, **own)
    bound.apply_defaults()
    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for param in kernel.params:
        value = bound.arguments[param.name]
        word = None if param.is_constexpr else _word(param, value)
        if word is None:
            constants[param.name] = value
        else:
            signature[param.name] = word
    return Launch(kernel, signature, constants, options)


def _word(param: Any, value: Any) -> str | None:
    """An argument's type, or None where Triton makes it a constant."""
    annotated = param.annotation_type
    if value is None or _is_constant(value):
        return None
    if isinstance(value, bool):
        return annotated or "u1"
    if isinstance(value, float):
        return annotated or "fp32"
    if isinstance(value, int):
        # numbers of an annotated float or bool are never looked at
        looked = not param.do_not_specialize and not annotated.startswith(("fp", "bf", "u1"))
        if looked and value == 1 and not annotated:
            return None
        wide = "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
        return (annotated or wide) + _multiple(value, param, looked)
    if hasattr(value, "data_ptr"):
        if value.dtype not in WORDS:
            raise TypeError(f"`{param.name}` is of {value.dtype}, for which Triton has no type")
        star = "*k" if param.is_const else "*"
        return (annotated or star + WORDS[value.dtype]) + _multiple(
            value.data_ptr(), param, not param.do_not_specialize
        )
    raise TypeError(f"`{param.name}` is a {type(value).__name__}, which no kernel here takes")


def _is_constant(value: Any) -> bool:
    """Whether a value is one that exists when a kernel is compiled only: a function, a `tl.constexpr`."""
    from triton.language import constexpr
    from triton.runtime.jit import JITCallable

    return isinstance(value, (constexpr, JITCallable))


def _multiple(value: int, param: Any, looked: bool) -> str:
    return f":{ALIGNED}" if looked and value % ALIGNED == 0 and not param.do_not_specialize_on_alignment else ""


class Recorder:
    """Launches in order of their first occurrence, each with the places that it comes from."""

    def __init__(self, model: nn.Module | None = None) -> None:
        self.run = "forward"
        """The name of what runs at the moment."""
        self.found: dict[tuple[object, ...], tuple[Launch, dict[Place, None]]] = {}
        self._names = {} if model is None else _names(model)
        self._stack: list[str] = []
        self._backward = ""

    @property
    def launches(self) -> list[tuple[Launch, tuple[Place, ...]]]:
        """Each form once, and where it is launched."""
        return [(launch, tuple(sorted(places))) for launch, places in self.found.values()]

    @property
    def where(self) -> str:
        """The module whose forward runs."""
        return self._stack[-1] if self._stack else "model"

    def add(self, launch: Launch) -> None:
        where = self._backward or self.where
        place = Place(where, "backward" if self._backward else self.run)
        self.found.setdefault(launch.key, (launch, {}))[1][place] = None

    def enter(self, module: nn.Module, args: Any) -> None:
        """A forward hook: what is launched from now on belongs to this module."""
        self._stack.append(self._names.get(id(module), self.where))

    def leave(self, module: nn.Module, args: Any, out: Any) -> None:
        self._stack.pop()

    def inside(self, module: nn.Module, method: Callable[..., Any]) -> Callable[..., Any]:
        """A method that counts as the module's, though it is not its forward."""

        def run(*args: Any, **given: Any) -> Any:
            self.enter(module, args)
            try:
                return method(*args, **given)
            finally:
                self.leave(module, args, None)

        return run

    def applied(self, result: Any) -> None:
        """Notes for the backward of an autograd function that it belongs to the module that is running."""
        parts = result if isinstance(result, tuple) else (result,)
        node = next((p.grad_fn for p in parts if isinstance(p, Tensor) and p.grad_fn is not None), None)
        if node is not None:
            where = self.where
            node.register_prehook(lambda grads: self._turn(where))
            node.register_hook(lambda inputs, outputs: self._turn(""))

    def _turn(self, where: str) -> None:
        self._backward = where


def _names(model: nn.Module) -> dict[int, str]:
    """Paths of modules. Layers have their class's name, since all of a class launch the same kernels."""
    out: dict[int, str] = {}
    for path, module in model.named_modules():
        head, _, rest = path.partition(".")
        if head == "layers" and rest:
            number, _, rest = rest.partition(".")
            head = type(model.get_submodule(f"layers.{number}")).__name__
        out[id(module)] = f"{head}.{rest}" if rest else head or "model"
    return out


@contextmanager
def recorded(model: nn.Module | None = None) -> Iterator[Recorder]:
    """Within this, kernels are recorded instead of launched, and what they would write stays as it is.

    Of an autotuned kernel it is the first configuration. Raises RuntimeError in a process where Triton interprets.
    """
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    if triton.knobs.runtime.interpret:
        raise RuntimeError("Triton interprets kernels in this process, and so has nothing to record")
    recorder = Recorder(model)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **given: Any) -> None:
        recorder.add(bind(self, args, given))

    def first(self: Any, *args: Any, **given: Any) -> Any:
        return self.fn.run(*args, **{**given, **self.configs[0].all_kwargs()})

    whole: Callable[..., Any] = Function.__dict__["apply"].__func__

    def apply(cls: Any, *args: Any, **given: Any) -> Any:
        result = whole(cls, *args, **given)
        recorder.applied(result)
        return result

    with ExitStack() as stack:
        for owner, name, new in (
            (JITFunction, "run", run),
            (Autotuner, "run", first),
            (Function, "apply", classmethod(apply)),
        ):
            stack.callback(setattr, owner, name, owner.__dict__[name])
            setattr(owner, name, new)
        for handle in (
            hooks.register_module_forward_pre_hook(recorder.enter),
            hooks.register_module_forward_hook(recorder.leave, always_call=True),
        ):
            stack.callback(handle.remove)
        yield recorder
