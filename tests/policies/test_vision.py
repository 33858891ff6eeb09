"""A policy that sees: the attitude it believes in, what of its input matters, and that it can be learned and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.checkpoint import load_policy, save_policy
from policies.flight import FlightPolicy
from policies.vision import IMAGE, STATE, VisionPolicy, attitude
from policies.vision_fit import Flown, PoseHead, features_of, fit_frames, fit_head, windows
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.engines.quad.rows import rotation_matrix

HISTORY, PX = 4, 16
ACTION = ActionSpec((-1.0,) * 4, (1.0,) * 4)
SPEC = EnvSpec(
    "pybullet/vision_hover",
    {IMAGE: ArraySpec((PX, PX, 3), "uint8"), STATE: ArraySpec((16 + HISTORY,))},
    ACTION,
    500,
    100.0,
)


def student(rows: int = 18 + HISTORY) -> VisionPolicy:
    torch.manual_seed(0)
    teacher = FlightPolicy(EnvSpec("quad/hover", {STATE: ArraySpec((rows,))}, ACTION, 500, 100.0), (8,))
    return VisionPolicy(SPEC, teacher, width=4, features=8, hidden=16)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-1.4, 1.4), st.floats(-3.0, 3.0))
def test_attitude_from_tilt_and_heading_is_the_rotation_matrix(yaw: float, pitch: float, roll: float) -> None:
    """Any attitude but straight up or down: the last row and the heading of its first column give all nine numbers."""
    halves = torch.tensor([[yaw], [pitch], [roll]], dtype=torch.float64) / 2.0
    (cy, cp, cr), (sy, sp, sr) = halves.cos(), halves.sin()
    quat = torch.stack([
        cr * cp * cy + sr * sp * sy, sr * cp * cy - cr * sp * sy,
        cr * sp * cy + sr * cp * sy, cr * cp * sy - sr * sp * cy,
    ])  # fmt: skip
    matrix = rotation_matrix(quat).T
    found = attitude(2.0 * matrix[:, 6:9], 0.7 * matrix[:, [0, 3]])  # lengths do not matter
    torch.testing.assert_close(found, matrix, atol=1e-5, rtol=0.0)


def test_brightness_and_contrast_change_little() -> None:
    """The frame network sees a picture less its mean, over its spread: half as bright is nearly the same."""
    policy, picture = student(), torch.rand(3, 1, PX, PX, generator=torch.Generator().manual_seed(1))
    one, other = policy.net(picture), policy.net(0.5 * picture + 0.2)
    assert (one - other).abs().max() < 0.25 * (one - policy.net(picture.flip(3))).abs().max()


def test_it_is_saved_with_its_teacher(tmp_path: Path) -> None:
    """Another process gets the same actions, and the teacher inside is no trainable part."""
    policy = student()
    save_policy(tmp_path / "p", policy, {})
    again = load_policy(tmp_path / "p")
    obs = {
        IMAGE: torch.randint(0, 256, (2, 1, PX, PX, 3), dtype=torch.uint8),
        STATE: torch.randn(2, 1, 16 + HISTORY),
    }
    noise = torch.zeros(2, 1, 4)
    torch.testing.assert_close(policy.sample(obs, noise), again.sample(obs, noise), atol=0.0, rtol=0.0)
    assert not any(p.requires_grad for p in policy.teacher.parameters())
    assert all(p.requires_grad for p in policy.net.parameters())


def test_a_teacher_with_an_integral_is_refused() -> None:
    """Its three more numbers would have to come from somewhere."""
    with pytest.raises(ConfigError, match="no integral"):
        student(18 + HISTORY + 3)


def recorded(pictures: int = 60, num: int = 4) -> Flown:
    """A bright spot whose place is the position, and two steps per picture."""
    rng = torch.Generator().manual_seed(2)
    place = 0.2 * (2.0 * torch.rand(pictures, num, 2, generator=rng) - 1.0)
    axis = torch.linspace(-0.4, 0.4, PX)
    across, down = ((axis - place[..., i : i + 1]).square() / 0.01 for i in (0, 1))
    spot = torch.exp(-across.unsqueeze(2) - down.unsqueeze(3))
    truth = torch.zeros(pictures, num, 8)
    truth[..., :2], truth[..., 6] = place, 1.0
    up = torch.zeros(pictures, num, 3)
    up[..., 2] = 1.0
    flying, double = torch.ones(pictures, num, dtype=torch.bool), truth.repeat_interleave(2, 0)
    state = torch.zeros(2 * pictures, num, 16 + HISTORY)
    return Flown((255 * spot).byte(), up, truth, flying, state, double, flying.repeat_interleave(2, 0), every=2)


def test_windows_hold_the_picture_of_now_and_two_older_ones() -> None:
    """Step 13 of two steps per picture: pictures 6, 4 and 2; before the first one, the first."""
    item = recorded()
    numbers = torch.arange(60.0).view(60, 1, 1).expand(60, 4, 1)
    frames, _, _ = windows(numbers, item)
    frames = frames.view(120, 4, 3)
    assert frames[13, 0].tolist() == [6.0, 4.0, 2.0]
    assert frames[1, 0].tolist() == [0.0, 0.0, 0.0]


def test_a_place_is_learned_from_pictures() -> None:
    """After both fits the error is a third of what guessing the middle costs."""
    policy, item = student(), recorded()
    rng = torch.Generator().manual_seed(0)
    fit_frames(policy, PoseHead(8), [item], 60, 5e-3, rng, batch=32)
    fit_head(policy, [item], 300, 5e-3, rng, batch=64)
    frames, state, truth = windows(features_of(policy, item), item)
    with torch.no_grad():
        error = (policy.estimate(frames, state)[:, :2] - truth[:, :2]).square().mean().sqrt()
    assert error < truth[:, :2].std() / 3.0
