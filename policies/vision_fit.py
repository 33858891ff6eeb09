"""Where am I, learned from pictures whose poses are known: first single pictures, then three of them with the sensors.

Both are plain regressions on what closed-loop flights recorded (DAgger: Ross et al. 2011, with the state as the label
in place of the action, which a frozen teacher computes from it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor, nn

from policies.vision import FRAMES, VisionPolicy

APART = 2  # pictures between two channels of an image, as in sim/engines/bullet/vision.py
_SCALE = (0.3,) * 3 + (0.3,) * 3 + (0.3,) * 2  # a pose error of 1: m, m/s, and cos and sin of the heading
Told = Callable[[], None]


@dataclass(frozen=True)
class Flown:
    """Recorded flights of one round; f pictures, one every `every` of t steps, n drones."""

    frames: UInt8[Tensor, "f n h w"]
    frame_tilt: Float[Tensor, "f n 3"]
    frame_truth: Float[Tensor, "f n 8"]
    frame_flying: Bool[Tensor, "f n"]
    state: Float[Tensor, "t n s"]
    truth: Float[Tensor, "t n 8"]
    flying: Bool[Tensor, "t n"]
    every: int


class PoseHead(nn.Module):
    """Position and heading from one picture and the tilt at which it was taken: what teaches the frame network."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(features + 3, 64), nn.Tanh(), nn.Linear(64, 5))

    def forward(self, frames: Float[Tensor, "b f"], tilt: Float[Tensor, "b 3"]) -> Float[Tensor, "b 5"]:
        out: Tensor = self.layers(torch.cat([frames, tilt], dim=1))
        return out


def pose_loss(found: Float[Tensor, "b k"], truth: Float[Tensor, "b k"], scale: tuple[float, ...]) -> Tensor:
    """Smooth L1 of the error in units of `scale`: pictures of nothing but floor must not rule."""
    loss: Tensor = F.smooth_l1_loss(found / found.new_tensor(scale), truth / truth.new_tensor(scale), beta=0.1)
    return loss


def fit_frames(
    policy: VisionPolicy, pose: PoseHead, rounds: list[Flown], epochs: int, lr: float, rng: torch.Generator,
    batch: int = 128, told: Told | None = None,
) -> float:  # fmt: skip
    """Train the frame network on single pictures of all rounds. Returns the last epoch's mean loss."""
    frames, tilt, truth = (
        torch.cat([getattr(item, name)[item.frame_flying] for item in rounds])
        for name in ("frames", "frame_tilt", "frame_truth")
    )
    label = truth[:, [0, 1, 2, 6, 7]]
    learned = [*policy.net.parameters(), *pose.parameters()]
    optimizer = torch.optim.Adam(learned, lr=lr)
    steps = max(1, epochs * len(frames) // batch)
    losses: list[float] = []
    for step in range(steps):
        _anneal(optimizer, lr, step / steps)
        rows = torch.randint(0, len(frames), (batch,), generator=rng)
        seen = policy.net(frames[rows].unsqueeze(1).float() / 255.0)
        loss = pose_loss(pose(seen, tilt[rows]), label[rows], _SCALE[:3] + _SCALE[6:])
        losses.append(_step(loss, optimizer, learned))
        if told is not None:
            told()
    return fmean(losses[-50:])


@torch.no_grad()
def features_of(policy: VisionPolicy, item: Flown, batch: int = 512) -> Float[Tensor, "f n k"]:
    """What the frame network makes of every picture."""
    flat = item.frames.flatten(0, 1)
    parts = [policy.net(part.unsqueeze(1).float() / 255.0) for part in flat.split(batch)]
    return torch.cat(parts).view(*item.frames.shape[:2], -1)


def windows(seen: Float[Tensor, "f n k"], item: Flown) -> tuple[Tensor, Tensor, Tensor]:
    """(features of the pictures of every step side by side, state, truth), of those that fly, a row each."""
    newest = torch.arange(len(item.state)) // item.every
    ages = [(newest - APART * i).clamp(min=0) for i in range(FRAMES)]
    side_by_side = torch.cat([seen[age] for age in ages], dim=2)
    return side_by_side[item.flying], item.state[item.flying], item.truth[item.flying]


def fit_head(
    policy: VisionPolicy, rounds: list[Flown], updates: int, lr: float, rng: torch.Generator, batch: int = 256,
    told: Told | None = None,
) -> Float[Tensor, " 8"]:  # fmt: skip
    """Train the head on all steps of all rounds. Returns the root mean square errors of the last updates."""
    parts = [windows(features_of(policy, item), item) for item in rounds]
    frames, state, truth = (torch.cat(column) for column in zip(*parts, strict=True))
    optimizer = torch.optim.Adam(policy.head.parameters(), lr=lr)
    learned, squares = list(policy.head.parameters()), []
    for step in range(updates):
        _anneal(optimizer, lr, step / updates)
        rows: Int64[Tensor, " b"] = torch.randint(0, len(frames), (batch,), generator=rng)
        found = policy.estimate(frames[rows], state[rows])
        _step(pose_loss(found, truth[rows], _SCALE), optimizer, learned)
        squares.append((found.detach() - truth[rows]).square().mean(0))
        if told is not None:
            told()
    return torch.stack(squares[-50:]).mean(0).sqrt()


def _anneal(optimizer: torch.optim.Optimizer, lr: float, done: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = lr * (1.0 - 0.97 * done)


def _step(loss: Tensor, optimizer: torch.optim.Optimizer, learned: list[nn.Parameter]) -> float:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(learned, 1.0)
    optimizer.step()
    return float(loss.detach())
