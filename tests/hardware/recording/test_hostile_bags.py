"""Recordings with corrupted bytes: one error of this project, whatever the parser of rosbags raises."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")
from rosbags.rosbag2 import StoragePlugin, Writer

from hardware.bus.dds.cdr import ros_types
from hardware.messages import Text
from hardware.recording.bag_reader import Bag
from robo_rl.core.errors import DataError

AFTER_MAGIC = 9  # the length of the first record of an MCAP file: 8 bytes of magic and an opcode before it


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    path, types = tmp_path / "bag", ros_types("jazzy")
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        topic = writer.add_connection("/words", "std_msgs/msg/String", typestore=types.store)
        for i in range(3):
            writer.write(topic, i, types.encode(Text("a word")))
    return path


def messages(path: Path) -> list[tuple[str, int, bytes]]:
    """All messages of the recording, which is then closed."""
    bag = Bag(path, ros_types("jazzy"))
    with closing(bag):
        return list(bag.raw({"words"}))


@pytest.mark.parametrize("length", [0, 3, 2**40, 2**62, 2**64 - 1])
def test_wrong_length_is_one_error(bag: Path, length: int) -> None:
    """A length of 4 EB must not end in MemoryError, which explains nothing."""
    file = next(bag.glob("*.mcap"))
    data = bytearray(file.read_bytes())
    struct.pack_into("<Q", data, AFTER_MAGIC, length)
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"(cannot be read as a recording|is broken): .+"):
        messages(bag)


def test_truncated_file_gives_messages_or_one_error(bag: Path) -> None:
    """At every length; the complete file gives all messages."""
    file = next(bag.glob("*.mcap"))
    data = file.read_bytes()
    for length in range(0, len(data), 7):
        file.write_bytes(data[:length])
        with pytest.raises(DataError):
            messages(bag)
    file.write_bytes(data)
    assert len(messages(bag)) == 3
