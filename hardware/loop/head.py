"""The command of each control period: a waypoint of a chunk, a corrected waypoint, or a single-step decision.

    player                  a chunk policy in another process; its waypoints are played as they are
    player + residual       the same, each action corrected from the newest state (two rates)
    single step             no chunk policy: one network call per control step

A control step may be longer than a command period: commands between two decisions are interpolated.
`hardware.loop.head_networks` holds the network calls. This file has no bus, thread or sleep; time is an
argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from hardware.loop.chunk_acceptance import chunk_fault
from hardware.loop.chunk_order import ChunkOrder
from hardware.loop.control_step import ControlStep
from hardware.loop.heartbeat import PolicyHeartbeat, default_timeout_s
from hardware.loop.observation import ObservationHistory, Seen
from hardware.loop.player import ChunkPlayer, resampled
from hardware.loop.timing import LoopTiming
from hardware.messages import JointTrajectory
from hardware.safety.timing import STALE_STATE_PERIODS, START_PERIODS
from robo_rl.core.shapes import Float

# Silent ticks after a reset, so that the filter takes the next command as a first one, near the arm.
REST_TICKS = int(START_PERIODS) + 1


@runtime_checkable
class Decide(Protocol):
    """Maps the stacked observation, and the chunk's action where there is one, to the command."""

    needs_chunks: bool

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]: ...


