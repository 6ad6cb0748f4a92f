"""The training loop, what may hook into it, and the contract of a trainer that replaces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from sparsemod.errors import CandidateError, DataError, user_code
from sparsemod.train.checks import Inputs
from sparsemod.train.data import Batch, Data
from sparsemod.train.hooks import Hook
from sparsemod.train.settings import TrainSettings, settings

__all__ = [
    "Epoch",
    "FitResult",
    "Hook",
    "TorchTrainer",
    "TrainSettings",
    "Trainer",
    "accuracy",
    "confusion",
    "settings",
]

Forward = Callable[[Inputs], Tensor]
Loss = Callable[[Tensor, Inputs, Tensor], Tensor]

EVALUATION_BATCH_SIZE = 256


@dataclass(frozen=True, slots=True)
class Epoch:
    """What one pass over the training set came to.

    Attributes:
        loss: Mean training loss over its steps.
        validation_accuracy: Share of the validation set that is classified right, behind the epoch.
        ready: Whether it could be chosen as the best one.
    """

    loss: float
    validation_accuracy: float
    ready: bool


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a training came to.

    Attributes:
        best_epoch: The epoch whose weights the network holds now, counted from 1.
        n_epochs: Epochs that were trained.
        validation_accuracy: Of the best epoch, in [0, 1].
        history: One entry an epoch.
    """

    best_epoch: int
    n_epochs: int
    validation_accuracy: float
    history: tuple[Epoch, ...] = ()


class Trainer(Protocol):
    """Trains a network. A user's own class is made as ``trainer(device=...)``."""

    def fit(
        self,
        net: nn.Module,
        train: Data,
        validation: Data,
        settings: TrainSettings,
        hooks: Sequence[Hook] = (),
    ) -> FitResult:
        """Train the network in place.

        Every hook is told of the start and of each step. When it returns, the network holds the weights of
        the best epoch among those after which all hooks were ready (the last epoch, if none was); a hook that
        is not ready any more has changed the network's form, and the epochs until then are out. The same seed
        gives the same weights.

        Raises:
            CandidateError: The network cannot be trained; the reason in one line.
        """


class TorchTrainer:
    """Cross entropy, Adam, a step schedule of the learning rate; the best epoch by validation accuracy.

    Of equally accurate epochs the first is the best. A network with 2-D convolutions trains in channels-last
    memory format where its forward works in it, which takes no part in what it computes.

    Args:
        device: Where to train: ``cpu``, ``cuda`` or ``cuda:<index>``.
    """

    def __init__(self, device: str | torch.device = "cpu") -> None:
        self.device = torch.device(device)

    def fit(
        self,
        net: nn.Module,
        train: Data,
        validation: Data,
        settings: TrainSettings,
        hooks: Sequence[Hook] = (),
    ) -> FitResult:
        """Train the network in place; see `Trainer.fit`.

        Raises:
            CandidateError: The forward or backward pass raised, its output is not (samples, classes), or the
                loss is no longer finite.
            DataError: A label is outside the network's classes.
        """
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(settings.seed)
            net.to(self.device)
            memory_format = _settle(net, train)
            try:
                return _fit(net, train, validation, settings, hooks, memory_format)
            finally:
                _format(net, torch.contiguous_format)


def accuracy(forward: Forward, data: Data, batch_size: int = EVALUATION_BATCH_SIZE) -> float:
    """Return the share of samples whose largest logit is that of their label.

    Args:
        forward: Inputs to logits (samples, classes). A module is called as it is, so in eval mode as a rule.
        data: What to measure on.
        batch_size: Samples a pass; matters only where the collate function looks at its batch.
    """
    n_right: Tensor | int = 0
    n_samples = 0
    with torch.no_grad():
        for x, y in data.batches(batch_size):
            n_right = n_right + (forward(x).argmax(dim=1) == y).sum()
            n_samples += len(y)
    return int(n_right) / n_samples if n_samples else 0.0


def confusion(
    forward: Forward, data: Data, classes: int, batch_size: int = EVALUATION_BATCH_SIZE
) -> tuple[tuple[int, ...], ...]:
    """Return how many samples of each class (rows) have their largest logit at which class (columns).

    Args:
        forward: As for `accuracy`.
        data: What to count.
        classes: Number of classes.
        batch_size: As for `accuracy`.
    """
    counts = torch.zeros(classes * classes, dtype=torch.int64)
    with torch.no_grad():
        for x, y in data.batches(batch_size):
            places = y * classes + forward(x).argmax(dim=1)
            counts += torch.bincount(places.cpu(), minlength=classes * classes)
    return tuple(tuple(row) for row in counts.view(classes, classes).tolist())


def _settle(net: nn.Module, train: Data) -> torch.memory_format:
    """Let lazy layers take their shapes, and put the network into the memory format to train in."""
    example = train.example()
    net.eval()
    with user_code("Net.forward"), torch.no_grad():
        net(example)
    if any(isinstance(module, nn.Conv2d) for module in net.modules()):
        _format(net, torch.channels_last)
        try:
            with torch.no_grad():
                net(example)
            return torch.channels_last
        except RuntimeError:  # `view` behind a convolution cannot cross the channels of this format
            _format(net, torch.contiguous_format)
    return torch.contiguous_format


