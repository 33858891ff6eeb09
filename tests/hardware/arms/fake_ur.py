"""A UR controller on loopback: dashboard (29999), script port (30002) and RTDE version 2 (30004), as a
process.

    python -m tests.hardware.arms.fake_ur 127.0.0.5

It takes orders on stdin, one word per line (protective, emergency, ok, freeze, die), and tells on stdout, as
JSON lines, what it was told to do and when, by the monotonic clock of all processes. Its arm turns at 2 rad/s
at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
import time

import numpy as np

RATE_HZ = 125.0
TYPES = {"timestamp": "DOUBLE", "actual_q": "VECTOR6D", "actual_qd": "VECTOR6D", "robot_mode": "INT32",
         "safety_mode": "INT32", "safety_status_bits": "UINT32", "speed_scaling": "DOUBLE",
         "target_speed_fraction": "DOUBLE", "runtime_state": "UINT32", "robot_status_bits": "UINT32",
         "actual_digital_output_bits": "UINT64", "external_force_torque": "VECTOR6D"}  # fmt: skip
PACK = {"DOUBLE": ">d", "VECTOR6D": ">6d", "INT32": ">i", "UINT32": ">I", "UINT64": ">Q", "UINT8": ">B"}
NORMAL, PROTECTIVE, EMERGENCY = 1, 3, 7
SERVO_J, SERVO_STOP, WATCHDOG, STOP_SCRIPT, NOTHING, STOPPED = 11, 16, 35, 255, 0, 2


def kind(name: str) -> str:
    if "int_register" in name:
        return "INT32"
    if "double_register" in name:
        return "DOUBLE"
    if "bit_register" in name or name.endswith("_mask") or name == "speed_slider_mask":
        return "UINT32"
    return TYPES.get(name, "NOT_FOUND" if name.startswith("joint_control") else "UINT8")


class Controller:
    """The robot and the control program that runs on it."""

    def __init__(self) -> None:
        self.q, self.qd, self.target = np.zeros(6), np.zeros(6), np.zeros(6)
        self.safety, self.program, self.frozen, self.servoing = NORMAL, False, False, False
        self.ints, self.doubles, self.inputs = dict.fromkeys(range(48), 0), dict.fromkeys(range(48), 0.0), {}
        self.watchdog_s, self.last_input_s, self.stamp_s = 0.0, 0.0, 1.0

    def tell(self, event: str, **more: object) -> None:
        print(json.dumps({"event": event, "t": time.monotonic(), **more}), flush=True)

    def value(self, name: str) -> object:
        number = int(name.rsplit("_", 1)[1]) if "register_" in name else 0
        if name.startswith("output_int_register"):
            return self.ints[number]
        if name.startswith("output_double_register"):
            return self.doubles[number]
        running = 2 if self.program else 1
        bits = 0b01 | (0b10 if self.program else 0)
        protective = 0b100 if self.safety == PROTECTIVE else (0b1000_0000 if self.safety == EMERGENCY else 1)
        values = {
            "timestamp": self.stamp_s,
            "actual_q": self.q,
            "actual_qd": self.qd,
            "robot_mode": 7,
            "safety_mode": self.safety,
            "safety_status_bits": protective,
            "speed_scaling": 0.5,
            "target_speed_fraction": 1.0,
            "runtime_state": running,
            "robot_status_bits": bits,
        }
        return values.get(name, 0)

    def step(self, dt_s: float) -> None:
        """One controller cycle: the arm, the watchdog, the state of the control program."""
        self.stamp_s += 0.0 if self.frozen else dt_s
        moves = self.servoing and self.safety == NORMAL
        step = np.clip(self.target - self.q, -2.0 * dt_s, 2.0 * dt_s) if moves else np.zeros(6)
        self.q, self.qd = self.q + step, step / dt_s
        if self.watchdog_s and self.program and time.monotonic() - self.last_input_s > self.watchdog_s:
            self.tell("watchdog", q=self.q.tolist())
            self.end()

    def end(self) -> None:
        self.program, self.servoing, self.watchdog_s = False, False, 0.0
        self.ints[0] = 0

    def obey(self, values: dict[str, object]) -> None:
        """Take new inputs; `input_int_register_0` is the command of ur_rtde's control program."""
        self.last_input_s = time.monotonic()
        self.inputs.update(values)
        command = self.inputs.get("input_int_register_0", 0)
        if not self.program:
            return
        if command == NOTHING:
            self.ints[0] = 1
            return
        if command == SERVO_J:
            self.target = np.array([self.inputs[f"input_double_register_{i}"] for i in range(6)])
            if not self.servoing:
                self.tell("servo_begin")
            self.servoing = self.safety == NORMAL
            self.tell("servo", q=self.target.tolist())
            self.ints[0] = 1
            return
        if self.ints[0] == STOPPED:
            return  # done already; the register is still set
        if command == SERVO_STOP:
            self.servoing = False
            self.tell("servo_stop", q=self.q.tolist())
        elif command == WATCHDOG:
            self.watchdog_s = 1.0 / self.inputs["input_double_register_0"]
            self.tell("watchdog_set", s=self.watchdog_s)
        elif command == STOP_SCRIPT:
            self.tell("script_stopped")
            self.end()
        else:
            self.tell("command", number=command)
        self.ints[0] = STOPPED