class ActionHead:
    """One command per tick, or none. `decide` None plays chunks unchanged.

    control_s: time between two decisions, at least `period_s`; None: decide each command.
    names: joints of the chunks, in the order of commands; None: those of each chunk.
    heartbeat_s: longest time without a heartbeat of the policy; None: `default_timeout_s`; 0: not limited.
    speed_rad_s: largest speeds of the joints, at which commands catch up with the policy's; see `restart`.
    """

    def __init__(
        self, period_s: float, state_period_s: float, decide: Decide | None = None, steps: int = 1,
        names: Sequence[str] | None = None, heartbeat_s: float | None = None,
        control_s: float | None = None, speed_rad_s: Float[ndarray, " j"] | None = None,
    ) -> None:  # fmt: skip
        self.timing, self.player = LoopTiming(period_s), ChunkPlayer()
        self.episode = 0  # resets
        self.refused = ""  # why the last chunk was refused; empty when it was accepted, or is merely late
        self._names = None if names is None else tuple(names)
        self._period_s, self._state_period_s, self._decide = period_s, state_period_s, decide
        self._most_rad = None if speed_rad_s is None else period_s * speed_rad_s  # from a command to the next
        timeout_s = default_timeout_s(period_s) if heartbeat_s is None else heartbeat_s
        self.needs_chunks = decide is None or decide.needs_chunks
        self._heartbeat = PolicyHeartbeat(timeout_s if self.needs_chunks else 0.0, period_s)
        self._history = ObservationHistory(steps)
        self._seen: Seen | None = None
        self._measured: Float[ndarray, " j"] | None = None
        self._seen_s = self._ticked_s = -math.inf
        self._order, self._rest = ChunkOrder(), 0
        self._step = ControlStep(1.0 if control_s is None else max(1.0, control_s / period_s))
        self._sent: Float[ndarray, " j"] | None = None  # last command; None: the arm did not follow it
        self._behind = False  # commands are still on their way from the arm to the policy's

    def reset(self) -> None:
        """Begin a new episode, after a pause. Chunks made from states before the reset are refused."""
        self.episode += 1
        self._rest = REST_TICKS
        self._order.reset()
        self.player.reset()
        self._history.reset()
        self._seen = None

    def restart(self, catches_up: bool = False) -> None:
        """Let the next control step or chunk begin where the arm is: the last command moved nothing.

        catches_up: it then leaves the arm at the speed of its joints, as after a hold in the middle of an
        episode. Otherwise the safety filter drops commands that are far from the arm.
        """
        self._begin_at_the_arm()
        self._behind = catches_up

    def _begin_at_the_arm(self) -> None:
        self._step.reset()
        self._sent = None

    def on_state(
        self,
        stamp_s: float,
        seen: Seen | None,
        received_s: float,
        measured: Float[ndarray, " j"] | None = None,
    ) -> None:
        """Take a state. seen: observation of a head that decides. measured: position of its joints."""
        self._order.see(stamp_s, self.player.played)
        self._seen, self._seen_s, self._measured = seen, received_s, measured

    def on_heartbeat(self, alive: bool, received_s: float) -> None:
        """Take a heartbeat of the policy. alive: false from a policy that ends: its chunk is dropped."""
        self._heartbeat.receive(alive, received_s)
        if not alive:
            self.player.drop()

    def policy_is_missing(self, now_s: float) -> bool:
        """True while the policy's heartbeat is late: its chunk pauses, and is dropped after 5 periods."""
        if self._heartbeat.is_lost(now_s):
            self.player.drop()
        return self._heartbeat.is_missing(now_s)

    def on_chunk(self, message: JointTrajectory, received_s: float) -> bool:
        """Take a chunk; False when it is malformed (see `refused`), out of order, or too late."""
        self.refused = chunk_fault(message, self._names)
        if self.refused:
            return False
        start = self._order.start(message.stamp_s)
        if start is None:
            self.refused = self._order.fault
            return False
        self._heartbeat.note_chunk(received_s)
        rows = message.position_rad
        if self._names is not None and message.names != self._names:
            rows = rows[:, [message.names.index(name) for name in self._names]]
        now_s = self._period_s * (self.player.played - start)  # since the state of the chunk
        return self.player.offer(self._commands(rows, message.times_s, now_s), start)

    def _commands(
        self, rows: Float[ndarray, "k j"], times_s: Float[ndarray, " k"], now_s: float
    ) -> Float[ndarray, "n j"]:
        """Waypoints of a chunk at the rate of commands. now_s: time since the chunk's state.

        One that is played as it is goes on from the last command, or else from the arm. One that is corrected
        does not: the step of the correction does.
        """
        if self._decide is not None or self._names is None:
            return resampled(rows, times_s, self._period_s)
        here = self._measured if self._sent is None else self._sent
        return resampled(rows, times_s, self._period_s, now_s, here)

    def tick(self, now_s: float) -> Float[ndarray, " j"] | None:
        """Command of this tick; None when the state is stale, the policy is missing or nothing is queued.

        Call `done` after sending it.
        """
        self.timing.begin(now_s)
        if now_s - self._ticked_s > START_PERIODS * self._period_s:
            self._begin_at_the_arm()  # the filter takes the next command as a first one
        self._ticked_s = now_s
        command = self._command(now_s)
        if command is None:
            self._begin_at_the_arm()
        else:
            self._sent = command = self._caught_up(command)
        return command

    def _caught_up(self, command: Float[ndarray, " j"]) -> Float[ndarray, " j"]:
        """The command, or while it catches up, as much of the way to it as the joints move in a period."""
        here = self._measured if self._sent is None else self._sent
        if not self._behind or here is None or self._most_rad is None:
            return command
        within: Float[ndarray, " j"] = np.clip(command, here - self._most_rad, here + self._most_rad)
        self._behind = not np.array_equal(within, command)
        return within

    def _command(self, now_s: float) -> Float[ndarray, " j"] | None:
        if self._rest > 0:
            self._rest -= 1
            return None
        if now_s - self._seen_s > STALE_STATE_PERIODS * self._state_period_s:
            return None
        if self.policy_is_missing(now_s):
            return None
        if self._decide is None:
            return self.player.next()
        if self._seen is None:
            return None
        # The chunk's action at the end of the step, as in training.
        action = self.player.at(self._step.length) if self._step.is_over else None
        if self._decide.needs_chunks and self.player.next() is None:
            return None
        if self._step.is_over:
            self._history.push(self._seen)
            self._step.begin(self._decide(self._history.stacked(), action), self._measured)
        return self._step.next()

    def done(self, now_s: float) -> None:
        """Note the end of the tick's work."""
        self.timing.end(now_s)
