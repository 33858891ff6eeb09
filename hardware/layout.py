"""Layout of a bundle's vectors, parsed from their unit: "rad: base, elbow; rad/s: base, elbow; m: x".

A bundle records in this way which joints it was trained on: the environment writes the text into its spec,
and dataset, policy and bundle keep it.
"""

from __future__ import annotations

from robo_rl.core.text.named_numbers import POSITION, VELOCITY, Segment, parse_unit

__all__ = ["POSITION", "VELOCITY", "Segment", "action_joints", "parse_unit"]


def action_joints(unit: str) -> tuple[str, ...]:
    """Names of the joints whose positions the action commands; empty when the unit names none."""
    segments = parse_unit(unit)
    return segments[0].names if len(segments) == 1 and segments[0].unit == POSITION else ()
