"""Straight-line programs of one column: the arithmetic of a kernel for one drone.

An expression is a number: its place in `Program.steps`. Equal expressions are one, and constants are folded,
so that a traced gradient shrinks to the arithmetic that it needs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

MASKS = {"less", "greater", "at_most", "at_least", "equal", "differs", "and", "or", "not", "bool"}

_FOLDED: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "less": lambda a, b: a < b,
    "greater": lambda a, b: a > b,
    "at_most": lambda a, b: a <= b,
    "at_least": lambda a, b: a >= b,
    "equal": lambda a, b: a == b,
    "differs": lambda a, b: a != b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "not": lambda a: not a,
}


class UnsupportedGraphError(Exception):
    """A graph that is not arithmetic of separate columns; the message names the operation."""


@dataclass(frozen=True)
class Step:
    """One operation. args: earlier expressions; for `const`, `bool` and loads their values.

    uniform: the same in all columns.
    """

    op: str
    args: tuple[float | int, ...]
    uniform: bool


@dataclass
class Program:
    """Expressions in the order of their first use."""

    steps: list[Step] = field(default_factory=list)
    _known: dict[tuple[str, tuple[float | int, ...]], int] = field(default_factory=dict)

    def const(self, value: float) -> int:
        """A float32 number."""
        rounded = struct.unpack("f", struct.pack("f", value))[0] if math.isfinite(value) else value
        return self._add("const", (_bits(rounded),), uniform=True)

    def truth(self, value: bool) -> int:
        """True or False in all columns."""
        return self._add("bool", (int(value),), uniform=True)

    def load(self, number: int, place: int, *, uniform: bool) -> int:
        """Element of an input: its row `place`, or if uniform its flat element `place`."""
        return self._add("uniform" if uniform else "load", (number, place), uniform=uniform)

    def apply(self, op: str, *args: int) -> int:
        """The operation on earlier expressions, or an earlier expression that is the same.

        As in torch, truth values are 1 and 0 in arithmetic, and numbers other than 0 are true in logic.
        """
        args = self._converted(op, args)
        if (known := self._simpler(op, args)) is not None:
            return known
        return self._add(op, args, uniform=all(self.steps[i].uniform for i in args))

    def is_mask(self, expression: int) -> bool:
        """True for an expression that is true or false, False for a number."""
        step = self.steps[expression]
        if step.op == "where":
            return self.is_mask(int(step.args[1]))
        return step.op in MASKS

    def value(self, expression: int) -> float | bool | None:
        """Value of a constant; None for any other expression."""
        step = self.steps[expression]
        if step.op == "const":
            return float(struct.unpack("f", struct.pack("I", step.args[0]))[0])
        return bool(step.args[0]) if step.op == "bool" else None

    def _converted(self, op: str, args: tuple[int, ...]) -> tuple[int, ...]:
        if op in ("and", "or", "not"):
            return tuple(i if self.is_mask(i) else self.apply("differs", i, self.const(0.0)) for i in args)
        kept = args[:1] if op == "where" else ()
        rest = args[len(kept) :]
        if op == "where" and all(map(self.is_mask, rest)):
            return args
        return (*kept, *map(self._number, rest))

    def _number(self, i: int) -> int:
        return self.apply("where", i, self.const(1.0), self.const(0.0)) if self.is_mask(i) else i

    def _add(self, op: str, args: tuple[float | int, ...], *, uniform: bool) -> int:
        found = self._known.get((op, args))
        if found is None:
            found = self._known[op, args] = len(self.steps)
            self.steps.append(Step(op, args, uniform))
        return found

    def _simpler(self, op: str, args: tuple[int, ...]) -> int | None:
        """An expression that is equal for all finite numbers; None if there is no simpler one."""
        values = [self.value(i) for i in args]
        if op in _FOLDED and None not in values:
            folded = _FOLDED[op](*values)
            return self.truth(folded) if isinstance(folded, bool) else self.const(folded)
        if op == "where" and values[0] is not None:
            return args[1] if values[0] else args[2]
        if op == "where" and args[1] == args[2]:
            return args[1]
        if op == "neg" and self.steps[args[0]].op == "neg":
            return int(self.steps[args[0]].args[0])
        return _neutral(op, args, values)


def _neutral(op: str, args: tuple[int, ...], values: list[float | bool | None]) -> int | None:
    """The other operand of x + 0, x - 0, 1 x, x / 1, x and true, x or false."""
    element = {"add": 0.0, "sub": 0.0, "mul": 1.0, "div": 1.0, "and": True, "or": False}.get(op)
    if element is None:
        return None
    if values[1] is not None and values[1] == element:
        return args[0]
    if op not in ("sub", "div") and values[0] is not None and values[0] == element:
        return args[1]
    return None


def _bits(value: float) -> int:
    return int(struct.unpack("I", struct.pack("f", value))[0])
