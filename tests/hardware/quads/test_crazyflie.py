"""Crazyflie driver: the real cflib over UDP with a fake craft in another process that speaks CRTP."""

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

from hardware.driver import open_driver
from hardware.quads.bounds import yaw_of
from hardware.quads.crazyflie import link as crazyflie_link
from hardware.quads.crazyflie.driver import CrazyflieDriver
from hardware.states import Attitude, BodyRates, FullState, Hover, MotorCommand, Position
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.flight.frames import quat_product, rotation_of
from tests.hardware.peers import Peer, free_port
from tests.hardware.pilots import HOVER, fly, towards

pytest.importorskip("cflib", reason="cflib is not installed (extra [crazyflie])")


@pytest.fixture
def port() -> int:
    return free_port(socket.SOCK_DGRAM)


@pytest.fixture
def craft(port: int) -> Iterator[Peer]:
    with Peer("quads.fake_crazyflie", str(port)) as peer:
        yield peer


def driver(port: int, **settings: object) -> CrazyflieDriver:
    return CrazyflieDriver(f"udp://127.0.0.1:{port}", arm=True, **settings)  # type: ignore[arg-type]


def turn(axis: int, angle: float) -> np.ndarray:
    quat = np.array([math.cos(angle / 2), 0.0, 0.0, 0.0])
    quat[1 + axis] = math.sin(angle / 2)
    return quat


def test_body_rates_close_the_loop_on_every_axis(craft: Peer, port: int) -> None:
    """Take-off by position, then a loop over the radio by body rates; a left yaw is one for the craft."""
    quad = driver(port)
    quad.connect()
    on_ground = quad.read()
    assert (on_ground.armed, on_ground.flying, on_ground.battery_v) == (False, False, pytest.approx(3.9))
    state = fly(quad, 0.8, lambda _: Position(np.array([0.0, 0.0, 0.6])))
    assert state.position_m[2] == pytest.approx(0.6, abs=0.15)
    assert (state.armed, state.flying, state.controlled) == (True, True, True)
    goal = np.array([0.5, -0.4, 0.7])
    state = fly(quad, 2.5, towards(goal))
    assert state.position_m == pytest.approx(goal, abs=0.2)
    assert {event["value"] for event in craft.all("param")} == {0}  # rate mode, and only once each
    assert len(craft.all("param")) == 2

    for axis in (0, 1, 2):
        rates = np.zeros(3)
        rates[axis] = 0.8
        before = quad.read().quat_wxyz
        after = fly(quad, 0.3, lambda _, rates=rates: BodyRates(rates, HOVER))  # type: ignore[misc]
        assert after.rates_rad_s[axis] == pytest.approx(0.8, abs=0.1)
        turned = rotation_of(before).T @ rotation_of(after.quat_wxyz)
        sine = turned[(axis + 2) % 3, (axis + 1) % 3]
        assert 0.08 < sine < 0.4, f"axis {axis} turned by {sine}"
        fly(quad, 0.3, lambda _, rates=rates: BodyRates(-rates, HOVER))  # type: ignore[misc]

    closed_s = time.monotonic()
    quad.close()
    landing, off = craft.wait("land", after_s=closed_s), craft.wait("motors_off", after_s=closed_s)
    assert landing["t"] - closed_s < 0.2
    assert off["height"] < 0.02  # the motors stop on the ground, not at the end of the program
    assert not craft.all("landing_interrupted")


def test_attitude_position_and_hover_setpoints(craft: Peer, port: int) -> None:
    """Tilted right about x it drifts to the right (-y), nose down about y forwards (+x), also when yawed."""
    quad = driver(port)
    quad.connect()
    state = fly(quad, 0.5, lambda _: Position(np.array([0.2, 0.3, 0.5]), yaw_rad=0.5))
    assert yaw_of(state.quat_wxyz) == pytest.approx(0.5, abs=0.02)
    left_s = time.monotonic()
    state = fly(quad, 0.6, lambda _: Hover(np.array([0.5, 0.0]), 0.7, 0.5))
    assert craft.wait("hover", after_s=left_s)["values"] == pytest.approx([0.5, 0.0, math.degrees(0.7), 0.5])
    assert yaw_of(state.quat_wxyz) > 0.75
    yaw = yaw_of(state.quat_wxyz)
    nose, left = np.array([math.cos(yaw), math.sin(yaw)]), np.array([-math.sin(yaw), math.cos(yaw)])
    before = quad.read().velocity_m_s[:2]
    tilted = quat_product(turn(2, yaw), quat_product(turn(1, 0.1), turn(0, 0.1)))
    after = fly(quad, 0.5, lambda _: Attitude(tilted, HOVER)).velocity_m_s[:2]
    assert (after - before) @ nose > 0.1
    assert (after - before) @ left < -0.1
    sent = quad.write(
        FullState(np.array([0.1, 0.2, 1.0]), np.array([9.0, 0.0, 0.0]), np.zeros(3), rates_rad_s=np.ones(3))
    )
    assert isinstance(sent, FullState)
    assert sent.velocity_m_s.tolist() == [1.5, 0.0, 0.0]  # the limit of speed
    assert sent.rates_rad_s.tolist() == [0.0, 0.0, 0.0]  # not sent, and said so
    assert craft.wait("full_state")["values"][:6] == [100, 200, 1000, 1500, 0, 0]
    sent = quad.write(BodyRates(np.zeros(3), 1.0))
    assert isinstance(sent, BodyRates)
    assert sent.thrust == pytest.approx(0.9, abs=1e-4)
    with pytest.raises(DriverError, match=r"takes no motor commands.*Export it as C"):
        quad.write(MotorCommand(np.zeros(4)))
    with pytest.raises(DriverError, match=r"has values above 32 m"):
        quad.write(FullState(np.array([40.0, 0.0, 1.0]), np.zeros(3), np.zeros(3)))
    craft.order("tumble")
    craft.wait("ordered")
    time.sleep(0.25)
    with pytest.raises(DriverError, match=r"has tumbled: set it upright\. Nothing was sent"):
        quad.write(BodyRates(np.zeros(3), HOVER))
    quad.close()


