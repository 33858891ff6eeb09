"""The quadcopter's filter keeps each sender's order: no command twice, none that precedes another."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.bus.in_process import InProcessWorld
from hardware.messages import MOTORS, RATES, FlightCommand, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.sim_robot import SimQuadNode
from hardware.safety import message_parsing
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import FLIGHT_RAW, FLIGHT_SAFE
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad, flight_env, flight_observer
from robo_rl.core.flight.envelope import FlightEnvelope
from sim.flight.robot import QuadBody

DT_S = 0.01
ENVELOPE = FlightEnvelope(0.6, 8.0, 2.0, (-1.0, -1.0, -1.0), (1.0, 1.0, 1.0))
STILL = Odometry(0.0, np.zeros(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3))
LEVEL = np.array([0.5, 0.0, 0.0, 0.0])
BAD = {"nan": np.full(4, np.nan), "long": np.zeros(5)}

# What happens in one period: a command with its stamp, one that is none, or a stop with a new arming.
PLACES = st.integers(1, 20).map(float)
EVENTS = st.one_of(PLACES, st.tuples(st.sampled_from(sorted(BAD)), PLACES), st.just("rearm"))


class Run:
    """A filter with a craft at rest in the air, and a record of accepted commands."""

    def __init__(self) -> None:
        self.filter = FlightFilter(ENVELOPE, RatesLander(0.5), 1.0 / DT_S, 1.0 / DT_S, level="rates")
        self.now_s, self.newest, self.passed, self.count = 0.0, None, None, 0  # type: float, Any, Any, int
        self.tick()
        assert self.filter.arm(self.now_s)[0]

    def tick(self) -> Any:
        self.now_s += DT_S
        self.filter.on_state(STILL, self.now_s)
        return self.filter.tick(self.now_s)

    def rearm(self) -> None:
        """Motors off, silence, and a new arming, after which any stamp may be the first."""
        self.filter.on_emergency(True)
        while self.filter.phase is not FlightPhase.DISARMED:
            self.tick()
        self.filter.on_emergency(False)
        assert self.filter.arm(self.now_s)[0]
        self.newest = self.passed = None

    def command(self, place: float, values: Any = None) -> None:
        """Accepted exactly if it is valid and later than all before; the newest accepted one is sent."""
        self.count += 1
        told = np.array([0.5, 1e-3 * self.count, 0.0, 0.0]) if values is None else values
        taken = self.filter.on_command(FlightCommand(place, told), self.now_s)
        assert taken == (values is None and (self.newest is None or place > self.newest)), (
            "wrongly taken or refused"
        )
        if taken:
            self.newest, self.passed = place, told
        out = self.filter.tick(self.now_s)
        assert self.passed is None or np.array_equal(out, self.passed), "not the newest command was sent"

    def play(self, events: list[Any]) -> None:
        for event in events:
            if event == "rearm":
                self.rearm()
            elif isinstance(event, tuple):
                self.command(event[1], BAD[event[0]])
            else:
                self.command(event)


@settings(
    max_examples=400, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
@given(st.lists(EVENTS, max_size=40))
def test_commands_pass_in_order(events: list[Any]) -> None:
    """For any order of arrival, repeated, lost or damaged, all within one command's age."""
    Run().play(events)


@pytest.mark.parametrize("second", [5.0, 4.0, 0.0])
def test_out_of_order_commands_are_counted(second: float) -> None:
    run = Run()
    run.play([5.0, second, 6.0])
    assert run.filter.counts == {Reason.OUT_OF_ORDER: 1}


def test_commands_of_another_level_are_dropped() -> None:
    """Four motor commands are not thrust and rates, which this filter passes."""
    run = Run()
    assert not run.filter.on_command(FlightCommand(1.0, LEVEL, MOTORS), run.now_s)
    assert run.filter.counts == {Reason.WRONG_JOINTS: 1}
    assert run.filter.on_command(FlightCommand(1.0, LEVEL, RATES), run.now_s)


@pytest.mark.parametrize("broken", ["check", "take", "forget"])
def test_filter_without_ordering_fails_the_property(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each half of the ordering that is left out breaks the property."""
    monkeypatch.setattr(message_parsing.StampOrder, broken, lambda self, *stamp_s: None)
    with pytest.raises(AssertionError):
        Run().play([2.0, 1.0, 1.0, 4.0, "rearm", 1.0, 2.0])


def test_replayed_commands_are_refused(hover: Bundle) -> None:
    """Real nodes: repeated messages are refused, each of them, and nothing else is."""
    env, world = flight_env(hover), InProcessWorld()
    bus = {name: world.bus(name) for name in ("robot", "filter", "policy", "echo")}
    SimQuadNode(bus["robot"], SimulatedQuad(QuadBody(env.craft)), 1.0 / DT_S)
    filter_ = FlightFilter(ENVELOPE, RatesLander(0.5), 1.0 / DT_S, 1.0 / DT_S)
    FlightFilterNode(bus["filter"], filter_, 1.0 / DT_S, arm=True)
    heard: list[FlightCommand] = []
    safe: list[FlightCommand] = []
    FLIGHT_RAW.subscribe(bus["echo"], lambda message, at: heard.append(message))
    FLIGHT_SAFE.subscribe(bus["echo"], lambda message, at: safe.append(message))
    policy = QuadPolicyNode(bus["policy"], hover, flight_observer(env), say=lambda sentence: None)
    again = policy._send
    bus["echo"].spin(lambda: world.now() >= 0.3)
    stamps_s = [message.stamp_s for message in heard]
    assert all(later > before for before, later in itertools.pairwise(stamps_s))
    assert Reason.OUT_OF_ORDER not in filter_.counts
    for message in heard[-5:]:
        again(message)
    bus["echo"].spin(lambda: world.now() >= 0.4)
    assert filter_.counts[Reason.OUT_OF_ORDER] == 1  # of five at one instant a command's queue keeps the last
    assert bus["echo"].call("policy/reset", 1.0) == (True, "episode 1: what was seen is forgotten")
    old = heard[-1]
    bus["echo"].spin(lambda: world.now() >= 0.5)
    again(old)
    bus["echo"].spin(lambda: world.now() >= 0.6)
    assert filter_.counts[Reason.OUT_OF_ORDER] == 2
    assert filter_.phase is FlightPhase.FLYING
    assert len({message.stamp_s for message in safe}) == len(safe)


def test_frames_are_fixed_at_arming() -> None:
    """A state in NED between that state and arming is dropped, and does not admit another estimator."""
    run = Run()
    run.filter.on_emergency(True)
    while run.filter.phase is not FlightPhase.DISARMED:
        run.tick()
    run.filter.on_emergency(False)
    run.now_s += DT_S
    run.filter.on_state(replace(STILL, frame="odom"), run.now_s)
    run.filter.on_state(replace(STILL, frame="odom_ned"), run.now_s)
    assert run.filter.arm(run.now_s)[0]
    run.filter.on_state(replace(STILL, frame="map"), run.now_s)
    assert "changed its frames from 'odom'" in run.filter.fault
