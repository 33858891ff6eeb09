"""A typestore of `rosbags` that makes message types on demand, so that a node starts fast.

rosbags makes the classes of all messages of a distribution when it loads them, which takes a sixth of the CPU
time of starting a node. Here a class is made at its first use, and the messages that nodes do not exchange
are loaded when one of them is asked for.
"""

from __future__ import annotations

from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from hardware.bus.dds.definitions import DEFINITIONS, DIFFERENT


def typestore(distribution: str) -> Typestore:
    """The messages of a ROS distribution, such as "jazzy"."""
    store = Typestore()
    store.fielddefs = _Definitions(distribution)
    store.types = _Classes(store.fielddefs)
    return store


class _Definitions(dict[str, Any]):
    """Type -> (its constants, its fields): those of DEFINITIONS, and all others once one of them is looked
    up.
    """

    def __init__(self, distribution: str) -> None:
        texts = DEFINITIONS | DIFFERENT.get(distribution, {})
        super().__init__({name: parse(text) for name, text in texts.items()})
        self._distribution = distribution

    def __missing__(self, ros_type: str) -> Any:
        for name, described in get_typestore(Stores(f"ros2_{self._distribution}")).fielddefs.items():
            self.setdefault(name, described)
        if ros_type not in self:
            raise KeyError(ros_type)
        return self[ros_type]


class _Classes(dict[str, Any]):
    """Type -> class of its messages, made at the first look-up."""

    def __init__(self, definitions: Any) -> None:
        super().__init__()
        self._definitions = definitions

    def __missing__(self, ros_type: str) -> Any:
        single = Typestore()
        single.register({ros_type: self._definitions[ros_type]})
        self[ros_type] = single.types[ros_type]
        return self[ros_type]


def parse(text: str) -> tuple[list[Any], list[Any]]:
    """Constants and fields of a definition, as rosbags keeps them."""
    constants, fields = [], []
    for part in text.split(", "):
        kind, name = part.split(" ")
        name, _, value = name.partition("=")
        if value:
            constants.append((name, kind, int(value)))
        else:
            fields.append((name, _described(kind)))
    return constants, fields


def _described(kind: str) -> tuple[Nodetype, Any]:
    """Type of a field, such as "float64[]", "char[16]", "Range[<=1]" or "string<=256"."""
    if kind.endswith("]"):
        item, _, count = kind[:-1].rpartition("[")
        array = Nodetype.ARRAY if count.isdigit() else Nodetype.SEQUENCE
        return array, (_described(item), int(count.removeprefix("<=") or 0))
    if "/" in kind:
        return Nodetype.NAME, kind
    base, _, longest = kind.partition("<=")
    return Nodetype.BASE, (base, int(longest or 0))
