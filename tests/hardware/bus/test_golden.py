"""Bytes on the wire, compared with golden.hex, so that they change only on purpose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from hardware.bus.dds.cdr import RosTypes, ros_types
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.service import decode_head, decode_reply, encode_reply, encode_request
from hardware.bus.dds.types import struct
from hardware.bus.wire import WIRE, pack
from hardware.messages import DepthImage, FlightCommand
from tests.hardware.records import SAMPLES, same

GOLDEN = dict(line.split() for line in (Path(__file__).parent / "golden.hex").read_text().splitlines())


def on_record(kind: type[Any]) -> bytes:
    """Two records may share a ROS type: FlightCommand is a JointState of efforts, Depth an Image."""
    return bytes.fromhex(
        GOLDEN[WIRE[kind].ros_type + {FlightCommand: ":flight", DepthImage: ":depth"}.get(kind, "")]
    )


@pytest.mark.parametrize("kind", list(WIRE), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("distribution", ["humble", "jazzy"])
def test_bytes_match_the_golden_file(kind: type[Any], distribution: str) -> None:
    """Encoding and decoding; deployed robots use these bytes."""
    types, golden = ros_types(distribution), on_record(kind)
    assert types.encode(SAMPLES[kind]).hex() == golden.hex()
    assert same(types.decode(golden, kind), SAMPLES[kind])


@pytest.mark.parametrize("kind", list(WIRE), ids=lambda kind: kind.__name__)
def test_cyclonedds_encodes_the_same_bytes(kind: type[Any]) -> None:
    """cyclonedds' own serializer, which shares no code with ours, with the announced type."""
    types = ros_types("jazzy")
    announced = struct(types, WIRE[kind].ros_type)
    theirs = filled(announced, pack(SAMPLES[kind], types.new)).serialize(use_version_2=False)
    assert bytes(theirs).hex() == on_record(kind).hex()


def filled(announced: Any, message: Any) -> Any:
    """The message in the classes of cyclonedds, field by field."""
    return announced(
        **{name: _value(kind, getattr(message, name)) for name, kind in announced.__annotations__.items()}
    )


def _value(kind: Any, value: Any) -> Any:
    if hasattr(kind, "__idl_typename__"):
        return filled(kind, value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    inner = kind.__metadata__[0].subtype if isinstance(value, list) else None
    return [_value(inner, item) for item in value] if isinstance(value, list) else value


def test_service_bytes_match_rmw_cyclonedds() -> None:
    """Handle and count before the payload; an empty request is one byte."""
    request = encode_request(0x1122334455667788, 9)
    assert request.hex() == GOLDEN["std_srvs/srv/Trigger_Request"]
    reply = encode_reply(0x1122334455667788, 9, (True, "moving"))
    assert reply.hex() == GOLDEN["std_srvs/srv/Trigger_Response"]
    for message in (request, reply):
        assert decode_head(message) == (0x1122334455667788, 9)
    assert decode_reply(reply) == (True, "moving")


def test_big_endian_answers_are_read() -> None:
    """The CDR header states the byte order."""
    head = bytes.fromhex("00000000") + (7).to_bytes(8, "big") + (1).to_bytes(8, "big")
    reply = head + b"\1\0\0\0" + (3).to_bytes(4, "big") + b"ok\0"
    assert decode_head(reply) == (7, 1)
    assert decode_reply(reply) == (True, "ok")


@pytest.mark.parametrize(("distribution", "size"), [("humble", 24), ("jazzy", 16)])
def test_gid_length_follows_the_distribution(distribution: str, size: int) -> None:
    """ros_discovery_info differs between Humble and later distributions."""
    types = RosTypes(distribution)
    empty = types.store.serialize_cdr(types.new(INFO), INFO)
    assert len(empty) == 4 + size + 4


def test_type_hashes_match_ros() -> None:
    """As `ros2 topic info -v` shows them for sensor_msgs and std_msgs of Jazzy."""
    assert (
        ros_types("jazzy").type_hash("sensor_msgs/msg/JointState")
        == GOLDEN["hash:sensor_msgs/msg/JointState"]
    )
    assert ros_types("jazzy").type_hash("std_msgs/msg/String") == GOLDEN["hash:std_msgs/msg/String"]
