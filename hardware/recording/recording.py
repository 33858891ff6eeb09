"""One recording: messages as they came, in MCAP, committed by fsync and rename.

While it runs it is a folder below `in_progress/`, whose file is handed to the kernel every half second: after
kill -9, what is older than that can be salvaged (`hardware.recording.salvage`). Committed, it is a folder
that `ros2 bag` reads.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hardware.bus.dds.cdr import INSTALL, RosTypes
from hardware.bus.protocol import Profile
from hardware.bus.quality import QUALITY
from robo_rl.core.errors import DataError, MissingDependencyError

IN_PROGRESS = "in_progress"
CUT_OFF = "cut off"  # the last word on `episode/status` in a recording that was salvaged
FLUSH_S = 0.5  # what a kill can cost
VERSION: Literal[9] = 9  # of the metadata, as Jazzy writes it


@dataclass(frozen=True, slots=True)
class Channel:
    """A topic that is recorded: its type as in `sensor_msgs/msg/Image`, and what its publisher offers."""

    ros_type: str
    profile: Profile


class Recording:
    """Made open. `add` messages, then `commit` or `discard`; `abandon` leaves what there is to be
    salvaged.
    """

    def __init__(self, folder: Path, name: str, channels: Mapping[str, Channel], types: RosTypes) -> None:
        try:
            from rosbags.rosbag2 import StoragePlugin, Writer
        except ModuleNotFoundError as error:
            raise MissingDependencyError(f"Recording needs the package 'rosbags'. Run: {INSTALL}") from error
        self.path, self._part = folder / name, folder / IN_PROGRESS / name
        if self.path.exists() or self._part.exists():
            raise DataError(f"A recording '{name}' is in {folder} already; choose another name.")
        self._part.parent.mkdir(parents=True, exist_ok=True)
        self._writer: Any = Writer(self._part, version=VERSION, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self._connections = {
            topic: self._writer.add_connection(
                topic,
                channel.ros_type,
                typestore=types.store,
                offered_qos_profiles=[offered(channel.profile)],
            )
            for topic, channel in channels.items()
        }
        self.messages, self._flushed_s = 0, time.monotonic()
        self._flush()

    def add(self, topic: str, cdr: bytes | memoryview, unix_ns: int) -> None:
        """One message and when it was received. Raises OSError when the disk is full."""
        self._writer.write(self._connections[topic], unix_ns, cdr)
        self.messages += 1
        self.tick()

    def tick(self) -> None:
        """Hand what was added to the kernel when half a second has passed."""
        if time.monotonic() - self._flushed_s >= FLUSH_S:
            self._flush()

    def commit(self) -> Path:
        """Make it whole: index, fsync of the file and of its folder, rename."""
        self._writer.close()
        for path in (*self._part.iterdir(), self._part):
            _fsync(path)
        self._part.rename(self.path)
        _fsync(self.path.parent)
        return self.path

    def discard(self) -> None:
        """Throw it away."""
        self.abandon()
        shutil.rmtree(self._part)

    def abandon(self) -> None:
        """Close after an error; what is on the disk stays."""
        with suppress(
            OSError
        ):  # a full disk does not take what is still buffered; the file is closed all the same
            self._writer.abort()

    def _flush(self) -> None:
        storage = self._writer.storage
        if storage.chunk.bio.tell():
            storage.close_chunk()
        storage.bio.flush()
        self._flushed_s = time.monotonic()


def offered(profile: Profile) -> Any:
    """The quality that `ros2 bag play` shall offer again."""
    from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime

    row, ever = QUALITY[profile], QosTime(*divmod(2**63 - 1, 10**9))
    return Qos(
        QosHistory.KEEP_LAST,
        row.depth,
        QosReliability.RELIABLE if row.offers_reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if row.latched else QosDurability.VOLATILE,
        ever,
        ever,
        QosLiveliness.AUTOMATIC,
        ever,
        avoid_ros_namespace_conventions=False,
    )


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
