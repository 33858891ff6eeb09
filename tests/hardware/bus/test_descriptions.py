"""XTypes descriptions that are kept in a file: those that cyclonedds computes."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from cyclonedds.idl._typesupport.DDS.XTypes import TypeInformation, TypeMapping

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.dds.describe import announced_types
from hardware.bus.dds.descriptions import TABLE, described
from hardware.bus.dds.types import carrier
from hardware.bus.wire import WIRE

TYPES = {key: (name, made) for key, name, made in announced_types()}


def test_the_file_has_all_types() -> None:
    """Every message of a topic or a service, in every distribution."""
    rows = {key: row["name"] for key, row in json.loads(TABLE.read_text()).items()}
    assert rows == {key: name for key, (name, _) in TYPES.items()}, "run: python -m hardware.bus.dds.describe"


@pytest.mark.parametrize("key", TYPES, ids=lambda key: TYPES[key][0])
def test_descriptions_are_those_of_cyclonedds(key: str) -> None:
    """All that a topic reads. The order of the parts of a type depends on the hashes of a process."""
    name, computed = TYPES[key]
    stored, own = described(key, name).__idl__, computed.__idl__
    own.populate()
    own.fill_type_data()
    assert stored.idl_transformed_typename == own.idl_transformed_typename
    assert stored.data_type_props == own.data_type_props
    assert stored.supported_versions == own.supported_versions
    for ours, theirs, kind in zip(
        stored._xt_bytedata, own._xt_bytedata, (TypeInformation, TypeMapping), strict=True
    ):
        assert sorted(ours) == sorted(theirs)
        assert parts(kind, ours) == parts(kind, theirs)


def parts(kind: Any, data: bytes) -> Any:
    """The decoded parts of a description as sorted texts."""
    found = kind.deserialize(data, has_header=False, use_version_2=True)
    if kind is TypeMapping:
        return [sorted(map(repr, pairs)) for pairs in vars(found).values()]
    return [
        (repr(each.typeid_with_size), each.dependent_typeid_count, sorted(map(repr, each.dependent_typeids)))
        for each in (found.minimal, found.complete)
    ]


def test_nodes_announce_the_stored_descriptions() -> None:
    ros = RosTypes("jazzy")
    for wire in WIRE.values():
        assert not hasattr(carrier(ros, wire.ros_type), "__dataclass_fields__"), wire.ros_type


def test_types_without_a_stored_description_are_described_by_cyclonedds() -> None:
    """Such as those of drivers."""
    made = carrier(RosTypes("jazzy"), "geometry_msgs/msg/PoseStamped")
    made.__idl__.fill_type_data()
    assert len(made.__idl__._xt_bytedata[1]) > 1000
