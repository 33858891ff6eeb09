"""Time-contrastive learning of moment tokens, before imitation (HAMLET, Koo et al. 2025, 2510.00695).

The moment of a frame is to be near that of another view of the same frame, and far from those of earlier
frames of its window and of other rows of the batch. Only the tokens learn; all other weights begin imitation
as they would without this.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from policies.base.generative import GenerativePolicy
from policies.training.joint import JointVla
from policies.vla.config import check_moment_steps
from policies.vla.pictures import crop_side
from policies.vla.policy import VlaPolicy
from robo_rl.core.conditioning import HELD
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import generator
from robo_rl.core.shapes import Float, UInt8
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.nets.ranks import Ranks

TEMPERATURE = 0.07  # of public training code of HAMLET
LIGHT = 0.2  # largest change of a view's contrast; brightness changes by half of this share of its range


@dataclass(frozen=True)
class AugmentedView:
    """Random numbers in [0, 1) of one view of each row: positions of crops, brightness and contrast."""

    crop: Float[Tensor, "b cameras 2"]
    light: Float[Tensor, "b cameras 2"]

    def repeated(self, count: int) -> AugmentedView:
        """The view of each row for `count` frames in turn."""
        return AugmentedView(self.crop.repeat_interleave(count, 0), self.light.repeat_interleave(count, 0))


def views(
    seed: int, step: int, rows: int, cameras: int, device: torch.device
) -> tuple[AugmentedView, AugmentedView]:
    """The two views of update `step`."""
    drawn = torch.rand(
        4, rows, cameras, 2, generator=generator("moments", seed, step, device=device), device=device
    )
    return AugmentedView(drawn[0], drawn[1]), AugmentedView(drawn[2], drawn[3])


def moment_logits(
    policy: VlaPolicy, obs: Obs, two: tuple[AugmentedView, AugmentedView]
) -> Float[Tensor, "b b_K"]:
    """Cosines over TEMPERATURE of the moment of each row's newest frame in the first view with moments in the
    second: of the newest frames of all rows, then of the row's own earlier frames.

    obs: windows (b, K + 1, *shape) and "held" (b, K). Entry (i, i) is the pair of views of one frame. Frames
    before the episode are -inf.
    """
    assert policy.memory is not None
    count = policy.memory.decisions + 1
    words = obs[INSTRUCTION][:, -1:]
    newest = {key: obs[key][:, -1:] for key in policy.pictures}
    anchor = _moments(policy, {**newest, INSTRUCTION: words}, two[0])
    frames = {key: obs[key].flatten(0, 1).unsqueeze(1) for key in policy.pictures}
    frames[INSTRUCTION] = words.repeat_interleave(count, 0)
    tokens = _moments(policy, frames, two[1].repeated(count)).unflatten(0, (-1, count))
    others = anchor @ tokens[:, -1].T
    earlier = torch.einsum("bc,bkc->bk", anchor, tokens[:, :-1]).masked_fill(~obs[HELD], -torch.inf)
    return torch.cat([others, earlier], dim=1) / TEMPERATURE


def moment_loss(logits: Float[Tensor, "b b_K"]) -> Tensor:
    """InfoNCE: mean cross-entropy of finding the other view of the same frame."""
    return F.cross_entropy(logits, torch.arange(len(logits), device=logits.device))


def moment_steps(policy: GenerativePolicy | VlaPolicy | JointVla, steps: int, ranks: Ranks) -> int:
    """Number of first updates, in which the moment tokens alone learn.

    Raises ConfigError without a memory, without updates for imitation, and for several processes.
    """
    found = policy.shape.moment_steps if isinstance(policy, VlaPolicy) else 0
    if isinstance(policy, VlaPolicy):
        check_moment_steps(policy.shape)
    if 0 < steps <= found:
        raise ConfigError(
            f"policy.moment_steps={found} must be less than steps={steps}, or nothing is imitated."
        )
    if found and ranks.count > 1:
        raise ConfigError(
            f"policy.moment_steps={found} compares all rows of a batch and needs one process, found "
            f"{ranks.count}: train without launcher=torchrun."
        )
    return found


def _moments(policy: VlaPolicy, obs: Obs, view: AugmentedView) -> Float[Tensor, "n c"]:
    """Moments of frames (n, 1, *shape) in a view, of unit length."""
    whole = [crop_side(side, policy.shape.crop) == side for side in policy.sides]
    lit = {
        key: relit(obs[key], view.light[:, i])
        for i, key in enumerate(policy.pictures)
        if whole[i]  # crops alone would make equal views
    }
    *_, moment = policy.prefix({**obs, **lit}, view.crop)
    return F.normalize(moment, dim=-1)


def relit(picture: UInt8[Tensor, "n 1 h w 3"], light: Float[Tensor, "n 2"]) -> UInt8[Tensor, "n 1 h w 3"]:
    """Pictures of other brightness and contrast."""
    brightness, contrast = (LIGHT * (2.0 * light - 1.0)).view(-1, 2, 1, 1, 1, 1).unbind(1)
    lit = (picture.float() - 127.5) * (1.0 + contrast) + 127.5 * (1.0 + brightness)
    return lit.clamp(0.0, 255.0).round().to(torch.uint8)
