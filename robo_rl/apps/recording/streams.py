"""Newest messages of a robot: states, sent commands, pictures, and the status of its safety filter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.camera.jpeg import decoded
from hardware.description import RobotDescription
from hardware.loop.observation import IMAGE
from hardware.messages import CompressedImage, Diagnostics, Flag, Image, JointState, JointTrajectory, Status
from hardware.nodes.shared.waypoint import last_waypoint
from hardware.safety.reasons import Reason
from hardware.topics import (
    INTERVENTION,
    JOINT_STATES,
    SAFE,
    SAFETY_STATE,
    compressed_topic,
    image_topic,
)
from robo_rl.core.errors import DataError, DriverError
from robo_rl.core.shapes import Float

LATE_PERIODS, LEAST_LATE_S = 3.0, 0.1  # age from which a stream is late: periods, and the least time
RATE_WEIGHT = 0.05  # of the newest interval in a stream's mean interval
SETTLED = 4  # repeated pictures before the arm's motion counts
MOVED_RAD = 0.05  # motion of the arm during which a camera that works never repeats a picture
STATES = "states"  # name of the stream beside those of cameras
S_NS = 1_000_000_000
DROPS = {  # reasons that an operator does not expect: name in the filter's status -> sentence
    reason.name.lower(): reason.sentence
    for reason in (
        Reason.JUMP_AT_START,
        Reason.NOT_FINITE,
        Reason.WRONG_SHAPE,
        Reason.WRONG_JOINTS,
        Reason.OUT_OF_ORDER,
    )
}


@dataclass
class Stream:
    """One stream of messages. period_s: as the robot's description says."""

    period_s: float
    message: Any = None
    received_s: float = -np.inf
    interval_s: float = 0.0  # mean interval between messages; 0 before the second
    count: int = 0
    frozen: bool = False  # repeats the same picture while the arm moves

    def take(self, message: Any, received_s: float) -> None:
        """Keep the newest message."""
        if self.count:
            since_s = received_s - self.received_s
            weight = RATE_WEIGHT if self.count > 1 else 1.0
            self.interval_s += weight * (since_s - self.interval_s)
        self.message, self.received_s, self.count = message, received_s, self.count + 1

    def age_s(self, now_s: float) -> float:
        """Time since the newest message; infinite before the first."""
        return now_s - self.received_s

    def late(self, now_s: float) -> bool:
        """True when the next message is overdue."""
        return self.age_s(now_s) > max(LATE_PERIODS * self.period_s, LEAST_LATE_S)

    def valid(self, now_s: float) -> bool:
        """True while the newest message may be taken for the present."""
        return not self.late(now_s) and not self.frozen

    @property
    def rate_hz(self) -> float:
        """Mean rate of messages; 0 before the second."""
        return 1.0 / self.interval_s if self.interval_s > 0.0 else 0.0


@dataclass
class _Repeat:
    """Pictures with the same pixels: how many came, and where the arm was after the first SETTLED of them."""

    pixels: Any = None
    count: int = 0
    position_rad: Float[ndarray, " j"] | None = None


@dataclass(frozen=True)
class FilterStatus:
    """Last status of the safety filter."""

    phase: str = "unknown"
    sentence: str = "no safety filter has been heard"
    hardware: str = ""  # name of the robot's description
    counts: Mapping[str, str] = field(default_factory=dict)
    drops: str = ""  # why commands were dropped since the status before; empty: none was

    def next(self, status: Status) -> FilterStatus:
        """Status of the next message on `safety/state`."""
        counts = {key: value for key, value in status.values.items() if key not in ("phase", "ends")}
        drops = next((s for key, s in DROPS.items() if int(counts.get(key, 0)) > self._count(key)), "")
        phase = status.values.get("phase", "unknown")
        return FilterStatus(phase, status.message, status.hardware_id, counts, drops)

    def _count(self, key: str) -> int:
        return int(self.counts.get(key, 0)) if self.counts else 2**62  # nothing is new in the first status


