"""The lanes of one process: what a worker runs, and what `WorkerVecEnv` runs itself without workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import EnvError
from sim.vec.buffers import Buffers
from sim.vec.lane import Lane, LaneObs, MakeLane


class LaneGroup:
    """Lanes that read their actions and seeds from `buffers` and write what came of them there."""

    def __init__(self, lanes: Sequence[Lane], buffers: Buffers, first: int = 0) -> None:
        self.lanes = list(lanes)
        self.buffers = buffers
        self.first = first  # number of our first lane in the whole environment, for messages

    def reset(self, rows: Iterable[int]) -> None:
        """Start an episode with `buffers.seed` on these rows. Reward and endings of the last step stay
        readable.
        """
        for row in rows:
            self._write_obs(row, self.lanes[row].reset(int(self.buffers.seed[row])))
            self.buffers.success[row] = False

    def step(self) -> None:
        """One step of every lane with `buffers.action`."""
        out = self.buffers
        for row, lane in enumerate(self.lanes):
            obs, reward, terminated, truncated, success = lane.step(out.action[row])
            self._write_obs(row, obs)
            out.reward[row] = reward
            out.terminated[row] = terminated
            out.truncated[row] = (
                truncated and not terminated
            )  # at the same instant the task's own ending counts
            out.success[row] |= success
            if lane.info_keys:
                out.info[row] = lane.info()

    def replay(self, actions: Mapping[int, NDArray[np.float32]]) -> Iterable[int]:
        """Reset these rows to `buffers.seed` and repeat their actions (t, a). Yields each row when it has
        arrived.

        Raises EnvError when an episode ends on the way: the simulator does not reproduce what was recorded.
        """
        for row, sequence in actions.items():
            lane = self.lanes[row]
            obs, succeeded = lane.reset(int(self.buffers.seed[row])), False
            for done, action in enumerate(sequence, start=1):
                obs, _, terminated, truncated, success = lane.step(action)
                succeeded |= success
                if terminated or truncated:
                    raise EnvError(
                        f"Lane {self.first + row} ended after {done} of the {len(sequence)} recorded steps "
                        f"of episode seed {int(self.buffers.seed[row])}. The snapshot was taken in another "
                        "version of the simulator, or with other options: restore it with those."
                    )
            self._write_obs(row, obs)
            self.buffers.success[row] = succeeded
            yield row

    def render(self, row: int) -> NDArray[Any]:
        return np.ascontiguousarray(self.lanes[row].render())

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        self.lanes = []

    def _write_obs(self, row: int, obs: LaneObs) -> None:
        for key, target in self.buffers.obs.items():
            target[row] = obs[key]


def build_lanes(make_lane: MakeLane, count: int) -> list[Lane]:
    """`count` lanes. Raises EnvError when one of them does not look like the first."""
    lanes: list[Lane] = [make_lane() for _ in range(count)]
    for lane in lanes[1:]:
        if (lane.spec, lane.info_keys) != (lanes[0].spec, lanes[0].info_keys):
            raise EnvError(f"All lanes must be alike, found {lanes[0].spec} beside {lane.spec}.")
    return lanes
