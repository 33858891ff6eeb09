"""Conversion of records to messages of a ROS installation and back.

Messages of the control path are exchanged as CDR bytes, because rclpy converts each of their fields and
elements. The others are filled with the types that rclpy's generated setters accept fastest.

The setters accept an array.array with the right type code as it is. They check any other sequence element by
element, which takes tens of milliseconds for a picture.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from hardware.bus.dds.cdr import FAST
from hardware.bus.wire import WIRE, check_shapes, pack, unpack
from hardware.messages import Message
from robo_rl.core.errors import BusError, MissingDependencyError

_CODES = {
    "double": "d",
    "float": "f",
    "uint8": "B",
    "octet": "B",
    "int8": "b",
    "uint16": "H",
    "int16": "h",
    "uint32": "I",
    "int32": "i",
    "uint64": "Q",
    "int64": "q",
}


def to_ros(record: Message) -> Any:
    """Message for a publisher of rclpy, or its CDR bytes for the messages of the control path.

    Raises BusError for values that the message's setters refuse.
    """
    if type(record) in FAST:
        check_shapes(record)
        return FAST[type(record)][0](record)
    return pack(record, _checked)


def from_ros(kind: type[Any], message: Any) -> Any:
    """The record of a ROS message, or of its CDR bytes.

    Raises BusError for invalid bytes, and for a message that the record cannot represent.
    """
    if not isinstance(message, bytes):
        return unpack(kind, message)
    if (record := FAST[kind][1](message)) is not None:
        check_shapes(record)
        return record
    from rclpy.serialization import deserialize_message

    ros_type = WIRE[kind].ros_type
    try:
        return unpack(kind, deserialize_message(message, message_class(ros_type)))
    except RuntimeError as error:  # RMWError
        raise BusError(f"A message cannot be decoded as {ros_type}: {error}") from error


def _checked(ros_type: str, **fields: Any) -> Any:
    """`new` that raises BusError for values that the message's setters refuse."""
    try:
        return new(ros_type, **fields)
    except (AssertionError, OverflowError, ValueError, TypeError) as error:
        raise BusError(f"A {ros_type} cannot hold {sorted(fields)}: {error}") from error


@lru_cache
def message_class(ros_type: str) -> Any:
    """rclpy's class of a type such as `sensor_msgs/msg/Image`.

    Raises MissingDependencyError that names the package to install.
    """
    package, kind, name = ros_type.split("/")
    try:
        return getattr(import_module(f"{package}.{kind}"), name)
    except ImportError as error:
        distribution = os.environ.get("ROS_DISTRO", "jazzy")
        raise MissingDependencyError(
            f"The ROS package '{package}' cannot be imported ({error}). Run: "
            f"sudo apt install ros-{distribution}-{package.replace('_', '-')}"
        ) from error


def new(ros_type: str, **fields: Any) -> Any:
    """A message with these fields; the others have their defaults."""
    message = message_class(ros_type)()
    converters = _converters(ros_type)
    for name, value in fields.items():
        convert = converters.get(name)
        setattr(message, name, value if convert is None else convert(value))
    return message


@lru_cache
def _converters(ros_type: str) -> dict[str, Callable[[Any], Any]]:
    """Converters from our values to those of the setters, by field; only for fields that need one."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, kind in message_class(ros_type).get_fields_and_field_types().items():
        inner = kind.removeprefix("sequence<").removesuffix(">").split(",")[0]
        if kind.startswith("sequence<") and inner in _CODES:
            found[name] = partial(_array, _CODES[inner])
        elif kind == "octet":
            found[name] = _octet
    return found


def _array(code: str, values: Any) -> array[Any]:
    return array(code, values.tobytes())


def _octet(value: int) -> bytes:
    return bytes([value])
