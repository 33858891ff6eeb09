"""Layout of a bundle's vectors, parsed from their unit: "rad: base, elbow; rad/s: base, elbow; m: x".

Each segment is a unit with the names of its numbers; segments are in the order of the vector. A bundle
records in this way which joints it was trained on: the environment writes the text into its spec, and
dataset, policy and bundle keep it.
"""

from __future__ import annotations

from dataclasses import dataclass

POSITION, VELOCITY = "rad", "rad/s"


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


def action_joints(unit: str) -> tuple[str, ...]:
    """Names of the joints whose positions the action commands; empty when the unit names none."""
    segments = parse_unit(unit)
    return segments[0].names if len(segments) == 1 and segments[0].unit == POSITION else ()
