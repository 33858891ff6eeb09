"""What the numbers of a bundle's vectors are, by the words of their unit: "rad: base, elbow; rad/s: base,
elbow; m: x".

Segments stand in the order of the numbers, each a unit and the names of what it counts. That is how a bundle
says which joints it was trained on; an environment writes it once into its spec, and it travels with dataset,
policy and bundle.
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
    """Segments of a unit; empty when the text does not name its parts."""
    found = []
    for part in text.split(";"):
        unit, colon, names = part.partition(":")
        words = tuple(name.strip() for name in names.split(","))
        if not colon or not all(words):
            return ()
        found.append(Segment(unit.strip(), words))
    return tuple(found)


def action_joints(unit: str) -> tuple[str, ...]:
    """The joints whose positions the action commands; empty when it says none."""
    segments = parse_unit(unit)
    return segments[0].names if len(segments) == 1 and segments[0].unit == POSITION else ()
