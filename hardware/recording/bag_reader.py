"""Reader of recordings: those of the recorder, and bags of `ros2 bag record` (MCAP or SQLite)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.wire import WIRE
from hardware.messages import (
    CompressedImage,
    DepthImage,
    Flag,
    Floats,
    Image,
    JointState,
    JointTrajectory,
    Message,
    Text,
)
from hardware.recording.recording import LOSSES
from robo_rl.core.errors import BusError, DataError, MissingDependencyError
from robo_rl.core.packages import pip_install

METADATA, FILES = "metadata.yaml", (".mcap", ".db3")
KINDS: dict[str, type[Any]] = {
    WIRE[kind].ros_type: kind
    for kind in (JointState, JointTrajectory, Floats, Flag, Text, Image, CompressedImage)
}


def find_bags(source: Path) -> list[Path]:
    """The recordings in the folder `source`, or `source` itself, sorted by name.

    A recording is a folder with a metadata.yaml, or a single file. Raises DataError when there is none.
    """
    if not source.exists():
        raise DataError(f"{source} does not exist; expected a folder of recordings, or one of them.")
    if source.is_file() and source.suffix in FILES:
        return [source.parent if (source.parent / METADATA).is_file() else source]
    if (source / METADATA).is_file():
        return [source]
    found = [path.parent for path in source.glob(f"*/{METADATA}") if not path.parent.name.startswith(".")]
    found += [path for path in source.glob("*") if path.is_file() and path.suffix in FILES]
    if not found:
        raise DataError(
            f"No recordings are in {source}: expected folders with a {METADATA}, as the recorder and `ros2 "
            f"bag record` write them, or files ({', '.join(FILES)}). An interrupted recording is salvaged "
            "when the recorder starts there again."
        )
    return sorted(
        found,
        key=lambda path: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)],
    )


class Bag:
    """One recording, open until `close`. Topic names are relative, as in `hardware.topics`.

    namespace: of the robot; topics outside it are ignored. topics: name -> ROS type of the topics with
    messages. names: also those without messages. full_names: names with namespace, of all topics. losses:
    datagrams that the recorder received too late. Raises DataError when the recording cannot be read.
    """

    def __init__(self, path: Path, types: RosTypes, namespace: str = "") -> None:
        try:
            from rosbags.rosbag2 import Reader
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"Reading recordings needs 'rosbags'. Run: {pip_install('dds')}"
            ) from error
        self.path, self._types = path, types
        try:
            self._reader: Any = Reader(path)
            self._reader.open()
        except Exception as error:  # for a damaged file, rosbags raises any error of its parsers
            raise DataError(f"{path} cannot be read as a recording: {_cause(error)}") from error
        prefix = f"/{namespace.strip('/')}/".replace("//", "/")
        every = {each.topic: f"/{each.topic.lstrip('/')}" for each in self._reader.connections}
        self._names = {topic: full[len(prefix) :] for topic, full in every.items() if full.startswith(prefix)}
        used = [each for each in self._reader.connections if each.msgcount and each.topic in self._names]
        self.topics = {self._names[each.topic]: each.msgtype for each in used}
        noted = str((self._reader.storage.metadata.custom or {}).get(LOSSES, ""))
        self.losses = int(noted) if noted.isdecimal() else 0
        self.names, self.full_names = set(self._names.values()), sorted(every.values())

    def raw(self, topics: Collection[str]) -> Iterator[tuple[str, int, bytes]]:
        """(topic, time of receipt [Unix ns], CDR) of each message of these topics, in order of receipt."""
        wanted = [each for each in self._reader.connections if self._names.get(each.topic) in topics]
        if not wanted:
            return
        try:
            for connection, received_ns, cdr in self._reader.messages(connections=wanted):
                yield self._names[connection.topic], received_ns, cdr
        except Exception as error:  # as above
            raise DataError(f"{self.path.name} is broken: {_cause(error)}.") from error

    def messages(self, topics: Collection[str]) -> Iterator[tuple[str, int, Message]]:
        """(topic, time of receipt [Unix ns], record) of each message, in order of receipt."""
        for topic, received_ns, cdr in self.raw(topics):
            yield topic, received_ns, self.decode(topic, cdr)

    def decode(self, topic: str, cdr: bytes) -> Message:
        """The record of a message. Raises DataError for an unsupported type or unreadable bytes."""
        ros_type = self.topics[topic]
        kind = DepthImage if _is_depth(topic) else KINDS.get(ros_type)
        if kind is None:
            raise DataError(f"'{topic}' carries {ros_type}; expected one of {', '.join(sorted(KINDS))}.")
        try:
            record: Message = self._types.decode(cdr, kind)
        except BusError as error:
            raise DataError(f"A message on '{topic}' of {self.path.name} cannot be read: {error}") from error
        return record

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def _cause(error: Exception) -> str:
    """Message of an error, or its name if it has none, as MemoryError."""
    return str(error) or type(error).__name__


def _is_depth(topic: str) -> bool:
    return topic.endswith("/depth/image_raw")
