"""PX4 driver: real MAVLink over UDP with a fake autopilot in another process, which flies in NED."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest

from hardware.quads.bounds import yaw_of
from hardware.quads.px4 import mavlink_link as px4_link
from hardware.quads.px4.mavlink_driver import Px4Driver
from hardware.states import Attitude, BodyRates, FullState, Hover, MotorCommand, Position, QuadState, Setpoint
from robo_rl.core.errors import DriverError
from tests.hardware.peers import Peer, free_port
from tests.hardware.pilots import fly, towards

pytest.importorskip("pymavlink", reason="pymavlink is not installed (extra [px4])")
LEVEL = BodyRates(np.zeros(3), 0.5)


@pytest.fixture
def port() -> int:
    return free_port(socket.SOCK_DGRAM)


@pytest.fixture
def px4(port: int) -> Iterator[Peer]:
    with Peer("quads.fake_px4", str(port)) as peer:
        yield peer


def driver(port: int, **settings: object) -> Px4Driver:
    return Px4Driver(f"udpin:127.0.0.1:{port}", **settings)  # type: ignore[arg-type]


def in_offboard(quad: Px4Driver, setpoint: Setpoint) -> QuadState:
    for _ in range(40):
        if (state := fly(quad, 0.1, lambda _: setpoint)).controlled:
            return state
    raise AssertionError("it never entered offboard")


def test_offboard_after_a_stream_and_left_turn(px4: Peer, port: int) -> None:
    """A left turn in FLU decreases the heading of PX4's compass and increases it in ENU."""
    quad = driver(port)
    quad.connect()
    start = quad.read()
    assert start.position_m == pytest.approx([0.0, 0.0, 2.0], abs=0.01)  # NED (0, 0, -2)
    assert yaw_of(start.quat_wxyz) == pytest.approx(math.pi / 2, abs=0.01)  # nose to the north
    assert (start.armed, start.controlled, start.battery_v) == (True, False, pytest.approx(15.8))
    in_offboard(quad, LEVEL)
    assert not px4.all("rejected")  # it was asked only once the stream had run
    before = quad.read()
    after = fly(quad, 0.5, lambda _: BodyRates(np.array([0.0, 0.0, 1.0]), 0.5))
    heading = px4.all("pose")[-1]["heading_deg"]
    assert 0.25 < yaw_of(after.quat_wxyz) - yaw_of(before.quat_wxyz) < 0.7
    assert after.rates_rad_s[2] == pytest.approx(1.0, abs=0.1)
    assert -40.0 < heading < -14.0
    closed_s = time.monotonic()
    quad.close()
    assert px4.wait("mode", after_s=closed_s)["mode"] == [4, 6]


def test_body_rates_fly_to_a_point_and_a_lost_stream_lands(px4: Peer, port: int) -> None:
    """1 m east, 0.8 m north, 3 m up in ENU is (0.8, 1, -3) for PX4; without a stream its own failsafe
    lands it.
    """
    quad = driver(port)
    quad.connect()
    in_offboard(quad, LEVEL)
    goal = np.array([1.0, 0.8, 3.0])
    state = fly(quad, 3.0, towards(goal))
    assert state.position_m == pytest.approx(goal, abs=0.15)
    assert px4.all("pose")[-1]["ned"] == pytest.approx([0.8, 1.0, -3.0], abs=0.2)
    silent_s = time.monotonic()
    failsafe = [px4.wait("mode", 2.0, after_s=silent_s)]
    assert (failsafe[0]["mode"], failsafe[0]["why"]) == ([4, 6], "failsafe")
    quad.read()
    time.sleep(0.3)
    with pytest.raises(DriverError, match=r"left offboard for land.*Nothing was sent"):
        quad.write(LEVEL)
    quad.close()
    assert len(px4.all("mode", after_s=silent_s)) == 1  # nobody asked for it back


def test_motors_that_were_switched_off_in_flight_stay_off(px4: Peer, port: int) -> None:
    """After the emergency stop it is disarmed in the air, not landed, which would start the rotors again."""
    quad = driver(port)
    quad.connect()
    in_offboard(quad, LEVEL)
    stopped_s = time.monotonic()
    quad.write(BodyRates(np.zeros(3), 0.0))
    quad.stop("the filter is silent")
    assert px4.wait("disarmed", after_s=stopped_s)["height"] > 1.0
    quad.close()
    assert not px4.all("mode", after_s=stopped_s)


