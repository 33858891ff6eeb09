"""xArm driver: the real SDK with a fake control box that speaks its protocol over loopback TCP."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from hardware.arms.xarm import VELOCITY_RAD_S, XarmDriver
from hardware.description import load_description
from hardware.states import JointCommand
from robo_rl.core.errors import ConfigError, DriverError
from tests.hardware.peers import Peer, free_port, own_address

config = pytest.importorskip(
    "xarm.core.config.x_config", reason="xarm-python-sdk is not installed (extra [xarm])"
)
GOAL = JointCommand(np.array([0.3, -0.2, 0.0, 0.5, 0.1, 0.2, -0.3]))


@pytest.fixture
def host() -> str:
    return own_address()


@pytest.fixture
def box(host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Peer]:
    """Fake control box. Its command port 502 needs root, so the test uses another one."""
    port = free_port()
    monkeypatch.setattr(config.XCONF.SocketConf, "TCP_CONTROL_PORT", port)
    with Peer("arms.fake_xarm", host, str(port), "7") as peer:
        yield peer


def settle(arm: XarmDriver, seconds: float) -> np.ndarray:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        arm.write(GOAL)
        time.sleep(0.01)
    return arm.read().position_rad


def test_connect_move_stop_fault_and_lost_connection(box: Peer, host: str) -> None:
    """Servo mode before the first target, bounded steps that arrive, a latched stop, a fault, silence, the
    end.
    """
    arm = XarmDriver(host, max_velocity_rad_s=1.5)
    arm.connect()
    box.wait("mode")  # which the box reports after it has answered
    assert [event["value"] for event in box.all("mode")] == [1]
    for bad in (np.full(7, np.nan), np.zeros(6)):
        with pytest.raises(DriverError, match="Nothing was sent"):
            arm.write(JointCommand(bad))
    assert settle(arm, 0.6) == pytest.approx(GOAL.position_rad, abs=0.02)
    targets = np.array([event["q"] for event in box.all("servo")])
    assert np.abs(np.diff(targets, axis=0, prepend=np.zeros((1, 7)))).max() <= 2 * 1.5 / 100.0 + 1e-6
    state = arm.read()
    assert time.monotonic() - state.received_s < 0.2
    assert (state.velocity_rad_s.size, state.fault) == (0, "")

    arm.stop("test")
    assert box.wait("state", after_s=targets.size and box.all("servo")[-1]["t"])["value"] == 4
    with pytest.raises(DriverError, match="was stopped"):
        arm.write(GOAL)
    arm.connect()
    arm.write(GOAL)

    box.order("error 31")
    box.wait("ordered")
    time.sleep(0.1)
    sent = len(box.all("servo"))
    assert "error 31 (" in arm.read().fault
    with pytest.raises(
        DriverError, match=r"stopped with error 31 \(.*\): remove the cause.*Nothing was sent"
    ):
        arm.write(GOAL)
    assert len(box.all("servo")) == sent
    with pytest.raises(DriverError, match="error 31"):
        arm.connect()

    box.order("stop")  # the error is cleared, the arm waits to be enabled
    time.sleep(0.1)
    arm.connect()
    box.order("die")
    box.process.wait(5.0)
    time.sleep(0.6)
    with pytest.raises(DriverError, match="is lost; it holds its last target"):
        arm.read()
    arm.close()


def test_shipped_description_is_within_the_device_limits() -> None:
    """`robot=xarm7`: the driver's joints, with ranges and speeds that the driver does not cut."""
    robot, rows = (
        load_description("xarm7"),
        config.XCONF.Robot.JOINT_LIMITS[7][config.XCONF.Robot.Type.XARM7_X4],
    )
    assert robot.names == XarmDriver("127.0.0.1").names
    low, high = np.array(rows).T
    assert (robot.column("low_rad") >= low).all()
    assert (robot.column("high_rad") <= high).all()
    assert (robot.column("velocity_rad_s") <= VELOCITY_RAD_S).all()


def test_wrong_arms_and_addresses_are_refused(box: Peer, host: str) -> None:
    with pytest.raises(DriverError, match="has 7 joints, expected 6"):
        XarmDriver(host, joints=6).connect()
    with pytest.raises(ConfigError, match="joints=8"):
        XarmDriver(host, joints=8)
    with pytest.raises(DriverError, match=r"does not answer .*, so an xArm"):
        XarmDriver(own_address()).connect()
