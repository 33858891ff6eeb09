"""Instructions given to a policy: in place of the observed one, or where none is observed, and the words of
them that it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from policies.vla.tokens import unknown_words, words_in
from robo_rl.core.conditioning import encode, memory_shape, sample_with_moment
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs, reads_every_step
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes

SHOWN = 12  # known words in a message


class ToldPolicy:
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
        return encode(self._policy, self._told(obs))

    def features(self, obs: Obs) -> Float[Tensor, "b f"]:
        return self._policy.features(self._told(obs))

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample(self._told(obs), noise)

    def sample_with_moment(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> tuple[Tensor, Tensor]:
        """(chunk, moment) of a policy with a memory; see `conditioning.sample_with_moment`."""
        return sample_with_moment(self._policy, self._told(obs), noise)

    def sample_from(self, features: Any, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self._policy.sample_from(features, noise)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self._policy.refine(self._told(obs), action)

    def _told(self, obs: Obs) -> Obs:
        key, spec = next(iter(self.obs_spec.items()))
        batch = obs[key].shape[: obs[key].ndim - len(spec.shape)]
        return {**obs, INSTRUCTION: self._words.to(obs[key].device).expand(*batch, -1)}


def unread_words(instruction: str, config: Mapping[str, Any]) -> list[str]:
    """Words of the instruction that the policy of this configuration does not know, in their order. Raises
    ConfigError if it knows none of them.
    """
    known = vocabulary_in(config)
    unknown = unknown_words(instruction, known) if known else []
    if unknown and len(unknown) == len(set(words_in(instruction))):
        shown = ", ".join(known[:SHOWN]) + (", ..." if len(known) > SHOWN else "")
        raise ConfigError(
            f"The policy knows no word of the instruction '{instruction}' and cannot tell it from others. "
            f"Use words of its training instructions: {shown}"
        )
    return unknown


def vocabulary_in(config: Mapping[str, Any]) -> list[str]:
    """Known words of the vision-language-action policy in a configuration, which may be that of a base; empty
    without one, and for one that reads bytes or has the tokenizer of a pretrained model.
    """
    vla = config.get("vla")
    if isinstance(vla, Mapping):
        words = vla.get("tokens") == "words" and vla.get("backbone", "tiny") == "tiny"
        return list(config["vocabulary"]) if words else []
    parts = (part for part in config.values() if isinstance(part, Mapping))
    return next((found for part in parts if (found := vocabulary_in(part))), [])
