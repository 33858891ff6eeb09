"""Oracle of the attack of the recorder: reads MCAP and writes CDR by `struct` alone.

Every byte of a message follows from its topic and its number, so an episode is compared with what was sent
without a log of the messages. See https://mcap.dev/spec for the records of the file.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import yaml

PICTURES = "/camera/top/image_raw"
EVERY = {"/joint_states": 1, "/command/safe": 1, PICTURES: 4}  # topic -> one message per so many numbers
TASK, TASK_TOPIC, STATUS_TOPIC, SUCCESS_TOPIC = "pick", "/task", "/episode/status", "/episode/success"
OUTCOME = {"success": [1], "failure": [0]}  # bytes on SUCCESS_TOPIC, by the request that ends an episode
NAMES, IMAGE = ("a", "b", "c"), (64, 64, 3)
NEVER = 2**62  # number of a message that is never sent
STAMPS_HZ = 128  # stamp of message n: n / 128 s, which a float holds exactly
MAGIC = b"\x89MCAP0\r\n"
FOOTER, CHANNEL, MESSAGE, CHUNK, CHUNK_INDEX, STATISTICS = 2, 4, 5, 6, 8, 11


def positions(number: int) -> np.ndarray:
    return np.array([number, -0.5 * number, 1.0 / (1 + number)])


def pixels(number: int) -> np.ndarray:
    return (np.arange(math.prod(IMAGE)) * 7 + number).astype(np.uint8).reshape(IMAGE)


class Cdr:
    """Little-endian CDR, written value by value."""

    def __init__(self) -> None:
        self.data = bytearray()

    def put(self, code: str, *values: float) -> None:
        for value in values:
            self.data += bytes(-len(self.data) % struct.calcsize(code)) + struct.pack("<" + code, value)

    def text(self, text: str) -> None:
        self.put("I", len(text) + 1)
        self.data += text.encode() + b"\0"

    def header(self, number: int, frame: str) -> None:
        self.put("i", number // STAMPS_HZ)
        self.put("I", number % STAMPS_HZ * (10**9 // STAMPS_HZ))
        self.text(frame)

    def names(self) -> None:
        self.put("I", len(NAMES))
        for name in NAMES:
            self.text(name)

    def numbers(self, values: np.ndarray) -> None:
        self.put("I", len(values))
        self.put("d", *values)


def payload(topic: str, number: int) -> bytes:
    """CDR of the message `number` of the topic, without the four bytes that name the encoding."""
    cdr, nothing = Cdr(), np.zeros(0)
    if topic == PICTURES:
        cdr.header(number, "camera_optical")
        cdr.put("I", *IMAGE[:2])
        cdr.text("rgb8")
        cdr.put("B", 0)
        cdr.put("I", IMAGE[1] * IMAGE[2], math.prod(IMAGE))
        return bytes(cdr.data + pixels(number).tobytes())
    cdr.header(number, "")
    cdr.names()
    if topic == "/command/safe":
        cdr.put("I", 1)
    for values in (positions(number), nothing, nothing):
        cdr.numbers(values)
    if topic == "/command/safe":
        cdr.numbers(nothing)
        cdr.put("i", 0)
        cdr.put("I", 10**7)
    return bytes(cdr.data)


@dataclass
class Content:
    """Messages of a recording: topic -> numbers in order; and what is wrong with it."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: {topic: [] for topic in EVERY})
    texts: dict[str, list[str]] = field(default_factory=dict)
    outcome: list[int] = field(default_factory=list)
    count: int = 0
    faults: list[str] = field(default_factory=list)
    losses: int = 0  # noted in metadata.yaml: datagrams that the recorder received too late

    def take(self, topic: str, cdr: bytes) -> None:
        self.count += 1
        if topic in EVERY:
            seconds, ns = struct.unpack_from("<iI", cdr, 4)
            number = seconds * STAMPS_HZ + ns * STAMPS_HZ // 10**9
            self.numbers[topic].append(number)
            expected = payload(topic, number)
            if cdr[4 : 4 + len(expected)] != expected or cdr[4 + len(expected) :].strip(b"\0"):
                self.faults.append(f"a message on {topic} has another content")
        elif topic == SUCCESS_TOPIC:
            self.outcome.append(cdr[4])
        elif topic in (TASK_TOPIC, STATUS_TOPIC):
            length = struct.unpack_from("<I", cdr, 4)[0]
            self.texts.setdefault(topic, []).append(cdr[8 : 7 + length].decode())


