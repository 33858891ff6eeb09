"""A task whose simulator is tensors alone, as an engine on a GPU is: nothing in it reads the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.protocols import Obs, StepResult
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from sim.vec.seed_queue import SeedQueue

REACH_M = 0.2
MAX_STEPS = 6
PICTURE, SIDE_PX = "image.view", 32
WORDS = "go to the target"


def world_spec(joints: int = 1, *, words: bool = False) -> EnvSpec:
    """Contract of the world: a target and a position for every joint. words: a picture and an instruction,
    too.
    """
    obs = {PICTURE: ArraySpec((SIDE_PX, SIDE_PX, 3), "uint8"), INSTRUCTION: INSTRUCTION_SPEC}
    return EnvSpec(
        "toy/target",
        {"state": ArraySpec((2 * joints,), unit="m"), **(obs if words else {})},
        ActionSpec((-4.0,) * joints, (4.0,) * joints, "m"),
        MAX_STEPS,
        50.0,
    )


class DeviceWorld:
    """state = (targets, positions); positions += action / 4. Success and end within 0.2 m of all targets.

    intervened: a human takes over at every fourth step of an episode, and executes 2.0. words: observations
    have a picture, as bright as the distance of the first joint, and an instruction.
    """

    metadata: Mapping[str, Any]

    def __init__(
        self,
        num_envs: int,
        joints: int = 1,
        *,
        device: torch.device | str = "cpu",
        intervened: bool = False,
        words: bool = False,
    ) -> None:
        self.spec, self.num_envs = world_spec(joints, words=words), num_envs
        self.metadata = {"autoreset_mode": "same_step"}
        self.device, self._joints, self._intervened = torch.device(device), joints, intervened
        self._words = torch.tensor(to_bytes(WORDS), device=self.device) if words else None

    def reset(self, seeds: Iterator[int]) -> Obs:
        first = [next(seeds) for _ in range(self.num_envs)]
        self._queue = SeedQueue(seeds, self.num_envs, self.device)
        self._seed = torch.tensor(first, device=self.device)
        self._age = torch.zeros_like(self._seed)
        self._state = self._start(self._seed)
        return self._observed(self._state.clone())

    def _start(self, seed: Tensor) -> Tensor:
        target = 1.0 + 3.0 * keyed_uniform(seed, 0, self._joints).T
        return torch.cat([target, torch.ones_like(target)], dim=1)

    def step_async(self, action: Tensor) -> None:
        self._action = action

    def step_wait(self) -> StepResult:
        human = (self._age % 4 == 3) if self._intervened else torch.zeros_like(self._age, dtype=torch.bool)
        action = torch.where(human.unsqueeze(1), 2.0, self._action)
        target, position = self._state.chunk(2, dim=1)
        final = torch.cat([target, position + action / 4.0], dim=1)
        near = ((final[:, : self._joints] - final[:, self._joints :]).abs() < REACH_M).all(1)
        self._age = self._age + 1
        truncated = ~near & (self._age >= MAX_STEPS)
        ended, seed = near | truncated, self._seed
        self._seed = self._queue.take(ended, seed)
        self._age = torch.where(ended, 0, self._age)
        self._state = torch.where(ended.unsqueeze(1), self._start(self._seed), final)
        info: dict[str, Any] = {
            "final_obs": self._observed(final),
            "final_mask": ended,
            "success": near,
            "episode_seed": seed,
            "next_seed": self._seed,
        }
        if self._intervened:
            info |= {"executed_action": action, "intervened": human}
        return self._observed(self._state.clone()), near.float(), near, truncated, info

    def _observed(self, state: Tensor) -> Obs:
        if self._words is None:
            return {"state": state}
        away = (state[:, 0] - state[:, self._joints]).abs().mul(50.0).clamp(max=255.0).byte()
        picture = away[:, None, None, None].expand(-1, SIDE_PX, SIDE_PX, 3)
        return {"state": state, PICTURE: picture, INSTRUCTION: self._words.expand(len(state), -1)}

    def step(self, action: Tensor) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def snapshot(self) -> dict[str, Any]:
        seeds = self._queue.synchronise()
        state = {name: getattr(self, name).clone() for name in ("_seed", "_age", "_state")}
        return state | {"root": list(seeds.root), "count": seeds.count}

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        for name in ("_seed", "_age", "_state"):
            setattr(self, name, snapshot[name].to(self.device, copy=True))
        coming = EpisodeSeeds(snapshot["root"], int(snapshot["count"])) if seeds is None else seeds
        self._queue = SeedQueue(coming, self.num_envs, self.device)
        return self._observed(self._state.clone())

    def render(self, lane: int = 0) -> Tensor:
        """A row of 64 pixels for each joint, from 0 to 4 m: the target red, the position white."""
        picture = torch.zeros(self._joints, 64, 3, dtype=torch.uint8)
        column = (self._state[lane].cpu() * 16.0).long().clamp(0, 63)
        joints = torch.arange(self._joints)
        picture[joints, column[: self._joints], 0] = 255
        picture[joints, column[self._joints :]] = 255
        return picture

    def close(self) -> None:
        """Nothing to close."""


def first_seeds(root: tuple[str | int, ...], count: int) -> list[int]:
    """Seeds of the first episodes."""
    seeds = EpisodeSeeds(root)
    return [next(seeds) for _ in range(count)]
