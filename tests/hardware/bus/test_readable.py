"""Messages as text, read back by a YAML parser."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from hardware.bus.dds.cdr import ros_types
from hardware.bus.readable import readable
from hardware.bus.wire import WIRE
from tests.hardware.records import RECORDS, SAMPLES


def message_of(record: Any) -> Any:
    """A message decoded from its bytes."""
    ros = ros_types()
    return ros.parse(ros.encode(record), WIRE[type(record)].ros_type)


def plain(value: Any) -> Any:
    """The message as dicts, lists, texts and numbers."""
    if is_dataclass(value):
        return {
            field.name: plain(getattr(value, field.name))
            for field in fields(value)
            if field.default is MISSING
        }
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(one) for one in value] if isinstance(value, list) else value


def equal(a: Any, b: Any) -> bool:
    """True when every number is equal to the last bit, with NaN equal to NaN."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize("kind", RECORDS)
def test_full_text_parses_to_the_message(kind: type[Any]) -> None:
    """For any content: NaN, 1e-05, texts with quotes, colons, line ends, or that look like numbers."""

    @settings(deadline=None)  # the first message makes the classes and the codec
    @given(record=RECORDS[kind])
    def check(record: Any) -> None:
        message = message_of(record)
        assert equal(yaml.safe_load(readable(message, cut=None)), plain(message))

    check()


@pytest.mark.parametrize(
    "text", ["no", "1.5", "a: b", "# x", "-", "", "ü – 😀", "\x1b[31m\n\t\x7f\x85", "null"]
)
def test_escape_sequences_are_escaped(text: str) -> None:
    """A message from the network may hold terminal escape sequences: they are printed as text."""
    shown = readable(message_of(m.Text(text)))
    assert yaml.safe_load(shown) == {"data": text}
    assert shown.isprintable()


def test_long_fields_are_shortened() -> None:
    """Numbers to the first three, pixels to their count, lists of messages to the first."""
    joints = m.JointState(1.5, tuple("abcd"), np.array([0.5, 1e-05, np.nan, 4.0]))
    lines = readable(message_of(joints), cut=3).splitlines()
    assert lines == [
        "header:",
        "  stamp:",
        "    sec: 1",
        "    nanosec: 500000000",
        '  frame_id: ""',
        "name: [a, b, c, ...]  # 4 values",
        "position: [0.5, 1.0e-05, .nan, ...]  # 4 values",
        "velocity: []",
        "effort: []",
    ]
    picture = readable(message_of(m.Image(0.0, np.zeros((48, 64, 3), np.uint8), "eye")))
    assert "height: 48\nwidth: 64\nencoding: rgb8\n" in picture
    assert picture.endswith("data: 9216 bytes")
    status = readable(message_of(SAMPLES[m.Diagnostics]), cut=1)
    assert "name: arm" in status
    assert "camera" not in status
    assert status.endswith("  # and 1 more")
    assert readable(message_of(m.Text("x" * 300))).endswith("xxx...  # 300 characters")


def test_type_constants_are_not_printed() -> None:
    """A status has OK, WARN, ERROR and STALE beside its fields. A message without fields is one line."""
    assert "WARN" not in readable(message_of(SAMPLES[m.Diagnostics]))
    assert readable(ros_types().new("std_msgs/msg/Empty")) == "{}"
