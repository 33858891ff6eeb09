"""Attack of the arm's safety filter: random worlds, and an oracle that knows its promises but not its code.

Generator and oracle are those of `tests/hardware/safety`.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from tests.hardware.safety.test_safety_properties import ROBOTS, Regime, Run

NASTY = [np.nan, np.inf, -np.inf, -0.0, 5e-324, 1e308, 3.0, -1e-9]


def regime(rng: np.random.Generator) -> Regime:
    """A random world at the given level of adversity."""
    return Regime(
        robot=str(rng.choice(sorted(ROBOTS))),
        reach_rad=float(rng.choice([0.001, 0.02, 0.1, 1.0, 100.0])),
        lag=float(rng.choice([0.0, 0.2, 0.7, 1.0])),
        noise_rad=float(rng.choice([0.0, 1e-3, 0.05, 0.3])),
        nasty=float(rng.choice([0.0, 0.05, 0.5])),
        lost=float(rng.choice([0.0, 0.1, 0.6])),
        disorder=float(rng.choice([0.0, 0.2])),
        event=float(rng.choice([0.0, 0.02, 0.2])),
        jitter=float(rng.choice([0.0, 0.3, 3.0])),
    )


def attack(sequences: int, seed: int) -> tuple[int, Counter[str], str]:
    """(sequences tried, violations by promise, one example)."""
    counts, example = Counter[str](), ""
    for i in range(sequences):
        rng = np.random.default_rng([seed, i])
        world = regime(rng)
        try:
            with np.errstate(all="ignore"):
                Run(world, rng, NASTY).run()
        except AssertionError as broken:
            counts[str(broken).splitlines()[0]] += 1
            example = f"sequence {i}, {world}: {broken}"
    return sequences, counts, example
