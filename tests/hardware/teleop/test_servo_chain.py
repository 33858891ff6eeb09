"""Leader arms by the vendors' packages, over a pseudo-terminal on which servos speak the real protocol."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator

import numpy as np
import pytest

from hardware.states import ArmState
from hardware.teleop.servo_chain import KINDS, ServoChain, signed
from robo_rl.core.errors import ConfigError, DriverError
from tests.hardware.teleop.fake_servos import FakeServos

COUNTS = {1: 2048, 2: 3072, 7: 2600}
GRIPPER = {"id": 7, "open": 2600, "closed": 1900}


@pytest.fixture(params=["dynamixel", "feetech"])
def vendor(request: pytest.FixtureRequest) -> str:
    if request.param == "dynamixel":
        pytest.importorskip("dynamixel_sdk")
    else:
        pytest.importorskip("scservo_sdk")
    return str(request.param)


@pytest.fixture
def servos(vendor: str) -> Iterator[FakeServos]:
    fake = FakeServos(vendor, COUNTS)
    yield fake
    fake.unplug()


def newest(chain: ServoChain) -> ArmState:
    """State of a later answer than the present one; an answer may be lost on a busy computer."""
    before = chain._state
    for _ in range(100):
        with contextlib.suppress(DriverError):
            if (state := chain.read()) is not before:
                return state
    raise AssertionError("no answer came")


def test_positions_are_read_without_torque(servos: FakeServos) -> None:
    """1024 counts are a quarter turn from the zero that was given; the handle is half closed."""
    chain = ServoChain(servos.vendor, servos.port, [1, 2], zero=[2048, 2048], gripper=GRIPPER)
    chain.connect()
    assert servos.torque == {1: 0, 2: 0, 7: 0}
    assert chain.read().position_rad == pytest.approx([0.0, math.pi / 2.0])
    assert (chain.opening, chain.names) == (1.0, ("servo1", "servo2"))
    servos.counts |= {1: 2047, 7: 2250}
    assert newest(chain).position_rad[0] == pytest.approx(-2.0 * math.pi / 4096)
    assert chain.opening == pytest.approx(0.5)
    chain.close()
    chain.close()
    with pytest.raises(DriverError, match="not connected"):
        chain.read()


def test_count_that_wraps_is_a_small_motion(servos: FakeServos) -> None:
    """From 100 down over 0 to 4090 are 106 counts; so is the way back, and a second turn."""
    servos.counts |= {1: 100, 7: 4090}
    chain = ServoChain(
        servos.vendor, servos.port, [1], [100], gripper=GRIPPER | {"open": 4090, "closed": 100}
    )
    chain.connect()
    assert chain.opening == 1.0
    for count, moved in ((4090, -106), (90, -10), (2100, 2000), (4000, 3900), (90, 4086)):
        servos.counts |= {1: count, 7: 47}
        assert newest(chain).position_rad == pytest.approx([2.0 * math.pi / 4096 * moved])
    assert chain.opening == pytest.approx(0.5)
    chain.close()


def test_late_answer_does_not_make_later_positions_old(servos: FakeServos) -> None:
    """After two answers beyond their time-out, each position that is read is the present one."""
    chain = ServoChain(servos.vendor, servos.port, [1, 2])
    chain.connect()
    for _ in range(2):
        servos.late_s = 0.06
        chain.read()
        time.sleep(0.08)
    for count in range(2100, 2400, 50):
        servos.counts[1] = count
        assert newest(chain).position_rad[0] == pytest.approx(2.0 * math.pi / 4096 * (count - 2048))
    chain.close()


def test_silent_servo_is_lost_after_a_while(servos: FakeServos) -> None:
    """One lost answer is covered; after 0.3 s the leader is gone."""
    now_s = [0.0]
    chain = ServoChain(servos.vendor, servos.port, [1, 2], clock=lambda: now_s[0])
    chain.connect()
    servos.silent.add(2)
    now_s[0] = 0.1
    assert chain.read().received_s <= 0.1
    now_s[0] = 0.5
    with pytest.raises(DriverError, match=r"have not answered for 0\.3 s"):
        chain.read()
    servos.silent.clear()
    assert np.isfinite(newest(chain).position_rad).all()
    chain.close()


def test_missing_servo_and_missing_bus_are_reported(servos: FakeServos) -> None:
    with pytest.raises(DriverError, match=r"Servo 3 of the leader on .* does not answer"):
        ServoChain(servos.vendor, servos.port, [1, 3]).connect()
    with pytest.raises(DriverError, match="refuses 123 baud"):
        ServoChain(servos.vendor, servos.port, [1], baudrate=123).connect()
    with pytest.raises(DriverError, match="cannot be opened"):
        ServoChain(servos.vendor, "/dev/ttyNONE", [1]).connect()


def test_unplugged_adapter_is_reported(servos: FakeServos) -> None:
    chain = ServoChain(servos.vendor, servos.port, [1, 2])
    chain.connect()
    servos.unplug()
    with pytest.raises(DriverError, match="is gone"):
        chain.read()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ids": []}, "needs different ids"),
        ({"ids": [1, 1]}, "needs different ids"),
        ({"ids": [300]}, "from 0 to 252"),
        ({"ids": [1], "zero": [0, 0]}, "one zero for each"),
        ({"ids": [7], "gripper": GRIPPER}, "needs different ids"),
        ({"ids": [1], "gripper": {"id": 7}}, "lacks open, closed"),
        ({"ids": [1], "gripper": {"id": 7, "open": 1, "closed": 1}}, "the same count"),
        ({"ids": [1], "gripper": {"id": 7, "open": 2049, "closed": 1}}, "half a turn apart"),
    ],
)
def test_unusable_settings_are_refused(settings: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ServoChain("feetech", "/dev/ttyUSB0", **settings)  # type: ignore[arg-type]


def test_counts_may_be_negative() -> None:
    """Dynamixel: two's complement of 32 bits. Feetech: bit 15 is the sign."""
    assert signed(2**32 - 5, KINDS["dynamixel"]) == -5
    assert signed(0x8005, KINDS["feetech"]) == -5
    assert signed(4095, KINDS["feetech"]) == 4095
