"""Instructions given to a policy: in place of the observed one, or where none is observed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from robo_rl.core.conditioning import encode, memory_shape, sample_with_moment
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs, reads_every_step
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes


class InstructedPolicy:
    """The policy with `instruction` in place of an observed one; a `protocols.ChunkPolicy` that itself reads
    none.

    Raises ConfigError for text that is no instruction, and for a policy that reads none.
    """

    def __init__(self, policy: ChunkPolicy, instruction: str) -> None:
        if INSTRUCTION not in policy.obs_spec:
            raise ConfigError(
                f"The policy reads no instruction, only {sorted(policy.obs_spec)}. Leave instruction= out, "
                "or give a vision-language-action policy (robo-rl train policy=vla)."
            )
        self._policy, self._words = policy, torch.from_numpy(to_bytes(instruction).copy())
        self.obs_spec = {key: spec for key, spec in policy.obs_spec.items() if key != INSTRUCTION}
        self.action_spec = policy.action_spec
        self.obs_steps, self.chunk, self.execute = policy.obs_steps, policy.chunk, policy.execute
        self.reads_every_step, self.memory_shape = reads_every_step(policy), memory_shape(policy)

    def encode(self, obs: Obs) -> Any:
        return encode(self._policy, self._with_instruction(obs))

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self._policy.features(self._with_instruction(obs))

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample(self._with_instruction(obs), noise)

    def sample_with_moment(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> tuple[Tensor, Tensor]:
        """(chunk, moment) of a policy with a memory; see `conditioning.sample_with_moment`."""
        return sample_with_moment(self._policy, self._with_instruction(obs), noise)

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample_from(features, noise)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self._policy.refine(self._with_instruction(obs), action)

    def _with_instruction(self, obs: Obs) -> Obs:
        key, spec = next(iter(self.obs_spec.items()))
        batch = obs[key].shape[: obs[key].ndim - len(spec.shape)]
        return {**obs, INSTRUCTION: self._words.to(obs[key].device).expand(*batch, -1)}
