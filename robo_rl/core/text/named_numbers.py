"""Names of a vector's numbers, parsed from its unit: "rad: base, elbow; rad/s: base, elbow; m: x".

Each segment is a unit with the names of its numbers; segments are in the order of the vector.
"""

from __future__ import annotations

from dataclasses import dataclass

POSITION, VELOCITY = "rad", "rad/s"  # units of a joint's numbers
PLAIN = frozenset(("rad", "deg", "rad/s", "deg/s", "m", "cm", "mm", "m/s", "px", "s", "N", "Nm"))


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive numbers of one unit."""

    unit: str
    names: tuple[str, ...]


def parse_unit(text: str) -> tuple[Segment, ...]:
    """Segments of a unit; empty when the text does not name the numbers."""
    found = []
    for part in text.split(";"):
        unit, colon, names = part.partition(":")
        words = tuple(name.strip() for name in names.split(","))
        if not colon or not all(words):
            return ()
        found.append(Segment(unit.strip(), words))
    return tuple(found)


def count_fault(unit: str, count: int) -> str:
    """Sentence on a unit that names joints, and more or fewer numbers than `count`; empty for other units.

    Units without joints are free text, such as "motor command: -1 stopped, 1 full speed", and so are units
    that explain a number, such as "rad: joint1, fingers: -1 closed, 1 open".
    """
    segments = parse_unit(unit)
    names = sum(len(segment.names) for segment in segments)
    explained = any(":" in name for segment in segments for name in segment.names)
    if names == count or explained or not {segment.unit for segment in segments} & {POSITION, VELOCITY}:
        return ""
    return (
        f"The unit '{unit}' names {names} numbers, but there are {count}. Name each of them, or none: "
        "joints as in the robot's description."
    )


def units_conflict(one: str, two: str) -> bool:
    """True for units that give the same number another meaning: other names, another order of them, or
    another of the units in `PLAIN`.

    A unit that is empty, or does not name the numbers, fits every one that does not contradict it. Free text
    is not compared.
    """
    first, second = parse_unit(one), parse_unit(two)
    if first and second and ":" not in "".join(name for part in first + second for name in part.names):
        names = [[name for part in parts for name in part.names] for parts in (first, second)]
        if names[0] != names[1]:
            return True
    ours, theirs = _plain_units(one), _plain_units(two)
    if len(ours) != len(theirs):
        ours, theirs = sorted(set(ours)), sorted(set(theirs))
    return bool(ours and theirs) and ours != theirs


def _plain_units(text: str) -> list[str]:
    """Units of the numbers; empty if they are not all in `PLAIN`. A unit without names counts once."""
    parts = parse_unit(text)
    found = [part.unit for part in parts for _ in part.names] or [each.strip() for each in text.split(",")]
    return found if PLAIN.issuperset(found) else []