def records(data: bytes, begin: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """(opcode, place in the file, content). Raises ValueError where a record does not end in time."""
    at = begin
    while at < end:
        if at + 9 > end:
            raise ValueError(f"a record is cut at {at}")
        code, length = struct.unpack_from("<BQ", data, at)
        if at + 9 + length > end:
            raise ValueError(f"a record is cut at {at}")
        yield code, at, data[at + 9 : at + 9 + length]
        at += 9 + length


def read(folder: Path) -> Content:
    """A committed recording. Whatever a reader would stumble over is a fault of it."""
    content = Content()
    try:
        (path,) = folder.glob("*.mcap")
        _read_file(path.read_bytes(), content)
        said = yaml.safe_load((folder / "metadata.yaml").read_text())["rosbag2_bagfile_information"]
        content.losses = int((said["custom_data"] or {}).get("losses", 0))
        if said["message_count"] != content.count:
            content.faults.append(f"metadata.yaml has {said['message_count']} of {content.count} messages")
    except (ValueError, KeyError, TypeError, OSError, struct.error, yaml.YAMLError) as error:
        content.faults.append(f"a recording is not whole: {type(error).__name__}: {error}")
    return content


def _read_file(data: bytes, content: Content) -> None:
    if data[:8] != MAGIC or data[-8:] != MAGIC or len(data) < 16:
        raise ValueError("the magic bytes are missing")
    topics: dict[int, str] = {}
    chunks, index, last, counted = set[int](), set[int](), 0, -1
    for code, at, body in records(data, 8, len(data) - 8):
        last = code
        if code == CHUNK:
            chunks.add(at)
            _read_chunk(body, topics, content)
        elif code == CHUNK_INDEX:
            index.add(struct.unpack_from("<Q", body, 16)[0])
        elif code == STATISTICS:
            counted = struct.unpack_from("<Q", body)[0]
        elif code == CHANNEL:
            _note_channel(body, topics)
    if last != FOOTER or chunks != index or counted != content.count:
        raise ValueError(
            f"index of {len(index)} of {len(chunks)} chunks, {counted} of {content.count} messages"
        )


def _note_channel(body: bytes, topics: dict[int, str]) -> None:
    number, _, length = struct.unpack_from("<HHI", body)
    topics[number] = body[8 : 8 + length].decode()


def _read_chunk(body: bytes, topics: dict[int, str], content: Content) -> None:
    size, checksum, name = struct.unpack_from("<QII", body, 16)
    inner = body[40 + name :]
    if name or len(inner) != size or (checksum and zlib.crc32(inner) != checksum):
        raise ValueError("a chunk is compressed, or does not match its checksum")
    for code, _, record in records(inner, 0, len(inner)):
        if code == CHANNEL:
            _note_channel(record, topics)
        elif code == MESSAGE:
            content.take(topics[struct.unpack_from("<H", record)[0]], record[22:])


@dataclass
class Told:
    """An episode as its requests and the recorder's answers tell it, in numbers of messages.

    `first` to `last` can be in it; `due_first` to `due_last` have to be, if that is not empty.
    """

    first: int
    last: int = NEVER
    due_first: int = NEVER
    due_last: int = -1
    name: str = ""  # of the folder, as the recorder said it
    killed_s: float | None = None
    ended_by: str = ""  # the request, if there was one
    saved: bool = False  # the recorder acknowledged it
    discarded: bool = False
    messages: int | None = None  # as the recorder acknowledged
    quiet: bool = False  # it ended in silence
    losses: bool = False  # the recorder's log reports lost datagrams


@dataclass(frozen=True)
class Violation:
    """A broken promise. detail: of this case. recording: its name, if there is one."""

    kind: str
    detail: str = ""
    recording: str = ""


def lacking(content: Content, told: Told) -> dict[str, str]:
    """Topic -> what is missing, doubled or out of order between the first and the last or the due ones.

    Pictures are best effort, and of them the recorder keeps the newest five: they may be missing. Where the
    recorder reported losses, states and commands may be missing too.
    """
    found = {}
    for topic, step in EVERY.items():
        numbers = content.numbers[topic]
        due = range(told.due_first, told.due_last + 1, step)
        if numbers != sorted(set(numbers)):
            found[topic] = "doubled or out of order"
        elif topic != PICTURES and not content.losses and not told.losses:
            ends = [*numbers[:1], *numbers[-1:], *due[:1], *due[-1:]]
            missing = sorted(set(range(min(ends), max(ends) + 1, step)) - set(numbers)) if ends else []
            if missing:
                found[topic] = f"{spans(missing)} of {spans(numbers)}, due {spans(list(due))}"
    return found


def spans(numbers: list[int]) -> str:
    """Numbers in ascending order as text: "3-5 9"."""
    starts = [i for i, n in enumerate(numbers) if i == 0 or n != numbers[i - 1] + 1]
    ends = [i - 1 for i in starts[1:]] + [len(numbers) - 1]
    pairs = [(numbers[i], numbers[j]) for i, j in zip(starts, ends, strict=bool(numbers))]
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in pairs) or "none"


