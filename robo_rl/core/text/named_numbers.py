"""Names of a vector's numbers, parsed from its unit: "rad: base, elbow; rad/s: base, elbow; m: x".

Each segment is a unit with the names of its numbers; segments are in the order of the vector.
"""

from __future__ import annotations

from dataclasses import dataclass

POSITION, VELOCITY = "rad", "rad/s"  # units of a joint's numbers


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
