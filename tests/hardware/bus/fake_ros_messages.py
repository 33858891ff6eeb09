"""Message classes with the setters of rosidl's Python generator, made from the definitions that `rosbags`
holds.

A sequence of numbers is an array.array of its type code, `byte` is bytes of length one, numbers are plain
ones.
"""

from __future__ import annotations

import sys
from array import array
from types import ModuleType
from typing import Any

import numpy as np

from hardware.bus.dds.cdr import ros_types
from robo_rl.core.errors import BusError

CODES = {"float64": ("double", "d"), "uint8": ("uint8", "B"), "float32": ("float", "f")}


class Request:
    """std_srvs/srv/Trigger_Request."""


class Response:
    """std_srvs/srv/Trigger_Response, with the setters' checks."""

    def __init__(self) -> None:
        self.__dict__.update(success=False, message="")

    def __setattr__(self, name: str, value: Any) -> None:
        assert isinstance(value, {"success": bool, "message": str}[name]), f"{name} = {value!r}"
        self.__dict__[name] = value


class Messages(ModuleType):
    """`sensor_msgs.msg`: each class is made when it is first used."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        ros_type = f"{self.__name__.split('.')[0]}/msg/{name}"
        if ros_type not in _classes:
            _classes[ros_type] = message_class(ros_type)
        return _classes[ros_type]


_classes: dict[str, Any] = {}


def message_class(ros_type: str) -> Any:
    """A class like those of rosidl_generator_py."""
    described = dict(ros_types("jazzy").store.fielddefs[ros_type][1])

    def init(self: Any) -> None:
        for name, field in described.items():
            object.__setattr__(self, name, empty(field))

    def set_checked(self: Any, name: str, value: Any) -> None:
        check(described[name], value, f"{ros_type}.{name}")
        object.__setattr__(self, name, value)

    def fields(cls: Any) -> dict[str, str]:
        return {name: kind_of(field) for name, field in described.items()}

    body = {"__init__": init, "__setattr__": set_checked, "get_fields_and_field_types": classmethod(fields)}
    return type(ros_type.rsplit("/", 1)[1], (), body | {"ros_type": ros_type})


def kind_of(field: Any) -> str:
    """A field's type as `get_fields_and_field_types` writes it."""
    kind, of = field[0].name, field[1]
    if kind == "BASE":
        return {"float64": "double", "float32": "float", "byte": "octet", "bool": "boolean"}.get(of[0], of[0])
    if kind == "NAME":
        return of.replace("/msg/", "/")
    inner = kind_of(of[0])
    return f"sequence<{inner}>" if kind == "SEQUENCE" else f"{inner}[{of[1]}]"


def empty(field: Any) -> Any:
    kind, of = field[0].name, field[1]
    if kind == "BASE":
        return {"string": "", "bool": False, "float64": 0.0, "float32": 0.0, "byte": b"\0"}.get(of[0], 0)
    if kind == "NAME":
        package, _, name = of.split("/")
        return getattr(sys.modules[f"{package}.msg"], name)()
    base = of[0][1][0] if of[0][0].name == "BASE" else None
    return array(CODES[base][1], bytes(8 * of[1] if kind == "ARRAY" else 0)) if base in CODES else []


def check(field: Any, value: Any, where: str) -> None:
    """The assertions of the generated setters."""
    kind, of = field[0].name, field[1]
    if kind == "NAME":
        assert value.ros_type == of, where
    elif kind == "BASE":
        wanted = {"string": str, "bool": bool, "float64": float, "float32": float, "byte": bytes}.get(
            of[0], int
        )
        assert type(value) is wanted, f"{where} = {value!r}"
        assert of[0] != "byte" or len(value) == 1, where
    elif kind == "SEQUENCE" and of[0][0].name == "BASE" and of[0][1][0] in CODES:
        # Sequences of numbers are accepted too, but slowly: this project may not send them.
        assert isinstance(value, array), where
        assert value.typecode == CODES[of[0][1][0]][1], where
    elif kind == "SEQUENCE":
        assert isinstance(value, list), where
        for item in value:
            check(of[0], item, where)


def serialized(message: Any) -> bytes:
    """The CDR bytes that a raw subscription gets."""
    types = ros_types("jazzy")
    return bytes(types.store.serialize_cdr(_plain(message), message.ros_type))


def deserialize_message(serialized_message: bytes, message_type: Any) -> Any:
    """A message from its CDR bytes. Raises RuntimeError as rclpy does, whose RMWError is one."""
    types = ros_types("jazzy")
    name = message_type().ros_type
    try:
        return _typed(types.parse(serialized_message, name), name)
    except BusError as error:
        raise RuntimeError(str(error)) from error


def _typed(value: Any, ros_type: str) -> Any:
    """A message of rosbags as one of these classes."""
    package, _, name = ros_type.split("/")
    made = getattr(sys.modules[f"{package}.msg"], name)()
    for field, kind in ros_types("jazzy").store.fielddefs[ros_type][1]:
        setattr(made, field, _converted(getattr(value, field), kind))
    return made


def _converted(value: Any, field: Any) -> Any:
    kind, of = field[0].name, field[1]
    if kind == "NAME":
        return _typed(value, of)
    if kind in ("SEQUENCE", "ARRAY"):
        base = of[0][1][0] if of[0][0].name == "BASE" else None
        return (
            array(CODES[base][1], value.tobytes()) if base in CODES else [_converted(v, of[0]) for v in value]
        )
    return bytes([value]) if of[0] == "byte" else value


def _plain(value: Any) -> Any:
    if isinstance(value, array):
        return np.array(value)
    if isinstance(value, bytes):
        return value[0]
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if hasattr(value, "ros_type"):
        names = value.get_fields_and_field_types()
        return ros_types("jazzy").store.types[value.ros_type](
            **{name: _plain(getattr(value, name)) for name in names}
        )
    return value
