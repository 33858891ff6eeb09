"""A bundle of thrust and body rates with both autopilots, through driver, filter and policy nodes, in
real time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.driver import QuadDriver
from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.messages import Floats
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.robot_driver import QuadDriverNode
from hardware.nodes.shared.pictures import PictureSettings
from hardware.nodes.velocity_policy import VelocityPolicyNode
from hardware.quads.crazyflie.driver import CrazyflieDriver
from hardware.quads.crazyswarm2.driver import Crazyswarm2Driver
from hardware.quads.px4.mavlink_driver import Px4Driver
from hardware.quads.px4.topics_driver import Px4TopicsDriver
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import GOAL
from policies.deploy.bundle import Bundle
from policies.flight.level_state import SIZE
from robo_rl.apps.nodes.quads.hover_cell import flight_env, flight_observer
from robo_rl.apps.nodes.quads.velocity_loop import make_robot_loop
from robo_rl.core.spec import ArraySpec, EnvSpec
from sim.engines.quad.craft import load_craft
from sim.flight.seek.task import CONTROL_HZ
from sim.flight.seek.task import ENVELOPE as ROOM
from sim.flight.seek.vec_env import ACTION
from tests.hardware.bundles import ENVELOPE
from tests.hardware.domains import free_domain
from tests.hardware.peers import Peer, free_port
from tests.hardware.pilots import HOVER

pytestmark = pytest.mark.long  # flights in real time
SLOW_HZ = 20.0  # what the filter is told, so that a stall of a busy machine is not yet a silence


CHUNK = 8
# Contract of a policy that sees the craft's state alone and commands velocities.
SEEKS = EnvSpec("drone/seek", {"state": ArraySpec((SIZE,))}, ACTION, 240, CONTROL_HZ)


class Velocities:
    """Inference that answers every request at the next poll with the velocity `value`."""

    def __init__(self) -> None:
        self.ready, self.fault, self.value = True, "", np.zeros(4, np.float32)
        self._asked = False

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        self._asked = not self.fault
        return self._asked

    def poll(self) -> tuple[np.ndarray, float] | None:
        if not self._asked:
            return None
        self._asked = False
        return np.tile(self.value, (CHUNK, 1)), 0.0

    def close(self) -> None:
        return None


class Link:
    """The three nodes around a driver. ground_m: of the task's frame. velocities: of a policy that commands
    them, in place of the bundle's hovering.
    """

    def __init__(
        self, bundle: Bundle, driver: QuadDriver, ground_m: float, velocities: Velocities | None = None
    ) -> None:
        self.world = InProcessWorld(clock=time.monotonic)
        bus = {name: self.world.bus(name) for name in ("driver", "filter", "policy", "task")}
        self.task, self.said = bus["task"], list[str]()
        self.robot = QuadDriverNode(bus["driver"], driver, 100.0, "rates", ground_m, self.said.append)
        envelope = ENVELOPE if velocities is None else ROOM
        filter_ = FlightFilter(envelope, RatesLander(HOVER), SLOW_HZ, SLOW_HZ, "rates", ground_m)
        self.node = FlightFilterNode(bus["filter"], filter_, 100.0, arm=True)
        if velocities is None:
            observer = flight_observer(flight_env(bundle))
            self.policy: object = QuadPolicyNode(bus["policy"], bundle, observer, hover=HOVER)
        else:
            self.policy = VelocityPolicyNode(
                bus["policy"], replace(bundle, env=SEEKS, chunk=CHUNK, execute=2), velocities,
                make_robot_loop(load_craft("cf2x_l2f")), HOVER, PictureSettings(), takeoff_m=0.8,
            )  # fmt: skip

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end_s = time.monotonic() + seconds
        self.world.run(lambda: until() or time.monotonic() > end_s)

    def go(self, goal_m: list[float]) -> None:
        GOAL.publisher(self.task)(Floats(np.array(goal_m)))

    def close(self) -> None:
        self.robot.stop("the test ends")
        self.robot.finish()


def test_crazyflie_takes_off_holds_and_lands(rates: Bundle) -> None:
    """From the ground, 0.4 m below the task's origin, to the origin, by the craft's own estimate in its
    own frame.
    """
    pytest.importorskip("cflib", reason="cflib is not installed (extra [crazyflie])")
    port = free_port(socket.SOCK_DGRAM)
    with Peer("quads.fake_crazyflie", str(port)) as craft:
        link = Link(rates, CrazyflieDriver(f"udp://127.0.0.1:{port}", arm=True), -0.4)
        link.spin(5.0)
        assert craft.all("pose")[-1]["enu"] == pytest.approx([0.0, 0.0, 0.4], abs=0.1)
        link.go([0.2, -0.2, 0.1])
        link.spin(4.0)
        assert craft.all("pose")[-1]["enu"] == pytest.approx([0.2, -0.2, 0.5], abs=0.1)
        assert not link.said
        assert {event["value"] for event in craft.all("param")} == {0}  # rates, not angles
        link.node.stop("Ctrl-C")
        link.spin(6.0, until=lambda: link.node.at_rest)
        assert link.node.filter.reason is Reason.LANDED
        assert craft.all("pose")[-1]["enu"][2] < 0.15
        link.close()


def test_px4_holds_in_offboard_over_mavlink(rates: Bundle) -> None:
    """Two metres up: it streams, offboard is granted, and it flies to the goal, in NED by the
    autopilot's maths.
    """
    pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra [px4])")
    port = free_port(socket.SOCK_DGRAM)
    with Peer("quads.fake_px4", str(port)) as px4:
        link = Link(rates, Px4Driver(f"udpin:127.0.0.1:{port}"), -2.0)
        link.spin(5.0, until=lambda: bool(px4.all("mode")))
        assert px4.all("mode")[0]["mode"] == [6, 0]
        link.go([0.3, -0.2, 0.2])  # east, south, up
        link.spin(5.0)
        assert px4.all("pose")[-1]["ned"] == pytest.approx([-0.2, 0.3, -2.2], abs=0.1)
        assert len(px4.all("mode")) == 1
        assert not link.said
        link.close()


def test_px4_holds_in_offboard_over_dds(rates: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same flight over px4_msgs on a real DDS bus: armed by the driver, and landed when the nodes end."""
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra [dds])")
    pytest.importorskip("pymavlink", reason="the stand-in's craft is that of the MAVLink one (extra [px4])")
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        with Peer("quads.fake_px4_topics") as px4:
            link = Link(rates, Px4TopicsDriver(arm=True), -2.0)
            link.spin(5.0, until=lambda: bool(px4.all("arming")))
            assert px4.all("mode")[0]["mode"] == 14
            link.go([0.3, -0.2, 0.2])  # east, south, up
            link.spin(5.0)
            assert px4.all("pose")[-1]["ned"] == pytest.approx([-0.2, 0.3, -2.2], abs=0.1)
            assert not link.said
            link.close()
            assert px4.wait("mode", after_s=px4.all("arming")[0]["t"])["mode"] == 18


