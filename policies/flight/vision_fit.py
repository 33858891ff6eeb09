"""Regression of the camera pose from single images with known poses.

The images come from random poses and from flights in which the student's estimate gets a growing weight. This
is DAgger (Ross et al. 2011) with the pose as the label instead of the action, which a frozen teacher computes
from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.flight.vision import PoseEstimator
from robo_rl.core.shapes import Float, UInt8

_SCALE = (0.3,) * 5  # unit of the pose error: m, and cos and sin of the heading


@dataclass(frozen=True)
class PoseSamples:
    """Single images and the camera poses that they were taken from."""

    frames: UInt8[Tensor, "b h w"]
    tilt: Float[Tensor, "b 3"]  # up vector in body axes, from the inertial unit
    pose: Float[Tensor, "b 5"]  # position [m], cos and sin of the heading


def pose_loss(found: Float[Tensor, "b 5"], truth: Float[Tensor, "b 5"]) -> Tensor:
    """Smooth L1 loss of the pose, which limits the weight of images that show only the floor."""
    scale = found.new_tensor(_SCALE)
    loss: Tensor = F.smooth_l1_loss(found / scale, truth / scale, beta=0.1)
    return loss


def fit_pose_estimator(
    eye: PoseEstimator, shots: list[PoseSamples], updates: int, lr: float, rng: torch.Generator,
    batch: int = 128, on_update: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Train on images drawn uniformly from all `shots`. on_update: called after every update."""
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
        if on_update is not None:
            on_update()


@torch.no_grad()
def pose_errors(eye: PoseEstimator, shots: PoseSamples, batch: int = 512) -> Float[Tensor, " 5"]:
    """Root mean square errors on these images: position [m], cos and sin of the heading."""
    parts = zip(shots.frames.split(batch), shots.tilt.split(batch), shots.pose.split(batch), strict=True)
    squares = [
        (eye(frames.unsqueeze(1).float() / 255.0, tilt) - pose).square() for frames, tilt, pose in parts
    ]
    return torch.cat(squares).mean(0).sqrt()


def _anneal(optimizer: torch.optim.Optimizer, lr: float, done: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * (1.0 - 0.97 * done)