def test_stop_on_the_ground_switches_the_motors_off(craft: Peer, port: int) -> None:
    """A landing from the ground would begin by spinning them up."""
    quad = driver(port)
    quad.connect()
    quad.write(BodyRates(np.zeros(3), 0.1))
    quad.close()
    assert craft.wait("stop_setpoint")["height"] == 0.0
    assert not craft.all("land")


def test_motors_that_were_switched_off_in_flight_stay_off(craft: Peer, port: int) -> None:
    """The emergency stop: the filter sends a few setpoints without thrust, then nothing. No landing follows,
    in which the rotors would turn again.
    """
    with open_driver("crazyflie", {"uri": f"udp://127.0.0.1:{port}", "arm": True}) as quad:
        assert fly(quad, 1.0, lambda _: Position(np.array([0.0, 0.0, 1.5]))).position_m[2] > 1.0
        for _ in range(5):
            quad.write(BodyRates(np.zeros(3), 0.0))
        assert craft.wait("stop_setpoint")["height"] > 0.5  # by the watchdog
    assert not craft.all("land")


def test_killed_feeder_lands_the_craft(craft: Peer, port: int) -> None:
    settings = json.dumps({"uri": f"udp://127.0.0.1:{port}", "arm": True})
    with Peer("quad_feeder", "crazyflie", settings) as feeder:
        craft.wait("armed")
        time.sleep(1.0)  # its thrust is a little more than its weight
        killed_s = time.monotonic()
        os.kill(feeder.process.pid, signal.SIGKILL)
        landing = craft.wait("land", 2.0, after_s=killed_s)
    assert landing["t"] - killed_s < 0.2  # at once, and what a busy machine adds
    assert landing["height"] == 0.0
    craft.wait("motors_off", 5.0)
    assert not craft.all("landing_interrupted")  # closing the link did not drop it


def test_unusable_craft_and_settings_are_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with Peer("quads.fake_crazyflie", str(port), "controller=2") as craft:
        quad = driver(port)
        quad.connect()
        with pytest.raises(
            DriverError, match=r"stabilizer\.controller .* is 2; only 1 \(PID\) follows body rates"
        ):
            quad.write(BodyRates(np.zeros(3), HOVER))
        craft.order("mute")
        time.sleep(1.2)
        with pytest.raises(DriverError, match=r"The link to .* is lost \(silent for 1 s\)"):
            quad.read()
        quad.close()
    with Peer("quads.fake_crazyflie", str(port), "flying=1"):
        quad = driver(port)
        quad.connect()
        with pytest.raises(DriverError, match="Land, connect on the ground"):
            quad.write(BodyRates(np.zeros(3), HOVER))
        quad.close()
    with (
        Peer("quads.fake_crazyflie", str(port), "info_missing=1"),
        pytest.raises(DriverError, match=r"does not log .*supervisor\.info"),
    ):
        driver(port).connect()
    monkeypatch.setattr(crazyflie_link, "CONNECT_S", 0.3)
    with pytest.raises(DriverError, match=r"does not answer \("):
        driver(port).connect()
    with pytest.raises(DriverError, match="No driver found or malformed URI"):
        CrazyflieDriver("carrier://pigeon").connect()
    with pytest.raises(ConfigError, match="uri='cf1' is no link"):
        CrazyflieDriver("cf1")


def test_reading_does_not_end_a_flight_of_another_program(port: int) -> None:
    """cflib's own close sends thrust 0, which would stop the motors of a craft that another program flies."""
    with Peer("quads.fake_crazyflie", str(port), "flying=1") as craft:
        quad = driver(port)
        quad.connect()
        assert quad.read().flying
        quad.close()
        time.sleep(0.1)
        assert not [
            event for event in craft.events if event["event"] in ("rpyt", "land", "motors_off", "notify_stop")
        ]
