"""Driver of a Crazyflie behind crazyswarm2: topics and services on a real bus, a fake server in another
process.
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

from hardware.bus.dds.cdr import ros_types
from hardware.driver import make_driver
from hardware.quads.bounds import yaw_of
from hardware.quads.crazyswarm2.driver import Crazyswarm2Driver
from hardware.quads.crazyswarm2.types import OLDER_STATUS, STATUS, read_status, register
from hardware.states import Attitude, BodyRates, MotorCommand
from robo_rl.core.errors import BusError, ConfigError, DriverError
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


@pytest.mark.parametrize("backend", ["cpp", "cflib"])
def test_arm_fly_and_land(backend: str) -> None:
    """With both servers, which invert the pitch differently; a left turn increases the heading."""
    with Peer("quads.fake_crazyswarm2", backend) as server:
        quad = make_driver("crazyswarm2", {"name": "cf231", "backend": backend, "arm": True})
        assert isinstance(quad, Crazyswarm2Driver)
        quad.connect()
        told = {event["name"]: event["value"] for event in server.all("param")}
        assert told == {
            "flightmode.stabModeRoll": 0,
            "flightmode.stabModePitch": 0,
            "stabilizer.controller": 1,
        }
        start = quad.read()
        assert start.position_m == pytest.approx([0.0, 0.0, 0.0], abs=0.01)
        assert (start.armed, start.flying, start.controlled) == (False, False, False)
        assert start.battery_v == pytest.approx(3.9)
        goal = np.array([0.6, -0.4, 0.8])
        state = fly(quad, 4.0, towards(goal))
        assert state.position_m == pytest.approx(goal, abs=0.2)
        assert server.all("pose")[-1]["enu"] == pytest.approx(goal, abs=0.2)
        assert (state.armed, state.flying, state.controlled) == (True, True, True)
        before = yaw_of(state.quat_wxyz)
        after = fly(quad, 0.5, lambda _: BodyRates(np.array([0.0, 0.0, 1.0]), 0.5))
        assert 0.2 < yaw_of(after.quat_wxyz) - before < 0.8
        assert after.rates_rad_s == pytest.approx([0.0, 0.0, 1.0], abs=0.2)
        assert server.all("pose")[-1]["yaw_deg"] == pytest.approx(
            math.degrees(yaw_of(after.quat_wxyz)), abs=10.0
        )
        closed_s = time.monotonic()
        quad.close()
        assert server.wait("land", after_s=closed_s)["height"] == 0.0
        server.wait("landed", after_s=closed_s)
        assert not server.all("landing_interrupted")


def test_motors_that_were_switched_off_in_flight_stay_off() -> None:
    """After the emergency stop no landing follows, in which the rotors would turn again."""
    with Peer("quads.fake_crazyswarm2") as server:
        quad = Crazyswarm2Driver("cf231", arm=True)
        quad.connect()
        assert fly(quad, 1.5, towards(np.array([0.0, 0.0, 1.5]))).position_m[2] > 0.3
        quad.write(BodyRates(np.zeros(3), 0.0))
        quad.close()
        time.sleep(0.2)
        assert server.all("rpyt")[-1]["values"] == [0.0, 0.0, 0.0, 0]
        assert not server.all("land")


def test_craft_that_somebody_disarmed_is_not_armed_again() -> None:
    """An operator disarms it; its rotors stay still beside whoever walks up, until `connect`."""
    with Peer("quads.fake_crazyswarm2") as server:
        quad = Crazyswarm2Driver("cf231", arm=True)
        quad.connect()
        fly(quad, 1.0, lambda _: LEVEL)
        server.order("disarm")
        disarmed_s = server.wait("ordered")["t"]
        with pytest.raises(DriverError, match=r"was disarmed, by a pilot.*Connect again to fly"):
            fly(quad, 1.5, lambda _: LEVEL)
        assert quad.write(BodyRates(np.zeros(3), 0.0)) is not None  # "motors off" is no error
        quad.close()
        time.sleep(0.1)
        assert not any(event["on"] for event in server.all("armed", after_s=disarmed_s))


def test_write_returns_the_bounded_command() -> None:
    """Rates within the limit; thrust as the transmitted number; other setpoints are refused."""
    with Peer("quads.fake_crazyswarm2") as server:
        quad = Crazyswarm2Driver("cf231", max_rate_rad_s=2.0, thrust_high=0.8)
        with pytest.raises(DriverError, match="not connected"):
            quad.read()
        quad.connect()
        with pytest.raises(DriverError, match="takes no motor commands over its link"):
            quad.write(MotorCommand(np.zeros(4)))
        with pytest.raises(DriverError, match="expects BodyRates, found Attitude"):
            quad.write(Attitude(np.array([1.0, 0.0, 0.0, 0.0]), 0.5))
        sent = quad.write(BodyRates(np.array([0.5, -3.0, 1.0]), 1.0))
        assert isinstance(sent, BodyRates)
        assert sent.rates_rad_s == pytest.approx([0.5, -2.0, 1.0])
        assert sent.thrust == 52428 / 65535
        time.sleep(0.2)
        roll, pitch, yaw, thrust = server.all("rpyt")[-1]["values"]
        assert [roll, pitch, yaw] == pytest.approx(
            np.degrees([0.5, 2.0, -1.0]), rel=1e-4
        )  # nose up, to the right
        assert thrust == 52428
        quad.close()  # it stands: no landing, which would spin the motors up
        time.sleep(0.2)
        assert server.all("rpyt")[-1]["values"] == [0.0, 0.0, 0.0, 0]
        assert not server.all("land")


@pytest.mark.long
def test_faults_are_reported() -> None:
    """No server, the other server, another craft, a custom topic with other values, another frame, a
    fall, silence.
    """
    with pytest.raises(ConfigError, match="backend='sim' is no server"):
        Crazyswarm2Driver("cf231", backend="sim")
    with pytest.raises(ConfigError, match="accepts parameters only under the name /crazyflie_server"):
        Crazyswarm2Driver("cf231", namespace="lab")
    with Peer("quads.fake_crazyswarm2", "cflib") as server:
        with pytest.raises(
            DriverError, match="lacks pose, status, the custom topic, a subscriber of cmd_vel_legacy"
        ):
            Crazyswarm2Driver("cf9").connect()
        with pytest.raises(DriverError, match=r"server .* has the backend cflib, expected cpp"):
            Crazyswarm2Driver("cf231").connect()
        assert not server.all("param")
        assert not server.all("rpyt")
    with Peer("quads.fake_crazyswarm2") as server:
        with pytest.raises(DriverError, match=r"server .* has the backend cpp, expected cflib"):
            Crazyswarm2Driver("cf231", backend="cflib").connect()
        quad = Crazyswarm2Driver("cf231")
        quad.connect()
        for order, said in (
            ("tumble", "has tumbled: set it upright. Nothing was sent"),
            ("short", "has 3 values, expected those of stateEstimateZ: vx, vy, vz, rateRoll"),
            ("frame", "sends its pose in frame 'map', expected 'world'"),
        ):
            server.order(order)
            time.sleep(0.4)
            with pytest.raises(DriverError, match=said):
                quad.write(LEVEL)
        server.order("mute")
        time.sleep(1.3)
        with pytest.raises(DriverError, match="is silent: its pose for"):
            quad.read()
        quad.close()


@pytest.mark.long
def test_killed_feeder_lands_the_craft() -> None:
    settings = json.dumps({"name": "cf231", "arm": True})
    with Peer("quads.fake_crazyswarm2") as server, Peer("quad_feeder", "crazyswarm2", settings) as feeder:
        server.wait("armed", 20.0)
        time.sleep(3.0)  # 0.52 of the thrust lifts it slowly
        assert server.all("pose")[-1]["enu"][2] > 0.15
        killed_s = time.monotonic()
        os.kill(feeder.process.pid, signal.SIGKILL)
        landing = server.wait("land", after_s=killed_s)
        assert landing["t"] - killed_s < 0.4
        server.wait("landed", 10.0, after_s=killed_s)
        assert not server.all("landing_interrupted")


def test_dead_server_is_reported_without_blocking() -> None:
    """Only the firmware is left to stop the craft; `stop` returns although nothing answers."""
    with Peer("quads.fake_crazyswarm2") as server:
        quad = Crazyswarm2Driver("cf231", arm=True)
        quad.connect()
        fly(quad, 1.5, towards(np.array([0.0, 0.0, 0.5])))
        server.order("die")
        server.process.wait(5.0)
        time.sleep(1.2)
        with pytest.raises(DriverError, match=r"is silent: .* stops its motors after 2 s"):
            quad.write(LEVEL)
        began_s = time.monotonic()
        quad.stop("its server is gone")
        assert time.monotonic() - began_s < 1.5  # less than the guard waits for it
        quad.close()


@pytest.mark.parametrize("kind", [STATUS, OLDER_STATUS])
def test_both_status_definitions_are_read(kind: str) -> None:
    """Newer ones end with the latency; shorter bytes are refused."""
    ros = ros_types()
    register(ros)
    header = ros.new("std_msgs/msg/Header", frame_id="world")
    told = ros.new(kind, header=header, supervisor_info=18, battery_voltage=3.5, num_tx_unicast=7)
    cdr = bytes(ros.store.serialize_cdr(told, kind, little_endian=True))
    status = read_status(ros, cdr)
    assert (status.supervisor_info, status.battery_voltage, status.num_tx_unicast) == (18, 3.5, 7)
    with pytest.raises(BusError, match="cannot be decoded"):
        read_status(ros, cdr[:-8])