class Rtde:
    """One RTDE connection."""

    def __init__(self, robot: Controller, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.robot, self.reader, self.writer = robot, reader, writer
        self.outputs: list[str] = []
        self.inputs: dict[int, list[str]] = {}
        self.rate_hz = RATE_HZ

    def send(self, kind_of: int, payload: bytes) -> None:
        self.writer.write(struct.pack(">HB", 3 + len(payload), kind_of) + payload)

    async def run(self) -> None:
        sending = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                size, kind_of = struct.unpack(">HB", await self.reader.readexactly(3))
                payload = await self.reader.readexactly(size - 3)
                self.handle(chr(kind_of), kind_of, payload)
                if chr(kind_of) == "S" and sending is None:
                    sending = asyncio.create_task(self.publish())
        self.writer.close()
        if sending is not None:
            sending.cancel()

    def handle(self, letter: str, kind_of: int, payload: bytes) -> None:
        if letter == "v":
            self.send(kind_of, struct.pack(">4I", 5, 11, 1, 0))
        elif letter == "O":
            wanted, names = struct.unpack(">d", payload[:8])[0], payload[8:].decode().split(",")
            self.outputs, self.rate_hz = names, min(RATE_HZ, wanted if wanted > 0 else RATE_HZ)
            self.send(kind_of, b"\x01" + ",".join(map(kind, names)).encode())
        elif letter == "I":
            names = list(filter(None, payload.decode().split(",")))  # ur_rtde ends its lists with a comma
            recipe = len(self.inputs) + 1
            self.inputs[recipe] = names
            self.send(kind_of, bytes([recipe]) + ",".join(map(kind, names)).encode())
        elif letter == "U":
            self.robot.obey(self.unpacked(payload))
        else:  # protocol version, start, pause
            self.send(kind_of, b"\x01")

    def unpacked(self, payload: bytes) -> dict[str, object]:
        values, at = {}, 1
        for name in self.inputs.get(payload[0], []):
            layout = PACK[kind(name)]
            values[name] = struct.unpack_from(layout, payload, at)[0]
            at += struct.calcsize(layout)
        return values

    async def publish(self) -> None:
        while not self.writer.is_closing():
            await asyncio.sleep(1.0 / self.rate_hz)
            body = b""
            for name in self.outputs:
                value = self.robot.value(name)
                body += struct.pack(PACK[kind(name)], *(value if isinstance(value, np.ndarray) else [value]))
            self.send(ord("U"), b"\x01" + body)


async def dashboard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answers = {
        "is in remote control": "true",
        "get robot model": "UR5",
        "get serial number": "20205500001",
        "polyscopeversion": "URSoftware 5.11.1.108318 (Nov 18 2021)",
        "robotmode": "Robotmode: RUNNING",
        "safetymode": "Safetymode: NORMAL",
    }
    writer.write(b"Connected: Universal Robots Dashboard Server\n")
    while line := (await reader.readline()).decode().strip():
        writer.write((answers.get(line.lower(), "ok") + "\n").encode())


async def main(host: str) -> None:
    robot = Controller()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            if b"end\n" in chunk[-8:] or chunk.rstrip().endswith(b"end"):
                robot.tell("script", port=writer.get_extra_info("sockname")[1], bytes=len(chunk))
                robot.program, robot.ints[0], robot.last_input_s = True, 1, time.monotonic()

    async def rtde(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await Rtde(robot, reader, writer).run()

    async def physics() -> None:
        while True:
            await asyncio.sleep(1.0 / RATE_HZ)
            robot.step(1.0 / RATE_HZ)

    stdin = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    for port, serve in ((29999, dashboard), (30001, script), (30002, script), (30003, script), (30004, rtde)):
        await asyncio.start_server(serve, host, port)
    keep = asyncio.create_task(physics())
    robot.tell("ready")
    while order := (await stdin.readline()).decode().strip():
        if order == "die":
            os._exit(0)
        robot.frozen = order == "freeze" or (robot.frozen and order != "ok")
        modes = {"protective": PROTECTIVE, "emergency": EMERGENCY, "ok": NORMAL}
        modes |= {f"safety {mode}": mode for mode in range(10, 15)}
        robot.safety = modes.get(order, robot.safety)
        robot.tell("ordered", order=order)
    keep.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
