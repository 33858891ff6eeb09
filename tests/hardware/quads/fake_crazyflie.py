"""A Crazyflie on loopback, as a process: real CRTP packets over UDP, and a craft that flies by the firmware's
signs.

    python -m tests.hardware.quads.fake_crazyflie <port> [key=value ...]

Settings: controller (stabilizer.controller), flying, info_missing. Orders on stdin: tumble, mute, die. What
it was told comes out as JSON lines. Packets:
https://www.bitcraze.io/documentation/repository/crazyflie-firmware (functional areas, CRTP); signs:
crtp_commander_rpyt.c and controller_pid.c of the firmware.
"""

from __future__ import annotations

import json
import math
import os
import select
import socket
import struct
import sys
import time

import numpy as np

from tests.hardware.safety.turns import quaternion, rotation

PARAM, COMMANDER, MEMORY, LOGGING, GENERIC, HIGH_LEVEL, SUPERVISOR, PLATFORM, LINK = (
    2,
    3,
    4,
    5,
    7,
    8,
    9,
    13,
    15,
)
INT16, UINT16, UINT32, FLOAT = 5, 2, 3, 7  # types of the log
LOGS = {
    f"stateEstimateZ.{n}": INT16
    for n in ("x", "y", "z", "vx", "vy", "vz", "rateRoll", "ratePitch", "rateYaw")
}
LOGS |= {"stateEstimateZ.quat": UINT32, "pm.vbat": FLOAT, "supervisor.info": UINT16}
PACK = {INT16: "<h", UINT16: "<H", UINT32: "<I", FLOAT: "<f"}
PARAMS = {"flightmode.stabModeRoll": 1, "flightmode.stabModePitch": 1, "stabilizer.controller": 1}
UINT8 = 8  # of parameters
G, HOVER, DT = 9.81, 32768, 0.005
CAN_ARM, ARMED, FLYING, TUMBLED = 1, 2, 16, 32
STABILIZE_S, SHUTDOWN_S = 0.5, 2.0


def compressed(r: np.ndarray) -> int:
    """The largest of x, y, z, w by its place, the others in 9 bits and a sign, each."""
    w, x, y, z = quaternion(r)
    q = np.array([x, y, z, w])
    largest = int(np.argmax(np.abs(q)))
    q = q if q[largest] > 0 else -q
    bits = largest
    for i in range(4):
        if i != largest:
            bits = bits << 10 | (q[i] < 0) << 9 | int(511 * abs(q[i]) * math.sqrt(2) + 0.5)
    return bits


