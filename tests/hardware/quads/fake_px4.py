"""A PX4 on loopback, as a process: real MAVLink 2 over UDP, its modes and refusals, and a craft that flies in
NED/FRD.

    python -m tests.hardware.quads.fake_px4 <port that the driver listens on> [key=value ...]

Settings: loss_s (COM_OF_LOSS_T), action (COM_OBL_RC_ACT), autopilot, north_m, armed. Orders on stdin: pilot,
disarm, mute, die, no_arming, critical. Its mathematics is its own (NED, FRD, matrices): it shares no frame
conversion with what it tests.
"""

from __future__ import annotations

import json
import math
import os
import select
import struct
import sys
import time

os.environ["MAVLINK20"] = "1"

import numpy as np
from pymavlink import mavutil

from tests.hardware.safety.turns import matrix, quaternion, rotation

POSITION, OFFBOARD, LAND = (3, 0), (6, 0), (4, 6)
RATE_HZ, G, HOVER = 200.0, 9.81, 0.5


class Craft:
    """Position and velocity in NED; `r` turns FRD into NED; body rates and thrust follow commands with short
    lags.
    """

    def __init__(self, north_m: float) -> None:
        self.pos, self.vel, self.r = np.array([north_m, 0.0, -2.0]), np.zeros(3), np.eye(3)
        self.rates, self.thrust = np.zeros(3), HOVER

    def fly(self, rates: np.ndarray, thrust: float, dt: float) -> None:
        self.rates += (rates - self.rates) * min(1.0, dt / 0.03)
        self.thrust += (thrust - self.thrust) * min(1.0, dt / 0.03)
        speed = float(np.linalg.norm(self.rates))
        if speed > 1e-9:
            self.r = self.r @ rotation(self.rates / speed, speed * dt)
        acc = np.array([0, 0, G]) - self.r[:, 2] * G * self.thrust / HOVER - 0.1 * self.vel
        self.vel = self.vel + acc * dt
        self.pos = self.pos + self.vel * dt
        if self.pos[2] > 0.0:
            self.pos[2], self.vel, self.rates, self.r = 0.0, np.zeros(3), np.zeros(3), np.eye(3)

    def turn_to(self, goal: np.ndarray, yaw_rate: float, thrust: float, dt: float) -> None:
        error = self.r.T @ goal
        rates = (
            6.0
            * np.array([error[2, 1] - error[1, 2], error[0, 2] - error[2, 0], error[1, 0] - error[0, 1]])
            / 2
        )
        rates[2] += yaw_rate
        self.fly(rates, thrust, dt)

    def go_to(self, goal: np.ndarray, yaw: float | None, dt: float) -> None:
        """Kinematic: 1.5 m/s at most, level."""
        wish = 4.0 * (goal - self.pos)
        self.vel = wish * min(1.0, 1.5 / max(1e-9, float(np.linalg.norm(wish))))
        self.pos = self.pos + self.vel * dt
        if yaw is not None:
            self.r = rotation(np.array([0.0, 0.0, 1.0]), yaw)