def test_position_and_attitude_setpoints(px4: Peer, port: int) -> None:
    quad = driver(port)
    quad.connect()
    goal = Position(np.array([0.5, 1.0, 2.5]), yaw_rad=0.3)
    in_offboard(quad, goal)
    state = fly(quad, 1.0, lambda _: goal)
    assert state.position_m == pytest.approx(goal.position_m, abs=0.1)
    assert yaw_of(state.quat_wxyz) == pytest.approx(0.3, abs=0.05)
    # Rolled to the left about the nose (which points almost east): it flies to the left, north.
    tilt = Attitude(np.array([math.cos(-0.05), math.sin(-0.05), 0.0, 0.0]), 0.5)
    fly(quad, 0.8, lambda _: tilt)
    after = quad.read()
    assert after.velocity_m_s[1] > 0.2
    assert abs(after.velocity_m_s[0]) < 0.15
    sent = quad.write(BodyRates(np.array([9.0, 0.0, -9.0]), 1.7))
    assert isinstance(sent, BodyRates)
    assert (sent.rates_rad_s.tolist(), sent.thrust) == ([4.0, 0.0, -4.0], 1.0)
    quad.write(FullState(np.array([0.5, 1.0, 2.5]), np.zeros(3), np.zeros(3)))
    with pytest.raises(DriverError, match="Export it as C"):
        quad.write(MotorCommand(np.zeros(4)))
    with pytest.raises(DriverError, match="takes no Hover"):
        quad.write(Hover(np.zeros(2), 0.0, 1.0))
    with pytest.raises(DriverError, match="must be finite"):
        quad.write(BodyRates(np.array([0.0, np.nan, 0.0]), 0.5))
    quad.close()


def test_pilot_keeps_control(px4: Peer, port: int) -> None:
    quad = driver(port)
    quad.connect()
    in_offboard(quad, LEVEL)
    px4.order("pilot")
    taken_s = px4.wait("ordered")["t"]
    with pytest.raises(
        DriverError, match=r"left offboard for position.*a pilot or a failsafe controls it now"
    ):
        fly(quad, 1.0, lambda _: LEVEL)
    quad.close()
    time.sleep(0.2)
    assert not px4.all("mode", after_s=taken_s + 0.01)  # neither offboard again nor a landing


def test_craft_that_somebody_disarmed_is_not_armed_again(port: int) -> None:
    """A ground station disarms it; its rotors stay still beside whoever walks up, until `connect`."""
    with Peer("quads.fake_px4", str(port), "armed=0") as px4:
        quad = driver(port, arm=True)
        quad.connect()
        in_offboard(quad, LEVEL)
        px4.order("disarm")
        disarmed_s = px4.wait("ordered")["t"]
        for _ in range(2):
            with pytest.raises(DriverError, match=r"was disarmed, by a pilot.*Connect again to fly"):
                fly(quad, 1.5, lambda _: LEVEL)
        assert quad.write(BodyRates(np.zeros(3), 0.0)) is not None  # "motors off" is no error
        quad.close()
        time.sleep(0.1)
        assert not px4.all("arming", after_s=disarmed_s)


def test_refusals_and_silence_are_reported(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer("quads.fake_px4", str(port), "armed=0") as px4:
        quad = driver(port, arm=True)
        quad.connect()
        px4.order("no_arming")
        with pytest.raises(
            DriverError, match=r"refuses to arm \(denied\) \(it reports: Arming denied: no RC\)"
        ):
            fly(quad, 4.0, lambda _: LEVEL)
        px4.order("critical")
        time.sleep(0.4)
        assert "in a failsafe" in quad.read().fault
        px4.order("mute")
        time.sleep(1.2)
        with pytest.raises(DriverError, match="has been silent for more than 1 s"):
            quad.read()
        quad.close()
    monkeypatch.setattr(px4_link, "WAIT_S", 0.3)
    with pytest.raises(DriverError, match="did not send a heartbeat"):
        driver(port).connect()
    with pytest.raises(DriverError, match="cannot be opened"):
        Px4Driver("udpin:nowhere").connect()


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("autopilot=3", r"is no PX4 \(its MAV_AUTOPILOT is 3"),
        ("action=7", r"COM_OBL_RC_ACT .* is 7 \(disarming in the air\)"),
        ("loss_s=30", "COM_OF_LOSS_T .* is 30 s"),
    ],
)
def test_unsafe_px4_parameters_are_refused(port: int, setting: str, sentence: str) -> None:
    with Peer("quads.fake_px4", str(port), setting), pytest.raises(DriverError, match=sentence):
        driver(port).connect()


def test_killed_feeder_lands_the_craft(px4: Peer, port: int) -> None:
    """The guard requests a landing within 100 ms, before PX4's own failsafe, which waits for half a
    second.
    """
    with Peer("quad_feeder", "px4", json.dumps({"address": f"udpin:127.0.0.1:{port}"})) as feeder:
        px4.wait("mode", 6.0)
        time.sleep(0.3)
        killed_s = time.monotonic()
        os.kill(feeder.process.pid, signal.SIGKILL)
        landing = px4.wait("mode", 2.0, after_s=killed_s)
    assert (landing["mode"], landing["why"]) == ([4, 6], "command")
    assert landing["t"] - killed_s < 0.2  # at once, and what a busy machine adds
