"""Training on int8 grids from an epoch on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from types import MethodType
from typing import Any

from torch.nn import Module
from torch.optim import Optimizer

from sparsemod.compress.checks import boolean, mapping, number, optional
from sparsemod.compress.lifecycle import TOLERANCE, PyTorchModifierYAML, ScheduledModifier
from sparsemod.compress.modifier import SparsificationTypes
from sparsemod.compress.props import Argument
from sparsemod.compress.qat import FakeQuantizedPasses
from sparsemod.compress.quantization_scheme import (
    OLDER,
    OlderArguments,
    int8_scheme,
    int8_schemes,
    is_float,
    module_names,
    n_batches,
)
from sparsemod.compress.recipe_errors import RecipeArgumentError, RecipeError
from sparsemod.compress.trace import record
from sparsemod.errors import nearest

__all__ = ["QuantizationModifier"]


@PyTorchModifierYAML()
class QuantizationModifier(OlderArguments, ScheduledModifier):
    """Quantization-aware training: from its start on the network's forward pass runs on int8 grids.

    The arithmetic is that of the microcontroller runtimes: weights symmetric with a scale for each output
    channel, activations asymmetric, batch norms folded (their statistics are frozen from the start), ReLU
    fused. After `finalize` the network is a float network again, trained for its grids.

    Args:
        start_epoch: When it starts.
        scheme: ``default``, or what SparseML writes for int8; anything else is refused.
        scheme_overrides: Schemes by name or type of module; ``{weights: null, input_activations: null}``
            leaves it in float.
        ignore: Names and types of modules that stay in float.
        disable_quantization_observer_epoch: When the grids of the activations stop following the batches.
        freeze_bn_stats_epoch: Not before the start; the statistics are frozen from the start in any case.
        model_fuse_fn_name: Kept for recipes that hold it; layers are always fused.
        model_fuse_fn_kwargs: Likewise.
        num_calibration_steps: Batches of `calibration_dataloader` (see `initialize`) that set the first
            grids; all by default.
        strict: Whether each name must be a module's name or type.
        end_epoch: Must be -1.
        submodules: Names of the modules that are quantized, the whole network by default (older recipes).
        exclude_module_types: Further types for `ignore` (older recipes).
        older: What else older recipes hold, see `OlderArguments`.
    """

    changes = (SparsificationTypes.quantization, SparsificationTypes.structured)
    never_ends = True
    scheme = Argument(optional(int8_scheme), "int8 as SparseML writes it.")
    scheme_overrides = Argument(int8_schemes, "Schemes by module.", no_serialize_val={})
    ignore = Argument(module_names("ignore"), "What stays in float.", no_serialize_val=[])
    disable_quantization_observer_epoch = Argument(optional(number), "When the grids stop moving.")
    freeze_bn_stats_epoch = Argument(optional(number), "When batch norms' statistics stop moving.")
    model_fuse_fn_name = Argument(doc="Kept for recipes that hold it.")
    model_fuse_fn_kwargs = Argument(
        mapping("model_fuse_fn_kwargs"), "Kept for recipes that hold it.", no_serialize_val={}
    )
    num_calibration_steps = Argument(optional(n_batches), "Batches that set the first grids.")
    strict = Argument(boolean("strict"), "Whether each name must match something.")
    submodules = Argument(optional(module_names("submodules")), "What is quantized; None for all.")
    exclude_module_types = Argument(
        optional(module_names("exclude_module_types")), "Types that stay in float."
    )

    def __init__(
        self,
        start_epoch: float = -1.0,
        scheme: Any = None,
        scheme_overrides: Mapping[str, Any] | None = None,
        ignore: Sequence[str] | None = None,
        disable_quantization_observer_epoch: float | None = None,
        freeze_bn_stats_epoch: float | None = None,
        model_fuse_fn_name: str | None = None,
        model_fuse_fn_kwargs: Mapping[str, Any] | None = None,
        num_calibration_steps: int | None = None,
        strict: bool = True,
        end_epoch: float = -1.0,
        submodules: Sequence[str] | None = None,
        exclude_module_types: Sequence[str] | None = None,
        **older: Any,
    ) -> None:
        unknown = [name for name in older if name not in OLDER]
        if unknown:
            hint = nearest(unknown[0], OLDER)
            raise RecipeArgumentError(f"QuantizationModifier has no argument {', '.join(unknown)}{hint}")
        if end_epoch != -1:
            raise RecipeError(f"QuantizationModifier: end_epoch must be -1, not {end_epoch!r}")
        super().__init__(start_epoch=start_epoch, end_epoch=-1.0, end_comparator=-1)
        self.keep(
            scheme=scheme,
            scheme_overrides=scheme_overrides or {},
            ignore=[] if ignore is None else ignore,
            disable_quantization_observer_epoch=disable_quantization_observer_epoch,
            freeze_bn_stats_epoch=freeze_bn_stats_epoch,
            model_fuse_fn_name=model_fuse_fn_name,
            model_fuse_fn_kwargs=model_fuse_fn_kwargs or {},
            num_calibration_steps=num_calibration_steps,
            strict=strict,
            submodules=submodules,
            exclude_module_types=exclude_module_types,
            **{name: older.get(name) for name in OLDER},
        )
        self._passes: FakeQuantizedPasses | None = None
        self._active = False
        self._inside = False
        self._frozen = False
        self._own_forward: Callable[..., Any] | None = None
        self._identity: tuple[Any, ...] = ()
        self._calibration: Iterable[Any] | None = None
        self._float_modules: frozenset[str] = frozenset()

    def validate(self) -> None:
        """Check that nothing is frozen before the start.

        Raises:
            RecipeError: Something is.
        """
        for name in ("disable_quantization_observer_epoch", "freeze_bn_stats_epoch"):
            epoch = getattr(self, name)
            if epoch is not None and epoch < self.start_epoch:
                raise RecipeError(
                    f"{name} must be at least start_epoch = {self.start_epoch:g}, not {epoch:g}"
                )
        if is_float(self.scheme):
            raise RecipeError("scheme: it quantizes nothing")

    def advance_epochs(self, ref_start_epoch: float | None = None) -> None:
        """Move the schedule behind an epoch, the freezing epochs included."""
        super().advance_epochs(ref_start_epoch)
        if ref_start_epoch is None:
            return
        for name in ("_disable_quantization_observer_epoch", "_freeze_bn_stats_epoch"):
            epoch = getattr(self, name)
            if epoch is not None:
                setattr(self, name, max(0.0, epoch) + ref_start_epoch)

    def start_at_once(self, start_epoch: float) -> None:
        """Let it act by epoch 0."""
        super().start_at_once(start_epoch)
        for name in ("_disable_quantization_observer_epoch", "_freeze_bn_stats_epoch"):
            if getattr(self, name) is not None:
                setattr(self, name, 0.0)

    def initialize(
        self,
        module: Module,
        epoch: float = 0.0,
        *,
        calibration_dataloader: Iterable[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Find what stays in float.

        Args:
            module: The network; its forward pass takes one argument.
            epoch: Where training begins.
            calibration_dataloader: Batches, or (batch, target) pairs, that set the first grids; without it
                the first batch of training does.
            kwargs: What other modifiers need.

        Raises:
            RecipeError: A name is no module's, and `strict` holds.
        """
        super().initialize(module, epoch, **kwargs)
        self._float_modules = self._left_in_float(module)
        self._calibration = calibration_dataloader
        self._passes, self._active, self._inside, self._frozen = None, False, False, False
        self._identity = ()

    def update_ready(self, epoch: float, steps_per_epoch: int) -> bool:
        """Say whether its start or the freezing of the grids is due."""
        return super().update_ready(epoch, steps_per_epoch) or (
            self._enabled and self.started and not self._frozen and self._freezes(epoch)
        )

    def update(self, module: Module, optimizer: Optimizer | None, epoch: float, steps_per_epoch: int) -> None:
        """Switch the forward pass to int8 grids; freeze them when it is time."""
        super().update(module, optimizer, epoch, steps_per_epoch)
        if self.start_pending(epoch):
            self._switch(module)
        if self._freezes(epoch):
            self._frozen = True
            if self._passes is not None:
                self._passes.frozen = True

    def finalize(self, module: Module | None = None, **kwargs: Any) -> None:
        """Give the network its own forward pass back."""
        super().finalize(module, **kwargs)
        self._active = False
        self._passes = None
        if module is not None:
            module.__dict__.pop("forward", None)
            if self._own_forward is not None:
                module.__dict__["forward"] = self._own_forward

    def _switch(self, module: Module) -> None:
        modifier = self

        def forward(own: Module, *args: Any, **kwargs: Any) -> Any:
            return modifier._run(own, args, kwargs)

        # A bound method moves along when the network is copied.
        self._own_forward = module.__dict__.get("forward")
        module.__dict__["forward"] = MethodType(forward, module)
        self._active = True
        if self._calibration is not None:
            batches = islice(self._calibration, self.num_calibration_steps)
            self._passes = self._recorded(module, (_inputs(batch) for batch in batches))

    def _run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._inside or not self._active:
            own = self._own_forward
            return own(*args, **kwargs) if own else type(module).forward(module, *args, **kwargs)
        if len(args) != 1 or kwargs:
            raise RecipeError("quantization needs a network whose forward pass takes one argument")
        self._inside = True
        try:
            tensors = (*module.parameters(), *module.buffers())
            identity = tuple((id(tensor), tensor.shape) for tensor in tensors)
            if self._passes is None or (self._identity and identity != self._identity):
                self._passes = self._recorded(module, [args[0]])
            self._identity = identity
            return self._passes.run(module, args[0], module.training)
        finally:
            self._inside = False

    def _recorded(self, module: Module, batches: Iterable[Any]) -> FakeQuantizedPasses:
        inside, self._inside = self._inside, True
        try:
            passes = FakeQuantizedPasses(record(module, batches), lambda name: name in self._float_modules)
        finally:
            self._inside = inside
        passes.frozen = self._frozen
        return passes

    def _freezes(self, epoch: float) -> bool:
        last = self.disable_quantization_observer_epoch
        return last is not None and epoch >= last - TOLERANCE

    def _left_in_float(self, module: Module) -> frozenset[str]:
        overrides = self.scheme_overrides
        excluded = [*self.ignore, *(self.exclude_module_types or ())]
        excluded += [name for name, scheme in overrides.items() if is_float(scheme)]
        modules = dict(module.named_modules())
        known = {*modules, *(type(layer).__name__ for layer in modules.values())}
        for name in [*excluded, *overrides, *(self.submodules or ())]:
            if self.strict and name not in known:
                raise RecipeError(
                    f"quantization: the network has no module or type {name!r}{nearest(name, known)}"
                )

        def within(name: str, listed: Iterable[str]) -> bool:
            parts = name.split(".") if name else []
            owners = [".".join(parts[:n]) for n in range(len(parts) + 1)]
            return any(owner in listed or type(modules[owner]).__name__ in listed for owner in owners)

        chosen = self.submodules
        return frozenset(
            name
            for name in modules
            if within(name, excluded) or (chosen is not None and not within(name, chosen))
        )


def _inputs(batch: Any) -> Any:
    """Take the inputs out of a batch of a loader that gives targets too."""
    return batch[0] if isinstance(batch, list | tuple) else batch
