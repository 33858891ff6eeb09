"""From a traced graph of torch operations to the program of one column.

A tensor becomes an array of expressions with the tensor's shape, in which the last axis, if it counts the
columns, has length 1. To cut, stack and join rows then moves expressions, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sim.compile.column_call import Call, each, numbers, stored_shape
from sim.compile.column_ops import IN_PLACE, OPS, VIEWS, WHOLE
from sim.compile.column_program import Program, UnsupportedGraphError


@dataclass(frozen=True)
class ColumnProgram:
    """Program, and per output its expressions row by row and its shape.

    inputs: per input, True if its last axis counts the columns.
    """

    program: Program
    inputs: list[bool]
    outputs: list[list[int]]
    shapes: list[tuple[int, ...]]
    columns: int


def trace_columns(graph: torch.fx.GraphModule, examples: Sequence[Tensor]) -> ColumnProgram:
    """Program of a graph. Raises UnsupportedGraphError for one that mixes columns or has other types."""
    trace = _Trace(graph, column_count(examples))
    places = iter(range(len(examples)))
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            trace.read(node, next(places))
        elif node.op == "get_attr":
            trace.constant(node, getattr(graph, str(node.target)))
        elif node.op == "call_function":
            trace.call(node)
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    results = [trace.values[node] for node in output.args[0]]
    shapes = [tuple(node.meta["val"].shape) for node in output.args[0]]
    for node, shape in zip(output.args[0], shapes, strict=True):
        if shape[-1:] != (trace.columns,) or node.meta["val"].dtype != torch.float32:
            raise UnsupportedGraphError(f"an output of shape {shape} and type {node.meta['val'].dtype}")
    full = [x.shape[-1:] == (trace.columns,) for x in examples]
    return ColumnProgram(trace.program, full, [list(x.flat) for x in results], shapes, trace.columns)


def column_count(examples: Sequence[Tensor]) -> int:
    """Length of the last axis that the inputs share; a length of 1 is the same number for all columns."""
    lengths = {x.shape[-1] if x.dim() else 1 for x in examples}
    if len(lengths) > 1:
        lengths.discard(1)
    if len(lengths) != 1 or any(x.dtype != torch.float32 for x in examples):
        raise UnsupportedGraphError(f"inputs with last axes of lengths {sorted(lengths)}, or not float32")
    return lengths.pop()


class _Trace:
    """Expressions of all tensors of a graph."""

    def __init__(self, graph: torch.fx.GraphModule, columns: int) -> None:
        self.program, self.columns = Program(), columns
        self.values: dict[torch.fx.Node, Any] = {}

    def read(self, node: torch.fx.Node, number: int) -> None:
        shape = node.meta["val"].shape
        uniform = shape[-1:] != (self.columns,)
        stored = stored_shape(shape, self.columns)
        places = np.arange(int(np.prod(stored)), dtype=np.int64).reshape(stored)
        self.values[node] = each(lambda i: self.program.load(number, int(i), uniform=uniform))(places)

    def constant(self, node: torch.fx.Node, value: Any) -> None:
        if value.shape[-1:] == (self.columns,) and self.columns > 1:
            raise UnsupportedGraphError(f"a constant with {self.columns} columns")
        self.values[node] = numbers(self.program, value.detach().cpu().numpy())

    def call(self, node: torch.fx.Node) -> None:
        """Expressions of one operation."""
        made, args = OPS.get(node.target), torch.fx.node.map_arg(node.args, self.values.__getitem__)
        if made is None:
            raise UnsupportedGraphError(str(node.target))
        value = made(Call(self.program, self.columns, node), *args, **dict(node.kwargs))
        for tensor, array in zip(_tensors(node.meta.get("val")), _arrays(value), strict=True):
            kinds = (torch.float32, torch.bool, *([torch.long] if node.target in WHOLE else []))
            if tensor.dtype not in kinds or array.shape != stored_shape(tensor.shape, self.columns):
                raise UnsupportedGraphError(f"{node.target} of {tensor.dtype} {tuple(tensor.shape)}")
        self.values[node] = value
        if node.target in IN_PLACE:
            self._overwrite(node, value)

    def _overwrite(self, node: torch.fx.Node, value: Any) -> None:
        """Let an operation in place change its first argument, which no other tensor may share."""
        changed = node.args[0]
        assert isinstance(changed, torch.fx.Node)
        if changed.target in VIEWS or any(user.target in VIEWS for user in changed.users):
            raise UnsupportedGraphError(f"{node.target} of a view")
        self.values[changed] = value


def _tensors(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


_arrays = _tensors
