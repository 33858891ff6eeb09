"""A bus of servos on a pseudo-terminal that speaks the protocols of Dynamixel (2.0) and Feetech."""

from __future__ import annotations

import os
import pty
import select
import threading
import time
import tty
from collections.abc import Iterator

READ, WRITE, SYNC_READ, STATUS = 0x02, 0x03, 0x82, 0x55


def crc16(data: bytes) -> int:
    """CRC of Dynamixel's protocol 2.0: polynomial 0x8005, start 0, not reflected."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x8005) & 0xFFFF if crc & 0x8000 else (crc << 1) & 0xFFFF
    return crc


class FakeServos:
    """counts: position of each servo. silent: ids that do not answer. torque: last value written of each.

    late_s: delay of the next answers, once.
    """

    def __init__(self, vendor: str, counts: dict[int, int]) -> None:
        self.vendor, self.counts, self.silent = vendor, dict(counts), set[int]()
        self.torque: dict[int, int] = {}
        self.late_s = 0.0
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def unplug(self) -> None:
        """End the bus: the adapter is gone."""
        if not self._stopped.is_set():
            self._stopped.set()
            self._thread.join(5.0)
            os.close(self._theirs)
            os.close(self._ours)

    def _serve(self) -> None:
        buffer = b""
        while not self._stopped.is_set():
            if not select.select([self._ours], [], [], 0.02)[0]:
                continue
            buffer += os.read(self._ours, 256)
            packets, buffer = (self._dynamixel if self.vendor == "dynamixel" else self._feetech)(buffer)
            if packets and self.late_s:
                late_s, self.late_s = self.late_s, 0.0
                time.sleep(late_s)
            for answer in packets:
                os.write(self._ours, answer)

    def _dynamixel(self, data: bytes) -> tuple[list[bytes], bytes]:
        answers: list[bytes] = []
        while (start := data.find(b"\xff\xff\xfd\x00")) >= 0 and len(data) >= start + 7:
            length = int.from_bytes(data[start + 5 : start + 7], "little")
            end = start + 7 + length
            if len(data) < end:
                break
            packet, data = data[start:end], data[end:]
            assert crc16(packet[:-2]) == int.from_bytes(packet[-2:], "little"), "wrong checksum"
            found = self._done(packet[4], packet[7], packet[8:-2], 2)
            answers += [self._status2(servo, body) for servo, body in found]
        return answers, data

    def _feetech(self, data: bytes) -> tuple[list[bytes], bytes]:
        answers: list[bytes] = []
        while (start := data.find(b"\xff\xff")) >= 0 and len(data) >= start + 4:
            end = start + 4 + data[start + 3]
            if len(data) < end:
                break
            packet, data = data[start:end], data[end:]
            assert (~sum(packet[2:-1])) & 0xFF == packet[-1], "wrong checksum"
            for servo, body in self._done(packet[2], packet[4], packet[5:-1], 1):
                content = bytes([servo, len(body) + 2, 0]) + body
                answers.append(b"\xff\xff" + content + bytes([(~sum(content)) & 0xFF]))
        return answers, data

    def _done(self, servo: int, instruction: int, body: bytes, width: int) -> Iterator[tuple[int, bytes]]:
        """(servo, data) of each answer. width: bytes of an address."""
        if instruction == WRITE:
            self.torque[servo] = body[width]
            if servo in self.counts and servo not in self.silent:
                yield servo, b""
        elif instruction == SYNC_READ:
            length = body[width]
            for each in body[2 * width :]:
                if each in self.counts and each not in self.silent:
                    yield each, (self.counts[each] % (1 << 8 * length)).to_bytes(length, "little")

    def _status2(self, servo: int, body: bytes) -> bytes:
        head = b"\xff\xff\xfd\x00" + bytes([servo]) + (len(body) + 4).to_bytes(2, "little")
        packet = head + bytes([STATUS, 0]) + body
        return packet + crc16(packet).to_bytes(2, "little")
