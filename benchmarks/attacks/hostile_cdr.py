"""CDR payloads of any ROS type: valid ones with random fields, and damaged or malicious variants of them.

Whole payloads are written by rosbags; none of the project's encoders is used.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np

_FLOATS = (0.0, -0.0, 1.0, -1.5, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"))
_LENGTHS = (
    0,
    1,
    2,
    0x7F,
    0xFF,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    0xFFFFFFF0,
    0x10000000,
    0x20000001,
)
_HEADS = (
    b"\0\1\0\0",
    b"\0\0\0\0",
    b"\0\2\0\0",
    b"\0\3\0\0",
    b"\0\6\0\0",
    b"\0\7\0\0",
    b"\1\1\0\0",
    b"\xff" * 4,
    b"",
)
_TEXTS = (
    "",
    "a",
    "world",
    "12/7",
    "x" * 300,
    "ä\u2028",
    "0/999999999999999999",
    "rgb8",
    "32FC1",
    "16UC1",
    "mono8",
)
_BITS = {f"{sign}int{bits}": (bits, sign == "") for sign in ("", "u") for bits in (8, 16, 32, 64)}
_BITS |= {
    "byte": (7, False),
    "char": (8, False),
    "octet": (8, False),
}  # rosbags writes a byte as a signed one


class HostileCdr:
    """Generator for one typestore of rosbags."""

    def __init__(self, store: Any, rng: random.Random) -> None:
        self.store, self.rng, self.size = store, rng, 0

    def whole(self, ros_type: str) -> bytes:
        """A valid payload of either byte order; its sequences often have equal lengths, as from robots."""
        rng = self.rng
        self.size = rng.choice((0, 1, 2, 6, 6, 7))
        message = self._message(ros_type, rng.random() < 0.7)
        if ros_type == "sensor_msgs/msg/Image" and rng.random() < 0.8:
            self._fit(message)
        return bytes(self.store.serialize_cdr(message, ros_type, little_endian=rng.random() < 0.8))

    def spoilt(self, data: bytes) -> bytes:
        """The payload with one to three faults."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            data = self.rng.choice(_FAULTS)(data, self.rng)
        return data

    def _message(self, ros_type: str, regular: bool) -> Any:
        fields = self.store.fielddefs[ros_type][1]
        return self.store.types[ros_type](
            **{name: self._value(described, regular) for name, described in fields}
        )

    def _value(self, described: Any, regular: bool) -> Any:
        kind, of = described[0].name, described[1]
        if kind == "NAME":
            return self._message(of, regular)
        if kind == "BASE":
            return self._scalar(of[0], regular)
        inner, length = of
        count = length if kind == "ARRAY" else self.size if regular else self.rng.randrange(9)
        values = [self._value(inner, regular) for _ in range(count)]
        if inner[0].name == "BASE" and inner[1][0] != "string":
            return np.array(values, _dtype(inner[1][0]))
        return values

    def _scalar(self, base: str, regular: bool) -> Any:
        rng = self.rng
        if base == "string":
            return rng.choice(_TEXTS) if rng.random() < 0.5 else f"joint_{rng.randrange(9)}"
        if base == "bool":
            return rng.random() < 0.5
        if base in ("float32", "float64"):
            value = rng.uniform(-3, 3) if rng.random() < 0.7 else rng.choice(_FLOATS)
            return float(np.float32(np.clip(value, -3e38, 3e38))) if base == "float32" else value
        bits, signed = _BITS[base]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
        if regular:
            return min(high, rng.randrange(100))
        return rng.choice((low, high, 0, 1, rng.randint(low, high)))

    def _fit(self, image: Any) -> None:
        """Give a picture a size that its bytes have."""
        rng = self.rng
        image.encoding, wide = rng.choice(
            (("rgb8", 3), ("bgra8", 4), ("mono8", 1), ("32FC1", 4), ("16UC1", 2))
        )
        image.height, image.width = rng.randrange(5), rng.randrange(5)
        image.step = image.width * wide + rng.choice((0, 0, 3))
        image.data = np.array([rng.randrange(256) for _ in range(image.step * image.height)], np.uint8)


def _dtype(base: str) -> str:
    return "uint8" if base in ("byte", "char", "octet") else base


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flip(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 4))):
        if out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _length(data: bytes, rng: random.Random) -> bytes:
    """Another number where a length may be."""
    if len(data) < 8:
        return data
    at = 4 * rng.randrange(1, len(data) // 4)
    return data[:at] + struct.pack(rng.choice("<>") + "I", rng.choice(_LENGTHS)) + data[at + 4 :]


def _shift(data: bytes, rng: random.Random) -> bytes:
    """Bytes put in or left out, so that what follows is misaligned."""
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 3, 4, 7))
    return (
        data[:at] + rng.randbytes(count) + data[at:] if rng.random() < 0.5 else data[:at] + data[at + count :]
    )


def _head(data: bytes, rng: random.Random) -> bytes:
    return rng.choice(_HEADS) + data[4:]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + data[at : at + 40] * rng.choice((2, 50)) + data[at:]


def _noise(data: bytes, rng: random.Random) -> bytes:
    return rng.choice(_HEADS[:2]) + rng.randbytes(rng.choice((0, 3, 16, len(data))))


_FAULTS = (_cut, _cut, _flip, _flip, _length, _length, _shift, _head, _repeat, _noise)
