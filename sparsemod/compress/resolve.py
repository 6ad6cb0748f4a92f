"""From the recorded calls to the places where values are rounded: fusion and grids.

A *root* is the place where a value gets its grid: an input of the network, or an operator that computes.
Values that only move elements share their root's grid. An activation that clamps, and a batch norm behind a
convolution or dense layer, join the root whose only consumer they are, so that only the value behind them is
rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from sparsemod.compress.fakequant import QParams, activation_qparams, weight_scales
from sparsemod.compress.recurrent import RECURRENT
from sparsemod.compress.roles import (
    FIXED,
    batch_norm_affine,
    clamp_range,
    commutes_with_clamp,
    is_average,
    is_keep,
    weighted,
)
from sparsemod.compress.trace import Node, Ref, Trace
from sparsemod.errors import CandidateError

__all__ = ["Resolution", "Root", "resolve"]

_JOINS = frozenset(("cat", "stack", "hstack", "vstack", "dstack"))


@dataclass(slots=True)
class Root:
    """Where values get their grid.

    Attributes:
        value: The value it makes first.
        node: Position of its operator; None for an input of the network.
        low: Smallest element of the value that is rounded, behind the activation.
        high: Largest one.
        clamp_low: Lower limit of the fused activation.
        clamp_high: Upper limit of the fused activation.
        norms: Positions of the batch norms that are folded in.
        qparams: The grid; None where the value stays in float.
        joined: The root of a concatenation whose grid it takes over.
    """

    value: int
    node: int | None
    low: float
    high: float
    clamp_low: float = -math.inf
    clamp_high: float = math.inf
    norms: list[int] = field(default_factory=list)
    qparams: QParams | None = None
    joined: Root | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """What each call does when the network runs quantized.

    Attributes:
        roles: For each node one of ``keep``, ``average``, ``fused``, ``root``, ``plain`` (makes no floats).
        roots: The root of each value.
    """

    roles: tuple[str, ...]
    roots: tuple[Root, ...]


class _Resolver:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.roots: dict[int, Root] = {}
        self.open: dict[int, bool] = {}  # a clamp behind this value may join its root
        self.bare: dict[int, bool] = {}  # the value is the root's own, so that a batch norm may join
        for value in range(trace.n_inputs):
            self.make_root(value, None)

    def make_root(self, value: int, node: int | None) -> None:
        self.roots[value] = Root(value, node, self.trace.low[value], self.trace.high[value])
        self.open[value] = self.bare[value] = True

    def sole(self, value: int) -> bool:
        return len(self.trace.consumers[value]) == 1

    def share(self, node: Node, is_open: bool) -> None:
        for output in node.outputs:
            self.roots[output] = self.roots[node.inputs[0]]
            self.open[output] = is_open
            self.bare[output] = False

    def add(self, position: int, node: Node) -> str:
        if not node.outputs:
            return "plain"
        source = node.inputs[0] if node.inputs else None
        if source is None or node.op in RECURRENT:
            return self.compute(position, node)
        if is_keep(node.op, node.args, node.kwargs) or self.joins_one_grid(node):
            commutes = commutes_with_clamp(node.op, node.args, node.kwargs) and len(node.inputs) == 1
            self.share(node, self.open[source] and self.sole(source) and commutes)
            return "keep"
        if is_average(node.op, node.args, node.kwargs, node.n_dims):
            self.share(node, False)
            return "average"
        if self.fuses_clamp(node, source) or self.folds_norm(position, node, source):
            return "fused"
        return self.compute(position, node)

    def compute(self, position: int, node: Node) -> str:
        for output in node.outputs:
            self.make_root(output, position)
            if node.op in RECURRENT or node.op in FIXED or node.op == "embedding":  # have grids of their own
                self.open[output] = False
        return "root"

    def joins_one_grid(self, node: Node) -> bool:
        operands = [*node.args, *node.kwargs.values()]
        tensors = operands[0] if operands and isinstance(operands[0], list | tuple) else ()
        only_values = all(isinstance(item, Ref) for item in tensors)
        return node.op in _JOINS and only_values and len({id(self.roots[v]) for v in node.inputs}) == 1

    def fuses_clamp(self, node: Node, source: int) -> bool:
        limits = clamp_range(node.op, node.args, node.kwargs)
        root = self.roots[source]
        if limits is None or not (self.open[source] and self.sole(source)):
            return False
        root.clamp_low, root.clamp_high = max(root.clamp_low, limits[0]), min(root.clamp_high, limits[1])
        root.low, root.high = self.trace.low[node.outputs[0]], self.trace.high[node.outputs[0]]
        self.share(node, True)
        return True

    def folds_norm(self, position: int, node: Node, source: int) -> bool:
        root = self.roots[source]
        if node.op != "batch_norm" or not (self.bare[source] and self.sole(source)) or root.node is None:
            return False
        producer = self.trace.nodes[root.node]
        form = weighted(producer.op, producer.args, producer.kwargs, lambda x: isinstance(x, Ref))
        affine = batch_norm_affine(node.args, node.kwargs)
        if form is None or affine is None or producer.dynamic or node.n_dims != max(2, form.trailing + 2):
            return False
        if len(affine[0]) != form.n_channels:
            return False
        root.norms.append(position)
        root.low, root.high = self.trace.low[node.outputs[0]], self.trace.high[node.outputs[0]]
        self.share(node, True)
        self.bare[node.outputs[0]] = True
        return True

    def adopt(self, node: Node) -> None:
        """Let values that only a concatenation takes be rounded to its grid at once."""
        target = self.roots[node.outputs[0]]
        for value in node.inputs:
            root = self.roots[value]
            if self.open[value] and self.sole(value) and root.joined is None and root is not target:
                root.joined = target


def resolve(trace: Trace) -> Resolution:
    """Decide for every call whether it rounds, and give every root its grid.

    Values that come from modules quantized at run time, and inputs, stay in float where no statically
    quantized operator takes them.

    Raises:
        CandidateError: A value that must be rounded was not finite in calibration.
    """
    resolver = _Resolver(trace)
    roles = []
    for position, node in enumerate(trace.nodes):
        roles.append(resolver.add(position, node))
        if node.op in _JOINS and roles[-1] == "root":
            resolver.adopt(node)
    needed = _roots_to_round(trace, roles, resolver.roots)
    for root in {id(root): root for root in resolver.roots.values()}.values():
        if id(root) in needed:
            root.qparams = _grid(trace, root)
    for root in resolver.roots.values():
        final = root
        while final.joined is not None:
            final = final.joined
        if root.qparams is not None:
            root.qparams = final.qparams
    return Resolution(tuple(roles), tuple(resolver.roots[value] for value in range(len(trace.low))))


def _roots_to_round(trace: Trace, roles: list[str], roots: dict[int, Root]) -> set[int]:
    """Return the roots that get a grid: all but run-time results and inputs that nothing static takes."""
    any_dynamic = any(node.dynamic for node in trace.nodes)
    needed: set[int] = set()
    for value, root in roots.items():
        floating = any_dynamic if root.node is None else trace.nodes[root.node].dynamic
        takers = [consumer for consumer in trace.consumers[value] if consumer >= 0]
        if not floating or any(roles[t] == "root" and not trace.nodes[t].dynamic for t in takers):
            needed.add(id(root))
    return needed


def _grid(trace: Trace, root: Root) -> QParams:
    node = None if root.node is None else trace.nodes[root.node]
    if node is not None and node.op in FIXED:
        return FIXED[node.op]
    if node is not None and node.observation is not None and node.observation.finite:
        return node.observation.output_grid(node.op.endswith("_cell"), node.outputs.index(root.value))
    if node is not None and node.op == "embedding" and isinstance(table := node.args[1], Tensor):
        return QParams(float(weight_scales(table.detach().abs().max())), 0)
    if not (math.isfinite(root.low) and math.isfinite(root.high)):
        raise CandidateError(f"quantization: {trace.describe(root.value)} holds values that are not finite")
    return activation_qparams(root.low, root.high)
