"""Records topics as received, into MCAP, between ~/start and ~/stop; ~/discard deletes the running recording.

~/success and ~/failure save as ~/stop does, and record the outcome; buttons request the same by
`episode/ask`. Every recording begins with the last value of each latched topic: goal, task text,
intervention. A recording without any state, picture or command is deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hardware.bus.clocks import ReceiptStamps
from hardware.bus.dds.cdr import ros_types
from hardware.bus.protocol import Answer, Bus, CompleteBus, Profile, RawBus
from hardware.bus.wire import WIRE
from hardware.messages import Flag, Text
from hardware.nodes.shared.dropped import DropReporter
from hardware.recording.recording import FLUSH_S, IN_PROGRESS, Channel, Recording, is_frame
from hardware.recording.salvage import salvage
from hardware.topic import Topic
from hardware.topics import EPISODE, JOINT_STATES, ODOM, RECORDER_REQUEST, SUCCESS, TELEOP
from robo_rl.core.errors import BusError, DataError, LockedError, MissingDependencyError
from robo_rl.core.files.lock import FolderLock
from robo_rl.core.text.commands import command

BEGINS = "a recording begins by the key or button of the device that says so, or by"
BUSY = "this computer was too busy to receive them"
REMEDY = "Run fewer programs on it, and raise net.core.rmem_max: docs/ros2.md, 'When messages get lost'."


@dataclass(frozen=True)
class RecorderConfig:
    """Settings of the recorder."""

    out: str = "recordings"  # folder of the recordings, one folder each
    start: bool = False  # with the first recording running


class RecorderNode:
    """Records `topics`. Raises DataError when another recorder writes into the folder.

    `episode/status` says "idle", "recording <name>", "saved <name>: ...", or what went wrong.
    """

    def __init__(
        self,
        bus: Bus,
        config: RecorderConfig,
        topics: Sequence[Topic[Any]],
        say: Callable[[str], None] = print,
    ) -> None:
        self._bus, self._folder, self._say = bus, Path(config.out), say
        self._types, all_topics = ros_types(), (*topics, SUCCESS)
        self._channels = {t.name: Channel(WIRE[t.kind].ros_type, t.profile) for t in all_topics}
        self._frames = {name for name, channel in self._channels.items() if is_frame(channel)}
        self._empty = True  # no message on any of them so far
        self._latched: dict[str, bytes] = {}  # last value of each latched topic, as CDR
        self._running: Recording | None = None
        self._losses = self._losses_before = 0  # in the running recording; of the bus before it
        self._received: set[str] = set()  # states and pictures of the running recording, by topic
        self._known: set[str] = set()  # and of the earlier recordings
        self._publish = EPISODE.publisher(bus)
        self._lock = _lock(self._folder)
        self._stamps = ReceiptStamps(bus.stamp, bus.now)  # stamps of the running recording
        for sentence in salvage(self._folder, self._types, bus.namespace):
            say(sentence)
        self._drops = DropReporter(bus.name, say)
        self._requests: dict[str, Callable[[], Answer]] = {
            "start": self.begin,
            "stop": self.save,
            "success": partial(self.save_as, True),
            "failure": partial(self.save_as, False),
            "discard": self.discard,
        }
        # Requests are subscribed first, so that the bus over DDS takes them first: what was sent before a
        # request is then there too, and is handled before it.
        for name, act in self._requests.items():
            bus.service(f"~/{name}", act)
        RECORDER_REQUEST.subscribe(bus, self._on_request)
        for topic in topics:
            try:
                self._subscribe(topic)
            except MissingDependencyError as error:  # a package of ROS that this robot does not need
                del self._channels[topic.name]
                say(f"{topic.name} is not recorded. {error}")
        bus.timer(FLUSH_S, self._tick)
        self._sentences = 0  # number of status sentences
        self._begun = False  # any recording so far
        self._begins = f"{BEGINS} {command(f'call {bus.name}/start', namespace=bus.namespace or None)}"
        self._publish(Text("idle"))
        if config.start:
            self.begin()
        else:
            say(f"idle: {self._begins}")

    def _subscribe(self, topic: Topic[Any]) -> None:
        bus = self._bus
        if isinstance(bus, RawBus):
            bus.subscribe_raw(topic.name, topic.kind, topic.profile, partial(self._add, topic.name))
        elif isinstance(bus, CompleteBus):  # in process there are no bytes: encode the records
            bus.subscribe_all(topic.name, topic.kind, topic.profile, partial(self._encode, topic.name))
        else:
            topic.subscribe(bus, partial(self._encode, topic.name))

    def stop(self, why: str) -> str:
        """Save the running recording."""
        return f"{why}: {self.save()[1]}"

    @property
    def at_rest(self) -> bool:
        return self._running is None

    def finish(self) -> None:
        """Save the running recording and release the folder."""
        if self._running is not None:
            self.save()
        self._lock.close()

    def begin(self) -> Answer:
        """Begin a recording, named by the time."""
        if self._running is not None:
            return False, f"recording {self._running.path.name} already; stop or discard it first"
        name, number = time.strftime("episode_%Y%m%d_%H%M%S"), 1
        while any((folder / name).exists() for folder in (self._folder, self._folder / IN_PROGRESS)):
            number += 1
            name = f"{time.strftime('episode_%Y%m%d_%H%M%S')}_{number}"
        try:
            self._running = Recording(self._folder, name, self._channels, self._types, self._bus.namespace)
        except (DataError, OSError) as error:
            return False, self._tell(f"cannot record into {self._folder}: {error}")
        self._received, self._empty, self._begun = set(), True, True
        self._losses, self._losses_before = 0, self._bus_losses()
        self._stamps = ReceiptStamps(self._bus.stamp, self._bus.now)
        for topic, cdr in self._latched.items():
            self._write(topic, cdr, self._bus.now())
        return True, self._tell(f"recording {name}")

    def save(self, label: str = "") -> Answer:
        """Commit the running recording. label: added to the report."""
        if self._running is None:
            return False, "nothing is being recorded"
        if self._empty:
            return False, self._delete_empty()
        self._note_losses()
        done = self._guarded(lambda running: running.commit(self._losses))
        running, self._running = self._running, None
        if not done or running is None:
            return False, "the recording broke off; what is on the disk is salvaged at the next start"
        return True, self._tell(
            f"saved {running.path.name}: {running.messages} messages{self._missing_topics()}{label}"
            f"{self._lost_messages()}"
        )

    def save_as(self, success: bool) -> Answer:
        """Commit the running recording, with its outcome on `episode/success`."""
        self._write(SUCCESS.name, self._types.encode(Flag(success)), self._bus.now())
        return self.save(f", a {'success' if success else 'failure'}")

    def _missing_topics(self) -> str:
        """Report a missing robot or camera now, not after fifty episodes."""
        states = {JOINT_STATES.name, ODOM.name} & self._channels.keys()
        lost = sorted(self._known - self._received)
        if states and not states & self._received and not lost:
            lost = [" or ".join(sorted(states))]
        self._known |= self._received
        return f", but nothing on {', '.join(lost)}" if lost else ""

    def _bus_losses(self) -> int:
        return self._bus.losses() if isinstance(self._bus, RawBus) else 0

    def _note_losses(self) -> None:
        """Report the first messages that the running recording lacks because this process was too slow."""
        known, self._losses = self._losses, max(0, self._bus_losses() - self._losses_before)
        if self._losses and not known and self._running is not None:
            self._say(f"recording {self._running.path.name}{self._lost_messages()}. {REMEDY}")

    def _lost_messages(self) -> str:
        """One datagram is a message or a part of a picture."""
        return f", but {self._losses} or more datagrams were lost: {BUSY}" if self._losses else ""

    def _delete_empty(self) -> str:
        """Delete an empty recording, which an import would reject only much later."""
        running, self._running = self._running, None
        assert running is not None
        running.discard()
        return self._tell(
            f"{running.path.name} is empty and was discarded: no state, no picture and no command came. Is "
            "the robot on, and in this ROS domain and namespace?"
        )

    def discard(self) -> Answer:
        """Delete the running recording."""
        if self._running is None:
            return False, "nothing is being recorded"
        running, self._running = self._running, None
        running.discard()
        return True, self._tell(f"discarded {running.path.name}")

    def _on_request(self, ask: Text, received_s: float) -> None:
        """Execute a request of the topic; the result goes to `episode/status`."""
        act, before = self._requests.get(ask.text), self._sentences
        done, sentence = (
            act() if act else (False, f"'{ask.text}' means nothing; known: {', '.join(self._requests)}")
        )
        if not done and self._sentences == before:
            self._tell(sentence)

    def _tick(self) -> None:
        if self._running is not None:
            self._note_losses()
        self._guarded(lambda running: running.tick())

    def _add(self, topic: str, cdr: bytes, received_s: float) -> None:
        profile = self._channels[topic].profile
        if profile is Profile.LATCHED:
            self._latched[topic] = cdr
        elif profile in (Profile.STATE, Profile.SENSOR):
            self._received.add(topic)
        self._empty &= topic not in self._frames
        if topic == TELEOP.name and not self._begun:
            self._begun = True  # reported once
            self._say(f"A human drives, and nothing is recorded: {self._begins}")
        self._write(topic, cdr, received_s)

    def _encode(self, topic: str, record: Any, received_s: float) -> None:
        heeded = topic == TELEOP.name or self._channels[topic].profile is Profile.LATCHED
        if self._running is None and not heeded:
            return
        try:
            cdr = self._types.encode(record)
        except BusError as error:
            self._drops.tell_sentence(f"a message on {topic}", str(error).rstrip("."), received_s)
            return
        self._add(topic, cdr, received_s)

    def _write(self, topic: str, cdr: bytes, received_s: float) -> None:
        """Write a message with the sender's kind of time: Unix time, or a simulation's."""
        if self._running is None:
            return
        unix_ns = self._stamps.stamp_ns(received_s)
        self._guarded(lambda running: running.add(topic, cdr, unix_ns))

    def _guarded(self, act: Callable[[Recording], object]) -> bool:
        """Call `act`; on a full or broken disk end the recording with a report, and keep the node running."""
        if self._running is None:
            return False
        try:
            act(self._running)
        except OSError as error:
            broken, self._running = self._running, None
            broken.abandon()
            self._tell(
                f"{broken.path.name} broke off after {broken.messages} messages: {error}. Make room, then "
                "start"
            )
            return False
        return True

    def _tell(self, status: str) -> str:
        self._sentences += 1
        self._publish(Text(status))
        self._say(status)
        return status


def _lock(folder: Path) -> FolderLock:
    """Make the folder, and lock it for as long as this process lives."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FolderLock(folder, "folder")
    except LockedError as error:
        raise DataError(
            f"Another recorder writes into {folder}; stop it, or choose another folder."
        ) from error
    except OSError as error:
        raise DataError(
            f"Recordings cannot go to {folder}: {error.strerror}. Choose a folder that can be written."
        ) from error
