"""Reset of a simulated robot: the filter is stopped, because the arm jumps to its start, and armed again."""

from __future__ import annotations

from collections.abc import Callable

from hardware.bus.protocol import Answer
from robo_rl.apps.recording.callers import Caller
from robo_rl.apps.recording.streams import RobotStreams

LONGEST_S = 8.0  # of a reset
PAUSE_S = 0.1  # between two tries


class SceneReset:
    """One reset at a time; `tick` continues it. say: told of a reset that failed."""

    def __init__(
        self,
        caller: Caller,
        streams: RobotStreams,
        clock: Callable[[], float],
        say: Callable[[str], None],
    ) -> None:
        self._caller, self._streams, self._clock, self._say = caller, streams, clock, say
        self._step: Callable[[], None] | None = None
        self._then: Callable[[], None] = lambda: None
        self._arm_again, self._next_s, self._until_s = False, 0.0, 0.0

    @property
    def running(self) -> bool:
        return self._step is not None

    def begin(self, then: Callable[[], None] = lambda: None) -> None:
        """Reset the robot, and call `then` when it follows commands again."""
        if self.running:
            return
        self._then, self._arm_again = then, self._streams.filter.phase == "armed"
        self._next_s, self._until_s = self._clock(), self._clock() + LONGEST_S
        if self._arm_again:
            self._caller.call("safety_filter/stop", lambda answer: None)
        self._step = self._wait_for_silence

    def follow(self, then: Callable[[], None]) -> None:
        """Call `then` when the present reset is done, in place of what was asked before."""
        self._then = then

    def tick(self) -> None:
        """Continue."""
        now_s = self._clock()
        if self._step is None or now_s < self._next_s:
            return
        if now_s > self._until_s:
            self._step = None
            self._say("The robot was not reset in time; see the log, and arm the filter again.")
            return
        self._next_s = now_s + PAUSE_S
        self._step()

    def _wait_for_silence(self) -> None:
        if self._streams.filter.phase in ("armed", "stopping"):
            return
        self._step = self._wait_for_answer
        self._caller.call("sim_robot/reset", self._on_reset)

    def _wait_for_answer(self) -> None:
        """Do nothing until the call is answered."""

    def _on_reset(self, answer: Answer) -> None:
        if not answer[0]:
            self._step = None
            self._say(f"The robot was not reset: {answer[1]}")
        elif self._step is not None:
            self._next_s, self._step = self._clock() + PAUSE_S, self._arm

    def _arm(self) -> None:
        if not self._arm_again:
            self._finish()
            return
        self._step = self._wait_for_answer
        self._caller.call("safety_filter/arm", self._on_armed)

    def _on_armed(self, answer: Answer) -> None:
        if self._step is not None:
            self._step = self._wait_until_armed if answer[0] else self._arm

    def _wait_until_armed(self) -> None:
        if self._streams.filter.phase == "armed":
            self._finish()

    def _finish(self) -> None:
        then, self._step = self._then, None
        then()
