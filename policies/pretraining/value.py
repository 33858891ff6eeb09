"""Value of a frame for a goal and an intention, and its TD loss, from pictures alone.

    V(s, g, z) = phi(s)^T T(z) psi(g)

V is about minus the discounted number of frames from s until g is seen, by someone who wants to reach z: the
intention-conditioned value function of Ghosh et al. 2023 (ICVF, 2304.04782), which V-PTR (Bhateja et al.
2023, 2309.13041) learns from video. g and z are frames, or both are one instruction.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from policies.pretraining.instructions import InstructionFeatures
from robo_rl.core.shapes import Bool, Float, Int64, UInt8
from robo_rl.nets.image_encoder import ImageEncoder
from robo_rl.nets.mlp import mlp

ESTIMATES = 2  # the smaller of them is used for the advantage


class _Multilinear(nn.Module):
    """One estimate from features, with T(z) = diag(t) A^T B diag(t) and t a function of psi(z)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__()
        self.phi, self.psi = _two_layers(features, width), _two_layers(features, width)
        self.intent = _two_layers(width, width)
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)
        self.apply(_initialise)

    def forward(
        self, now: Float[Tensor, "b f"], goal: Float[Tensor, "b f"], intent: Float[Tensor, "b f"]
    ) -> Float[Tensor, " b"]:
        t = self.intent(self.psi(intent))
        value: Tensor = (self.left(t * self.phi(now)) * self.right(t * self.psi(goal))).sum(-1)
        return value


class VideoValue(nn.Module):
    """V of pictures: one encoder for frames, goals and intentions, and two estimates from its features.

    vocabulary: number of words of the instructions, which can be goals; 0: only frames are goals.
    """

    def __init__(self, encoder: ImageEncoder, features: int, width: int, vocabulary: int = 0) -> None:
        super().__init__()
        self.encoder = encoder
        self.estimates = nn.ModuleList([_Multilinear(features, width) for _ in range(ESTIMATES)])
        if vocabulary:  # made last, so that the weights above do not depend on it
            self.instruction = InstructionFeatures(vocabulary, features)

    def encode(
        self, frames: UInt8[Tensor, "n h w 3"], crop: Float[Tensor, "n 2"] | None = None
    ) -> Float[Tensor, "n f"]:
        """Features of the pictures. crop: positions of training crops; None: the centre."""
        features: Tensor = self.encoder(frames, crop)
        return features

    def goal_features(
        self, features: Float[Tensor, "b f"], words: Int64[Tensor, "b m"] | None
    ) -> Float[Tensor, "b f"]:
        """Features of the instruction in rows with words, `features` in the others."""
        if words is None:
            return features
        return torch.where(words.any(1, keepdim=True), self.instruction(words), features)

    def forward(
        self, now: Float[Tensor, "b f"], goal: Float[Tensor, "b f"], intent: Float[Tensor, "b f"]
    ) -> Float[Tensor, "k b"]:
        """V of each estimate, from features."""
        return torch.stack([estimate(now, goal, intent) for estimate in self.estimates])


def goal_target(
    reached: Bool[Tensor, " b"], next_value: Float[Tensor, "*k b"], gamma: float
) -> Float[Tensor, "*k b"]:
    """0 where the frame is the goal, else -1 + gamma * V(s')."""
    return torch.where(reached, 0.0, gamma * next_value - 1.0)


def expectile_loss(
    advantage: Float[Tensor, " b"], error: Float[Tensor, "k b"], expectile: float
) -> Float[Tensor, ""]:
    """Squared errors, weighted `expectile` where the step to s' helps the intention and 1 - `expectile`
    where it does not: mean over the batch, sum over the estimates.
    """
    weight = torch.where(advantage >= 0.0, expectile, 1.0 - expectile)
    return (weight * error.square()).mean(-1).sum()


def value_loss(
    value: VideoValue,
    slow: VideoValue,
    frames: UInt8[Tensor, "rows h w 3"],
    crop: Float[Tensor, "rows 2"],
    at_goal: Bool[Tensor, " b"],
    at_intent: Bool[Tensor, " b"],
    gamma: float,
    expectile: float,
    words: Int64[Tensor, "b m"] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """(loss, logs) of frames in the order of `FrameIndices.order`. slow: the target network.

    words: instructions that are goal and intention in place of the frames; zeros, or None: the frames are.

    The advantage of the step to s' for the intention z, all of the target network, is
    goal_target(s is z, min_k V_k(s', z, z)) - mean_k V_k(s, z, z).
    """
    b = len(at_goal)
    with torch.no_grad():
        now, then, goal, intent = slow.encode(frames, crop).split(b)
        goal, intent = slow.goal_features(goal, words), slow.goal_features(intent, words)
        target = goal_target(at_goal, slow(then, goal, intent), gamma)
        wanted = goal_target(at_intent, slow(then, intent, intent).amin(0), gamma)
        advantage = wanted - slow(now, intent, intent).mean(0)
    now, goal, intent = value.encode(_without_next(frames, b), _without_next(crop, b)).split(b)
    estimate = value(now, value.goal_features(goal, words), value.goal_features(intent, words))
    loss = expectile_loss(advantage, target - estimate, expectile)
    return loss, {
        "video/loss": loss.detach(),
        "video/value": estimate.detach().mean(),
        "video/error": (target - estimate.detach()).abs().mean(),
        "video/helpful": (advantage >= 0.0).float().mean(),
    }


def _without_next(rows: Tensor, b: int) -> Tensor:
    return torch.cat([rows[:b], rows[2 * b :]])


def _initialise(layer: nn.Module) -> None:
    """Weights as in the authors' code. With torch's own, which are smaller, V starts flat and learns late."""
    if isinstance(layer, nn.Linear):
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)


def _two_layers(in_dim: int, width: int) -> nn.Sequential:
    return nn.Sequential(mlp(in_dim, [width], width), nn.ReLU())