def test_crazyswarm2_takes_off_and_lands(rates: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Crazyflie's flight over its server's topics on a real DDS bus; the server lands the craft at
    the end.
    """
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed (extra [dds])")
    with free_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        with Peer("quads.fake_crazyswarm2") as server:
            link = Link(rates, Crazyswarm2Driver("cf231", arm=True), -0.4)
            link.spin(5.0)
            assert server.all("pose")[-1]["enu"] == pytest.approx([0.0, 0.0, 0.4], abs=0.1)
            link.go([0.2, -0.2, 0.1])
            link.spin(4.0)
            assert server.all("pose")[-1]["enu"] == pytest.approx([0.2, -0.2, 0.5], abs=0.1)
            assert not link.said
            closed_s = time.monotonic()
            link.close()
            server.wait("land", after_s=closed_s)
            server.wait("landed", after_s=closed_s)
            assert not server.all("landing_interrupted")


def test_a_crazyflie_follows_velocities_and_lands_without_them(rates: Bundle) -> None:
    """It climbs from the ground, flies forward, left and up, and lands when the policy's
    process has died.
    """
    pytest.importorskip("cflib", reason="cflib is not installed (extra [crazyflie])")
    port = free_port(socket.SOCK_DGRAM)
    with Peer("quads.fake_crazyflie", str(port)) as craft:
        policy = Velocities()
        link = Link(rates, CrazyflieDriver(f"udp://127.0.0.1:{port}", arm=True), 0.0, policy)
        link.spin(6.0)
        assert craft.all("pose")[-1]["enu"] == pytest.approx([0.0, 0.0, 0.9], abs=0.15)
        begin = np.array(craft.all("pose")[-1]["enu"])
        policy.value = np.array([0.3, 0.2, 0.1, 0.0], np.float32)
        link.spin(3.0)
        flown = np.array(craft.all("pose")[-1]["enu"]) - begin
        assert flown == pytest.approx([0.9, 0.6, 0.3], abs=0.2)
        assert not link.said
        policy.fault = "the inference process has died"
        link.spin(12.0, until=lambda: link.node.at_rest)
        assert link.node.filter.counts[Reason.NO_COMMAND] == 1
        assert link.node.filter.reason is Reason.LANDED
        assert craft.all("pose")[-1]["enu"][2] < 0.15
        link.close()
