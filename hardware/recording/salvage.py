"""Salvage of the recordings of a killed recorder: all complete messages, marked as cut off.

An MCAP file is a sequence of records: an opcode (1 byte), a length (8 bytes, little-endian) and the content;
chunks contain records. An interrupted file ends within a record. See https://mcap.dev/spec for the records.
"""

from __future__ import annotations

import mmap
import shutil
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.protocol import Profile
from hardware.bus.wire import WIRE
from hardware.messages import Text
from hardware.recording.recording import CUT_OFF, IN_PROGRESS, Channel, Recording, is_frame
from hardware.topics import EPISODE
from robo_rl.core.errors import DataError
from robo_rl.core.files.durable import fsync_dir

MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK = 3, 4, 5, 6
_TEMPORARY, _ORIGINAL = ".salvage_", "interrupted"  # folder of a copy; in it, the recording that was copied
RECORD = struct.Struct("<BQ")
MESSAGE_HEAD = struct.Struct("<HIQQ")  # channel, sequence, time of receipt, time of publishing


@dataclass
class CompleteRecords:
    """Content of the complete records of an interrupted file."""

    types: dict[int, str] = field(default_factory=dict)  # number of the schema -> ROS type
    channels: dict[int, tuple[str, Channel]] = field(default_factory=dict)  # number -> topic, channel
    # (number of the channel, time of receipt [Unix ns], CDR as a view of the file)
    messages: list[tuple[int, int, memoryview]] = field(default_factory=list)

    def has_frames(self) -> bool:
        """True with a message other than what every recording begins with, or the status of a node."""
        return any(is_frame(self.channels[channel][1]) for channel, _, _ in self.messages)


def salvage(folder: Path, types: RosTypes, namespace: str = "") -> list[str]:
    """Commit the interrupted recordings of `folder`. Returns one sentence per recording.

    A recording without any state, picture or command is deleted, as the recorder does on saving. namespace:
    of the recorder. Raises DataError when the disk is full; the interrupted recording then remains
    unchanged. A kill at any instant loses and doubles nothing: the next call continues.
    """
    for temporary in sorted(folder.glob(f"{_TEMPORARY}*")):
        _finish(folder, temporary)
    reports = []
    for unfinished in sorted((folder / IN_PROGRESS).glob("*")):
        found = read_complete(unfinished)
        if found.has_frames():
            reports.append(
                f"{_commit(folder, unfinished, found, types, namespace)} was cut off; its "
                f"{len(found.messages)} messages are kept."
            )
        else:
            reports.append(
                f"{unfinished.name} was cut off before its first state, picture or command, and is removed."
            )
            shutil.rmtree(unfinished)
    return reports


def read_complete(unfinished: Path) -> CompleteRecords:
    """All complete records of an interrupted recording.

    The file is memory-mapped, because an hour of pictures does not fit into memory. Raises DataError for a
    compressed recording.
    """
    found = CompleteRecords()
    for path in sorted(unfinished.glob("*.mcap")):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                _records(data[len(MAGIC) :], found)
    return found


def _records(data: memoryview, found: CompleteRecords) -> None:
    for code, body in _split(data):
        if code == CHUNK:
            # Start, end, size (8 bytes each), checksum (4), compression (length, text), length of the
            # records.
            name = struct.unpack_from("<I", body, 28)[0]
            if name:
                raise DataError(
                    f"The recording is compressed with {bytes(body[32 : 32 + name]).decode()}; expected no "
                    "compression, as the recorder writes."
                )
            _records(body[40:], found)
        elif code == SCHEMA:
            number, text = struct.unpack_from("<H", body)[0], _text(body, 2)
            found.types[number] = text
        elif code == CHANNEL:
            number, schema = struct.unpack_from("<HH", body)
            topic = _text(body, 4)
            found.channels[number] = (topic, Channel(found.types[schema], _profile(bytes(body))))
        elif code == MESSAGE and len(body) >= MESSAGE_HEAD.size:
            channel, _, unix_ns, _ = MESSAGE_HEAD.unpack_from(body)
            found.messages.append((channel, unix_ns, body[MESSAGE_HEAD.size :]))


def _split(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(opcode, content) of each complete record, and of an interrupted chunk at the end."""
    at = 0
    while at + RECORD.size <= len(data):
        code, length = RECORD.unpack_from(data, at)
        body = data[at + RECORD.size : at + RECORD.size + length]
        if len(body) < length and not (code == CHUNK and len(body) >= 40):
            return
        yield code, body
        at += RECORD.size + length


def _text(body: memoryview, at: int) -> str:
    length = struct.unpack_from("<I", body, at)[0]
    return bytes(body[at + 4 : at + 4 + length]).decode()


def _profile(channel: bytes) -> Profile:
    """The profile whose quality of service is in the metadata of the channel."""
    if b"transient_local" in channel:
        return Profile.LATCHED
    return Profile.SENSOR if b"best_effort" in channel else Profile.COMMAND


def _commit(folder: Path, unfinished: Path, found: CompleteRecords, types: RosTypes, namespace: str) -> str:
    """Write the messages to a new recording of `folder`; returns its name."""
    last_ns = max(unix_ns for _, unix_ns, _ in found.messages)
    channels = dict(found.channels.values()) | {EPISODE.name: Channel(WIRE[Text].ros_type, EPISODE.profile)}
    name, number = unfinished.name, 1
    while (folder / name).exists():
        number += 1
        name = f"{unfinished.name}_{number}"
    # A kill during the copy leaves the unfinished recording in its place, and the next start copies again.
    temporary, copy = folder / f"{_TEMPORARY}{unfinished.name}", None
    try:
        copy = Recording(temporary, name, channels, types, namespace)
        for channel, unix_ns, cdr in found.messages:
            copy.add(found.channels[channel][0], cdr, unix_ns)
        copy.add(EPISODE.name, types.encode(Text(CUT_OFF)), last_ns)
        copy.commit()
        unfinished.rename(temporary / _ORIGINAL)
    except OSError as error:
        if copy is not None:
            copy.abandon()
        shutil.rmtree(temporary, ignore_errors=True)
        raise DataError(
            f"{unfinished.name} was cut off and cannot be saved ({error}). Free as much space in {folder} as "
            f"it takes, or move {unfinished} elsewhere; then start again."
        ) from error
    _finish(folder, temporary)
    return name


def _finish(folder: Path, temporary: Path) -> None:
    """Move a copy out of its temporary folder if it is complete, and delete that folder.

    It is complete once the interrupted recording lies beside it.
    """
    if (temporary / _ORIGINAL).exists():
        for copy in temporary.iterdir():
            if copy.name not in (_ORIGINAL, IN_PROGRESS):
                copy.rename(folder / copy.name)
        fsync_dir(folder)
    shutil.rmtree(temporary)
