"""Writer of one recording: unchanged messages in MCAP, committed by fsync and rename.

An unfinished recording is a folder below `in_progress/`. Its file is flushed to the kernel every half second;
after kill -9, everything older can be salvaged (`hardware.recording.salvage`). A committed recording is a
folder that `ros2 bag` reads.
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

from hardware.bus.dds.cdr import RosTypes
from hardware.bus.names import resolve
from hardware.bus.protocol import Profile
from hardware.bus.quality import QUALITY
from hardware.bus.wire import WIRE
from hardware.messages import Diagnostics, Flag
from robo_rl.core.errors import DataError, MissingDependencyError
from robo_rl.core.packages import pip_install

IN_PROGRESS = "in_progress"
CUT_OFF = "cut off"  # the last message on `episode/status` in a salvaged recording
FLUSH_S = 0.5  # a kill loses at most the messages of this time
LOSSES = "losses"  # key in the metadata of a recording that lacks messages
VERSION: Literal[9] = 9  # version of the metadata, as in Jazzy


@dataclass(frozen=True, slots=True)
class Channel:
    """A recorded topic: its ROS type, such as `sensor_msgs/msg/Image`, and its profile."""

    ros_type: str
    profile: Profile


def is_frame(channel: Channel) -> bool:
    """True for a topic of states, pictures or commands; a recording without any of them is empty."""
    status = WIRE[Diagnostics].ros_type, WIRE[Flag].ros_type
    return channel.profile is not Profile.LATCHED and channel.ros_type not in status


class Recording:
    """An open recording: `add` messages, then `commit`, `discard` or `abandon`.

    folder: of the recordings. name: of this one. channels: topic -> its type and profile. namespace: of
    relative topics; the file holds full names with a leading slash, as rosbag2 does. messages: number of
    messages so far.
    Raises DataError when the name is taken, and MissingDependencyError without rosbags.
    """

    def __init__(
        self, folder: Path, name: str, channels: Mapping[str, Channel], types: RosTypes, namespace: str = ""
    ) -> None:
        try:
            from rosbags.rosbag2 import StoragePlugin, Writer
        except ModuleNotFoundError as error:
            raise MissingDependencyError(
                f"Recording needs the package 'rosbags'. Run: {pip_install('dds')}"
            ) from error
        self.path, self._part = folder / name, folder / IN_PROGRESS / name
        if self.path.exists() or self._part.exists():
            raise DataError(f"{folder} already has a recording '{name}'; choose another name.")
        self._part.parent.mkdir(parents=True, exist_ok=True)
        self._writer: Any = Writer(self._part, version=VERSION, storage_plugin=StoragePlugin.MCAP)
        self._writer.open()
        self._connections = {
            topic: self._writer.add_connection(
                resolve(topic, namespace, ""),
                channel.ros_type,
                typestore=types.store,
                offered_qos_profiles=[bag_qos(channel.profile)],
            )
            for topic, channel in channels.items()
        }
        self.messages, self._flushed_s = 0, time.monotonic()
        self._flush()

    def add(self, topic: str, cdr: bytes | memoryview, unix_ns: int) -> None:
        """Append one message and its time of receipt. Raises OSError when the disk is full."""
        self._writer.write(self._connections[topic], unix_ns, cdr)
        self.messages += 1
        self.tick()

    def tick(self) -> None:
        """Flush to the kernel if the last flush is more than half a second ago."""
        if time.monotonic() - self._flushed_s >= FLUSH_S:
            self._flush()

    def commit(self, losses: int = 0) -> Path:
        """Finish the recording (index, fsync of file and folder, rename) and return its path.

        losses: of messages that never arrived; noted as `custom_data` in metadata.yaml.
        """
        if losses:
            self._writer.set_custom_data(LOSSES, str(losses))
        self._writer.close()
        for path in (*self._part.iterdir(), self._part):
            _fsync(path)
        self._part.rename(self.path)
        _fsync(self.path.parent)
        return self.path

    def discard(self) -> None:
        """Delete the recording."""
        self.abandon()
        shutil.rmtree(self._part)

    def abandon(self) -> None:
        """Close the file after an error, without deleting what is on the disk, so that it can be salvaged."""
        with suppress(OSError):  # on a full disk the buffered rest is lost; the file is closed anyway
            self._writer.abort()

    def _flush(self) -> None:
        storage = self._writer.storage
        if storage.chunk.bio.tell():
            storage.close_chunk()
        storage.bio.flush()
        self._flushed_s = time.monotonic()


def bag_qos(profile: Profile) -> Any:
    """The quality of service that `ros2 bag play` has to offer for a topic of this profile."""
    from rosbags.interfaces import Qos, QosDurability, QosHistory, QosLiveliness, QosReliability, QosTime

    quality, unlimited = QUALITY[profile], QosTime(*divmod(2**63 - 1, 10**9))
    return Qos(
        QosHistory.KEEP_LAST,
        quality.depth,
        QosReliability.RELIABLE if quality.offers_reliable else QosReliability.BEST_EFFORT,
        QosDurability.TRANSIENT_LOCAL if quality.latched else QosDurability.VOLATILE,
        unlimited,
        unlimited,
        QosLiveliness.AUTOMATIC,
        unlimited,
        avoid_ros_namespace_conventions=False,
    )


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
