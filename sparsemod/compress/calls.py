"""Watch a network run, one torch function after another, whatever its module structure.

`CallSequence` intercepts every torch function that touches a value derived from the network's input (such a
tensor is *tagged*) and hands it to an interpreter. Calls on constants, parameters and shapes run as they are.
Operators in place are made functional: their target is forwarded to the result, so neither the network nor
its input changes, and gradients flow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from sparsemod.compress.attention import DECOMPOSED
from sparsemod.compress.values import forward_to, latest, map_tensors, tag, value_of
from sparsemod.errors import CandidateError, SparsemodError, user_code

__all__ = ["Call", "CallSequence", "eval_mode", "intercepted_pass"]


# Ask for a shape, a flag or a fresh constant: the answer does not depend on the values.
_QUESTIONS = """
    size dim ndim ndimension numel nelement stride shape dtype device layout itemsize nbytes is_contiguous
    is_floating_point is_complex element_size data_ptr get_device is_same_size storage_offset untyped_storage
    requires_grad requires_grad_ retain_grad register_hook grad grad_fn is_leaf output_nr names has_names
    is_cuda is_sparse is_quantized is_nested is_mkldnn is_mps is_meta is_xpu is_inference _version _is_view
    _base __len__ __format__ __repr__ __hash__ __dir__ result_type zeros_like ones_like empty_like full_like
    rand_like randn_like new_zeros new_ones new_full new_empty new_tensor zeros ones full empty arange eye
    rand randn randint randperm
"""
_UNTRACKED = frozenset(_QUESTIONS.split())
_EMPTY = frozenset(("empty", "empty_like", "new_empty"))
_DROPOUT = frozenset(f"{kind}dropout" for kind in ("", "alpha_", "feature_", "feature_alpha_")) | frozenset(
    f"dropout{n}d" for n in (1, 2, 3)
)
# The same values in another container: no operator of their own.
_CONTAINERS = "detach clone contiguous cpu data positive to float type_as double type"
_IDENTITY = _DROPOUT | frozenset(_CONTAINERS.split())
# Have a method of the same name without the underscore.
_METHODS = "add sub mul div relu sigmoid tanh clamp clamp_min clamp_max neg abs sqrt exp pow"
_FUNCTIONAL = frozenset(_METHODS.split())
_RENAMED = {
    "__setitem__": "setitem", "__getitem__": "getitem", "__rdiv__": "rdiv", "__rtruediv__": "rdiv",
    "__rsub__": "rsub", "__rpow__": "rpow", "multiply": "mul", "divide": "div", "true_divide": "div",
    "subtract": "sub", "concat": "cat", "concatenate": "cat", "clip": "clamp", "absolute": "abs",
    "_threshold": "threshold", "swapaxes": "transpose", "swapdims": "transpose",
    "__matmul__": "matmul", "__rmatmul__": "rmatmul",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Call:
    """One torch function that touches the network's values.

    Attributes:
        op: Its plain name: ``conv2d``, ``add``, ``relu``, without underscores for in place.
        func: The function itself, in functional form.
        args: Positional arguments.
        kwargs: Keyword arguments.
        inputs: The tagged tensors among them, in order, each once.
    """

    op: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: tuple[Tensor, ...]

    def run(self) -> Any:
        """Run the function on its arguments as they are; what it raises is the network's failure."""
        with user_code("Net.forward"):
            return self.func(*self.args, **self.kwargs)


