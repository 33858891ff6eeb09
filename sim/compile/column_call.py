"""Arrays of expressions that stand for tensors, and the context in which an operation makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy import ndarray

from sim.compile.column_program import Program, UnsupportedGraphError


@dataclass(frozen=True)
class Call:
    """Context of one operation: the program, the number of columns, and its place in the graph."""

    program: Program
    columns: int
    node: torch.fx.Node

    @property
    def result(self) -> tuple[int, ...]:
        """Stored shape of the result."""
        return stored_shape(self.node.meta["val"].shape, self.columns)

    def apply(self, op: str, *args: Any) -> Any:
        """The operation, element by element; numbers become constants."""
        arrays = [x if is_array(x) else self.numbers(x) for x in args]
        return each(lambda *x: self.program.apply(op, *x), len(arrays))(*arrays)

    def numbers(self, value: Any) -> Any:
        """Expressions of numbers, or of truth values."""
        return numbers(self.program, value)

    def fill(self, value: float) -> Any:
        """An array of the result's shape with the same number everywhere."""
        number = bool(value) if self.node.meta["val"].dtype == torch.bool else float(value)
        return self.numbers(np.full(self.result, number))

    def axis(self, dim: int, rank: int | None = None) -> int:
        """Axis of the first argument. Raises UnsupportedGraphError for the axis of columns."""
        node = self.node.args[0]
        first = node[0] if isinstance(node, list | tuple) else node
        shape = first.meta["val"].shape  # type: ignore[union-attr]
        rank = rank or len(shape)
        axis = dim % rank
        if axis == rank - 1 and shape[-1:] == (self.columns,) and self.columns > 1:
            raise UnsupportedGraphError(f"{self.node.target} along the columns")
        return int(axis)

    def reduce(self, op: str, x: Any, dims: Sequence[int] | int, keepdim: bool) -> Any:
        """Results of an operation along axes, in order."""
        axes = sorted((self.axis(d) for d in ([dims] if isinstance(dims, int) else dims)), reverse=True)
        for axis in axes:
            parts = [np.take(x, [i], axis) for i in range(x.shape[axis])]
            x = parts[0]
            for part in parts[1:]:
                x = self.apply(op, x, part)
            x = x if keepdim else np.squeeze(x, axis)
        return x


def is_array(x: Any) -> bool:
    """True for expressions, False for a number."""
    return isinstance(x, ndarray) and x.dtype == object


def stored_shape(shape: Sequence[int], columns: int) -> tuple[int, ...]:
    """Shape of the array of a tensor: a last axis that counts the columns has length 1."""
    given = tuple(map(int, shape))
    return (*given[:-1], 1) if given[-1:] == (columns,) else given


def numbers(program: Program, value: Any) -> Any:
    """Expressions of numbers, or of truth values."""
    array = np.asarray(value)
    if array.dtype == np.bool_:
        return each(lambda x: program.truth(bool(x)))(array)
    return each(lambda x: program.const(float(x)))(array)


def each(fn: Callable[..., int], inputs: int = 1) -> Callable[..., Any]:
    """The function for every element of its arrays."""
    over = np.frompyfunc(fn, inputs, 1)

    def run(*arrays: Any) -> Any:
        return np.asarray(over(*arrays), dtype=object)

    return run
