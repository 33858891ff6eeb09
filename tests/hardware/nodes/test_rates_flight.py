"""A bundle of thrust and body rates, its filter and a simulated craft with an autopilot, in virtual time."""

from __future__ import annotations

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.flight_units import FlightUnits
from hardware.messages import FlightCommand, Floats, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.sim_robot import SimQuadNode
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import FLIGHT_RAW, FLIGHT_SAFE, GOAL, ODOM
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad, flight_env, flight_observer
from robo_rl.core.errors import ConfigError
from sim.flight.robot import QuadBody
from tests.hardware.bundles import ENVELOPE


class Flight:
    """Started 20 cm off its goal. told, really: the thrust at which nodes believe that it hovers, and
    does.
    """

    def __init__(self, bundle: Bundle, told: float = 0.5, really: float = 0.5) -> None:
        env, self.world = flight_env(bundle), InProcessWorld()
        self.body = QuadBody(env.craft, (0.2, -0.1, -0.1), level="rates", hover=really)
        bus = {name: self.world.bus(name) for name in ("robot", "policy", "filter", "task")}
        self.task = bus["task"]
        self.robot = SimQuadNode(bus["robot"], SimulatedQuad(self.body), 100.0)
        filter_ = FlightFilter(ENVELOPE, RatesLander(told), 100.0, 100.0, "rates")
        self.node = FlightFilterNode(bus["filter"], filter_, 100.0, arm=True)
        self.policy = QuadPolicyNode(bus["policy"], bundle, flight_observer(env), hover=told)
        self.raw: list[np.ndarray] = []
        FLIGHT_RAW.subscribe(self.task, lambda m, at: self.raw.append(m.values))

    def until(self, seconds: float) -> None:
        self.task.spin(lambda: self.world.now() >= seconds)

    def away_m(self, goal: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> float:
        return float(np.linalg.norm(self.body.read()[0] - goal))


@pytest.mark.parametrize(
    "hover", [pytest.param(0.3, marks=pytest.mark.long), 0.5, pytest.param(0.62, marks=pytest.mark.long)]
)
def test_hovers_with_any_hover_thrust(rates: Bundle, hover: float) -> None:
    """To the goal and to the next one, unchanged by the filter; on the bus, thrust is the autopilot's
    fraction.
    """
    flight = Flight(rates, hover, hover)
    flight.until(4.0)
    assert flight.away_m() < 0.05
    assert np.mean([values[0] for values in flight.raw[-100:]]) == pytest.approx(hover, rel=0.02)
    GOAL.publisher(flight.task)(Floats(np.array([0.1, 0.1, 0.1])))
    flight.until(8.0)
    assert flight.away_m((0.1, 0.1, 0.1)) < 0.05
    assert set(flight.node.filter.counts) <= {Reason.NOT_ARMED, Reason.NO_STATE}
    flight.node.stop("Ctrl-C")
    flight.task.spin(lambda: flight.node.at_rest or flight.world.now() > 20.0)
    assert flight.node.filter.reason is Reason.LANDED


def test_wrong_hover_thrust_sinks_as_computed(rates: Bundle) -> None:
    """Set 5 % too low: a_z = g (1 / 0.95 - 1) has to come from 2.5 p + I, I at most 0.1 m s: 17 cm lower."""
    flight = Flight(rates, 0.475, 0.5)
    flight.until(6.0)
    low_m = (9.81 * (1.0 / 0.95 - 1.0) - 0.1) / 2.5
    assert flight.body.read()[0][2] == pytest.approx(-low_m, abs=0.01)


def test_sent_commands_are_observed_in_policy_units(rates: Bundle) -> None:
    """`flight/safe` holds the autopilot's thrust and rad/s; the last actions of an observation are in [-1,
    1]. They count control periods: what the filter repeats because the next command is late counts once.
    """
    world, observer = InProcessWorld(), flight_observer(flight_env(rates))
    policy = QuadPolicyNode(world.bus("policy"), rates, observer)
    task, still = world.bus("task"), np.zeros(3)
    see, send = ODOM.publisher(task), FLIGHT_SAFE.publisher(task)
    state, before = Odometry(0.0, still, np.array([1.0, 0.0, 0.0, 0.0]), still, still), observer._actions
    task.timer(0.003, lambda: send(FlightCommand(0.0, np.array([0.55, 1.0, -2.0, 0.5]))))
    task.timer(0.01, lambda: see(state))
    task.spin(lambda: world.now() >= 0.015)
    most = policy._policy.action_spec.high
    expected = [1.1 / most[0] * 2.0 - 1.0, 1.0 / 4.0, -2.0 / 4.0, 0.5 / 2.0]
    assert policy.decisions == 1
    assert observer._actions[:4] == pytest.approx(expected, abs=1e-6)
    assert observer._actions[4:] == pytest.approx(before[:-4])


def test_unit_conversion_round_trip(rates: Bundle, hover: Bundle) -> None:
    units = FlightUnits(rates.env.action, 0.4)
    assert units.to_filter(np.array([1.5, 1.0, 2.0, -0.5])).tolist() == pytest.approx([0.6, 1.0, 2.0, -0.5])
    assert units.to_policy(np.array([1.0, 9.0, 0.0, 0.0])).tolist() == pytest.approx(
        [1.0, 1.0, 0.0, 0.0]
    )  # kept in
    motors, values = FlightUnits(hover.env.action), np.array([0.1, -0.2, 0.3, -1.0])
    assert motors.to_filter(values).tolist() == motors.to_policy(values).tolist() == values.tolist()
    with pytest.raises(ConfigError, match=r"hover=1\.2"):
        FlightUnits(rates.env.action, 1.2)
