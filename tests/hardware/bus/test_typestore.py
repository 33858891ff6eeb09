"""Message types without ROS: those that nodes exchange are kept here, all others come from rosbags."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from rosbags.typesys import Stores, get_typestore

from hardware.bus.dds import typestore
from hardware.bus.dds.cdr import DISTRIBUTIONS, RosTypes
from hardware.bus.dds.definitions import DEFINITIONS
from hardware.bus.wire import WIRE, pack
from tests.hardware.records import SAMPLES

OF_ROSBAGS = [name for name in DEFINITIONS if not name.startswith(("control_msgs/", "std_srvs/"))]
OTHER = "geometry_msgs/msg/PoseStamped"  # in no definition of ours


@cache
def of_rosbags(distribution: str) -> Any:
    return get_typestore(Stores(f"ros2_{distribution}"))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_definitions_are_those_of_rosbags(distribution: str) -> None:
    """Constants and fields with their types, lengths and order; what is computed of them is then the same."""
    own, theirs = RosTypes(distribution).store, of_rosbags(distribution)
    assert {name: own.fielddefs[name] for name in OF_ROSBAGS} == {
        name: theirs.fielddefs[name] for name in OF_ROSBAGS
    }
    for name in OF_ROSBAGS:
        assert own.hash_rihs01(name) == theirs.hash_rihs01(name)
        described = [
            [(field.name, field.default) for field in fields(each.types[name])] for each in (own, theirs)
        ]
        assert described[0] == described[1]


@pytest.mark.parametrize("kind", [kind for kind in WIRE if WIRE[kind].ros_type in OF_ROSBAGS])
@pytest.mark.parametrize("distribution", ["humble", "jazzy"])
def test_bytes_are_those_of_the_store_of_rosbags(kind: type[Any], distribution: str) -> None:
    """In both byte orders."""
    types, ros_type = RosTypes(distribution), WIRE[kind].ros_type
    message = pack(SAMPLES[kind], types.new)
    for little in (True, False):
        theirs = of_rosbags(distribution).serialize_cdr(message, ros_type, little_endian=little)
        assert types.store.serialize_cdr(message, ros_type, little_endian=little) == theirs


def test_other_messages_are_loaded_from_rosbags() -> None:
    """And what was defined or registered before stays as it is."""
    types = RosTypes("jazzy")
    header = types.store.types["std_msgs/msg/Header"]
    assert types.knows(OTHER)
    assert not types.knows("own_msgs/msg/Unknown")
    message = types.new(OTHER, header=types.new("std_msgs/msg/Header", frame_id="map"))
    cdr = bytes(types.store.serialize_cdr(message, OTHER))
    assert types.parse(cdr, OTHER).header == message.header
    assert types.store.types["std_msgs/msg/Header"] is header


def test_messages_of_nodes_need_no_other_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encoding, decoding and hashing them loads no store of rosbags."""
    monkeypatch.setattr(typestore, "get_typestore", lambda store: pytest.fail(f"{store} was loaded"))
    for types in map(RosTypes, ("humble", "jazzy")):
        for kind, record in SAMPLES.items():
            types.decode(types.encode(record), kind)
            types.type_hash(WIRE[kind].ros_type)
