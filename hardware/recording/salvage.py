"""What a killed recorder left behind, read to its last whole message and committed with a note that it was
cut off.

MCAP is a row of records: a code (1 byte), a length (8 bytes, little-endian), and so many bytes; chunks hold
records again. A file that was cut ends somewhere within one. https://mcap.dev/spec says what each holds.
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
from hardware.recording.recording import CUT_OFF, IN_PROGRESS, Channel, Recording
from hardware.topics import EPISODE
from robo_rl.core.errors import DataError

MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK = 3, 4, 5, 6
RECORD = struct.Struct("<BQ")
MESSAGE_HEAD = struct.Struct("<HIQQ")  # channel, sequence, time of receipt and of publishing


@dataclass
class Found:
    """What whole records say."""

    types: dict[int, str] = field(default_factory=dict)
    channels: dict[int, tuple[str, Channel]] = field(default_factory=dict)
    messages: list[tuple[int, int, memoryview]] = field(
        default_factory=list
    )  # channel, Unix ns, CDR in the file


def salvage(folder: Path, types: RosTypes) -> list[str]:
    """Commit what was recorded before a kill, below `folder`. Returns one sentence per recording.

    Raises DataError where the disk does not take it; what was recorded stays as it is then.
    """
    said = []
    for torn in sorted((folder / IN_PROGRESS).glob("*")):
        found = read(torn)
        if found.messages:
            said.append(
                f"{_commit(folder, torn, found, types)} was cut off; its {len(found.messages)} messages are "
                "kept."
            )
        else:
            said.append(f"{torn.name} was cut off before its first message, and is removed.")
        shutil.rmtree(torn)
    return said


def read(torn: Path) -> Found:
    """Every whole record of the recording's file, which is mapped: an hour of pictures fits into no
    memory.
    """
    found = Found()
    for path in sorted(torn.glob("*.mcap")):
        with path.open("rb") as file:
            if file.read(len(MAGIC)) == MAGIC:
                data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
                _records(data[len(MAGIC) :], found)
    return found


def _records(data: memoryview, found: Found) -> None:
    for code, body in _split(data):
        if code == CHUNK:
            # start, end, size (8 bytes each), checksum (4), name of the compression (length, text), length of
            # the rest
            name = struct.unpack_from("<I", body, 28)[0]
            if name:
                raise DataError(
                    f"A recording is compressed by {bytes(body[32 : 32 + name]).decode()}; expected none."
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
    """(code, body) of each whole record; of a chunk that was cut, what there is of it."""
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
    """One that offers what the channel's metadata say."""
    if b"transient_local" in channel:
        return Profile.LATCHED
    return Profile.SENSOR if b"best_effort" in channel else Profile.COMMAND


def _commit(folder: Path, torn: Path, found: Found, types: RosTypes) -> str:
    last_ns = max(unix_ns for _, unix_ns, _ in found.messages)
    channels = dict(found.channels.values()) | {EPISODE.name: Channel(WIRE[Text].ros_type, EPISODE.profile)}
    name, number = torn.name, 1
    while (folder / name).exists():
        number += 1
        name = f"{torn.name}_{number}"
    room = folder / f".salvage_{torn.name}"  # a kill in here leaves the torn one for the next time
    shutil.rmtree(room, ignore_errors=True)
    whole = None
    try:
        whole = Recording(room, name, channels, types)
        for channel, unix_ns, cdr in found.messages:
            whole.add(found.channels[channel][0], cdr, unix_ns)
        whole.add(EPISODE.name, types.encode(Text(CUT_OFF)), last_ns)
        whole.commit().rename(folder / name)
    except OSError as error:
        if whole is not None:
            whole.abandon()
        shutil.rmtree(room, ignore_errors=True)
        raise DataError(
            f"{torn.name} was cut off, and there is no way to keep it ({error}). Make as much room in "
            f"{folder} as it takes, or move {torn} elsewhere; then start again."
        ) from error
    shutil.rmtree(room)
    return name
