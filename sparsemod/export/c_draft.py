"""What the parts of a C bundle share while they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.export.c_constants import ConstantPool
from sparsemod.measure.bundle_memory import Layout
from sparsemod.measure.graph import Operator, OperatorGraph

__all__ = ["Draft"]


@dataclass(slots=True)
class Draft:
    """A bundle, or the body of one of its loops, while it is written.

    Attributes:
        quantized: The network, or the loop's body.
        layout: Where everything lies.
        constants: What has to be in flash.
        headers: Kernels that are used.
        given: C expressions of tensors that have no place of their own.
    """

    quantized: QuantizedGraph
    layout: Layout
    constants: ConstantPool
    headers: set[str] = field(default_factory=set)
    given: Mapping[str, str] = field(default_factory=dict)

    @property
    def graph(self) -> OperatorGraph:
        """The operator list."""
        return self.quantized.graph

    def tensor(self, i: int) -> str:
        """Return the address of a tensor."""
        name = self.graph.tensors[i].name
        return self.given[name] if name in self.given else f"(ARENA + {self.layout.tensors[name]})"

    def scratch(self, operator: Operator) -> str:
        """Return the address of an operator's scratch memory; any address where it has none."""
        name = self.graph.tensors[operator.outputs[0]].name
        return f"(ARENA + {self.layout.scratch.get(name, 0)})"

    def shape(self, i: int) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return self.graph.tensors[i].shape

    def zero_point(self, i: int) -> int:
        """Return the stored integer that means zero in a tensor."""
        return self.quantized.grid(i).zero_point

    def use(self, header: str) -> None:
        """Note that a kernel is called."""
        self.headers.add(header)
