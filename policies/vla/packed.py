"""A policy over a prefix as one whose features are flat, for stores that hold a row of numbers per decision.

A row is (pooled features, state, mask, keys, values), with the prefix padded to one length. Critics see its
first columns (`views`); a chunk follows from all of them. So replay, rollout and labels of distillation hold
the prefix of every decision, and it is not encoded again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.base.chain import ChainSampler, Explore
from policies.base.flow import Flow
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import PathPolicy
from policies.vla.cond import Cond
from policies.vla.policy import VlaPolicy
from policies.vla.tiny import TinyBackbone
from policies.vla.token_expert import TokenExpert, TokenSampler
from policies.vla.tokens import longest_text
from robo_rl.core.conditioning import encode, memory_shape
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs, reads_every_step
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION, MOST_BYTES
from robo_rl.core.views import Views


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """Sizes of a row. length: tokens of the longest prefix."""

    features: int
    state: int
    length: int
    layers: int
    kv_heads: int
    head_dim: int

    @classmethod
    def of(cls, cond: Cond, spare: int = 0) -> PackedLayout:
        """Layout for prefixes up to `spare` tokens longer than this one."""
        _, kv_heads, length, head_dim = cond.keys[0].shape
        length += spare
        return cls(cond.pooled.shape[1], cond.state.shape[1], length, len(cond.keys), kv_heads, head_dim)

    @property
    def width(self) -> int:
        """Columns of a row."""
        return sum(self._sizes)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.features, self.state, self.length, 2 * self.layers * self._layer

    @property
    def _layer(self) -> int:
        return self.kv_heads * self.length * self.head_dim

    def pack(self, cond: Cond) -> Float[Tensor, "b w"]:
        """Rows of a condition. Raises ConfigError if its prefix is longer than `length`."""
        missing = self.length - cond.mask.shape[1]
        if missing < 0:
            raise ConfigError(
                f"A prefix of {cond.mask.shape[1]} tokens was found, expected at most {self.length}: an "
                "instruction is longer than the longest of this environment. Shorten it."
            )
        padded = [F.pad(each, (0, 0, 0, missing)).flatten(1) for each in (*cond.keys, *cond.values)]
        mask = F.pad(cond.mask, (0, missing)).to(cond.pooled.dtype)
        return torch.cat([cond.pooled, cond.state, mask, *padded], dim=1)

    def unpack(self, rows: Float[Tensor, "b w"]) -> Cond:
        """The condition of these rows; keys and values are views."""
        pooled, state, mask, prefix = rows.split(self._sizes, dim=1)
        shape = (self.kv_heads, self.length, self.head_dim)
        each = [part.unflatten(1, shape) for part in prefix.split(self._layer, dim=1)]
        keys, values = tuple(each[: self.layers]), tuple(each[self.layers :])
        return Cond(keys, values, mask > 0.5, state, pooled, pooled[:, :0])


class PackedPolicy:
    """`policy`, a VLA or one built on it, with flat rows as features; a `protocols.ChunkPolicy`.

    text_bytes: length of the longest instruction. `policy` is shared, not copied.
    """

    def __init__(self, policy: SavedPolicy, text_bytes: int = MOST_BYTES) -> None:
        check_packable(policy)
        self.policy, self.kind = policy, policy.kind
        self.reads_every_step = reads_every_step(policy)
        self.obs_spec, self.action_spec = policy.obs_spec, policy.action_spec
        self.obs_steps, self.chunk, self.execute = policy.obs_steps, policy.chunk, policy.execute
        # a tokenizer may need more tokens for other words of that many bytes, at most one for each
        spare = 0 if isinstance(bottom_vla(policy).backbone, TinyBackbone) else text_bytes
        self.layout = PackedLayout.of(encode(policy, longest_observation(policy, text_bytes)), spare)

    @property
    def views(self) -> Views:
        """Columns that actors and critics see."""
        seen = slice(0, self.layout.features)
        return Views(seen, seen)

    def features(self, obs: Obs) -> Float[Tensor, "b w"]:
        return self.layout.pack(encode(self.policy, obs))

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"]) -> Float[Tensor, "b Tp a"]:
        return self.policy.sample(obs, noise)

    def sample_from(self, features: Float[Tensor, "b w"], noise: Float[Tensor, "b Tp a"]) -> Tensor:
        return self.policy.sample_from(self.layout.unpack(features), noise)

    def path(
        self, features: Float[Tensor, "b w"], noise: Float[Tensor, "b Tp a"]
    ) -> tuple[list[Float[Tensor, "b Tp a"]], list[float]]:
        """Path of the policy from noise to action, if it samples in several steps."""
        assert isinstance(self.policy, PathPolicy)
        return self.policy.path(self.layout.unpack(features), noise)

    def refine(self, obs: Obs, action: Float[Tensor, "b a"]) -> Float[Tensor, "b a"]:
        return self.policy.refine(obs, action)

    def chain_sampler(self, explore: Explore) -> ChainSampler:
        """Stochastic chains of a VLA from packed features. Learned noise sees the pooled ones alone."""
        vla, layout = self.policy, self.layout
        assert isinstance(vla, VlaPolicy)
        assert isinstance(vla.process, Flow)

        def net(x: Tensor, t: Tensor, rows: Tensor) -> Tensor:
            out: Tensor = vla.net(x, t, layout.unpack(rows))
            return out

        if (noise := explore.noise) is not None:
            explore = replace(explore, noise=lambda x, t, rows: noise(x, t, rows[:, : layout.features]))
        return ChainSampler(vla.process, net, vla.process.steps, explore, next(vla.parameters()).device)

    def token_sampler(self) -> TokenSampler:
        """Tokens of a VLA with policy.head=tokens, from packed features."""
        assert isinstance(self.policy, VlaPolicy)
        assert isinstance(self.policy.net, TokenExpert)
        return TokenSampler(self.policy.net, self.layout.unpack)

    def config(self) -> dict[str, Any]:
        raise ConfigError("Packed features exist in training only. Save the policy itself.")


def check_packable(policy: SavedPolicy) -> None:
    """Raise ConfigError for a policy whose features depend on earlier decisions."""
    if memory_shape(policy) is not None:
        raise ConfigError(
            "This method samples chunks from stored prefixes, and a policy with a memory (policy.memory) "
            "cannot be packed so. Use method=steering or residual."
        )


def has_prefix(policy: Any) -> bool:
    """True for a VLA, and for a policy that is built on one."""
    return isinstance(_bottom(policy), VlaPolicy)


def bottom_vla(policy: Any) -> VlaPolicy:
    """The VLA at the bottom of a stack."""
    vla = _bottom(policy)
    assert isinstance(vla, VlaPolicy)
    return vla


def _bottom(policy: Any) -> Any:
    layer = policy
    while getattr(layer, "base", None) is not None:
        layer = layer.base
    return layer


@torch.no_grad()
def longest_observation(policy: SavedPolicy, text_bytes: int) -> Obs:
    """One observation of zeros; its instruction has `text_bytes` bytes and as many tokens as possible."""
    assert isinstance(policy, torch.nn.Module)
    device = next(policy.parameters()).device
    obs = {
        key: torch.zeros(1, policy.obs_steps, *spec.shape, dtype=spec.torch_dtype, device=device)
        for key, spec in policy.obs_spec.items()
    }
    obs[INSTRUCTION][:] = longest_text(text_bytes).to(device)
    return obs
