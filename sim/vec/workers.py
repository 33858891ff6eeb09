"""Vector environment of lanes, in this process or in worker processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError, MissingDependencyError, RoboRLError
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import Seeds, episode_seeds
from robo_rl.core.shapes import Bool, Float
from sim.vec.history import LaneHistory, SeedsPlace, pack, place_of, seeds_of, unpack
from sim.vec.in_process import InProcess
from sim.vec.lane import MakeLane
from sim.vec.vec_env import METADATA, check_lane_count, clipped_action, fresh, take_seeds
from sim.vec.worker_pool import WorkerPool


class WorkerVecEnv:
    """`num_envs` lanes behind `robo_rl.core.protocols.VecEnv`; CPU tensors in and out.

    num_workers = 0 runs the lanes in this process, and `step_async` only stores the action. num_workers >= 1
    runs them in processes, which simulate while the caller computes between `step_async` and `step_wait`. The
    results do not depend on the number of workers, to the last bit.

    A lane that raises, and a worker that raises, dies or does not answer within `timeout_s`, ends the
    environment with an EnvError that holds the traceback; nothing hangs. Use it as a context manager, or call
    `close`.
    """

    def __init__(
        self, make_lane: MakeLane, num_envs: int, num_workers: int = 0, *, timeout_s: float = 60.0
    ) -> None:
        check_lane_count(num_envs, num_workers)
        self._lanes: InProcess | WorkerPool
        if num_workers == 0:
            self._lanes = InProcess(make_lane, num_envs)
        else:
            self._lanes = WorkerPool(make_lane, num_envs, num_workers, timeout_s)
        self.spec, self.num_envs, self.metadata = self._lanes.spec, num_envs, METADATA
        self.worker_pids = tuple(self._lanes.pids)  # empty without workers
        self.seeds: Iterator[int] | None = None  # seeds of the next episodes
        self._history = LaneHistory(self.spec, num_envs)
        self._place: SeedsPlace = None  # position of `seeds` at the newest instant that a snapshot holds
        self._state = "new"  # -> ready <-> stepping; interrupted, closed

    def reset(self, seeds: Seeds) -> Obs:
        """Start one episode per lane. Keeps the seeds and draws the next one only when a lane ends."""
        self._expect("new", "ready", "stepping", "interrupted")
        coming = episode_seeds(seeds, self.num_envs)
        first = take_seeds(coming, self.num_envs)  # before the call: wrong seeds leave everything as it is
        with self._call():
            self._lanes.wait()  # drop a step that is under way
            self.seeds = coming
            lanes = np.arange(self.num_envs)
            self._start(lanes, first)
            self._commit(None, lanes, first)
        return self._obs()

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        self._expect("ready")
        self._lanes.buffers.action[:] = clipped_action(action, self.spec, self.num_envs)
        with self._call(after="stepping"):
            self._lanes.submit("step")

    def skip_pictures(self, unread: Bool[Tensor, " n"]) -> None:
        """See `robo_rl.core.protocols.SkipsPictures`. Call before `step_async`."""
        self._expect("ready")
        self._lanes.buffers.unread[:] = unread.numpy()

    def step_wait(self) -> StepResult:
        self._expect("stepping")
        with self._call():
            self._lanes.wait()
            out = self._lanes.buffers
            out.unread[:] = False
            reward, terminated, truncated = fresh(out.reward), fresh(out.terminated), fresh(out.truncated)
            final_mask = terminated | truncated
            info: dict[str, Any] = {
                "final_obs": self._obs(),
                "final_mask": final_mask,
                "success": fresh(out.success),
                "episode_seed": fresh(self._history.seed),
            }
            info |= {key: fresh(out.info[:, column]) for column, key in enumerate(self._lanes.info_keys)}
            ended = np.flatnonzero(final_mask.numpy())
            following = self._following(len(ended))
            if len(ended):
                self._start(ended, following)
            self._commit(out.action, ended, following)
            info["next_seed"] = fresh(self._history.seed)
        return self._obs(), reward, terminated, truncated, info

    def snapshot(self) -> dict[str, Any]:
        """Seed and actions of the running episode of every lane, as tensors, numbers and strings.

        No more is needed, because no seed is drawn ahead. While a step is under way, the snapshot is of the
        instant before it.
        """
        self._expect("ready", "stepping", "interrupted")
        return pack(self.spec, self._history, self._place)

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Return to a snapshot by replaying its actions; works in a new environment too.

        Later episodes take their seeds from `seeds`, which must be at the position it had at the snapshot.
        Without `seeds`, an `EpisodeSeeds` is made again from the snapshot and kept in `self.seeds`; any other
        iterator continues from its present position, so move it back yourself or pass one.
        Raises CheckpointError when the snapshot is of another environment, EnvError when the simulator does
        not reproduce it.
        """
        self._expect("new", "ready", "stepping", "interrupted")
        actions = unpack(snapshot, self.spec, self.num_envs)
        with self._call():
            self._lanes.wait()
            self.seeds = seeds if seeds is not None else seeds_of(snapshot) or self.seeds
            episode_seed = snapshot["episode_seed"].numpy()
            self._lanes.buffers.seed[:] = episode_seed
            self._lanes.submit("replay", actions)
            self._lanes.wait("replaying a snapshot")
            self._history = LaneHistory(self.spec, self.num_envs)
            self._history.restore(episode_seed, actions)
            self._place = place_of(self.seeds)
        return self._obs()

    def render(self, lane: int = 0) -> Tensor:
        """(h, w, 3) uint8 picture of one lane. Raises EnvError for a lane that does not exist."""
        self._expect("ready")
        if not 0 <= lane < self.num_envs:
            raise EnvError(f"There is no lane {lane} to render; expected 0 ... {self.num_envs - 1}.")
        with self._call(survives=(MissingDependencyError, ConfigError)):
            return torch.from_numpy(self._lanes.render(lane))

    def close(self) -> None:
        """End the lanes and their workers. May be called twice."""
        if self._state != "closed":
            self._state = "closed"
            self._lanes.close()

    def __enter__(self) -> WorkerVecEnv:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _following(self, count: int) -> list[int]:
        """Seeds of the next episodes."""
        if count == 0:
            return []
        if self.seeds is None:
            raise EnvError(
                "There is no seed iterator: call reset(seeds), or restore(snapshot, seeds), first."
            )
        return take_seeds(self.seeds, count)

    def _start(self, lanes: NDArray[np.int64], seeds: list[int]) -> None:
        """Reset these lanes with these seeds, in lane order."""
        self._lanes.buffers.seed[lanes] = seeds
        self._lanes.submit("reset", lanes.tolist())
        self._lanes.wait("resetting")

    def _commit(self, action: NDArray[np.float32] | None, begun: NDArray[np.int64], seeds: list[int]) -> None:
        """Make this call part of snapshots; an interrupted call leaves them at the call before."""
        if action is not None:
            self._history.push(action)
        self._history.begin(begun, seeds)
        self._place = place_of(self.seeds)

    def _obs(self) -> Obs:
        return {key: fresh(value) for key, value in self._lanes.buffers.obs.items()}

    def _expect(self, *states: str) -> None:
        if self._state not in states:
            raise EnvError(f"{self.spec.name} cannot do this now: {_WHY[self._state]}")

    @contextmanager
    def _call(self, after: str = "ready", survives: tuple[type[RoboRLError], ...] = ()) -> Iterator[None]:
        """Run a call of the lanes. Errors close the environment, except those of `survives`.

        Ctrl-C half-way leaves the lanes at different instants: only reset and restore may follow.
        """
        self._state = "interrupted"
        try:
            yield
        except survives:
            self._state = after
            raise
        except EnvError as error:
            error.args = (f"{error}\n{self._history.describe()}",)
            self.close()
            raise
        except Exception:
            self.close()
            raise
        self._state = after


_WHY = {
    "new": "no episode is running. Call reset(seeds) first.",
    "ready": "no step is under way. Call step_async(action) first.",
    "stepping": "a step is under way. Call step_wait() first.",
    "interrupted": "the last call was interrupted half-way. Call reset or restore first.",
    "closed": "it is closed, or a simulator failed. Make a new one.",
}