class Autopilot:
    def __init__(self, port: int, settings: dict[str, float]) -> None:
        self.link = mavutil.mavlink_connection(
            f"udpout:127.0.0.1:{port}", source_system=1, source_component=1
        )
        self.settings, self.craft = settings, Craft(settings.get("north_m", 0.0))
        self.mode, self.armed = POSITION, bool(settings.get("armed", 1))
        self.mute = self.no_arming = self.critical = False
        self.setpoint, self.streams, self.due = (
            None,
            [],
            {},
        )  # newest, times of arrival, message id -> [next, period]

    def tell(self, event: str, **more: object) -> None:
        print(json.dumps({"event": event, "t": time.monotonic(), **more}), flush=True)

    def ready_for_offboard(self, now: float) -> bool:
        """True after one second with more than 2 Hz."""
        recent = [t for t in self.streams if t > now - 1.1]
        return len(recent) > 2 and recent[0] < now - 0.9 and max(np.diff([*recent, now])) < 0.5

    def enter(self, mode: tuple[int, int], why: str) -> None:
        if mode != self.mode:
            self.mode = mode
            self.tell("mode", mode=list(mode), why=why, pos=self.craft.pos.tolist())
            self.heartbeat()

    def take(self, message: object) -> None:
        now, kind = time.monotonic(), message.get_type()
        if kind == "COMMAND_LONG":
            self.command(message, now)
        elif kind in ("SET_ATTITUDE_TARGET", "SET_POSITION_TARGET_LOCAL_NED"):
            self.setpoint = message
            self.streams = [*self.streams[-400:], now]
        elif kind == "PARAM_REQUEST_READ":
            name = message.param_id
            if name == "COM_OF_LOSS_T":
                self.link.mav.param_value_send(name.encode(), self.settings.get("loss_s", 0.5), 9, 2, 0)
            if name == "COM_OBL_RC_ACT":
                value = struct.unpack("<f", struct.pack("<i", int(self.settings.get("action", 4))))[0]
                self.link.mav.param_value_send(name.encode(), value, 6, 2, 1)

    def command(self, message: object, now: float) -> None:
        number, result = message.command, 0
        if number == 511:
            self.due[int(message.param1)] = [now, message.param2 / 1e6]
        elif number == 176:
            mode = (int(message.param2), int(message.param3))
            if mode == OFFBOARD and not self.ready_for_offboard(now):
                result = 1
                self.link.mav.statustext_send(3, b"Offboard rejected: no setpoint stream")
                self.tell("rejected")
            else:
                self.enter(mode, "command")
        elif number == 400 and message.param1 == 0.0:
            self.armed = self.armed and message.param2 != 21196.0  # in the air it obeys only with this number
            self.tell("disarmed" if not self.armed else "still armed", height=-self.craft.pos[2])
        elif number == 400:
            result = 2 if self.no_arming else 0
            if self.no_arming:
                self.link.mav.statustext_send(2, b"Arming denied: no RC")
            self.armed = self.armed or not self.no_arming
            self.tell("arming", result=result)
        else:
            result = 3
        self.link.mav.command_ack_send(number, result)

    def heartbeat(self) -> None:
        base = 1 | (128 if self.armed else 0)
        custom = self.mode[0] << 16 | self.mode[1] << 24
        kind = int(self.settings.get("autopilot", 12))
        self.link.mav.heartbeat_send(2, kind, base, custom, 5 if self.critical else 4)

    def fly(self, dt: float) -> None:
        craft, target = self.craft, self.setpoint
        if not self.armed:
            return
        if self.mode == LAND:
            craft.go_to(np.array([*craft.pos[:2], min(0.0, craft.pos[2] + 0.5)]), None, dt)
            if craft.pos[2] > -0.02:
                self.armed = False
                self.tell("landed")
        elif self.mode != OFFBOARD or target is None:
            craft.go_to(craft.pos, None, dt)
        elif target.get_type() == "SET_ATTITUDE_TARGET":
            rates = np.array([target.body_roll_rate, target.body_pitch_rate, target.body_yaw_rate])
            if target.type_mask & 128:
                craft.fly(rates, target.thrust, dt)
            else:
                craft.turn_to(matrix(list(target.q)), rates[2], target.thrust, dt)
        else:
            craft.go_to(np.array([target.x, target.y, target.z]), target.yaw, dt)

    def send_state(self, now: float) -> None:
        ms, c = int(now * 1000) % 2**32, self.craft
        for number, entry in self.due.items():
            if now < entry[0]:
                continue
            entry[0] = max(entry[0] + entry[1], now - entry[1])
            if number == 32:
                self.link.mav.local_position_ned_send(ms, *c.pos.tolist(), *c.vel.tolist())
            elif number == 31:
                self.link.mav.attitude_quaternion_send(ms, *quaternion(c.r), *c.rates.tolist())
            elif number == 245:
                self.link.mav.extended_sys_state_send(0, 2 if self.armed and c.pos[2] < -0.05 else 1)

    def order(self, word: str) -> None:
        if word == "die":
            os._exit(0)
        if word == "disarm":  # by a ground station
            self.armed = False
        if word == "pilot":
            self.enter(POSITION, "pilot")
        self.mute |= word == "mute"
        self.no_arming |= word == "no_arming"
        self.critical |= word == "critical"
        self.tell("ordered")

    def run(self) -> None:
        last = beat = note = time.monotonic()
        self.heartbeat()
        self.tell("ready")
        while True:
            now = time.monotonic()
            dt, last = min(0.02, now - last), now
            while (message := self.link.recv_msg()) is not None:
                self.take(message)
            if self.mode == OFFBOARD and now - self.streams[-1] > self.settings.get("loss_s", 0.5):
                self.enter(LAND, "failsafe")
            self.fly(dt)
            if not self.mute:
                if now - beat > 0.2:
                    beat = now
                    self.heartbeat()
                    self.link.mav.sys_status_send(0, 0, 0, 0, 15800, -1, -1, 0, 0, 0, 0, 0, 0)
                self.send_state(now)
            if now - note > 0.05:
                note = now
                nose = self.craft.r[:, 0]
                self.tell(
                    "pose",
                    ned=self.craft.pos.tolist(),
                    heading_deg=math.degrees(math.atan2(nose[1], nose[0])),
                )
            if select.select([sys.stdin], [], [], 1.0 / RATE_HZ)[0]:
                word = sys.stdin.readline().strip()
                if not word:
                    return
                self.order(word)


if __name__ == "__main__":
    Autopilot(
        int(sys.argv[1]), {key: float(value) for key, value in (arg.split("=") for arg in sys.argv[2:])}
    ).run()
