"""An environment with an instruction among its observations, for policies that read one.

`arm6/peg:instruction=insert the peg` is `arm6/peg` with the same words in every step of every episode.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs, StepResult, VecEnv
from robo_rl.core.seeding import Seeds
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes, with_instruction

OPTION = "instruction"  # in the name of an environment


class InstructedEnv:
    """VecEnv whose observations also hold `instruction`. name: of this environment, in its contract.

    `unwrapped` is the environment without it, whose other members this one has, too. Raises ConfigError for
    text that is no instruction, and for an environment that gives instructions itself.
    """

    def __init__(self, env: VecEnv, instruction: str, name: str) -> None:
        if INSTRUCTION in env.spec.obs:
            raise ConfigError(
                f"{env.spec.name} gives instructions itself. Leave the option instruction out; robo-rl "
                "evaluate instruction= tells a policy others."
            )
        self.unwrapped = env
        self.spec = replace(with_instruction(env.spec), name=name)
        self.num_envs, self.metadata = env.num_envs, env.metadata
        self._words = torch.from_numpy(to_bytes(instruction).copy())

    def __getattr__(self, name: str) -> Any:
        if name == "unwrapped":  # not yet set: a copy that is being made
            raise AttributeError(name)
        return getattr(self.unwrapped, name)

    def reset(self, seeds: Seeds) -> Obs:
        return self._with_instruction(self.unwrapped.reset(seeds))

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        self.unwrapped.step_async(action)

    def step_wait(self) -> StepResult:
        obs, reward, terminated, truncated, info = self.unwrapped.step_wait()
        with_words = info | {"final_obs": self._with_instruction(info["final_obs"])}
        return self._with_instruction(obs), reward, terminated, truncated, with_words

    def snapshot(self) -> dict[str, Any]:
        return self.unwrapped.snapshot()

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Return to a snapshot, as the environment without an instruction does."""
        return self._with_instruction(self.unwrapped.restore(snapshot, seeds))

    def render(self, lane: int = 0) -> Tensor:
        return self.unwrapped.render(lane)

    def close(self) -> None:
        self.unwrapped.close()

    def _with_instruction(self, obs: Obs) -> Obs:
        device = next(iter(obs.values())).device
        return {**obs, INSTRUCTION: self._words.to(device).repeat(self.num_envs, 1)}
