"""Timed sub-goals of a formula: places and times, drawn at random within what the formula allows.

A formula leaves its times open. Fixing them turns it into stays at places (timed sub-goals) and statements
that hold throughout (invariants), for which an ordinary cost suffices. This is the decomposition of TGPO
(Meng et al. 2025, "Temporally Grounded Policy Optimization for STL").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.tasks.stl.formula import Atom, Formula, Junction, Timed, Until


class Stay(NamedTuple):
    """A stay at a place from one time to another."""

    start_s: float
    end_s: float
    place: str


def ground(
    formula: Formula, places: Sequence[str], rng: np.random.Generator, now_s: float = 0.0
) -> list[Stay]:
    """Stays that satisfy the formula's statements about places, at uniform random times; no invariants."""
    if isinstance(formula, Atom):
        return [Stay(now_s, now_s, formula.name)] if formula.holds and formula.name in places else []
    if isinstance(formula, Until):
        return ground(formula.goal, places, rng, now_s + rng.uniform(formula.start_s, formula.end_s))
    if isinstance(formula, Timed):
        return _timed(formula, places, rng, now_s)
    assert isinstance(formula, Junction)
    if formula.all_of:
        return [stay for part in formula.parts for stay in ground(part, places, rng, now_s)]
    return ground(formula.parts[rng.integers(len(formula.parts))], places, rng, now_s)


def _timed(formula: Timed, places: Sequence[str], rng: np.random.Generator, now_s: float) -> list[Stay]:
    first_s, last_s, part = now_s + formula.start_s, now_s + formula.end_s, formula.part
    if not formula.always:
        return ground(part, places, rng, rng.uniform(first_s, last_s))
    if isinstance(part, Timed) and not part.always:  # repeated visits: no gap may exceed the inner window
        stays, width_s = [], part.end_s - part.start_s
        visit_s = first_s + part.start_s + rng.uniform(0.0, width_s)
        while True:
            stays += ground(part.part, places, rng, visit_s)
            if visit_s >= last_s + part.start_s:
                return stays
            visit_s = min(visit_s + rng.uniform(0.5, 1.0) * width_s, last_s + part.end_s)
    return [
        Stay(stay.start_s, stay.end_s + last_s - first_s, stay.place)
        for stay in ground(part, places, rng, first_s)
    ]
