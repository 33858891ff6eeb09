"""Policy, filter and simulated quadcopter nodes in virtual time."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.checks.flight_contract import check_flight, envelope_of
from hardware.loop.flight_record import FlightRecord
from hardware.messages import MOTORS, Diagnostics, Flag, FlightCommand, Floats, Odometry
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.sim_robot import SimQuadNode
from hardware.safety.flight import FlightFilter, FlightPhase
from hardware.safety.landing import MotorsLander
from hardware.safety.reasons import Reason
from hardware.topic import Topic
from hardware.topics import ESTOP, FLIGHT_RAW, FLIGHT_SAFE, GOAL, ODOM, POLICY_STATUS, SAFETY_STATE
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.builders import flight_filter
from robo_rl.apps.nodes.node_life import Ending, live
from robo_rl.apps.nodes.quads.craft_model import craft_model
from robo_rl.apps.nodes.quads.hover_cell import SimulatedQuad, flight_env, flight_observer
from robo_rl.conf.node import FlightFilterNodeConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.core.flight.level import UNITS
from sim.flight.robot import QuadBody
from tests.hardware.bundles import ENVELOPE


class Flight:
    """Started 20 cm off its goal, 70 cm above the floor of its fence."""

    def __init__(self, bundle: Bundle) -> None:
        env, self.world = flight_env(bundle), InProcessWorld()
        self.body = QuadBody(env.craft, (0.2, -0.1, -0.1))
        bus = {name: self.world.bus(name) for name in ("robot", "policy", "filter", "task")}
        self.bus = bus
        self.robot = SimQuadNode(bus["robot"], SimulatedQuad(self.body), 100.0)
        lander = MotorsLander(craft_model(env.craft), 0.01)
        self.said: list[str] = []
        flight_filter = FlightFilter(ENVELOPE, lander, 100.0, 100.0)
        self.node = FlightFilterNode(bus["filter"], flight_filter, 100.0, arm=True, say=self.said.append)
        self.policy = QuadPolicyNode(bus["policy"], bundle, flight_observer(env), say=self.said.append)
        self.sent: list[np.ndarray] = []
        FLIGHT_SAFE.subscribe(bus["task"], lambda m, at: self.sent.append(m.values))

    def until(self, seconds: float) -> None:
        self.bus["task"].spin(lambda: self.world.now() >= seconds)

    def landed(self) -> None:
        self.bus["task"].spin(lambda: self.node.at_rest or self.world.now() > 20.0)

    def away_m(self, goal: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> float:
        return float(np.linalg.norm(self.body.read()[0] - goal))


def test_hover_new_goal_and_landing(hover: Bundle) -> None:
    """To the goal, to the next one, and down on request; the filter changes nothing before that."""
    flight = Flight(hover)
    flight.until(2.0)
    assert flight.away_m() < 0.08
    GOAL.publisher(flight.bus["task"])(Floats(np.array([0.1, 0.1, 0.1])))
    flight.until(4.0)
    assert flight.away_m((0.1, 0.1, 0.1)) < 0.08
    assert set(flight.node.filter.counts) <= {Reason.NOT_ARMED, Reason.NO_STATE}
    assert "landing" in flight.node.stop("Ctrl-C")
    flight.landed()
    assert flight.node.at_rest
    assert flight.node.filter.reason is Reason.LANDED
    assert flight.body.read()[0][2] < ENVELOPE.fence_low_m[2] + 0.1 or (flight.sent[-1] == -1.0).all()


@pytest.mark.parametrize(
    ("odom_hz", "decisions"),
    [(100.0, 100), (120.0, 100), (150.0, 100), (1000.0, 100), (95.0, 95), (50.0, 50)],
)
def test_policy_decides_at_the_rate_of_its_bundle(hover: Bundle, odom_hz: float, decisions: int) -> None:
    """100 Hz, of which the integral and the past actions depend. States of 50 Hz are reported."""
    world, env, said, heard = InProcessWorld(), flight_env(hover), list[str](), list[Diagnostics]()
    SimQuadNode(world.bus("robot"), SimulatedQuad(QuadBody(env.craft)), odom_hz)
    policy = QuadPolicyNode(world.bus("policy"), hover, flight_observer(env), say=said.append)
    task = world.bus("task")
    POLICY_STATUS.subscribe(task, lambda m, at: heard.append(m))
    task.spin(lambda: world.now() >= 2.1)
    assert policy.decisions == pytest.approx(2.1 * decisions, rel=0.02)
    slow = "odom comes at less than the 100 Hz of the bundle"
    assert said == ([f"policy: {slow}"] if odom_hz < 90.0 else [])
    status = heard[-1].status[0]
    assert (status.level, status.message) == ((1, slow) if odom_hz < 90.0 else (0, "deciding"))
    assert float(status.values["odom_hz"]) == pytest.approx(odom_hz, rel=0.02)
    assert float(status.values["decision_hz"]) == pytest.approx(decisions, rel=0.02)


def test_states_in_bursts_are_reported(hover: Bundle) -> None:
    """A link that delivers 120 Hz in pairs lets the policy decide 60 times a second."""
    world, said = InProcessWorld(), list[str]()
    policy = QuadPolicyNode(world.bus("policy"), hover, flight_observer(flight_env(hover)), say=said.append)
    task, still = world.bus("task"), np.zeros(3)
    tell = ODOM.publisher(task)
    state = Odometry(0.0, still, np.array([1.0, 0.0, 0.0, 0.0]), still, still)
    for _ in range(2):
        task.timer(1.0 / 60.0, lambda: tell(state))
    task.spin(lambda: world.now() >= 2.1)
    assert policy.decisions == pytest.approx(2.1 * 60, rel=0.02)
    assert said == ["policy: odom comes too irregularly for the 100 Hz of the bundle"]


@pytest.mark.parametrize("phase_s", [0.0, 0.002, 0.005, 0.008])
def test_filter_sends_one_command_for_each_of_the_policy(hover: Bundle, phase_s: float) -> None:
    """Whatever the phase of its timer, also with jitter. A command whose successor is late is repeated."""
    flight = Flight(hover)
    flight.bus["task"].timer(0.001, lambda: None)  # resolution of the times below
    flight.until(0.5 + phase_s)
    flight.policy.stop("test")
    publish, sent = flight.policy._send, flight.sent  # a second publisher would be a fault
    begin, jitter_s = len(sent), (0.0, 0.002, -0.001, 0.0)
    for number in range(40):
        flight.until(0.5 + phase_s + 0.01 * (number + 1) + jitter_s[number % 4])
        publish(FlightCommand(flight.bus["policy"].stamp(), np.zeros(4), MOTORS))
    assert len(sent) - begin <= 41
    assert set(flight.node.filter.counts) == set()
    flight.until(flight.world.now() + 0.024)
    assert len(sent) - begin >= 41


def test_filter_repeats_a_new_status(hover: Bundle) -> None:
    """With one message, which may be lost, the policy would begin its flight up to 0.5 s late."""
    flight, flying = Flight(hover), list[float]()

    def heard(message: Diagnostics, at_s: float) -> None:
        if message.status[0].values["phase"] == "flying" and message.status[0].level == 0:
            flying.append(at_s)

    SAFETY_STATE.subscribe(flight.bus["task"], heard)
    flight.until(0.4)
    assert len(flying) == 3
    assert flying[-1] - flying[0] < 0.05


def test_filter_repeats_a_status_that_a_stop_reported(hover: Bundle) -> None:
    """The landing that begins outside a tick is sent three times, too."""
    flight, landing = Flight(hover), list[float]()
    flight.until(1.0)

    def heard(message: Diagnostics, at_s: float) -> None:
        if message.status[0].values["phase"] == "landing":
            landing.append(at_s)

    SAFETY_STATE.subscribe(flight.bus["task"], heard)
    flight.node.stop("Ctrl-C")
    flight.until(1.1)
    assert len(landing) >= 3


def test_last_report_has_duration_and_distance(hover: Bundle) -> None:
    """Seconds flown, the final distance, and the largest one once at the goal; the way to a new goal does not
    count.
    """
    flight = Flight(hover)
    flight.until(2.0)
    GOAL.publisher(flight.bus["task"])(Floats(np.array([0.3, 0.3, 0.1])))
    flight.until(4.0)
    said = flight.policy.stop("Ctrl-C")
    found = re.fullmatch(
        r"Ctrl-C: flew (\S+) s, (\S+) m from its goal at the end, at worst (\S+) m once it was there; "
        r"(\d+) decisions, the last in \S+ ms",
        said,
    )
    assert found is not None, said
    assert float(found[1]) == pytest.approx(4.0, abs=0.2)
    assert float(found[2]) == pytest.approx(flight.away_m((0.3, 0.3, 0.1)), abs=0.02)
    assert float(found[2]) <= float(found[3]) < 0.2
    assert int(found[4]) > 380


def test_last_report_names_the_reason_of_the_landing(hover: Bundle) -> None:
    """Its duration is the time in which the filter passed commands, without that on the ground."""
    flight = Flight(hover)
    flight.until(1.0)
    GOAL.publisher(flight.bus["task"])(Floats(np.array([3.0, 0.0, 0.0])))
    flight.landed()
    flight.until(flight.world.now() + 3.0)
    said = flight.policy.stop("the time is over")
    assert re.search(r"s and did not come within 0.1 m of its goal \(nearest [23]\.\d\d m\);", said)
    assert said.endswith("; filter: the craft is on the ground; it goes on after filter/arm")
    assert 0.9 < float(said.split("flew ")[1].split(" s")[0]) < 3.0


def test_last_report_of_a_craft_that_never_flew() -> None:
    record = FlightRecord()
    assert str(record) == "the craft never flew"
    record.see(1.0, 0.5)
    record.see(9.0, 0.4)  # nobody knows what was in between
    assert str(record) == "flew 0.0 s and did not come within 0.1 m of its goal (nearest 0.40 m)"


@pytest.mark.long
def test_program_ends_after_the_landing(hover: Bundle) -> None:
    """Six metres at 0.3 m/s take 20 s; the last message switches the motors off."""
    flight, ending = Flight(hover), Ending()
    flight.node.filter.ground_m = -6.0
    flight.until(1.0)
    ending.ask("Ctrl-C")
    live([(flight.node, flight.bus["filter"])], ending, say=flight.said.append)
    assert flight.node.filter.reason is Reason.LANDED
    assert flight.body.read()[0][2] < -5.8


def test_killed_policy_leads_to_a_hold_and_a_landing(hover: Bundle) -> None:
    flight = Flight(hover)
    flight.until(0.5)
    flight.world.kill("policy")
    flight.until(0.55)
    assert flight.node.filter.reason is Reason.LATE_COMMAND
    flight.until(1.0)
    assert (flight.node.filter.phase, flight.node.filter.reason) == (FlightPhase.LANDING, Reason.NO_COMMAND)
    flight.landed()
    assert flight.node.filter.reason is Reason.LANDED


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        (("odom_ned", "base_link"), "odom is in 'odom_ned', which is NED, expected ENU"),
        (("odom", "base_link_frd"), "odom is in 'base_link_frd', which is FRD, expected FLU"),
    ],
)
def test_states_in_another_frame_are_refused(hover: Bundle, frames: tuple[str, str], sentence: str) -> None:
    """Up would be down: nothing is sent, and the terminal has one report, not one per state."""
    flight = Flight(hover)
    flight.world.kill("robot")
    tell = ODOM.publisher(flight.bus["task"])
    still = np.zeros(3)
    state = Odometry(0.0, still, np.array([1.0, 0.0, 0.0, 0.0]), still, still, *frames)
    flight.bus["task"].timer(0.01, lambda: tell(state))
    flight.until(2.0)
    assert flight.sent == []
    assert len(flight.said) == 1
    assert flight.said[0].startswith(f"filter: {sentence}")
    armed, why = flight.bus["task"].call("filter/arm", 1.0)
    assert not armed
    assert why.startswith(f"not armed: {sentence}")


def test_frame_change_in_flight_lands(hover: Bundle) -> None:
    """A second estimator replaces the first, one metre off: its states are dropped, and the filter lands."""
    flight = Flight(hover)
    flight.until(1.0)
    flight.world.kill("robot")
    tell = ODOM.publisher(flight.bus["task"])
    other = Odometry(0.0, np.ones(3), np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.zeros(3), "map")
    flight.bus["task"].timer(0.01, lambda: tell(other))
    flight.until(1.6)
    assert flight.said[-1].startswith(
        "filter: odom changed its frames from 'world' and 'base_link' to 'map' and 'base_"
    )
    assert flight.node.filter.phase is not FlightPhase.FLYING


@pytest.mark.parametrize("topic", [ODOM, FLIGHT_RAW, FLIGHT_SAFE], ids=lambda topic: topic.name)
def test_second_publisher_lands_the_craft(hover: Bundle, topic: Topic[Any]) -> None:
    """Two publishers of states, commands or safe commands: the craft flies again only when one is left."""
    flight = Flight(hover)
    flight.until(1.0)
    rival = flight.world.bus("rival")
    topic.publisher(rival)
    flight.until(1.05)
    assert flight.node.filter.reason is Reason.FLIGHT_SECOND_PUBLISHER
    assert f"{topic.name} has 2 publishers, /" in flight.said[-1]
    flight.node.filter.finish()
    answer = flight.bus["task"].call("filter/arm", 1.0)
    assert answer == (False, f"not armed: {flight.node.filter.publisher_conflict}")
    rival.close()
    assert not flight.node.filter.publisher_conflict


def test_unheard_publisher_of_estop_lands_the_craft_at_its_end(hover: Bundle) -> None:
    """Its message may have been lost. Motors are not switched off in flight on a suspicion."""
    flight = Flight(hover)
    flight.until(1.0)
    button = flight.world.bus("button")
    ESTOP.publisher(button)
    flight.until(1.05)
    button.close()
    flight.until(1.1)
    assert flight.node.filter.reason is Reason.FLIGHT_EMERGENCY_UNHEARD
    assert flight.node.filter.phase is FlightPhase.LANDING


def test_leaving_the_fence_lands(hover: Bundle) -> None:
    """The goal is beyond the fence; policy commands are ignored as soon as the craft is."""
    flight = Flight(hover)
    flight.until(1.0)
    GOAL.publisher(flight.bus["task"])(Floats(np.array([3.0, 0.0, 0.0])))
    flight.landed()
    assert flight.node.filter.reason is Reason.LANDED
    assert {Reason.FENCE, Reason.SPEED, Reason.TILT, Reason.FAST_ROTATION} & flight.node.filter.counts.keys()
    assert flight.body.read()[0][0] < 2.0


def test_invalid_goal_is_reported_and_ignored(hover: Bundle) -> None:
    flight, heard = Flight(hover), list[Diagnostics]()
    POLICY_STATUS.subscribe(flight.bus["task"], lambda m, at: heard.append(m))
    flight.until(2.0)
    goal = GOAL.publisher(flight.bus["task"])
    goal(Floats(np.array([0.0, np.nan, 0.0])))
    flight.until(3.0)
    sentence = (
        "the topic 'goal' holds [0.0, nan, 0.0], expected three finite numbers: the goal before it is kept"
    )
    assert flight.said == [f"policy: {sentence}"]
    assert (heard[-1].status[0].level, heard[-1].status[0].message) == (1, sentence)
    assert flight.away_m() < 0.08
    goal(Floats(np.zeros(3)))
    flight.until(4.0)
    assert (heard[-1].status[0].level, heard[-1].status[0].message) == (0, "deciding")


def test_start_reports_an_unarmed_filter(hover: Bundle) -> None:
    flight = Flight(hover)
    flight.until(1.0)
    call = flight.bus["task"].call
    assert call("policy/start", 1.0) == (True, "deciding")
    call("policy/stop", 1.0)
    flight.landed()
    flight.until(flight.world.now() + 1.0)
    hint = ", but filter is disarmed: arm it by robo-rl call filter/arm"
    assert call("policy/start", 1.0) == (True, f"deciding{hint}")


def test_emergency_stop_switches_the_motors_off(hover: Bundle) -> None:
    flight = Flight(hover)
    flight.until(1.0)
    ESTOP.publisher(flight.world.bus("button"))(Flag(True))
    flight.until(1.1)
    assert (flight.sent[-1] == -1.0).all()
    assert flight.node.filter.reason is Reason.KILLED


def test_unsuitable_bundles_are_refused(hover: Bundle, chunks: Bundle) -> None:
    bus = InProcessWorld().bus("policy")
    with pytest.raises(CheckpointError, match="not for a quadcopter"):
        flight_env(chunks)
    with pytest.raises(CheckpointError, match="sees 7 numbers"):
        QuadPolicyNode(bus, chunks, flight_observer(flight_env(hover)))
    blank = Bundle(hover.folder, hover.manifest, hover.env, 1, 1, 1, "zero", None)
    with pytest.raises(CheckpointError, match="carries no flight envelope"):
        envelope_of(blank)


@pytest.mark.parametrize(("unit", "level", "fits"), [
    ("motor command: -1 stopped, 1 full speed", "motors", True),
    ("motor command: -1 stopped, 1 full speed", "rates", False),
    (UNITS["rates"], "rates", True),
    (UNITS["rates"], "motors", False),
    ("thrust, rad/s: x, y, z", "rates", False),  # of whom nobody knows in which units
])  # fmt: skip
def test_motor_commands_are_not_read_as_thrust_and_rates(
    hover: Bundle, unit: str, level: Any, fits: bool
) -> None:
    env = replace(hover.env, action=replace(hover.env.action, unit=unit))
    bundle = Bundle(hover.folder, hover.manifest, env, 1, 1, 1, "zero", ENVELOPE)
    with nullcontext() if fits else pytest.raises(CheckpointError, match=r"level=|expected 'motor"):
        check_flight(bundle, level)


def test_the_filter_refuses_a_bundle_of_the_other_level(hover: Bundle) -> None:
    """Also if the node is started alone, without the checks of `robo-rl up`."""
    config = FlightFilterNodeConfig(bundle=str(hover.folder), level="rates")
    with pytest.raises(CheckpointError, match="commands motors"):
        flight_filter(config, InProcessWorld().bus("filter"))
