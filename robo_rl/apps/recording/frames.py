"""Frames of the running episode, taken at the rate of the dataset."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from hardware.bus.clocks import ReceiptStamps
from hardware.bus.protocol import Bus
from hardware.loop.observation import ArmObserver
from robo_rl.apps.recording.episodes import RECORDING, Episodes
from robo_rl.apps.recording.streams import RobotStreams
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec

MOVED_RAD = 0.1  # farthest that an arm may be, after a pause, from where its last frame was taken
GAP_S = 0.5  # silence of a stream after which the episode pauses by itself, as `data import` allows


class FrameTaker:
    """Takes the observation of each tick, and gives the one before its action."""

    def __init__(
        self,
        bus: Bus,
        spec: EnvSpec,
        streams: RobotStreams,
        episodes: Episodes,
        tell: Callable[[str, str], None],
    ) -> None:
        self._bus, self._streams, self._episodes, self._tell = bus, streams, episodes, tell
        self._observer = ArmObserver(spec.obs)
        self._low, self._high = np.array(spec.action.low), np.array(spec.action.high)
        self._stamps = ReceiptStamps(bus.stamp, bus.now)
        self._taken_rad: Float[ndarray, " j"] | None = None  # measured at the newest frame
        bus.timer(1.0 / spec.control_hz, self.tick)

    def require_in_place(self) -> None:
        """Raise DataError if the arm is not where the newest frame was taken: the next frame would be no
        result of its action.
        """
        here_rad, taken_rad = self._streams.measured_rad, self._taken_rad
        if here_rad is None or taken_rad is None:
            return
        moved_rad = float(np.abs(here_rad - taken_rad).max())
        if moved_rad > MOVED_RAD:
            raise DataError(
                f"The arm moved by {moved_rad:.2f} rad in the pause, and the episode cannot continue here. "
                f"Bring it back to within {MOVED_RAD} rad, or save or discard the episode."
            )

    def tick(self) -> None:
        """Take a frame of the running episode; pause it while a stream is silent."""
        now_s, streams = self._bus.now(), self._streams
        if self._episodes.state != RECORDING:
            return
        if silent := [name for name, s in streams.all.items() if s.age_s(now_s) > GAP_S]:
            self._episodes.pause()
            self._tell(f"The episode is paused: {streams.fault(silent[0], now_s)}.", "error")
            return
        try:
            ended = self._take(now_s)
        except RoboRLError as error:
            self._episodes.pause()
            ended = f"The episode is paused: {error}"
        if ended:
            self._tell(ended, "error")

    def _take(self, now_s: float) -> str:
        """Hand a frame to the episode; returns why the episode has ended, or an empty text."""
        streams, commands = self._streams, self._streams.commands
        measured_rad, commanded_rad = streams.measured_rad, streams.commanded_rad
        assert measured_rad is not None
        self._taken_rad = measured_rad
        # An arm whose filter is silent was commanded nothing: it stays where it is.
        sent = commanded_rad is not None and not commands.late(now_s)
        action = commanded_rad if sent else measured_rad
        assert action is not None
        return self._episodes.frame(
            self._observer.build(streams.states.message, streams.pictures(), None),
            streams.stamps_ns(now_s, self._stamps.stamp_ns),
            np.clip(action, self._low, self._high),
            streams.intervention,
            self._stamps.stamp_ns(commands.received_s) if sent else -1,
        )
