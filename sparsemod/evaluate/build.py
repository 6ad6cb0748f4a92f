"""From a parametrization to a network: open the data, build, check, and put stored weights back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Literal
from weakref import WeakKeyDictionary

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from sparsemod.candidate import Parametrization
from sparsemod.compress.structured import load_resized
from sparsemod.errors import CandidateError, DataError, StoreError, user_code
from sparsemod.evaluate.reproducible import reproducible
from sparsemod.evaluate.task import Task
from sparsemod.train.data import Data, Inputs, open_data

__all__ = ["NAMES", "Part", "build", "dump_weights", "load_weights", "moved", "opened", "rebuild"]

Part = Literal["train", "validation", "test"]

N_PROBED = 4
NAMES: Mapping[Part, str] = {"train": "training", "validation": "validation", "test": "test"}

_OPENED: WeakKeyDictionary[Task, dict[tuple[Part, object], Data]] = WeakKeyDictionary()


def opened(task: Task, part: Part, parametrization: Parametrization) -> Data:
    """Open a data set of the task; once a process, or once for each ``max_len`` of its collate function.

    Raises:
        CandidateError: The parametrization lacks the ``max_len`` that the task's splitter wants, or the
            user's data set or collate function raised.
        DataError: The data set cannot be used.
    """
    collate_fn, max_len = task.collate_fn, None
    if task.splitter:
        max_len = parametrization.get("max_len")
        if collate_fn is None:
            raise CandidateError("splitter = true needs a collate_fn to pass max_len to")
        if max_len is None:
            raise CandidateError("the parametrization has no max_len, which splitter = true wants")
        collate_fn = functools.partial(collate_fn, max_len=max_len)
    known = _OPENED.setdefault(task, {})
    if (part, max_len) not in known:
        # Seeded, so that a collate function that draws does not tell whether the data were open already.
        try:
            with reproducible(task.device, seed=0):
                known[part, max_len] = open_data(
                    getattr(task, part), collate_fn=collate_fn, classes=task.classes, device=task.device
                )
        except DataError as error:
            raise DataError(f"the {NAMES[part]} set: {error}") from error
    return known[part, max_len]


def build(task: Task, parametrization: Parametrization, train: Data, device: str) -> nn.Module:
    """Build the network of a parametrization, run it once and check its output.

    It draws from the global generators, which the caller seeds.

    Returns:
        The network on the device, in eval mode, its lazy layers filled in.

    Raises:
        CandidateError: The user's builder or forward raised or ran out of memory, or the output is not one
            logit for each class.
    """
    arguments = {
        "parametrization": dict(parametrization),
        "classes": task.classes,
        "input_shape": _input_shape(train, parametrization),
    }
    with user_code("Net.__init__"):
        net = task.net(**arguments) if _takes(task.net, arguments) else task.net(*arguments.values())
    if not isinstance(net, nn.Module):
        raise CandidateError(f"net must build a torch.nn.Module, got {type(net).__name__}")
    x = moved(train.sample(N_PROBED, seed=0), device)
    with user_code("Net.forward"), torch.no_grad():
        net.to(device).eval()
        logits = net(x)
    _check_output(logits, int(x.batch_sizes[0]) if isinstance(x, PackedSequence) else len(x), task.classes)
    for name, value in net.state_dict().items():
        if not isinstance(value, Tensor):
            raise CandidateError(f"the state of Net must be tensors, {name} is {type(value).__name__}")
    return net


def rebuild(task: Task, parametrization: Parametrization, weights: bytes, seed: int) -> nn.Module:
    """Return the trained network of an arm from its stored weights, channels that were pruned taken out.

    Args:
        task: The task it was evaluated under.
        parametrization: The arm's.
        weights: The `Evaluation`'s weights.
        seed: The job's.

    Returns:
        The float network on the task's device, in eval mode.

    Raises:
        CandidateError: The user's code raised.
        StoreError: The weights are unreadable or belong to another network.
    """
    train = opened(task, "train", parametrization)
    with reproducible(task.device, seed):
        net = build(task, parametrization, train, task.device)
    try:
        load_resized(net, load_weights(weights))
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise StoreError(f"the stored weights do not fit the network that Net builds: {reason}") from error
    return net.eval()


def dump_weights(net: nn.Module) -> bytes:
    """Return the network's state as safetensors bytes; shared tensors are stored under each name."""
    state = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in net.state_dict().items()
    }
    weights: bytes = safetensors.torch.save(state)
    return weights


def load_weights(weights: bytes) -> dict[str, Tensor]:
    """Return the tensors by name; the bytes are data and nothing in them is run.

    Raises:
        StoreError: The bytes are not a safetensors file.
    """
    try:
        state: dict[str, Tensor] = safetensors.torch.load(weights)
    except safetensors.SafetensorError as error:
        raise StoreError(
            f"expected weights as safetensors bytes, got {len(weights)} others: {error}"
        ) from error
    return state


def moved(inputs: Inputs, device: str) -> Inputs:
    """Return the inputs on a device."""
    if isinstance(inputs, PackedSequence):
        return inputs.to(device)  # type: ignore[arg-type]  # its stub knows the dtype only
    return inputs.to(device)


def _takes(builder: Callable[..., nn.Module], arguments: Mapping[str, object]) -> bool:
    """Say whether the builder knows the documented names of its arguments; otherwise they go by position."""
    try:
        inspect.signature(builder).bind(**arguments)
    except (TypeError, ValueError):
        return False
    return True


def _input_shape(train: Data, parametrization: Parametrization) -> tuple[int, ...]:
    shape = train.input_shape
    max_len = parametrization.get("max_len")
    if isinstance(train.example(), PackedSequence) and isinstance(max_len, int):
        # As long as the split makes any sequence, not as the example happens to be.
        return (max_len, *shape[1:])
    return shape


def _check_output(logits: object, n_samples: int, classes: int) -> None:
    expected = f"expected ({n_samples}, {classes}), a logit for each class of {n_samples} samples"
    if not isinstance(logits, Tensor):
        raise CandidateError(f"Net.forward returned {type(logits).__name__}, {expected}")
    if tuple(logits.shape) != (n_samples, classes):
        raise CandidateError(f"Net.forward returned shape {tuple(logits.shape)}, {expected}")