class RobotStreams:
    """Subscribes to everything that is recorded or shown; `transport`: raw or compressed pictures."""

    def __init__(self, bus: Bus, robot: RobotDescription, cameras: Sequence[str], transport: str) -> None:
        self._bus, self._robot = bus, robot
        self.states = Stream(1.0 / robot.state_hz)
        self.commands = Stream(1.0 / robot.command_hz)
        self.cameras = {name: Stream(1.0 / robot.cameras[name].rate_hz) for name in cameras}
        self.intervention = False
        self.on_command: Callable[[float], None] = lambda received_s: None  # called with each receipt
        self.filter, self._filter_s = FilterStatus(), -np.inf
        self._repeats = {name: _Repeat() for name in cameras}
        JOINT_STATES.subscribe(bus, self._on_state)
        SAFE.subscribe(bus, self._on_command)
        INTERVENTION.subscribe(bus, self._on_intervention)
        SAFETY_STATE.subscribe(bus, self._on_filter)
        for name in cameras:
            if transport == "compressed":
                compressed_topic(name).subscribe(bus, partial(self._on_compressed, name))
            else:
                image_topic(name).subscribe(bus, partial(self._on_picture, name))

    @property
    def all(self) -> dict[str, Stream]:
        """Every stream that an observation needs, by name."""
        return {STATES: self.states, **self.cameras}

    @property
    def measured_rad(self) -> Float[ndarray, " j"] | None:
        """Newest measured positions, in the order of the description."""
        state = self.states.message
        return None if state is None else state.position_rad[self._places(state)]

    @property
    def velocity_rad_s(self) -> Float[ndarray, " j"] | None:
        """Newest measured velocities; None where the robot reports none."""
        state = self.states.message
        return (
            None
            if state is None or not len(state.velocity_rad_s)
            else state.velocity_rad_s[self._places(state)]
        )

    @property
    def commanded_rad(self) -> Float[ndarray, " j"] | None:
        """Newest command that was really sent."""
        command: Float[ndarray, " j"] | None = self.commands.message
        return command

    def sent_rad(self, now_s: float) -> Float[ndarray, " j"] | None:
        """Where the arm was sent last, or is measured if nothing is sent; None without fresh joint states."""
        if self.states.late(now_s):
            return None
        return self.measured_rad if self.commands.late(now_s) else self.commanded_rad

    def pictures(self) -> dict[str, Image]:
        """Newest picture of each camera that has sent one, by observation key; each is decoded once."""
        return {IMAGE + name: image for name in self.cameras if (image := self.picture(name)) is not None}

    def picture(self, camera: str) -> Image | None:
        """Newest picture of a camera; None before the first, or where its bytes are no picture."""
        stream = self.cameras[camera]
        if isinstance(stream.message, CompressedImage):
            packed = stream.message
            try:
                stream.message = Image(packed.stamp_s, decoded(packed.data), packed.frame)
            except DataError:
                stream.message = None
        image: Image | None = stream.message
        return image

    def stamps_ns(self, now_s: float, stamp_ns: Callable[[float], int]) -> dict[str, int]:
        """Stamps of the newest messages [Unix ns]; a stream that is late or frozen has no t_receive_ns.

        stamp_ns: stamp of a time of receipt.
        """
        found: dict[str, int] = {}
        for name, stream in self.all.items():
            suffix = "" if stream is self.states else f".{IMAGE}{name}"
            if stream.message.stamp_s > 0.0:
                found[f"t_capture_ns{suffix}"] = round(stream.message.stamp_s * S_NS)
            if stream.valid(now_s):
                found[f"t_receive_ns{suffix}"] = stamp_ns(stream.received_s)
        return found

    def fault(self, name: str, now_s: float) -> str:
        """What is wrong with a stream, in a clause."""
        stream = self.all[name]
        what = "joint states" if stream is self.states else f"pictures of the camera '{name}'"
        if not stream.count:
            of = "the robot" if stream is self.states else "it"
            return f"no {what} have come; is {of} on, and in this ROS domain and namespace"
        if stream.frozen:
            return f"the {what} repeat while the arm moves; restart the camera"
        return f"no {what} have come for {stream.age_s(now_s):.1f} s"

    def filter_heard(self, now_s: float) -> bool:
        """True while the filter reports; it does twice a second."""
        return now_s - self._filter_s < 2.0

    def _places(self, state: JointState) -> list[int]:
        return [state.names.index(name) for name in self._robot.names]

    def _on_state(self, message: JointState, received_s: float) -> None:
        if set(self._robot.names) <= set(message.names) and np.isfinite(message.position_rad).all():
            self.states.take(message, received_s)

    def _on_command(self, message: JointTrajectory, received_s: float) -> None:
        try:
            self.commands.take(last_waypoint(message, self._robot.names), received_s)
        except DriverError:
            return  # the robot's driver refuses it, too, and reports it
        self.on_command(received_s)

    def _on_intervention(self, message: Flag, received_s: float) -> None:
        self.intervention = message.on

    def _on_filter(self, message: Diagnostics, received_s: float) -> None:
        if message.status:
            self.filter, self._filter_s = self.filter.next(message.status[0]), received_s

    def _on_compressed(self, camera: str, message: CompressedImage, received_s: float) -> None:
        self._note_repeat(camera, message.data)
        self.cameras[camera].take(message, received_s)

    def _on_picture(self, camera: str, message: Image, received_s: float) -> None:
        self._note_repeat(camera, message.pixels)
        self.cameras[camera].take(message, received_s)

    def _note_repeat(self, camera: str, pixels: Any) -> None:
        """A camera is frozen when its pixels stay the same while the arm moves."""
        repeat, stream, here_rad = self._repeats[camera], self.cameras[camera], self.measured_rad
        if repeat.pixels is None or not np.array_equal(repeat.pixels, pixels):
            repeat.pixels, repeat.count, repeat.position_rad, stream.frozen = pixels, 0, None, False
            return
        repeat.count += 1
        if repeat.count <= SETTLED:  # joint states may be later than pictures, as after a reset
            repeat.position_rad = here_rad
        elif here_rad is not None and repeat.position_rad is not None:
            stream.frozen |= bool(np.abs(here_rad - repeat.position_rad).max() > MOVED_RAD)
