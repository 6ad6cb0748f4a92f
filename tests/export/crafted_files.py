"""Files put together by hand, right and wrong ones."""

from dataclasses import dataclass

import numpy as np

from sparsemod.export.flatbuffer import Writer, enum


@dataclass
class T:
    """A tensor: computed unless it has values; int8 with a grid unless said otherwise."""

    shape: tuple = (1, 4)
    dtype: str = "int8"
    values: object = None
    scales: tuple = (0.5,)
    axis: int = 0
    variable: bool = False
    name: str = ""
    buffer: int | None = None


@dataclass
class Op:
    """An operator; names of options are those of the schema."""

    code: str
    inputs: tuple = (0,)
    outputs: tuple = (1,)
    options: str = ""
    fields: dict | None = None


@dataclass
class G:
    """A list of operators."""

    tensors: list
    operators: list
    inputs: tuple = (0,)
    outputs: tuple = (1,)


def crafted(*graphs, version=3, identifier="TFL3"):
    """Return the content of a file."""
    writer, buffers, codes = Writer(), [b""], {}

    def tensor(t):
        buffer = t.buffer
        if t.values is not None:
            dtype = np.int8 if t.dtype == "int4" else t.dtype
            buffers.append(np.asarray(t.values, dtype).tobytes())
            buffer = len(buffers) - 1
        grid = None
        if t.scales:
            grid = writer.table(
                "QuantizationParameters",
                Scale=writer.numbers("Float32", t.scales),
                ZeroPoint=writer.numbers("Int64", [0] * len(t.scales)),
                QuantizedDimension=t.axis,
            )
        return writer.table(
            "Tensor",
            Shape=writer.numbers("Int32", t.shape),
            Buffer=buffer,
            Name=writer.string(t.name) if t.name else None,
            Quantization=grid,
            Type=enum("TensorType", t.dtype.upper()),
            IsVariable=t.variable or None,
        )

    def operator(op):
        options = writer.table(op.options, **(op.fields or {})) if op.options else None
        return writer.table(
            "Operator",
            OpcodeIndex=codes.setdefault(op.code, len(codes)),
            Inputs=writer.numbers("Int32", op.inputs),
            Outputs=writer.numbers("Int32", op.outputs),
            BuiltinOptions=options,
            BuiltinOptionsType=enum("BuiltinOptions", op.options) if op.options else None,
        )

    def code(name):
        builtin = (
            name if isinstance(name, int) else getattr(enum_class(), name, enum("BuiltinOperator", "CUSTOM"))
        )
        custom = not isinstance(name, int) and not hasattr(enum_class(), name)
        text = writer.string(name) if custom else None
        return writer.table("OperatorCode", BuiltinCode=builtin, CustomCode=text, DeprecatedBuiltinCode=0)

    subgraphs = [
        writer.table(
            "SubGraph",
            Tensors=writer.offsets([tensor(t) for t in g.tensors]),
            Inputs=writer.numbers("Int32", g.inputs),
            Outputs=writer.numbers("Int32", g.outputs),
            Operators=writer.offsets([operator(op) for op in g.operators]),
        )
        for g in graphs
    ]
    lists = writer.offsets(subgraphs)
    kinds = writer.offsets([code(name) for name in codes])
    stored = [writer.table("Buffer", Data=writer.data(b) if b else None) for b in buffers]
    model = writer.table(
        "Model", Version=version, OperatorCodes=kinds, Subgraphs=lists, Buffers=writer.offsets(stored)
    )
    return writer.finish(model, identifier)


def enum_class():
    import tflite

    return tflite.BuiltinOperator


def dense(dtype="int8", weight="int8", n=4):
    """Return a list of one matrix, (1, 4) to (1, n)."""
    values = T((n, 4), weight, np.ones((n, 4)), (0.5,) if weight == "int8" else ())
    ends = [T((1, k), dtype, scales=(0.5,) if dtype == "int8" else ()) for k in (4, n)]
    matrix = Op("FULLY_CONNECTED", (0, 2, -1), (1,), "FullyConnectedOptions", {"KeepNumDims": False})
    return G([*ends, values], [matrix])


def one(code, shape, to, *constants, options="", **fields):
    """Return a list of one operator that reads a tensor and constants."""
    places = tuple(range(2, 2 + len(constants)))
    return G([T(shape), T(to), *constants], [Op(code, (0, *places), (1,), options, fields)])


def ints(*values):
    """Return a constant of integers."""
    return T((len(values),), "int32", values, ())
