"""The lanes of one process: of a worker, or of the caller when there are no workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import EnvError
from sim.vec.buffers import Buffers
from sim.vec.lane import Lane, LaneObs, MakeLane, PictureLane


class LaneGroup:
    """Lanes that read actions and seeds from `buffers` and write observations and results there.

    Lane numbers count from 0 inside the group; `first` is the number of its first lane in the environment.
    """

    def __init__(self, lanes: Sequence[Lane], buffers: Buffers, first: int = 0) -> None:
        self.lanes = list(lanes)
        self.buffers = buffers
        self.first = first  # for error messages
        self._painters = [isinstance(lane, PictureLane) for lane in lanes]

    def reset(self, indices: Iterable[int]) -> None:
        """Start an episode with `buffers.seed` in these lanes; reward and endings of the last step remain."""
        for i in indices:
            self._write_obs(i, self.lanes[i].reset(int(self.buffers.seed[i])))
            self.buffers.success[i] = False

    def step(self) -> None:
        """One step of every lane with `buffers.action`."""
        out = self.buffers
        for i, lane in enumerate(self.lanes):
            if self._painters[i]:
                lane.unread = bool(out.unread[i])  # type: ignore[attr-defined]
            obs, reward, terminated, truncated, success = lane.step(out.action[i])
            self._write_obs(i, obs)
            out.reward[i] = reward
            out.terminated[i] = terminated
            # A task that ends in the last step has terminated, not truncated.
            out.truncated[i] = truncated and not terminated
            out.success[i] |= success
            if lane.info_keys:
                out.info[i] = lane.info()

    def replay(self, actions: Mapping[int, NDArray[np.float32]]) -> Iterable[int]:
        """Reset these lanes to `buffers.seed` and repeat their actions (t, a). Yields each lane when done.

        Raises EnvError when an episode ends early: the simulator does not reproduce what was recorded.
        """
        for i, sequence in actions.items():
            lane = self.lanes[i]
            obs, succeeded = lane.reset(int(self.buffers.seed[i])), False
            for done, action in enumerate(sequence, start=1):
                obs, _, terminated, truncated, success = lane.step(action)
                succeeded |= success
                if terminated or truncated:
                    raise EnvError(
                        f"Lane {self.first + i} ended after {done} of the {len(sequence)} recorded steps "
                        f"of episode seed {int(self.buffers.seed[i])}. The snapshot was taken in another "
                        "version of the simulator, or with other options: restore it with those."
                    )
            self._write_obs(i, obs)
            self.buffers.success[i] = succeeded
            yield i

    def render(self, i: int) -> NDArray[Any]:
        """(h, w, 3) uint8 picture of one lane."""
        return np.ascontiguousarray(self.lanes[i].render())

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        self.lanes = []

    def _write_obs(self, i: int, obs: LaneObs) -> None:
        for key, target in self.buffers.obs.items():
            if key in obs or not self.buffers.unread[i]:
                target[i] = obs[key]


def build_lanes(make_lane: MakeLane, count: int) -> list[Lane]:
    """`count` new lanes. Raises EnvError when their specifications or info keys differ."""
    lanes: list[Lane] = [make_lane() for _ in range(count)]
    for lane in lanes[1:]:
        if (lane.spec, lane.info_keys) != (lanes[0].spec, lanes[0].info_keys):
            raise EnvError(f"All lanes must have one specification, found {lanes[0].spec} and {lane.spec}.")
    return lanes
