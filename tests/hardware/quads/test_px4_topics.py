"""PX4 driver over DDS topics: px4_msgs on a real bus with a fake autopilot in another process, in NED
and FRD.
"""

from __future__ import annotations

import json
import math
import os
import signal
import time
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
pytest.importorskip("pymavlink", reason="the stand-in's craft is that of the MAVLink one (extra [px4])")

from hardware.driver import make_driver
from hardware.quads.bounds import yaw_of
from hardware.quads.px4.topics_driver import Px4TopicsDriver
from hardware.states import Attitude, BodyRates, QuadState
from robo_rl.core.errors import DriverError
from tests.hardware.domains import free_domain
from tests.hardware.peers import Peer
from tests.hardware.pilots import fly, towards

LEVEL = BodyRates(np.zeros(3), 0.5)


@pytest.fixture(autouse=True)
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with free_domain() as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        monkeypatch.delenv("ROBO_RL_INTERFACE", raising=False)
        yield


def in_offboard(quad: Px4TopicsDriver) -> QuadState:
    for _ in range(60):
        if (state := fly(quad, 0.1, lambda _: LEVEL)).controlled:
            return state
    raise AssertionError("it never entered offboard")


@pytest.mark.parametrize("status", ["vehicle_status", "vehicle_status_v1"])
def test_arm_fly_and_land(status: str) -> None:
    """1 m east, 0.8 m north, 3 m up in ENU is (0.8, 1, -3) for PX4; a left turn decreases its heading."""
    with Peer("quads.fake_px4_topics", status) as px4:
        quad = make_driver("px4_topics", {"arm": True})
        assert isinstance(quad, Px4TopicsDriver)
        quad.connect()
        start = quad.read()
        assert start.position_m == pytest.approx([0.0, 0.0, 2.0], abs=0.01)
        assert yaw_of(start.quat_wxyz) == pytest.approx(math.pi / 2, abs=0.01)  # nose to the north
        assert (start.armed, start.controlled) == (False, False)
        in_offboard(quad)
        assert not px4.all("rejected")  # it was asked only once the stream had run
        before = quad.read()
        after = fly(quad, 0.5, lambda _: BodyRates(np.array([0.0, 0.0, 1.0]), 0.5))
        assert 0.2 < yaw_of(after.quat_wxyz) - yaw_of(before.quat_wxyz) < 0.8
        assert px4.all("pose")[-1]["heading_deg"] < -10.0
        goal = np.array([1.0, 0.8, 3.0])
        state = fly(quad, 4.0, towards(goal))
        assert state.position_m == pytest.approx(goal, abs=0.2)
        assert px4.all("pose")[-1]["ned"] == pytest.approx([0.8, 1.0, -3.0], abs=0.3)
        closed_s = time.monotonic()
        quad.close()
        landing = px4.wait("mode", after_s=closed_s)
        assert (landing["mode"], landing["why"]) == (18, "command")


def test_motors_that_were_switched_off_in_flight_stay_off() -> None:
    """After the emergency stop it is disarmed in the air, not landed, which would start the rotors again."""
    with Peer("quads.fake_px4_topics") as px4:
        quad = Px4TopicsDriver(arm=True)
        quad.connect()
        in_offboard(quad)
        stopped_s = time.monotonic()
        quad.write(BodyRates(np.zeros(3), 0.0))
        quad.close()
        assert px4.wait("disarmed", after_s=stopped_s)["height"] > 1.0
        assert not px4.all("mode", after_s=stopped_s)


def test_craft_that_somebody_disarmed_is_not_armed_again() -> None:
    """A ground station disarms it; its rotors stay still beside whoever walks up, until `connect`."""
    with Peer("quads.fake_px4_topics") as px4:
        quad = Px4TopicsDriver(arm=True)
        quad.connect()
        in_offboard(quad)
        disarmed_s = time.monotonic()
        px4.order("disarm")
        with pytest.raises(DriverError, match=r"was disarmed, by a pilot.*Connect again to fly"):
            fly(quad, 1.5, lambda _: LEVEL)
        quad.close()
        time.sleep(0.1)
        assert not px4.all("arming", after_s=disarmed_s)


@pytest.mark.long
def test_faults_are_reported() -> None:
    """No autopilot, a pilot in control, an unsupported setpoint, a position in another frame, silence."""
    quad = Px4TopicsDriver()
    with pytest.raises(DriverError, match="not connected"):
        quad.read()
    with pytest.raises(
        DriverError, match=r"sent no vehicle_odometry and no vehicle_status .* MicroXRCEAgent"
    ):
        quad.connect()
    with Peer("quads.fake_px4_topics") as px4:
        quad = Px4TopicsDriver(arm=True)
        quad.connect()
        with pytest.raises(DriverError, match="expects BodyRates, found Attitude"):
            quad.write(Attitude(np.array([1.0, 0.0, 0.0, 0.0]), 0.5))
        in_offboard(quad)
        px4.order("pilot")
        px4.wait("mode", after_s=time.monotonic() - 0.5)
        time.sleep(0.2)
        with pytest.raises(DriverError, match="left offboard: a pilot"):
            quad.write(LEVEL)
        px4.order("frame")
        time.sleep(0.2)
        with pytest.raises(DriverError, match="sends its position in frame 2"):
            quad.read()
        px4.order("mute")
        time.sleep(1.3)
        with pytest.raises(DriverError, match="silent for more than 1 s"):
            quad.read()
        quad.close()
        assert [event["why"] for event in px4.all("mode")] == ["command", "pilot"]  # nobody took it back


@pytest.mark.long
def test_killed_feeder_lands_the_craft() -> None:
    with (
        Peer("quads.fake_px4_topics") as px4,
        Peer("quad_feeder", "px4_topics", json.dumps({"arm": True})) as feeder,
    ):
        px4.wait("arming", 20.0)
        killed_s = time.monotonic()
        os.kill(feeder.process.pid, signal.SIGKILL)
        landing = px4.wait("mode", after_s=killed_s)
        assert (landing["mode"], landing["why"]) == (18, "command")
        assert landing["t"] - killed_s < 0.4


def test_px4_before_1_15_is_refused() -> None:
    """In 1.14 OffboardControlMode and VehicleCommand have other fields; its status is shorter."""
    with Peer("quads.fake_px4_topics", "vehicle_status_of_1.14"):
        quad = make_driver("px4_topics", {})
        with pytest.raises(DriverError, match=r"PX4 1\.14 or earlier.*Update the autopilot to PX4 1\.15"):
            quad.connect()
