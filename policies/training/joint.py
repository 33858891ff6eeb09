"""One vision-language-action network for several embodiments: robots with other actions, states or cameras.

Each embodiment is a `VlaPolicy` with its own normaliser, action limits and observation; prefix network and
action expert are shared. Actions and states are padded to the widest (`JointSizes`), as in pi0 (Black et al.
2024, 2410.24164, section IV). A padded dimension of an action is zero in every noise and every action, and no
loss is taken there. With policy.spatial, an embodiment whose data have no targets still acts by the points
that the network predicts for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.training.batches import ALONE, BELOW_1, WindowSource
from policies.vla.backbone import TINY
from policies.vla.config import JointSizes, VlaConfig
from policies.vla.experts import PaddedExpert
from policies.vla.policy import VlaPolicy, state_numbers
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.ranks import Ranks


class JointVla(nn.Module):
    """The policies of all embodiments, for training: they share the networks of the first.

    Observations are those of `JointWindows`.
    """

    def __init__(self, policies: Sequence[VlaPolicy]) -> None:
        super().__init__()
        first = policies[0]
        for other in policies[1:]:
            assert isinstance(other.net, PaddedExpert)
            assert isinstance(first.net, PaddedExpert)
            other.backbone, other.net.inner = first.backbone, first.net.inner
        self._policies = nn.ModuleList(policies)
        self.cameras = max(policy.cameras for policy in policies)
        self.shape: VlaConfig = first.shape
        self.backbone = first.backbone

    @property
    def policies(self) -> list[VlaPolicy]:
        """The policy of each embodiment; its networks are those of all."""
        return [cast("VlaPolicy", policy) for policy in self._policies]

    def bc_loss(
        self,
        obs: Obs,
        chunk: Float[Tensor, "b Tp a"],
        noise: Float[Tensor, "b *draws Tp a"],
        u: Float[Tensor, " b"],
        crop: Float[Tensor, "b cameras 2"] | None = None,
    ) -> Float[Tensor, " b"]:
        """`VlaPolicy.bc_loss` of each row by the policy of its embodiment; a is the widest action.

        u is stratified over the batch, row by row: it is stretched to [0, 1) over the rows of an embodiment,
        which are neighbours.
        """
        total, first, losses = len(chunk), 0, []
        for number, policy in enumerate(self.policies):
            seen = of_embodiment(obs, number)
            rows = slice(first, first + len(seen[INSTRUCTION]))
            count, dim = rows.stop - first, policy.action_spec.dim
            own = ((u[rows] * total - first) / count).clamp(0.0, BELOW_1)
            cut = None if crop is None else crop[rows, : policy.cameras]
            losses.append(policy.bc_loss(seen, chunk[rows, :, :dim], noise[rows][..., :dim], own, cut))
            first = rows.stop
        return torch.cat(losses)


def of_embodiment(obs: Obs, number: int) -> dict[str, Tensor]:
    """Observations of one embodiment in a batch of `JointWindows`."""
    prefix = f"{number}/"
    return {key.removeprefix(prefix): value for key, value in obs.items() if key.startswith(prefix)}


@dataclass(frozen=True)
class JointWindows:
    """Windows of several embodiments: each batch has rows of all, as many as their windows are of all.

    The rows of embodiment i follow those of i - 1. Its observations are `i/<key>`, without padding; actions
    are padded with zeros to the widest.
    """

    sources: tuple[WindowSource, ...]

    def __len__(self) -> int:
        return sum(len(source) for source in self.sources)

    def counts(self, batch_size: int) -> list[int]:
        """Rows of each embodiment in a batch, at least one. Raises ConfigError for a batch too small."""
        if batch_size < len(self.sources):
            raise ConfigError(
                f"batch_size={batch_size} is smaller than the number of embodiments, {len(self.sources)}. "
                "Raise it."
            )
        shares = [len(source) * batch_size / len(self) for source in self.sources]
        counts = [max(1, int(share)) for share in shares]
        while sum(counts) > batch_size:  # each of the small ones has one row
            counts[counts.index(max(counts))] -= 1
        while sum(counts) < batch_size:
            lacks = [share - count for share, count in zip(shares, counts, strict=True)]
            counts[lacks.index(max(lacks))] += 1
        return counts

    def batches(
        self,
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> Iterator[tuple[Obs, Float[Tensor, "b Tp a"]]]:
        """See `WindowSource`. Raises ConfigError for several ranks."""
        if ranks.count > 1:
            raise ConfigError(
                "Several embodiments are trained in one process. Leave launcher=torchrun out, or give data= "
                "of one robot."
            )
        each = [
            source.batches(count, derive_seed("embodiment", seed, number), start, stop, device, ranks)
            for number, (source, count) in enumerate(zip(self.sources, self.counts(batch_size), strict=True))
        ]
        for parts in zip(*each, strict=True):
            widest = max(action.shape[-1] for _, action in parts)
            obs = {
                f"{number}/{key}": value
                for number, (own, _) in enumerate(parts)
                for key, value in own.items()
            }
            yield obs, torch.cat([F.pad(action, (0, widest - action.shape[-1])) for _, action in parts])


def joint_policy(
    embodiments: Sequence[tuple[EnvSpec, Normalizer]],
    config: VlaConfig,
    chunk: int,
    execute: int,
    vocabulary: Sequence[str],
) -> JointVla:
    """New policies of these embodiments, which share their networks.

    Raises ConfigError for pictures that one network cannot read, and for settings that need one embodiment.
    """
    sizes = JointSizes(
        action=max(env.action.dim for env, _ in embodiments),
        state=max(state_numbers(env) for env, _ in embodiments),
        pictures=shared_pictures([env for env, _ in embodiments], config),
        embodiment=0,
        embodiments=len(embodiments),
    )
    return JointVla(
        [
            VlaPolicy(env, own, config, chunk, execute, vocabulary, replace(sizes, embodiment=number))
            for number, (env, own) in enumerate(embodiments)
        ]
    )


def shared_pictures(envs: Sequence[EnvSpec], config: VlaConfig) -> tuple[tuple[int, int], ...]:
    """Height and width of each picture, of the embodiment with most. Raises ConfigError unless the i-th
    pictures of all have the same size.
    """
    each = [
        [(key, array.shape[:2]) for key, array in env.obs.items() if sense_of(key, array) == "image"]
        for env in envs
    ]
    most = max(each, key=len)
    for env, pictures in zip(envs, each, strict=True):
        for (key, side), (other, wanted) in zip(pictures, most, strict=False):
            if side != wanted:
                raise ConfigError(
                    f"One network reads pictures of one size: {key} of {env.name} is {side[0]} x {side[1]}, "
                    f"{other} of another embodiment {wanted[0]} x {wanted[1]}. Record both with one size."
                )
        if len(pictures) < len(most) and config.backbone != TINY:
            raise ConfigError(
                f"{env.name} has {len(pictures)} pictures and another embodiment {len(most)}. A pretrained "
                f"backbone needs equally many: record both with as many, or use policy.backbone={TINY}."
            )
    return tuple((int(side[0]), int(side[1])) for _, side in most)
