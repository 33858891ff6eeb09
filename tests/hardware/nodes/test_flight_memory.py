"""Memory of the quadcopter's policy of the time in which it does not fly."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.messages import Floats, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.sim_robot import SimQuadNode
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.topics import GOAL, ODOM
from policies.deploy.bundle import Bundle
from policies.flight.observer import FlightObserver, VehicleState
from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad, flight_env, flight_observer
from robo_rl.core.shapes import Float
from sim.flight.robot import QuadBody
from tests.hardware.bundles import ENVELOPE

_STEP_M_S = 0.01 * 0.25  # the integral of one control period, 25 cm off the goal


class RecordedObserver(FlightObserver):
    """An observer that keeps the integral and the last actions of each observation."""

    def __init__(self, of: FlightObserver) -> None:
        super().__init__(of.history, of.integral, of.hover, of.dt_s, of.integral_limit_m_s)
        self.integral_m_s: list[float] = []
        self.actions: list[np.ndarray] = []

    def observe(
        self,
        state: VehicleState,
        goal_m: Float[np.ndarray, " 3"],
        goal_velocity_m_s: Float[np.ndarray, " 3"] | None = None,
        extra: Float[np.ndarray, " b"] | None = None,
    ) -> Float[np.ndarray, " o"]:
        seen = super().observe(state, goal_m, goal_velocity_m_s, extra)
        self.integral_m_s.append(float(np.linalg.norm(seen[-3:])))
        self.actions.append(seen[18 : 18 + 4 * self.history])
        return seen


class Flight:
    """A craft 25 cm off its goal. It is held there until its filter is armed."""

    def __init__(self, bundle: Bundle) -> None:
        env, self.world = flight_env(bundle), InProcessWorld()
        body = QuadBody(env.craft, (0.2, -0.15, 0.0), level="rates", hover=0.5)
        bus = {name: self.world.bus(name) for name in ("robot", "policy", "filter", "task")}
        self.task = bus["task"]
        self.robot = SimQuadNode(bus["robot"], SimulatedQuad(body), 100.0)
        filter_ = FlightFilter(ENVELOPE, RatesLander(0.5), 100.0, 100.0, "rates")
        self.node = FlightFilterNode(bus["filter"], filter_, 100.0, say=lambda _: None)
        self.observer = RecordedObserver(flight_observer(env))
        QuadPolicyNode(bus["policy"], bundle, self.observer)

    def until(self, seconds: float) -> None:
        self.task.spin(lambda: self.world.now() >= seconds)

    def arm(self) -> int:
        """Arm; returns the number of observations before."""
        assert self.task.call("filter/arm", 1.0)[0]
        return len(self.observer.actions)


@pytest.mark.parametrize("armed_s", [0.3, 2.0])  # before the filter's first status, and after it
def test_policy_starts_to_fly_without_an_integral(rates: Bundle, armed_s: float) -> None:
    """Held off its goal for seconds, as on the ground: the integral is zero, as at the start of an episode in
    training. In flight it counts.
    """
    flight = Flight(rates)
    flight.until(armed_s)
    armed = flight.arm()
    flight.until(armed_s + 0.2)
    flown = np.array(flight.observer.integral_m_s[armed:])
    begin = int(np.flatnonzero(flown == 0.0)[-1])
    assert begin <= 2  # the status of the filter is heard within a period or two
    assert flown[begin : begin + 4] == pytest.approx(np.arange(4) * _STEP_M_S, rel=0.05)
    assert flown[-1] > 10 * _STEP_M_S


def test_second_flight_starts_without_memory_of_the_first(rates: Bundle) -> None:
    """Neither the integral nor the last actions, which are those of the landing."""
    flight = Flight(rates)
    flight.until(0.5)
    flight.arm()
    flight.until(1.0)
    assert flight.observer.integral_m_s[-1] > 10 * _STEP_M_S
    flight.node.filter.finish()
    flight.until(1.6)
    assert flight.observer.integral_m_s[-1] == 0.0
    hover = np.tile(np.broadcast_to(flight.observer.hover, 4), flight.observer.history)
    assert flight.observer.actions[-1] == pytest.approx(hover)


def test_policy_that_starts_in_flight_keeps_what_it_sees(rates: Bundle) -> None:
    """Without a filter's status nothing is forgotten: a restarted node would else lose its last actions."""
    world = InProcessWorld()
    observer = RecordedObserver(flight_observer(flight_env(rates)))
    QuadPolicyNode(world.bus("policy"), rates, observer)
    task, still = world.bus("task"), np.zeros(3)
    GOAL.publisher(task)(Floats(np.array([0.25, 0.0, 0.0])))
    tell = ODOM.publisher(task)
    state = Odometry(0.0, still, np.array([1.0, 0.0, 0.0, 0.0]), still, still)
    task.timer(0.01, lambda: tell(state))
    task.spin(lambda: world.now() >= 0.25)
    assert observer.integral_m_s[-1] == pytest.approx((len(observer.actions) - 1) * _STEP_M_S, rel=0.1)
