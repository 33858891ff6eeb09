"""`python -m hardware.bus.dds.describe`: write the XTypes descriptions that nodes announce to their file.

Run it after a change of a definition in `hardware.bus.dds.definitions`, or of the types of services. With
PYTHONHASHSEED=0 it writes the parts of a type in the same order every time.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any
from zlib import compress

from hardware.bus.dds.cdr import DISTRIBUTIONS, RosTypes
from hardware.bus.dds.descriptions import TABLE
from hardware.bus.dds.graph import INFO
from hardware.bus.dds.parameters import SERVICES
from hardware.bus.dds.service import TRIGGER, service_parts
from hardware.bus.dds.types import struct
from hardware.bus.wire import WIRE


def announced_types() -> Iterator[tuple[str, str, Any]]:
    """(key of the table, DDS name, class of cyclonedds) of each type that nodes announce."""
    for ros in map(RosTypes, DISTRIBUTIONS):
        for ros_type in sorted({INFO} | {each.ros_type for each in WIRE.values()}):
            made = struct(ros, ros_type)
            yield ros.type_hash(ros_type), made.__idl_typename__, made
    for service in (TRIGGER, *(f"rcl_interfaces/srv/{kind}" for kind, _, _ in SERVICES.values())):
        for made in service_parts(service):
            yield made.__idl_typename__, made.__idl_typename__, made


def describe(made: Any) -> dict[str, Any]:
    """Description of a class of cyclonedds, as a row of the table."""
    idl = made.__idl__
    idl.populate()
    idl.fill_type_data()
    information, mapping = (b64encode(compress(part)).decode() for part in idl._xt_bytedata)
    return {
        "properties": idl.data_type_props,
        "versions": idl.supported_versions,
        "information": information,
        "mapping": mapping,
    }


if __name__ == "__main__":
    rows = {key: {"name": name, **describe(made)} for key, name, made in announced_types()}
    TABLE.write_text(json.dumps(rows, indent=0) + "\n")
