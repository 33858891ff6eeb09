"""Protocol of the engine and its worker: messages over pipes, arrays in shared memory.

A message is its length (4 bytes, big-endian), then JSON. The engine sends {"do": <command>, ...}; the
worker answers {"done": ...}, or {"failed": <kind>, "text": ...}. Commands: HELLO, INIT, STEP, SET_STATE,
RANDOMISE, CLOSE.

Arrays are float32 in MuJoCo's conventions (quaternions wxyz, free joints as in qpos and qvel); n = worlds.
The worker converts at its border with Isaac Gym. This file runs on Python 3.7 with numpy alone: Isaac Gym's
interpreter loads it.
"""

from __future__ import annotations

import json
import os
import select
import struct
import time
from typing import Any

import numpy as np

VERSION = 1
HELLO, INIT, STEP, SET_STATE, RANDOMISE, CLOSE = "HELLO", "INIT", "STEP", "SET_STATE", "RANDOMISE", "CLOSE"
MISSING, BROKEN = (
    "missing",
    "broken",
)  # kinds of failure: a package is absent; anything else, with its traceback
_LENGTH = struct.Struct(">I")
_LONGEST = 64 * 2**20  # a longer message means a broken stream


class Closed(Exception):  # noqa: N818 - not an error in itself: the other side is gone
    """The process at the other end of the pipe has ended."""


def send(file: int, message: Any) -> None:
    """Send a message. Raises Closed."""
    body = json.dumps(message).encode()
    data = _LENGTH.pack(len(body)) + body
    while data:
        try:
            data = data[os.write(file, data) :]
        except (BrokenPipeError, ConnectionResetError):
            raise Closed() from None


def receive(file: int, timeout_s: float | None = None) -> Any:
    """Receive a message. Raises Closed, TimeoutError for a late message, ValueError for an invalid one."""
    deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
    (length,) = _LENGTH.unpack(_read(file, _LENGTH.size, deadline_s))
    if length > _LONGEST:
        raise ValueError(f"a message of {length} bytes")
    return json.loads(_read(file, length, deadline_s).decode())


def _read(file: int, count: int, deadline_s: float | None) -> bytes:
    data = b""
    while len(data) < count:
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        if not select.select([file], [], [], left_s)[0]:
            raise TimeoutError()
        part = os.read(file, count - len(data))
        if not part:
            raise Closed()
        data += part
    return data


def shapes(sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
    """sizes: n, nq, nv, nu, nb, nf, nt as in `sim.engines.scene`. Name -> shape of each array."""
    n, nq, nv, nu, nb, nf, nt = (sizes[name] for name in ("n", "nq", "nv", "nu", "nb", "nf", "nt"))
    return {
        "ctrl": (n, nu),
        "qpos": (n, nq),
        "qvel": (n, nv),
        "body_m": (n, nb, 3),
        "body_quat": (n, nb, 4),
        "touch_n": (n, nt),
        "fixture_m": (n, nf, 3),
        "fixture_quat": (n, nf, 4),
        # Changes of randomise: the first rows, one for each world that it names.
        "mass_scale": (n, nb),
        "friction_scale": (n,),
        "kp_scale": (n, nu),
        "kv_scale": (n, nu),
        "damping_scale": (n, nv),
        "strength_scale": (n, nu),
    }


def size_bytes(sizes: dict[str, int]) -> int:
    return 4 * sum(int(np.prod(shape)) for shape in shapes(sizes).values())


def slots(memory: Any, sizes: dict[str, int]) -> dict[str, Any]:
    """Name -> array over shared memory of `size_bytes`."""
    found, offset = {}, 0
    for name, shape in shapes(sizes).items():
        count = int(np.prod(shape))
        found[name] = np.frombuffer(memory, np.float32, count, offset).reshape(shape)
        offset += 4 * count
    return found