@contextlib.contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Run a block with every module in evaluation mode; each gets its own flag back."""
    training = [module for module in net.modules() if module.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def intercepted_pass(
    net: nn.Module, inputs: Any, interpret: Callable[[Call], Any], training: bool = False
) -> Any:
    """Run a network in evaluation mode with its calls interpreted, and return its output without tags.

    Args:
        net: Any module.
        inputs: Its argument, tensors tagged.
        interpret: As for `CallSequence`.
        training: Keep gradients and apply dropout.

    Raises:
        CandidateError: The network's own code fails. An exception of the interpreter comes out as it is.
    """
    sequence = CallSequence(interpret, dropout=training)
    gradients = torch.is_grad_enabled() and training
    try:
        with eval_mode(net), torch.set_grad_enabled(gradients), user_code("Net.forward"), sequence:
            outputs = map_tensors(latest, net(inputs))
    except CandidateError as error:
        if sequence.failure is not None and error.__cause__ is sequence.failure:
            raise sequence.failure from None
        raise
    return map_tensors(lambda x: x.view_as(x) if gradients else x.detach(), outputs)


class CallSequence(TorchFunctionMode):
    """Hand every call on tagged tensors to an interpreter, which returns the call's result and tags it.

    Attributes:
        failure: The exception by which the interpreter itself failed, other than for lack of memory.

    Args:
        interpret: Called with each `Call`; runs with interception switched off.
        dropout: Apply dropout, as in training, though the modules are in evaluation mode.
    """

    def __init__(self, interpret: Callable[[Call], Any], dropout: bool = False) -> None:
        super().__init__()
        self.failure: Exception | None = None
        self._interpret = interpret
        self._dropout = dropout

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Intercept one torch function."""
        kwargs = kwargs or {}
        name, in_place = _name(func, args, kwargs)
        if name in _UNTRACKED:
            made = func(*args, **kwargs)
            return made.zero_() if name in _EMPTY else made  # garbage in a buffer would widen its range
        target = args[0] if in_place and args else kwargs.get("input")
        inputs: dict[int, Tensor] = {}
        args = _resolve(args, inputs, name == "setitem")
        kwargs = _resolve(kwargs, inputs, False)
        if not inputs:
            return func(*args, **kwargs)
        if name in DECOMPOSED:
            with self:
                return DECOMPOSED[name](*args, **kwargs)
        if in_place:
            func, args, kwargs = _functional(func, name, args, kwargs)
        call = Call(name, func, args, kwargs, tuple(inputs.values()))
        try:
            result = self._identity(call) if name in _IDENTITY else self._interpret(call)
        except SparsemodError:
            raise
        except Exception as error:
            if not isinstance(error, MemoryError) and "memory" not in str(error):
                self.failure = error
            raise
        if in_place and isinstance(target, Tensor) and isinstance(result, Tensor):
            forward_to(target, result)
        return result

    def _identity(self, call: Call) -> Any:
        source = call.inputs[0]
        if call.op in _DROPOUT:
            if not self._dropout:
                return source
            result = call.func(*call.args, **{**call.kwargs, "training": True})
        else:
            result = call.run()
        value = value_of(source)
        if value is None or not isinstance(result, Tensor) or result is source:
            return result
        if not result.is_floating_point() or not source.is_floating_point():
            return self._interpret(call)
        return tag(result, value.index, value.qparams)


def _name(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the plain name of a torch function, and whether it works in place."""
    name = getattr(func, "__name__", type(func).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        return getattr(getattr(func, "__self__", None), "__name__", name), False
    if name == "__setitem__":
        return "setitem", True
    plain = _RENAMED.get(name, name)
    if plain.endswith("_") and not plain.endswith("__"):
        plain = plain[:-1]
        return _RENAMED.get(plain, plain), True
    if plain.startswith("__i") and plain.endswith("__") and plain != "__invert__":
        return plain[3:-2], True
    return plain, bool(kwargs.get("inplace"))


def _resolve(tree: Any, inputs: dict[int, Tensor], assigns: bool) -> Any:
    """Replace tensors by what operators in place have made of them, and collect the tagged ones."""
    if isinstance(tree, Tensor):
        tree = latest(tree, assigns)
        if value_of(tree) is not None:
            inputs.setdefault(id(tree), tree)
        return tree
    if isinstance(tree, list):
        return [_resolve(item, inputs, assigns) for item in tree]
    if type(tree) is tuple:
        return tuple(_resolve(item, inputs, assigns) for item in tree)
    if isinstance(tree, dict):
        return {key: _resolve(item, inputs, assigns) for key, item in tree.items()}
    return tree


def _functional(
    func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a function with the same result that leaves its first argument alone."""
    if "inplace" in kwargs:
        return func, args, {**kwargs, "inplace": False}
    plain = getattr(torch.Tensor, name, None)
    if name in _FUNCTIONAL and plain is not None:
        return plain, args, kwargs

    def on_a_copy(target: Tensor, *rest: Any, **options: Any) -> Tensor:
        copy = target.clone()
        func(copy, *rest, **options)
        return copy

    return on_a_copy, args, kwargs