class Crazyflie:
    """pos, vel in ENU; r turns FLU into ENU; gyro in rad/s. Setpoints as the firmware keeps them, in its own
    signs.
    """

    def __init__(self, settings: dict[str, float]) -> None:
        self.settings = settings
        flying = bool(settings.get("flying", 0))
        self.pos, self.vel, self.r = np.array([0.0, 0.0, 1.0 if flying else 0.0]), np.zeros(3), np.eye(3)
        self.gyro, self.armed, self.tumbled = np.zeros(3), flying, False
        self.params = PARAMS | {"stabilizer.controller": int(settings.get("controller", 1))}
        self.locked, self.setpoint, self.setpoint_s, self.landing = True, None, -math.inf, None
        self.blocks: dict[int, list] = {}  # id -> [variables, period, next]
        self.logs = {
            k: v for k, v in LOGS.items() if not (k == "supervisor.info" and settings.get("info_missing"))
        }

    def tell(self, event: str, **more: object) -> None:
        print(json.dumps({"event": event, "t": time.monotonic(), **more}), flush=True)

    def info(self) -> int:
        flying = FLYING if self.pos[2] > 0.02 else 0
        return CAN_ARM | (ARMED if self.armed else 0) | flying | (TUMBLED if self.tumbled else 0)

    def logged(self, name: str) -> float:
        key = name.split(".")[1]
        mm = dict(zip(("x", "y", "z", "vx", "vy", "vz"), [*self.pos, *self.vel], strict=True))
        mm |= {"rateRoll": self.gyro[0], "ratePitch": -self.gyro[1], "rateYaw": self.gyro[2]}
        if key in mm:
            return int(mm[key] * 1000)
        return {"quat": compressed(self.r), "vbat": 3.9, "info": self.info()}[key]

    def setpoint_is(self, kind: str, *values: float) -> None:
        if self.landing is not None:
            self.tell("landing_interrupted", by=kind)
        self.landing = None
        self.setpoint, self.setpoint_s = (kind, values), time.monotonic()
        self.tell(kind, values=list(values))

    def packet(self, port: int, channel: int, data: bytes) -> list[tuple[int, int, bytes]]:
        """Answers as (port, channel, data)."""
        if port == LINK and channel == 1:
            return [(LINK, 1, b"Bitcraze Crazyflie\0".ljust(28, b"\0"))]
        if port == PLATFORM and channel == 1:
            return [(PLATFORM, 1, bytes([data[0], 12]))]
        if port == MEMORY:
            return [(MEMORY, 0, bytes([1, 0]))]
        if port in (LOGGING, PARAM) and channel == 0:
            return [(port, 0, self.contents(port, data))]
        if port == LOGGING and channel == 1:
            return [(LOGGING, 1, self.log_settings(data))]
        if port == PARAM:
            name = list(self.params)[struct.unpack("<H", data[:2])[0]]
            if channel == 2:
                self.params[name] = data[2]
                self.tell("param", name=name, value=data[2])
            return [
                (PARAM, channel, data[:2] + (b"\0" if channel == 1 else b"") + bytes([self.params[name]]))
            ]
        if port == SUPERVISOR and channel == 1 and data[0] == 1:
            self.armed = bool(data[1])
            self.tell("armed", on=self.armed)
            return [(SUPERVISOR, 1, bytes([0x81, 1, self.armed]))]
        self.command(port, channel, data)
        return []

    def contents(self, port: int, data: bytes) -> bytes:
        names = list(self.logs if port == LOGGING else self.params)
        if data[0] == 3:
            return struct.pack("<BHI", 3, len(names), 0xC0FFEE + port + len(names))
        i = struct.unpack("<H", data[1:3])[0]
        group, name = names[i].split(".")
        kind = self.logs[names[i]] if port == LOGGING else UINT8
        return struct.pack("<BHB", 2, i, kind) + f"{group}\0{name}\0".encode()

    def log_settings(self, data: bytes) -> bytes:
        command, block = data[0], data[1] if len(data) > 1 else 0
        if command in (6, 7):
            names = list(self.logs)
            added = [
                names[struct.unpack("<H", data[i + 1 : i + 3])[0]] for i in range(2, len(data) - 2, 3)
            ]  # cflib leaves a byte behind
            before, *timing = self.blocks.get(
                block, [[], 0.0, 0.0]
            )  # what is appended may come after the start
            self.blocks[block] = [before + added, *timing]
        elif command == 3:
            self.blocks[block][1:] = [data[2] / 100.0, time.monotonic()]
        elif command == 5:
            self.blocks = {}
        return bytes([command, block, 0])

    def command(self, port: int, channel: int, data: bytes) -> None:
        if port == COMMANDER:
            roll, pitch, yaw, thrust = struct.unpack("<fffH", data)
            self.locked = self.locked and thrust != 0
            self.setpoint_is("rpyt", roll, pitch, yaw, 0 if self.locked else thrust)
        elif port == GENERIC and channel == 0 and data[0] == 0:
            self.setpoint = self.landing = None
            self.tell("stop_setpoint", height=self.pos[2])
        elif port == GENERIC and channel == 0:
            kind, layout = {7: ("position", "<ffff"), 10: ("hover", "<ffff"), 6: ("full_state", "<9hI3h")}[
                data[0]
            ]
            self.setpoint_is(kind, *struct.unpack(layout, data[1:]))
        elif port == GENERIC and channel == 1:
            self.tell("notify_stop")
            self.setpoint = None if self.pos[2] <= 0.02 else self.setpoint
        elif port == HIGH_LEVEL and data[0] == 8:
            _, height, _, _, duration = struct.unpack("<Bff?f", data[1:])
            self.tell("land", height=height, duration=duration)
            self.landing, self.setpoint = (self.pos[2] - height) / duration, None
        elif port == HIGH_LEVEL and data[0] == 3:
            self.tell("motors_off", height=self.pos[2])
            self.landing = self.setpoint = None

    def step(self) -> None:
        now = time.monotonic()
        if self.landing is not None:
            self.move(np.array([0.0, 0.0, -self.landing]))
            if self.pos[2] <= 0.0:
                self.landing, self.armed = None, False
                self.tell("landed")
            return
        if self.setpoint is None or not self.armed or self.tumbled:
            return
        kind, v = self.setpoint
        silent_s = now - self.setpoint_s
        if silent_s > SHUTDOWN_S:
            self.tell("shutdown", height=self.pos[2])
            self.setpoint, self.locked = None, True
        elif kind == "rpyt":
            self.fly(*((0.0, 0.0, 0.0, v[3]) if silent_s > STABILIZE_S else v), level=silent_s > STABILIZE_S)
        elif kind == "position":
            wish = 3.0 * (np.array(v[:3]) - self.pos)
            self.move(wish * min(1.0, 1.5 / max(1e-9, float(np.linalg.norm(wish)))))
            self.r = rotation(np.array([0.0, 0.0, 1.0]), math.radians(v[3]))
        elif kind == "hover":
            self.r = self.r @ rotation(np.array([0.0, 0.0, 1.0]), math.radians(v[2]) * DT)
            side = self.r @ np.array([v[0], v[1], 0.0])
            self.move(np.array([side[0], side[1], 3.0 * (v[3] - self.pos[2])]))

    def move(self, velocity: np.ndarray) -> None:
        self.vel = velocity
        self.pos = np.maximum(self.pos + velocity * DT, [-np.inf, -np.inf, 0.0])

    def fly(self, roll: float, pitch: float, yaw: float, thrust: float, level: bool) -> None:
        """The firmware: gyro.x follows roll, -gyro.y follows pitch, gyro.z follows -yaw; angles by roll and
        -pitch.
        """
        wish = np.radians([roll, -pitch, -yaw])
        if self.params["flightmode.stabModeRoll"] == 1 or level:
            now = np.array([math.atan2(self.r[2, 1], self.r[2, 2]), -math.asin(np.clip(self.r[2, 0], -1, 1))])
            wish[:2] = 6.0 * (wish[:2] - now)
        self.gyro += (wish - self.gyro) * min(1.0, DT / 0.03)
        speed = float(np.linalg.norm(self.gyro))
        if speed > 1e-9:
            self.r = self.r @ rotation(self.gyro / speed, speed * DT)
        self.vel = self.vel + (self.r[:, 2] * G * thrust / HOVER - [0, 0, G] - 0.1 * self.vel) * DT
        self.pos = self.pos + self.vel * DT
        if self.pos[2] <= 0.0:
            self.pos[2], self.vel = 0.0, np.zeros(3)


