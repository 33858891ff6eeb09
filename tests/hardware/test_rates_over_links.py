"""A bundle of thrust and body rates with both autopilots, through driver, filter and policy nodes, in
real time.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.driver import QuadDriver
from hardware.messages import Floats
from hardware.nodes.flight_filter import FlightFilterNode
from hardware.nodes.quad_policy import QuadPolicyNode
from hardware.nodes.robot_driver import QuadDriverNode
from hardware.quads.crazyflie.driver import CrazyflieDriver
from hardware.quads.crazyswarm2.driver import Crazyswarm2Driver
from hardware.quads.px4.mavlink_driver import Px4Driver
from hardware.quads.px4.topics_driver import Px4TopicsDriver
from hardware.safety.flight import FlightFilter
from hardware.safety.landing import RatesLander
from hardware.safety.reasons import Reason
from hardware.topics import GOAL
from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes.quads.hover_cell import flight_env, flight_observer
from tests.hardware.bundles import ENVELOPE
from tests.hardware.domains import free_domain
from tests.hardware.peers import Peer, free_port
from tests.hardware.pilots import HOVER

SLOW_HZ = 20.0  # what the filter is told, so that a stall of a busy machine is not yet a silence


class Link:
    """The three nodes around a driver. ground_m: of the task's frame."""

    def __init__(self, bundle: Bundle, driver: QuadDriver, ground_m: float) -> None:
        self.world = InProcessWorld(clock=time.monotonic)
        bus = {name: self.world.bus(name) for name in ("driver", "filter", "policy", "task")}
        self.task, self.said = bus["task"], list[str]()
        self.robot = QuadDriverNode(bus["driver"], driver, 100.0, "rates", ground_m, self.said.append)
        filter_ = FlightFilter(ENVELOPE, RatesLander(HOVER), SLOW_HZ, SLOW_HZ, "rates", ground_m)
        self.node = FlightFilterNode(bus["filter"], filter_, 100.0, arm=True)
        self.policy = QuadPolicyNode(bus["policy"], bundle, flight_observer(flight_env(bundle)), hover=HOVER)

    def spin(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        end_s = time.monotonic() + seconds
        self.world.run(lambda: until() or time.monotonic() > end_s)

    def go(self, goal_m: list[float]) -> None:
        GOAL.publisher(self.task)(Floats(np.array(goal_m)))

    def close(self) -> None:
        self.robot.stop("the test ends")
        self.robot.last_word()


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
