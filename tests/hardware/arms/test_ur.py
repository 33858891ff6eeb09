"""UR driver: the real ur_rtde with a fake controller that speaks RTDE version 2 over loopback TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hardware.arms.ur import JOINTS, LIMITS, RTDE_PORT, UrDriver
from hardware.description import load_description
from hardware.driver import make_driver, open_driver
from hardware.states import JointCommand
from robo_rl.core.errors import ConfigError, DriverError
from tests.hardware.peers import Peer, own_address

pytest.importorskip("rtde_control", reason="ur_rtde is not installed (extra [ur])")
HOME = JointCommand(np.full(6, 0.4))


@pytest.fixture
def host() -> str:
    return own_address()


@pytest.fixture
def robot(host: str) -> Iterator[Peer]:
    with Peer("arms.fake_ur", host) as peer:
        yield peer


def drive(arm: UrDriver, seconds: float, command: JointCommand = HOME) -> JointCommand:
    end_s, sent = time.monotonic() + seconds, command
    while time.monotonic() < end_s:
        sent = arm.write(command)
        time.sleep(0.01)
    return sent


def test_arm_reaches_the_target_within_its_speed_limit(robot: Peer, host: str) -> None:
    """0.4 rad at 1 rad/s at most: every target on the wire steps by no more than two periods allow, and the
    arm arrives.

    An invalid command sends nothing, and the next valid one is followed.
    """
    arm = UrDriver(host, model="UR5e", max_velocity_rad_s=1.0)
    try:
        arm.connect()
        first = arm.read()
        for bad in (np.full(6, np.nan), np.zeros(7), np.full(6, np.inf), np.zeros((1, 6))):
            with pytest.raises(DriverError, match="Nothing was sent"):
                arm.write(JointCommand(bad))
        sent = drive(arm, 0.6)
        state = arm.read()
    finally:
        arm.close()
    targets = np.array([event["q"] for event in robot.all("servo")])
    assert np.abs(np.diff(targets, axis=0, prepend=np.zeros((1, 6)))).max() <= 0.02 + 1e-9
    assert sent.position_rad == pytest.approx(HOME.position_rad)
    assert targets[-1] == pytest.approx(
        sent.position_rad
    )  # what write returned is what the controller was told
    assert state.position_rad == pytest.approx(HOME.position_rad, abs=0.02)
    assert state.received_s > first.received_s
    assert state.speed_scaling == 0.5
    assert robot.wait("servo_stop")["t"] < robot.wait("script_stopped")["t"]


@pytest.mark.parametrize(
    ("victim", "how", "stopped_by", "within_s"),
    [
        ("feeder", signal.SIGKILL, "servo_stop", 0.2),  # at once, and what a busy machine adds
        ("guard", signal.SIGTERM, "servo_stop", 0.4),
        ("guard", signal.SIGKILL, "watchdog", 0.9),
    ],
)
def test_killing_feeder_or_guard_stops_the_arm(
    robot: Peer, host: str, victim: str, how: signal.Signals, stopped_by: str, within_s: float
) -> None:
    """Kill -9 of the commanding process: the guard stops the arm. Kill -9 of the guard: the controller's own
    watchdog does.
    """
    with Peer("feeder", "ur", json.dumps({"host": host})) as feeder:
        robot.wait("servo")
        guard = feeder.wait("ready")["guard"]
        killed_s = time.monotonic()
        os.kill(feeder.process.pid if victim == "feeder" else guard, how)
        stopped = robot.wait(stopped_by, 3.0, after_s=killed_s)
        last = robot.all("servo")[-1]["q"]
    assert stopped["t"] - killed_s < within_s
    assert max(np.abs(np.subtract(stopped["q"], last))) < 0.2  # it did not go on
    gone(guard)


def test_protective_stop_is_reported_and_blocks_commands(robot: Peer, host: str) -> None:
    arm = UrDriver(host)
    arm.connect()
    arm.write(HOME)
    robot.order("protective")
    robot.wait("ordered")
    deadline_s = time.monotonic() + 2.0
    while not arm.read().fault and time.monotonic() < deadline_s:
        time.sleep(0.01)
    sent = len(robot.all("servo"))
    with pytest.raises(DriverError, match=r"is in a protective stop: remove the cause.*Nothing was sent"):
        arm.write(HOME)
    assert len(robot.all("servo")) == sent
    arm.close()
    with pytest.raises(DriverError, match=r"protective stop.*Then connect again"):
        arm.connect()


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (10, "joint ids"),
        (11, "undefined safety mode"),
        (12, "automatic-mode safeguard stop"),
        (13, "three-position-switch stop"),
        (14, "unknown safety mode 14"),
    ],
)
def test_other_safety_modes_are_faults(robot: Peer, host: str, mode: int, words: str) -> None:
    robot.order(f"safety {mode}")
    robot.wait("ordered")
    with pytest.raises(DriverError, match=f"{words}.*Then connect again"):
        UrDriver(host).connect()


def test_frozen_state_gets_old_and_lost_connection_is_reported(robot: Peer, host: str) -> None:
    arm = UrDriver(host)
    arm.connect()
    robot.order("freeze")
    robot.wait("ordered")
    time.sleep(0.1)
    arm.read()
    time.sleep(0.2)
    assert time.monotonic() - arm.read().received_s > 0.15  # the stream still comes, but tells nothing new
    robot.order("die")
    robot.process.wait(5.0)
    time.sleep(0.2)
    with pytest.raises(DriverError, match="is lost; its own watchdog stops it"):
        arm.read()
    with pytest.raises(DriverError, match="is lost"):
        arm.write(HOME)
    arm.close()


def test_shipped_description_is_within_the_device_limits() -> None:
    """`robot=ur5e`: the driver's joints in its order, with ranges and speeds that the driver does not cut."""
    robot = load_description("ur5e")
    assert robot.names == JOINTS
    assert (robot.column("low_rad") >= np.array(LIMITS.low_rad)).all()
    assert (robot.column("high_rad") <= np.array(LIMITS.high_rad)).all()
    assert (robot.column("velocity_rad_s") <= np.array(LIMITS.velocity_rad_s)).all()


def test_wrong_addresses_models_and_settings_are_refused(robot: Peer, host: str) -> None:
    with pytest.raises(
        DriverError, match=r"127\..*:30004 does not answer \(Connection refused\), so a UR arm"
    ):
        UrDriver(own_address()).connect()
    with pytest.raises(DriverError, match="is a UR5, expected a UR10"):
        UrDriver(host, model="UR10").connect()
    with pytest.raises(ConfigError, match=r"has no setting hots\. It takes: host, .*state_hz, watchdog_s\."):
        make_driver("ur", {"host": host, "hots": 1})
    stranger = own_address()
    with (
        socket.create_server((stranger, RTDE_PORT)),
        pytest.raises(DriverError, match="is no UR controller: it sent no RTDE answer within 2 s"),
    ):
        UrDriver(stranger).connect()
    with pytest.raises(ConfigError, match="needs the setting host"):
        make_driver("ur", {})
    with pytest.raises(DriverError, match="does not answer"), open_driver("ur", {"host": own_address()}):
        pass


def gone(pid: int) -> None:
    deadline_s = time.monotonic() + 5.0
    while time.monotonic() < deadline_s:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if "Z" in (Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]):
            return
        time.sleep(0.02)
    raise AssertionError(f"the guard {pid} outlived its feeder")