def judge(content: Content, told: Told) -> list[Violation]:
    """Promises that a recording breaks."""
    found, kind = list(content.faults), "saved" if told.saved else "interrupted"
    if told.discarded:
        found.append("a discarded episode is there")
    if any(not told.first <= n <= told.last for numbers in content.numbers.values() for n in numbers):
        found.append("an episode has a message from outside of it")
    if content.texts.get(TASK_TOPIC, []) != [TASK]:
        found.append("an episode lacks the task")
    if content.outcome != OUTCOME.get(told.ended_by, []) and (told.saved or content.outcome):
        found.append("an episode has another outcome than was asked for")
    if told.saved and (STATUS_TOPIC in content.texts or content.count != (told.messages or content.count)):
        found.append(f"a saved episode has {content.count} messages, acknowledged {told.messages}")
    end = "in silence" if told.quiet else "among messages"
    lacks = [
        Violation(f"an episode that was {kind} lacks a message on {topic}", f"{detail}, ended {end}")
        for topic, detail in lacking(content, told).items()
    ]
    return lacks + [Violation(sentence) for sentence in found]


def violations(folder: Path, episodes: list[Told]) -> tuple[list[Violation], dict[int, Content]]:
    """Promises that the recordings of a folder break after a start; and the recording of each episode."""
    found, kept = list[Violation](), dict[int, Content]()
    for path in sorted(folder.glob("episode_*")):
        content = read(path)
        every = [n for numbers in content.numbers.values() for n in numbers]
        which = [i for i, told in enumerate(episodes) if every and told.first <= min(every) <= told.last]
        if not which:
            faults = (*content.faults, "a recording is of no episode")
            found += [Violation(fault, f"{len(every)} messages", path.name) for fault in faults]
        elif which[0] in kept:
            found.append(Violation("an episode is there twice", recording=path.name))
        else:
            kept[which[0]] = content
            found += [replace(one, recording=path.name) for one in judge(content, episodes[which[0]])]
    for i, told in enumerate(episodes):
        due = told.due_first <= told.due_last
        if i not in kept and not told.discarded and (told.saved or due):
            kind = "saved" if told.saved else "interrupted"
            found.append(Violation(f"an episode that was {kind} is lost", f"due {told.due_first}", told.name))
    if left := [path.name for path in (folder / "in_progress").glob("*")]:
        found.append(Violation(f"in_progress/ has {len(left)} recordings after a start"))
    if any(path.name != ".lock" for path in folder.glob(".*")):
        found.append(Violation("a hidden file is left after a start"))
    return found, kept
