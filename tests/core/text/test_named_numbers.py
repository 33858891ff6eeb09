"""Units that name the numbers of a vector."""

from __future__ import annotations

import pytest

from robo_rl.core.text.named_numbers import units_conflict


@pytest.mark.parametrize(
    ("one", "two", "conflict"),
    [
        ("rad: a, b", "rad: b, a", True),
        ("rad: a, b", "m: a, b", True),
        ("rad: a, b", "rad: a, c", True),
        ("rad: a, b", "rad:a,b", False),
        ("rad: a, b", "rad", False),
        ("rad: a, b", "deg", True),
        ("rad", "m", True),
        ("m, m, rad", "rad, m, m", True),
        ("rad: a; m: b", "rad, m", False),
        ("rad: a, b", "", False),
        ("rad: a, b", "joint angles", False),
        ("cm per step, gripper effort", "4 cm per step", False),
        ("rad: a, fingers: -1 closed, 1 open", "rad: a, fingers", False),
    ],
)
def test_units_conflict_only_where_a_number_means_another_thing(one: str, two: str, conflict: bool) -> None:
    """Another order, joint or unit; not a missing unit, free text or an explanation."""
    assert units_conflict(one, two) is conflict
    assert units_conflict(two, one) is conflict
