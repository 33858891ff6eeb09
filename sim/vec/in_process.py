"""Lanes in the calling process: no messages and no copies, the fastest way on one core."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import EnvError, RoboRLError
from sim.vec.buffers import Buffers, size_bytes
from sim.vec.lane import MakeLane
from sim.vec.lane_group import LaneGroup, build_lanes


class InProcess:
    """The interface of `WorkerPool` without processes; the work is done in `wait`."""

    pids: tuple[int, ...] = ()

    def __init__(self, make_lane: MakeLane, num_envs: int) -> None:
        lanes = _run("building its simulators", lambda: build_lanes(make_lane, num_envs))
        self.spec, self.info_keys = lanes[0].spec, lanes[0].info_keys
        extra = len(self.info_keys)
        self.buffers = Buffers.over(
            bytearray(size_bytes(self.spec, num_envs, extra)), self.spec, num_envs, extra
        )
        self._group = LaneGroup(lanes, self.buffers)
        self._todo: Callable[[], Any] | None = None

    def submit(self, command: str, work: Any = None) -> None:
        if command == "step":
            self._todo = self._group.step
        elif command == "reset":
            self._todo = lambda: self._group.reset(work)
        else:
            self._todo = lambda: list(self._group.replay(work))

    def wait(self, doing: str = "stepping") -> None:
        """Raises EnvError with the traceback when a lane raises."""
        if self._todo is not None:
            todo, self._todo = self._todo, None
            _run(doing, todo)

    def render(self, lane: int) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = _run("rendering", lambda: self._group.render(lane))
        return picture

    def close(self) -> None:
        self._group.close()


def _run(doing: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except RoboRLError:
        raise
    except Exception as error:
        raise EnvError(f"A simulator raised an error while {doing}:\n{traceback.format_exc()}") from error
