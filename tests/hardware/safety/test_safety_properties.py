"""The proof of the arm's filter: random sequences of everything that can happen, and an oracle of what is
forbidden.

hypothesis draws the regime, the seed and the nasty values; each example runs many sequences, so that the
default run judges thousands of them in seconds, and the slow one a hundred thousand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import Phase as Phase_
from hypothesis import strategies as st

from hardware.description import RobotDescription
from hardware.messages import JointState, JointTrajectory
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from tests.hardware.arm_descriptions import NAMES, PERIOD_S, arm
from tests.hardware.safety.safety_oracle import Oracle

BOX = {"low_m": [-0.5, -0.5, -0.1], "high_m": [0.5, 0.5, 0.75]}
ROBOTS = {"plain": arm(), "boxed": arm(workspace=BOX), "fast state": arm(state_hz=200)}
SEQUENCES, STEPS = 25, 16  # of an example; of a sequence
NASTY = st.lists(
    st.one_of(
        st.floats(allow_nan=True, allow_infinity=True), st.sampled_from([math.nan, math.inf, -0.0, 5e-324])
    ),
    min_size=1,
    max_size=4,
)


@dataclass(frozen=True)
class Regime:
    """Probabilities of faults, per step unless said otherwise."""

    robot: str
    reach_rad: float  # of the random walk of goals, per step
    lag: float  # share of the way that the arm makes per step: 1 follows at once, 0 is blocked
    noise_rad: float  # of the measured position
    nasty: float  # of a value of a command or state replaced by a nasty one
    lost: float  # of a message that does not arrive
    disorder: float  # of a command with another stamp than the next one
    event: float  # of an emergency stop, intervention, stop, arming or jump of the clock
    jitter: float  # of the period, as a share of it


REGIMES = st.builds(
    Regime,
    robot=st.sampled_from(["plain", "boxed", "fast state", "plain"]),
    reach_rad=st.sampled_from([0.001, 0.02, 0.1, 1.0, 100.0]),
    lag=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    noise_rad=st.sampled_from([0.0, 0.0, 1e-3, 0.3]),
    nasty=st.sampled_from([0.0, 0.05, 0.5]),
    lost=st.sampled_from([0.0, 0.1, 0.6]),
    disorder=st.sampled_from([0.0, 0.2]),
    event=st.sampled_from([0.0, 0.02, 0.2]),
    jitter=st.sampled_from([0.0, 0.3, 3.0]),
)


class Run:
    """One sequence: filter, oracle, and a world made of random numbers."""

    def __init__(self, regime: Regime, rng: np.random.Generator, nasty: list[float]) -> None:
        self.regime, self.rng, self.nasty = regime, rng, nasty
        self.robot: RobotDescription = ROBOTS[regime.robot]
        self.filter, self.oracle = ArmFilter(self.robot, hold_s=0.1), Oracle(self.robot)
        self.now_s, self.stamp_s = float(rng.uniform(0.0, 1e4)), 0.0
        self.place = rng.uniform(-1.2, 1.2, 3)
        self.goal = self.place.copy()
        self.sent = 0

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def run(self) -> None:
        self.hear()
        self.arm()
        for _ in range(STEPS):
            self.now_s += PERIOD_S * max(0.0, 1.0 + self.regime.jitter * self.rng.standard_normal())
            if self.chance(self.regime.event):
                self.event()
            if not self.chance(self.regime.lost):
                self.hear()
            if not self.chance(self.regime.lost):
                self.say()
            self.tick(self.now_s)

    def hear(self) -> None:
        place = self.place + self.regime.noise_rad * self.rng.standard_normal(3)
        message = JointState(0.0, NAMES, self.spoilt(place))
        if self.chance(self.regime.nasty * 0.2):
            message = JointState(0.0, NAMES[:2], place)
        self.filter.on_state(message, self.now_s)
        self.oracle.state(message, self.now_s)

    def say(self) -> None:
        self.goal = self.goal + self.regime.reach_rad * self.rng.standard_normal(3)
        self.stamp_s += PERIOD_S
        stamp_s = self.stamp_s
        if self.chance(self.regime.disorder):
            other = float(self.rng.choice([0.0, -stamp_s, 100.0, math.nan, math.inf]))
            stamp_s = float(self.rng.choice([stamp_s - PERIOD_S * int(self.rng.integers(0, 4)), other]))
            self.stamp_s = max(self.stamp_s, stamp_s if math.isfinite(stamp_s) else 0.0)
        position = self.spoilt(self.goal)[None]
        if self.chance(self.regime.nasty * 0.2):
            position = [position[:, :2], np.repeat(position, 2, axis=0), position[0], position[:, :0]][
                int(self.rng.integers(4))
            ]
        times_s = np.array([PERIOD_S])
        if self.chance(0.2 * self.regime.event):  # the sender asks for a hold
            position, times_s = np.zeros((0, 3)), np.zeros(0)
        names = NAMES if not self.chance(self.regime.nasty * 0.1) else ("a", "b", "d")
        message = JointTrajectory(stamp_s, names, position, times_s)
        source: Any = "teleop" if self.chance(0.1 + 0.8 * self.oracle.human) else "policy"
        taken = self.filter.on_command(message, source, self.now_s)
        self.oracle.command(message, source, self.now_s, taken)

    def event(self) -> None:
        kind = int(self.rng.integers(7))
        if kind < 2:
            pressed = self.chance(0.5)
            self.filter.on_emergency(pressed)
            self.oracle.emergency_stop(pressed)
        elif kind == 2:
            begins = self.chance(0.5)
            self.filter.on_intervention(begins)
            self.oracle.intervention(begins)
        elif kind == 3:
            self.filter.stop(Reason.REQUESTED)
            self.oracle.stop()
        elif kind == 4:
            self.now_s += float(self.rng.choice([-50.0, -0.01, 50.0]))
        elif kind == 5:
            self.tick(float(self.rng.choice([math.nan, math.inf, -math.inf])))
        if kind >= 4:
            self.arm()

    def arm(self) -> None:
        was = self.filter.phase is Phase.ARMED
        granted, _ = self.filter.arm(self.now_s)
        self.oracle.armed(self.now_s, granted, was and self.filter.phase is Phase.ARMED)

    def tick(self, now_s: float) -> None:
        out = self.filter.tick(now_s)
        self.oracle.sends(now_s, out)
        if self.filter.phase is Phase.DISARMED:
            self.oracle.silent()
        if out is not None:
            self.sent += 1
            self.place = self.place + self.regime.lag * (out - self.place)

    def spoilt(self, values: Any) -> Any:
        if self.regime.nasty == 0.0:
            return values
        hit = self.rng.random(3) < self.regime.nasty * 0.3
        return np.where(hit, self.rng.choice(self.nasty, 3), values)


def judged(examples: int) -> tuple[int, int]:
    """(sequences, commands sent) of this many examples of hypothesis."""
    count = [0, 0]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[
            Phase_.generate
        ],  # a failing example names its regime and seed; shrinking it would take minutes
        suppress_health_check=list(HealthCheck),
    )
    @given(regime=REGIMES, seed=st.integers(0, 2**32 - 1), nasty=NASTY)
    def prove(regime: Regime, seed: int, nasty: list[float]) -> None:
        for i in range(SEQUENCES):
            run = Run(regime, np.random.default_rng([seed, i]), nasty)
            with np.errstate(all="ignore"):
                run.run()
            count[0] += 1
            count[1] += run.sent

    prove()
    return count[0], count[1]


def test_random_sequences_keep_the_promises() -> None:
    """Thousands of sequences; they send commands, so that there is something to check."""
    sequences, sent = judged(80)
    assert sequences >= 2_000
    assert sent >= 5 * sequences


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_sequences_keep_the_promises() -> None:
    sequences, sent = judged(4_000)
    assert sequences >= 100_000
    assert sent >= 5 * sequences
