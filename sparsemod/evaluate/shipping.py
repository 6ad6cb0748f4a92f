"""From a trained network to the integers that ship, and to the file that holds them.

    quantized = shipped(task, net, train, seed)     # the one way, whoever asks
    integer_error(task, quantized, validation, seed)

The network is lowered as for the measuring and calibrated on the samples that calibrate the evaluation.
"""

from __future__ import annotations

from torch import Tensor, nn

from sparsemod.compress.graph_quantization import quantize_graph
from sparsemod.compress.integer import run_integer
from sparsemod.compress.quantized_graph import QuantizedGraph
from sparsemod.evaluate.build import moved
from sparsemod.evaluate.reproducible import reproducible
from sparsemod.evaluate.task import Task
from sparsemod.export.tflite import Description, write_tflite
from sparsemod.measure.graph import OperatorGraph
from sparsemod.measure.operators import lower
from sparsemod.train.data import Data, Inputs
from sparsemod.train.trainer import accuracy

__all__ = ["N_CALIBRATION", "integer_error", "integers", "lowered", "shipped", "tflite_file"]

N_CALIBRATION = 256


def lowered(task: Task, net: nn.Module, train: Data) -> OperatorGraph:
    """Return the operators of a network on the CPU under the task's scheme."""
    return lower(net, moved(train.example(), "cpu"), scheme=task.quant_scheme, quant_params=task.quant_params)


def shipped(task: Task, net: nn.Module, train: Data, seed: int) -> QuantizedGraph:
    """Return a trained network in integers.

    Args:
        task: The task it was trained under.
        net: The float network; it is moved to the CPU.
        train: The training set, which calibrates.
        seed: The job's.

    Raises:
        UnsupportedOperatorError: Names the operator, and its module, that cannot be exported.
        CandidateError: A value is not finite.
    """
    return integers(task, lowered(task, net.cpu().eval(), train), train, seed)


def integers(task: Task, graph: OperatorGraph, train: Data, seed: int) -> QuantizedGraph:
    """Return the integers of what has been lowered already; raises as `shipped`."""
    with reproducible(task.device, seed):
        samples = moved(train.sample(N_CALIBRATION, seed), "cpu")
    return quantize_graph(graph, [samples])


def integer_error(task: Task, quantized: QuantizedGraph, data: Data, seed: int) -> float:
    """Return 1 - accuracy of the integers on a data set, as the chip would have it.

    Equal largest outputs count as the first of them. Packed sequences are cut, or filled up with zeros, to
    the length that the network was lowered for.
    """

    def forward(x: Inputs) -> Tensor:
        return run_integer(quantized, moved(x, "cpu"))[0].to(task.device)

    with reproducible(task.device, seed):
        return 1.0 - accuracy(forward, data)


def tflite_file(task: Task, quantized: QuantizedGraph, description: Description | None = None) -> bytes:
    """Return the content of the `.tflite` file, with the number of classes in its metadata or more."""
    return write_tflite(quantized, description or Description(task.classes))
