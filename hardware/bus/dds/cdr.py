"""CDR encoding of ROS messages without ROS, with the message types of `rosbags`."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from hardware.bus.dds.fast_cdr import decode_joints, decode_trajectory, encode_joints, encode_trajectory
from hardware.bus.wire import WIRE, check_shapes, pack, unpack
from hardware.messages import JointState, JointTrajectory, Message
from robo_rl.core.errors import BusError, MissingDependencyError
from robo_rl.core.packages import pip_install

DISTRIBUTIONS = ("humble", "iron", "jazzy", "kilted", "lyrical")
# Faster encoders with identical bytes, for the messages of the control path.
FAST: dict[type[Any], tuple[Callable[[Any], bytes], Callable[[bytes], Any]]] = {
    JointState: (encode_joints, decode_joints),
    JointTrajectory: (encode_trajectory, decode_trajectory),
}
_NUMBERS = {"float64": np.float64, "float32": np.float32, "bool": np.bool_}
_NUMBERS |= {"byte": np.uint8, "char": np.uint8, "octet": np.uint8}
_NUMBERS |= {
    f"{sign}int{bits}": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)
}


class RosTypes:
    """Message types of one ROS distribution, such as "jazzy".

    store: the typestore of rosbags. Raises MissingDependencyError without rosbags, BusError for an unknown
    distribution.
    """

    def __init__(self, distribution: str) -> None:
        try:
            from hardware.bus.dds.typestore import typestore
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"The DDS bus needs the package '{error.name}', which is not installed. Run: "
                f"{pip_install('dds')}"
            ) from error
        if distribution not in DISTRIBUTIONS:
            raise BusError(
                f"ROS distribution '{distribution}' is not supported; set ROS_DISTRO to one of "
                f"{', '.join(DISTRIBUTIONS)}, or leave it empty for jazzy."
            )
        self.distribution = distribution
        self.store: Any = typestore(distribution)
        self._defaults: dict[str, list[tuple[str, Callable[[], Any]]]] = {}

    def knows(self, ros_type: str) -> bool:
        """True if the distribution has this type, or it was registered."""
        try:
            return bool(self.store.fielddefs[ros_type])
        except KeyError:
            return False

    def new(self, ros_type: str, **fields: Any) -> Any:
        """A message with these fields; the others are empty or zero."""
        if ros_type not in self._defaults:
            described = self.store.fielddefs[ros_type][1]
            self._defaults[ros_type] = [(name, self._default(desc)) for name, desc in described]
        rest = {name: make() for name, make in self._defaults[ros_type] if name not in fields}
        return self.store.types[ros_type](**fields, **rest)

    def encode(self, record: Message) -> bytes:
        """Little-endian CDR with its 4-byte header. Raises BusError for values that the type cannot hold."""
        ros_type = WIRE[type(record)].ros_type
        check_shapes(record)
        if type(record) in FAST:
            return FAST[type(record)][0](record)
        message = pack(record, self.new)
        pixels: bytes | memoryview = b""
        # rosbags would copy the pixels three times. They are the last field, so they are appended below.
        if ros_type == "sensor_msgs/msg/Image":
            pixels, message.data = memoryview(message.data), message.data[:0]
        try:
            cdr = self.store.serialize_cdr(message, ros_type, little_endian=True)
            return b"".join((cdr[:-4], struct.pack("<I", len(pixels)), pixels)) if pixels else bytes(cdr)
        except (ValueError, TypeError, AttributeError, OverflowError, struct.error) as error:
            raise BusError(f"A {type(record).__name__} cannot be sent as {ros_type}: {error}.") from error

    def decode(self, data: bytes | memoryview, kind: type[Any]) -> Any:
        """The record of type `kind` from CDR bytes.

        Raises BusError for invalid bytes, and for a message that the record cannot represent.
        """
        if kind in FAST and (record := FAST[kind][1](bytes(data))) is not None:
            check_shapes(record)
            return record
        return unpack(kind, self.parse(data, WIRE[kind].ros_type))

    def parse(self, data: bytes | memoryview, ros_type: str) -> Any:
        """The ROS message from CDR bytes. Raises BusError for invalid bytes."""
        from rosbags.serde import SerdeError

        try:
            return self.store.deserialize_cdr(data, ros_type)
        except (SerdeError, ValueError, IndexError) as error:
            raise BusError(f"A message cannot be decoded as {ros_type}: {error}") from error

    def type_hash(self, ros_type: str) -> str:
        """The hash RIHS01_..., with which ROS tools compare the definitions of two endpoints."""
        return str(self.store.hash_rihs01(ros_type))

    def _default(self, described: tuple[Any, Any]) -> Callable[[], Any]:
        kind, of = described[0].name, described[1]
        if kind == "BASE":
            empty: dict[str, Any] = {"string": "", "bool": False, "float32": 0.0, "float64": 0.0}
            return lambda: empty.get(of[0], 0)
        if kind == "NAME":
            return lambda: self.new(of)
        inner, length = of
        base = inner[1][0] if inner[0].name == "BASE" else None
        if base in _NUMBERS:
            return lambda: np.zeros(length if kind == "ARRAY" else 0, _NUMBERS[base])
        if kind == "ARRAY":
            return lambda: [self._default(inner)() for _ in range(length)]
        return list


@lru_cache
def ros_types(distribution: str | None = None) -> RosTypes:
    """Message types of a distribution; by default of ROS_DISTRO, or of Jazzy if that is not set."""
    return RosTypes(distribution or os.environ.get("ROS_DISTRO") or "jazzy")
