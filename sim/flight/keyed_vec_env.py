"""Vector environments of tensors whose episodes are pure functions of their seeds and actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, EnvError
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import Seeds, episode_seeds
from robo_rl.core.shapes import Bool, Float, Int64
from robo_rl.core.spec import EnvSpec
from sim.vec.device_restarts import DeviceRestarts
from sim.vec.history import place_of, seeds_of
from sim.vec.vec_env import METADATA, check_lane_count, clipped_action, take_seeds


class Advanced(NamedTuple):
    """Result of one step in all lanes, before the next episodes begin."""

    reward: Float[Tensor, " n"]
    terminated: Bool[Tensor, " n"]
    success: Bool[Tensor, " n"]
    info: dict[str, Tensor]  # of this environment alone


class KeyedVecEnv(ABC):
    """n lanes; `saved` names the tensors, lanes in the last axis, that are the whole state of their episodes.

    `_episode_seed` and `_age` (steps since the start) must be among them. All tensors are on `device`, the
    CPU unless `move_to` was called; from `keep_on_device` on episodes restart by mask, without the host's
    knowledge.
    """

    saved: tuple[str, ...]
    spec: EnvSpec
    device: torch.device
    _episode_seed: Tensor  # (n,) of the running episodes
    _age: Tensor  # (n,) steps of the running episodes

    def __init__(self, num_envs: int) -> None:
        check_lane_count(num_envs, 0)
        self.num_envs, self.metadata = num_envs, METADATA
        self._movable = True
        self._seeds: Iterator[int] | None = None
        self._pending: Tensor | None = None
        self._restarts: DeviceRestarts | None = None
        self._resident = False

    @abstractmethod
    def _place(self, device: torch.device) -> None:
        """Put all tensors and the compiled step on a device."""

    @abstractmethod
    def _first_step(self, seeds: Int64[Tensor, " k"]) -> dict[str, Tensor]:
        """The tensors of `saved` at the start of episodes with these seeds."""

    @abstractmethod
    def _advance(self, action: Float[Tensor, "a n"]) -> Advanced:
        """Take one step with actions in [-1, 1], `_age` included."""

    @abstractmethod
    def _given(self) -> Obs:
        """Observations for the caller to keep."""

    @property
    @abstractmethod
    def _max_steps(self) -> int: ...

    def move_to(self, device: torch.device) -> bool:
        """Compute on this device from now on. Call before `reset`. Returns False for an engine of the CPU."""
        if self._movable and self.device != device:
            self._place(device)
        return self._movable

    def keep_on_device(self) -> bool:
        self._resident = self._movable
        return self._resident

    def reset(self, seeds: Seeds) -> Obs:
        coming = episode_seeds(seeds, self.num_envs)
        first = take_seeds(coming, self.num_envs)
        self._seeds, self._pending = coming, None
        self._begin_all(torch.tensor(first, device=self.device))
        self._restarts = DeviceRestarts(coming, self.num_envs, self.device) if self._resident else None
        return self._given()

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        if self._seeds is None:
            raise EnvError("step before reset: call reset(seeds) first.")
        if self._restarts is not None:
            clipped = self._restarts.clipped(action, self.spec)
        else:
            clipped = torch.from_numpy(clipped_action(action, self.spec, self.num_envs)).to(self.device)
        self._pending = self.spec.action.normalize(clipped).T.contiguous()

    @torch.no_grad()
    def step_wait(self) -> StepResult:
        if self._pending is None or self._seeds is None:
            raise EnvError("step_wait without step_async: there is no step to wait for.")
        action, self._pending = self._pending, None
        reward, terminated, success, more = self._advance(action)
        truncated = (self._age >= self._max_steps) & ~terminated
        ended, seed, final = terminated | truncated, self._episode_seed, self._given()
        self._restart(ended)
        info = {
            "final_obs": final,
            "final_mask": ended,
            "success": success,
            "episode_seed": seed.clone(),
            "next_seed": self._episode_seed.clone(),
            **more,
        }
        return self._given(), reward, terminated, truncated, info

    def _restart(self, ended: Bool[Tensor, " n"]) -> None:
        """Start the next episodes where the last ones ended: by mask, or in these lanes alone."""
        if self._restarts is not None:
            self._restarts.note(None, self.spec.name)
            for name, new in self._first_step(self._restarts.seeds.take(ended, self._episode_seed)).items():
                setattr(self, name, torch.where(ended, new, getattr(self, name)))
        elif ended.any():
            assert self._seeds is not None
            lanes = ended.nonzero()[:, 0]
            seeds = torch.tensor(take_seeds(self._seeds, len(lanes)), device=self.device)
            for name, new in self._first_step(seeds).items():
                setattr(self, name, getattr(self, name).index_copy(-1, lanes, new))

    def _begin_all(self, seeds: Int64[Tensor, " n"]) -> None:
        for name, value in self._first_step(seeds).items():
            setattr(self, name, value)

    def snapshot(self) -> dict[str, Any]:
        """The whole state, seeds included."""
        if self._restarts is not None:
            self._seeds = self._restarts.seeds.synchronise()
        place = place_of(self._seeds)
        saved = {name.removeprefix("_"): getattr(self, name).clone() for name in self.saved}
        seeds = {
            "seeds_root": None if place is None else list(place[0]),
            "seeds_count": None if place is None else place[1],
        }
        return {"env": self.spec.name, **saved, **seeds}

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        state: Tensor = getattr(self, self.saved[0])
        key = self.saved[0].removeprefix("_")
        found = tuple(snapshot[key].shape) if key in snapshot else None
        if missing := [name for name in self.saved if name.removeprefix("_") not in snapshot]:
            raise CheckpointError(
                f"The snapshot of {snapshot.get('env')} has no {', '.join(missing)}: it is of an earlier "
                "version of the environment. Begin its run anew."
            )
        if snapshot.get("env") != self.spec.name or found != tuple(state.shape):
            raise CheckpointError(
                f"The snapshot is of {snapshot.get('env')} with a state of shape {found}, expected "
                f"{self.spec.name} with {tuple(state.shape)}. Restore it in its own environment."
            )
        for name in self.saved:
            setattr(self, name, snapshot[name.removeprefix("_")].to(self.device, copy=True))
        self._seeds = seeds or seeds_of(snapshot) or self._seeds
        self._pending = None
        if self._resident and self._seeds is not None:
            self._restarts = DeviceRestarts(self._seeds, self.num_envs, self.device)
        return self._given()
