"""An xArm control box on loopback: commands (private Modbus TCP) and 100 Hz reports, as a process.

    python -m tests.hardware.arms.fake_xarm <address> <command port> <joints>

Orders on stdin: `error <code>`, `stop`, `die`. Its arm is at each servo target at once, as far as pi rad/s
lets it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import sys
import time

RATE_HZ = 100.0
REPORT_PORT = 30003  # the SDK knows how to read reports by this number alone
GET_VERSION, MOTION_EN, SET_STATE, GET_STATE = 1, 11, 12, 13
GET_CMDNUM, GET_ERROR, SET_MODE, MOVE_SERVOJ = 14, 15, 19, 29
MOVING, SLEEPING, STOPPED = 1, 2, 4
HAS_ERROR, NOT_READY = 0x40, 0x10  # bits of an answer's state


class Box:
    def __init__(self, joints: int) -> None:
        self.joints, self.angles, self.target = joints, [0.0] * 7, [0.0] * 7
        self.state, self.mode, self.error = STOPPED, 0, 0

    def tell(self, event: str, **more: object) -> None:
        print(json.dumps({"event": event, "t": time.monotonic(), **more}), flush=True)

    def step(self) -> None:
        step = 3.15 / RATE_HZ
        if self.state != STOPPED:
            self.angles = [
                a + max(-step, min(step, t - a)) for a, t in zip(self.angles, self.target, strict=True)
            ]

    def answer(self, register: int, body: bytes) -> bytes:
        """State byte and data."""
        data = b""
        if register == GET_VERSION:
            data = f"{self.joints},{self.joints},XI1300000000,AC1300000000,v2.5.0".encode().ljust(40, b"\0")
        elif register == GET_STATE:
            data = bytes([self.state])
        elif register == GET_ERROR:
            data = bytes([self.error, 0])
        elif register == GET_CMDNUM:
            data = b"\0\0"
        elif register in (MOTION_EN, SET_MODE):
            self.mode = body[0] if register == SET_MODE else self.mode
            self.tell("motion_enable" if register == MOTION_EN else "mode", value=body[0])
        elif register == SET_STATE:
            self.state = STOPPED if body[0] == STOPPED or self.error else SLEEPING
            self.target = list(self.angles)
            self.tell("state", value=body[0], q=self.angles[: self.joints])
        elif register == MOVE_SERVOJ and self.state != STOPPED and self.mode == 1:
            self.target = list(struct.unpack("<7f", body[:28]))
            self.tell("servo", q=self.target[: self.joints])
        else:
            data = b"\0" * 64
        state = (HAS_ERROR if self.error else 0) | (NOT_READY if self.state == STOPPED else 0)
        return bytes([state]) + data

    def report(self) -> bytes:
        body = bytes([self.state | self.mode << 4]) + b"\0\0" + struct.pack("<7f", *self.angles)
        body += struct.pack("<6f", *[0.0] * 6) + struct.pack("<7f", *[0.0] * 7)
        return struct.pack(">I", 4 + len(body)) + body


async def main(host: str, command_port: int, joints: int) -> None:
    box = Box(joints)

    async def commands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                transaction, protocol, size = struct.unpack(">HHH", await reader.readexactly(6))
                payload = await reader.readexactly(size)
                reply = box.answer(payload[0], payload[1:])
                writer.write(struct.pack(">HHHB", transaction, protocol, 1 + len(reply), payload[0]) + reply)

    async def reports(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not writer.is_closing():
            writer.write(box.report())
            await asyncio.sleep(1.0 / RATE_HZ)

    async def physics() -> None:
        while True:
            box.step()
            await asyncio.sleep(1.0 / RATE_HZ)

    stdin = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    await asyncio.start_server(commands, host, command_port)
    await asyncio.start_server(reports, host, REPORT_PORT)
    keep = asyncio.create_task(physics())
    box.tell("ready")
    while order := (await stdin.readline()).decode().split():
        if order[0] == "die":
            os._exit(0)
        box.error, box.state = (int(order[1]) if order[0] == "error" else 0), STOPPED
        box.tell("ordered")
    keep.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
