"""XTypes descriptions of the messages that nodes exchange, by which programs with IDL types match them.

cyclonedds computes a description from the fields of a type, which takes a third of the CPU time of starting a
node. Those in type_descriptions.json were computed by it beforehand; `hardware.bus.dds.describe` writes the
file.
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from functools import cache
from pathlib import Path
from typing import Any
from zlib import decompress

TABLE = Path(__file__).with_name("type_descriptions.json")


class _Description:
    """Description of one type, with what a topic of cyclonedds reads of its own descriptions (class IDL)."""

    def __init__(self, name: str, stored: dict[str, Any]) -> None:
        self.idl_transformed_typename: str = name.replace(".", "::")
        self.data_type_props, self.supported_versions = stored["properties"], stored["versions"]
        self._xt_bytedata = tuple(decompress(a2b_base64(stored[part])) for part in ("information", "mapping"))

    def populate(self) -> None:
        """Do nothing, because all is known."""

    fill_type_data = populate


def described(key: str, name: str) -> Any:
    """A class that announces a type by its stored description; None if there is none.

    key: the hash of a message's definition, or the DDS name of a part of a service. name: DDS name of the
    type.
    """
    stored = _table().get(key)
    return stored and type(name.rsplit(".", 1)[1], (), {"__idl__": _Description(name, stored)})


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(TABLE.read_text())
    return table