class Radio:
    """The link: one datagram per packet."""

    def __init__(self, craft: Crazyflie, sock: socket.socket) -> None:
        self.craft, self.sock, self.peer, self.mute = craft, sock, None, False

    def send(self, port: int, channel: int, data: bytes) -> None:
        if self.peer is not None and not self.mute:
            self.sock.sendto(bytes([port << 4 | 3 << 2 | channel]) + data, self.peer)

    def receive(self) -> None:
        packet, self.peer = self.sock.recvfrom(64)
        for answer in self.craft.packet(packet[0] >> 4, packet[0] & 3, packet[1:]):
            self.send(*answer)

    def order(self, word: str) -> None:
        if word in ("die", ""):
            os._exit(0)
        self.mute |= word == "mute"
        self.craft.tumbled |= word == "tumble"
        self.craft.tell("ordered")

    def log(self, now: float) -> None:
        craft = self.craft
        for number, (names, period, at) in craft.blocks.items():
            if period and now >= at:
                craft.blocks[number][2] = max(at + period, now - period)
                values = b"".join(struct.pack(PACK[craft.logs[name]], craft.logged(name)) for name in names)
                stamp = struct.pack("<I", int(now * 1000) & 0xFFFFFF)[:3]
                self.send(LOGGING, 2, bytes([number]) + stamp + values)


def main(port: int, settings: dict[str, float]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("127.0.0.1", port))
        craft = Crazyflie(settings)
        radio = Radio(craft, sock)
        craft.tell("ready")
        due = note = time.monotonic()
        while True:
            found = select.select([sock, sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]
            if sock in found:
                radio.receive()
            if sys.stdin in found:
                radio.order(sys.stdin.readline().strip())
            now = time.monotonic()
            if now < due:
                continue
            due = max(due + DT, now - DT)
            craft.step()
            radio.log(now)
            if now - note > 0.05:
                note, nose = now, craft.r[:, 0]
                craft.tell("pose", enu=craft.pos.tolist(), yaw_deg=math.degrees(math.atan2(nose[1], nose[0])))


if __name__ == "__main__":
    main(int(sys.argv[1]), {key: float(value) for key, value in (arg.split("=") for arg in sys.argv[2:])})