def _format(net: nn.Module, memory_format: torch.memory_format) -> None:
    net.to(memory_format=memory_format)  # type: ignore[call-overload]


def _fit(
    net: nn.Module,
    train: Data,
    validation: Data,
    settings: TrainSettings,
    hooks: Sequence[Hook],
    memory_format: torch.memory_format,
) -> FitResult:
    n_batches = train.n_batches(settings.batch_size)
    n_steps = settings.epochs * n_batches
    generator = torch.Generator().manual_seed(settings.seed)
    for hook in hooks:
        hook.start(net, n_steps)
    forward = _forward(net, hooks)
    losses_of: list[Loss] = [hook.loss for hook in hooks if hasattr(hook, "loss")]
    rate = settings.rate(0)
    optimizer = _optimizer(net, hooks, n_batches, rate)
    history: list[Epoch] = []
    best: dict[str, Tensor] = {}
    best_epoch = 0
    step = 0
    for epoch in range(1, settings.epochs + 1):
        net.train()
        losses: list[Tensor] = []
        for batch in train.batches(settings.batch_size, generator):
            if settings.rate(step) != rate:  # in between the rate is left to hooks
                rate = settings.rate(step)
                optimizer.param_groups[0]["lr"] = rate
            for hook in hooks:
                hook.before_step(step)
            losses.append(_step(forward, optimizer, batch, losses_of))
            replaced = False
            for hook in hooks:
                replaced = bool(hook.after_step(step)) or replaced
            if replaced:
                _format(net, memory_format)
                now = optimizer.param_groups[0]
                optimizer = _optimizer(net, hooks, n_batches, now["lr"], now["weight_decay"])
            step += 1
        loss = _mean_loss(losses, step)
        _tell(hooks, "end_epoch", epoch - 1)
        net.eval()
        share = accuracy(forward, validation, max(settings.batch_size, EVALUATION_BATCH_SIZE))
        ready = all(hook.ready(step - 1) for hook in hooks)
        history.append(Epoch(loss, share, ready))
        if not ready:
            best_epoch = 0
        if ready and (best_epoch == 0 or share > history[best_epoch - 1].validation_accuracy):
            best_epoch = epoch
            best = {name: value.clone() for name, value in net.state_dict().items()}
    if best_epoch:
        net.load_state_dict(best)
    _tell(hooks, "finish")
    best_epoch = best_epoch or settings.epochs
    return FitResult(best_epoch, settings.epochs, history[best_epoch - 1].validation_accuracy, tuple(history))


def _step(
    forward: Forward, optimizer: torch.optim.Optimizer, batch: Batch, losses_of: Sequence[Loss]
) -> Tensor:
    x, y = batch
    logits = forward(x)
    _check_logits(logits, len(y))
    try:
        loss = nn.functional.cross_entropy(logits, y)
    except IndexError as error:
        n_outputs, highest = logits.shape[1], int(y.max())
        raise DataError(f"labels must be below the network's {n_outputs} outputs, got {highest}") from error
    for loss_of in losses_of:
        loss = loss_of(loss, x, logits)
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = None
    with user_code("the training step of Net"):
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return loss.detach()


def _forward(net: nn.Module, hooks: Sequence[Hook]) -> Forward:
    own = [hook.forward for hook in hooks if hasattr(hook, "forward")]
    if len(own) > 1:
        raise ValueError(f"at most one hook may have a forward, got {len(own)}")

    def forward(x: Inputs) -> Tensor:
        with user_code("Net.forward"):
            logits: Tensor = own[0](net, x) if own else net(x)
        return logits

    return forward


def _tell(hooks: Sequence[Hook], method: str, *arguments: int) -> None:
    for hook in hooks:
        if hasattr(hook, method):
            getattr(hook, method)(*arguments)


def _optimizer(
    net: nn.Module, hooks: Sequence[Hook], steps_per_epoch: int, rate: float, weight_decay: float = 0.0
) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in net.parameters() if parameter.requires_grad]
    if not parameters:
        raise CandidateError("Net has no trainable parameters")
    optimizer: torch.optim.Optimizer = torch.optim.Adam(
        parameters, lr=rate, weight_decay=weight_decay, fused=True
    )
    for hook in hooks:
        if hasattr(hook, "new_optimizer"):
            optimizer = hook.new_optimizer(optimizer, steps_per_epoch)
    return optimizer


def _check_logits(logits: object, n_samples: int) -> None:
    if not isinstance(logits, Tensor):
        raise CandidateError(f"Net.forward must return a tensor of logits, got {type(logits).__name__}")
    if logits.dim() != 2 or len(logits) != n_samples:
        shape = tuple(logits.shape)
        raise CandidateError(f"Net.forward must return logits of shape ({n_samples}, classes), got {shape}")


def _mean_loss(losses: list[Tensor], n_steps: int) -> float:
    """Average the losses of an epoch. Read once an epoch, since reading a tensor waits for it."""
    together = torch.stack(losses)
    finite = together.isfinite()
    if not bool(finite.all()):
        first = int((~finite).int().argmax())
        value = "nan" if bool(together[first].isnan()) else "infinite"
        raise CandidateError(f"loss became {value} at step {n_steps - len(losses) + first + 1}")
    return float(together.mean())
