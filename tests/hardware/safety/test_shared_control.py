"""Shared control: a human drives some joints, the policy the others; random sequences and their oracle.

The oracle keeps its own record of what each sender said last, and knows nothing of how the filter merges.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hardware.safety import command_acceptance, limits
from hardware.safety.arm_filter import ArmFilter
from hardware.safety.command_acceptance import Source
from hardware.safety.phase import Phase
from hardware.safety.reasons import Reason
from hardware.safety.shared_commands import SharedCommands
from robo_rl.core.errors import ConfigError
from tests.hardware.arm_descriptions import NAMES, PERIOD_S, arm, command, state

BOX = {"low_m": [-0.5, -0.5, -0.1], "high_m": [0.5, 0.5, 0.75]}
ROBOTS = (arm(), arm(), arm(workspace=BOX))
NASTY = [math.nan, math.inf, -math.inf, 1e308, -50.0]
EPS = 1e-7


class Desk:
    """A filter under shared control, at 50 Hz, and an arm that follows at once."""

    def __init__(self, human: tuple[str, ...] = ("a",), robot: Any = None) -> None:
        self.robot = arm() if robot is None else robot
        self.filter, self.now_s, self.place = ArmFilter(self.robot, hold_s=0.5), 1.0, np.zeros(3)
        self.number = 0
        self.filter.on_share(human)
        self.filter.on_state(state(self.place), self.now_s)
        assert self.filter.arm(self.now_s)[0]

    def step(self, policy: Any = None, teleop: Any = None) -> None:
        self.now_s += PERIOD_S
        self.number += 1
        self.filter.on_state(state(self.place), self.now_s)
        for source, position in (("teleop", teleop), ("policy", policy)):
            if position is not None:
                self.filter.on_command(command(position, self.number), source, self.now_s)  # type: ignore[arg-type]
        out = self.filter.tick(self.now_s)
        self.place = self.place if out is None else out

    def ramp(self, steps: int, policy: float | None, teleop: float | None) -> None:
        """Move targets at so many rad/s from where the arm is."""
        start = self.place.copy()
        for i in range(1, steps + 1):
            goals = [None if v is None else start + v * PERIOD_S * i for v in (policy, teleop)]
            self.step(*goals)


def test_each_joint_follows_its_own_sender() -> None:
    desk = Desk(("a", "c"))
    desk.filter.on_intervention(True)
    desk.ramp(40, policy=0.5, teleop=-0.25)
    assert desk.place == pytest.approx([-0.2, 0.4, -0.2], abs=0.02)
    assert desk.filter.followed == ("policy", "teleop")
    assert desk.filter.counts[Reason.OUTRANKED] == 0


def test_release_of_the_switch_holds_the_human_joints_alone() -> None:
    """The policy goes on, and never gets them; the human takes them again without a jump."""
    desk = Desk()
    desk.filter.on_intervention(True)
    desk.ramp(20, policy=0.5, teleop=-0.5)
    desk.filter.on_intervention(False)
    desk.ramp(20, policy=0.5, teleop=None)
    assert desk.place == pytest.approx([-0.2, 0.4, 0.4], abs=0.03)
    desk.step(policy=desk.place, teleop=desk.place)
    assert desk.filter.dropped is None  # of the policy, the last to send
    assert desk.filter.counts[Reason.NOT_INTERVENING] == 1
    assert desk.filter.counts[Reason.PART_HELD] == 1
    desk.filter.on_intervention(True)
    desk.ramp(20, policy=0.0, teleop=0.5)
    assert desk.place == pytest.approx([0.0, 0.4, 0.4], abs=0.03)


def test_silence_of_the_policy_holds_its_joints_alone() -> None:
    desk = Desk()
    desk.filter.on_intervention(True)
    desk.ramp(20, policy=0.5, teleop=0.5)
    desk.ramp(40, policy=None, teleop=0.5)  # 0.8 s, longer than a hold may last
    assert desk.filter.phase is Phase.ARMED
    assert desk.place[0] == pytest.approx(0.6, abs=0.03)
    assert desk.place[1:] == pytest.approx([0.2, 0.2], abs=0.05)
    desk.ramp(40, policy=None, teleop=None)
    assert desk.filter.phase is not Phase.ARMED  # both silent: held, then stopped


def test_names_of_other_joints_change_nothing() -> None:
    desk = Desk()
    with pytest.raises(ConfigError, match="'d' is no joint of 'small', which has a, b, c"):
        desk.filter.on_share(("b", "d"))
    assert desk.filter.human_joints.tolist() == [True, False, False]
    desk.filter.on_share(())
    assert desk.filter.human_joints.all()
    assert desk.filter.drives("policy")
    assert not desk.filter.drives("teleop")


def test_repeated_commands_are_dropped_across_a_change_of_sharing() -> None:
    """The stamps of a sender grow, whoever drives what."""
    desk = Desk()
    assert desk.filter.on_command(command(desk.place, 7), "policy", desk.now_s)
    desk.filter.on_share(())
    assert not desk.filter.on_command(command(desk.place, 7), "policy", desk.now_s)
    assert desk.filter.dropped is Reason.OUT_OF_ORDER


class SharedOracle:
    """Raises AssertionError with the broken promise."""

    def __init__(self, robot: Any) -> None:
        self.robot, self.now_s = robot, 0.0
        self.vmax, self.amax = robot.column("velocity_rad_s"), robot.column("acceleration_rad_s2")
        self.human, self.intervening = np.zeros(3, bool), False
        self.goals: dict[Source, Any] = {"policy": None, "teleop": None}
        self.ways: dict[Source, Any] = {"policy": np.zeros(3), "teleop": np.zeros(3)}  # of a moving target
        self.said_s: dict[Source, float] = {"policy": -math.inf, "teleop": -math.inf}
        self.sent, self.speed, self.sent_s = np.zeros(3), np.zeros(3), math.nan
        self.measured = np.zeros(3)

    def forget(self, *sources: Source) -> None:
        for source in sources:
            self.said_s[source] = -math.inf

    def own(self, source: Source) -> Any:
        if self.human.any():
            return self.human & self.intervening if source == "teleop" else ~self.human
        return np.full(3, self.intervening is (source == "teleop"))

    def command(self, source: Source, position: Any, taken: bool) -> None:
        if taken:
            assert self.own(source).any(), "a command of a sender without joints was taken"
            assert np.isfinite(position).all(), "a value that is not finite was taken"
            before = self.goals[source] if self.said_s[source] > -math.inf else position
            self.ways[source] = position - before
            self.goals[source], self.said_s[source] = position, self.now_s

    def sends(self, out: Any, armed: bool) -> None:
        if out is None:
            return
        since_s = PERIOD_S if math.isnan(self.sent_s) else self.now_s - self.sent_s
        dt_s = min(since_s, 2.0 * PERIOD_S)
        speed, slack = (out - self.sent) / dt_s, EPS / dt_s
        assert np.isfinite(out).all(), "sent what is not finite"
        assert (np.abs(speed) <= self.vmax + slack).all(), "too fast"
        assert (np.abs(speed - self.speed) <= self.amax * dt_s + slack).all(), "sped up or braked too much"
        low, high = np.minimum(-1.0, self.sent), np.maximum(1.0, self.sent)
        assert ((out >= low - EPS) & (out <= high + EPS)).all(), "beyond the range"
        kept = np.maximum(np.abs(self.speed) - self.amax * dt_s, 0.0)
        if self.robot.workspace is not None:  # all joints by one factor
            slowest = max(1e-12, float((np.abs(self.speed) / self.amax).max()))
            kept = np.abs(self.speed) * max(0.0, 1.0 - dt_s / slowest)
        brakes = np.abs(speed) <= kept + slack
        returns = (speed * (self.sent - self.measured) < 0.0) & (np.abs(self.sent - self.measured) > 0.2)
        for source in ("policy", "teleop"):
            own = self.own(source)
            if not armed or self.now_s - self.said_s[source] > 2.0 * PERIOD_S + 1e-6:
                assert (brakes | returns | ~own).all(), f"joints of {source} moved on without a command"
                continue
            towards = (self.goals[source] - self.sent) * speed >= -slack
            slowing = np.abs(speed) <= np.abs(self.speed) + slack
            turning = speed * self.speed <= 0.0
            along = speed * self.ways[source] >= -slack
            goes = towards | along | slowing | turning | returns
            assert (goes | ~own).all(), f"joints of {source} went elsewhere"
        unowned = ~(self.own("policy") | self.own("teleop"))
        assert (brakes | returns | ~unowned).all(), "joints without a sender moved on"
        self.sent, self.speed, self.sent_s = out, speed, self.now_s


class SharedRun:
    """One random sequence: masks, interventions, silence, nasty values, stops, late ticks."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        robot = ROBOTS[int(self.rng.integers(len(ROBOTS)))]
        self.filter, self.oracle = ArmFilter(robot, hold_s=0.1), SharedOracle(robot)
        self.place, self.now_s = self.rng.uniform(-0.9, 0.9, 3), 1.0
        self.goals: dict[Source, Any] = {"policy": self.place.copy(), "teleop": self.place.copy()}
        self.reach, self.lag = self.rng.choice([0.01, 0.05, 1.0]), self.rng.choice([0.0, 0.3, 1.0])
        self.lost, self.nasty = self.rng.choice([0.0, 0.2, 0.6]), self.rng.choice([0.0, 0.1])
        self.number = self.sent = 0

    def run(self, steps: int = 24) -> None:
        self.hear()
        self.share()
        self.arm()
        for _ in range(steps):
            self.now_s += PERIOD_S * float(self.rng.choice([1.0, 0.6, 2.5], p=[0.8, 0.1, 0.1]))
            self.oracle.now_s = self.now_s
            self.hear()
            self.event()
            for source in self.rng.permutation(["policy", "teleop"]):
                if self.rng.random() >= self.lost:
                    self.say(source)
                    self.tick()
            self.tick()

    def hear(self) -> None:
        self.filter.on_state(state(self.place), self.now_s)
        self.oracle.measured = self.place

    def share(self) -> None:
        human = self.rng.random(3) < 0.5
        if (human != self.oracle.human).any():
            self.oracle.human = human
            self.oracle.forget("policy", "teleop")
        self.filter.on_share([name for name, own in zip(NAMES, human, strict=True) if own])

    def event(self) -> None:
        draw = self.rng.random()
        if draw < 0.1:
            begins = bool(self.rng.random() < 0.7)
            if begins != self.oracle.intervening:
                self.oracle.intervening = begins
                self.oracle.forget(*(("teleop",) if self.oracle.human.any() else ("policy", "teleop")))
            self.filter.on_intervention(begins)
        elif draw < 0.14:
            self.share()
        elif draw < 0.17:
            self.filter.stop(Reason.REQUESTED)
            self.oracle.forget("policy", "teleop")
        if self.filter.phase is Phase.DISARMED and self.rng.random() < 0.5:
            self.arm()

    def arm(self) -> None:
        was = self.filter.phase
        if self.filter.arm(self.now_s)[0] and was is Phase.DISARMED:
            self.oracle.forget("policy", "teleop")
            self.oracle.sent, self.oracle.speed, self.oracle.sent_s = self.place.copy(), np.zeros(3), math.nan

    def say(self, source: Source) -> None:
        self.number += 1
        goal = self.goals[source] = self.goals[source] + self.reach * self.rng.standard_normal(3)
        if self.rng.random() < 0.1:
            goal = self.goals[source] = self.place.copy()
        if self.rng.random() < self.nasty:
            goal = np.where(self.rng.random(3) < 0.5, self.rng.choice(NASTY), goal)
        taken = self.filter.on_command(command(goal, self.number), source, self.now_s)
        self.oracle.command(source, goal, taken)

    def tick(self) -> None:
        armed = self.filter.phase is Phase.ARMED
        out = self.filter.tick(self.now_s)
        self.oracle.sends(out, armed)
        if out is not None:
            self.sent += 1
            self.place = self.place + self.lag * (out - self.place)


def judged(sequences: int) -> int:
    """Commands sent in so many sequences."""
    sent = 0
    for seed in range(sequences):
        run = SharedRun(seed)
        with np.errstate(all="ignore"):
            run.run()
        sent += run.sent
    return sent


def test_random_sequences_of_two_senders_keep_the_promises() -> None:
    assert judged(200) > 2_000


def swapped(patch: pytest.MonkeyPatch) -> None:
    inner = SharedCommands.share
    patch.setattr(SharedCommands, "share", lambda self, human: inner(self, ~human if human.any() else human))


def coasting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits, "_slower", lambda last, dt_s, lim: last.speed_rad_s)


def everlasting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(command_acceptance, "is_stale", lambda now_s, received_s, limit_s: False)


@pytest.mark.parametrize("mutant", [swapped, coasting, everlasting])
def test_the_oracle_notices_a_broken_filter(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        judged(100)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_thousand_sequences_of_two_senders_keep_the_promises() -> None:
    assert judged(10_000) > 100_000
