"""Where am I, learned from single pictures whose poses are known: a plain regression.

The pictures come from scattered poses and from flights in which the student believes itself more and more
(DAgger: Ross et al. 2011, with the pose as the label in place of the action, which a frozen teacher computes
from it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.flight.vision import PoseEstimator
from robo_rl.core.shapes import Float, UInt8

_SCALE = (0.3,) * 5  # a pose error of 1: m, and cos and sin of the heading


@dataclass(frozen=True)
class Shots:
    """Single pictures and the poses that they were taken from."""

    frames: UInt8[Tensor, "b h w"]
    tilt: Float[Tensor, "b 3"]  # what is up in body axes, as the inertial unit says
    pose: Float[Tensor, "b 5"]  # position [m], cos and sin of the heading


def pose_loss(found: Float[Tensor, "b 5"], truth: Float[Tensor, "b 5"]) -> Tensor:
    """Smooth L1 of the error: pictures of nothing but floor must not rule."""
    scale = found.new_tensor(_SCALE)
    loss: Tensor = F.smooth_l1_loss(found / scale, truth / scale, beta=0.1)
    return loss


def fit_eye(
    eye: PoseEstimator, shots: list[Shots], updates: int, lr: float, rng: torch.Generator, batch: int = 128,
    told: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Train on pictures drawn evenly from all `shots`."""
    frames, tilt, pose = (
        torch.cat([getattr(item, name) for item in shots]) for name in ("frames", "tilt", "pose")
    )
    optimizer = torch.optim.Adam(eye.parameters(), lr=lr)
    for step in range(updates):
        _anneal(optimizer, lr, step / updates)
        rows = torch.randint(0, len(frames), (batch,), generator=rng)
        found = eye(frames[rows].unsqueeze(1).float() / 255.0, tilt[rows])
        optimizer.zero_grad(set_to_none=True)
        pose_loss(found, pose[rows]).backward()
        nn.utils.clip_grad_norm_(eye.parameters(), 1.0)
        optimizer.step()
        if told is not None:
            told()


@torch.no_grad()
def pose_errors(eye: PoseEstimator, shots: Shots, batch: int = 512) -> Float[Tensor, " 5"]:
    """Root mean square errors on these pictures: m, and of cos and sin of the heading."""
    parts = zip(shots.frames.split(batch), shots.tilt.split(batch), shots.pose.split(batch), strict=True)
    squares = [
        (eye(frames.unsqueeze(1).float() / 255.0, tilt) - pose).square() for frames, tilt, pose in parts
    ]
    return torch.cat(squares).mean(0).sqrt()


def _anneal(optimizer: torch.optim.Optimizer, lr: float, done: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * (1.0 - 0.97 * done)
