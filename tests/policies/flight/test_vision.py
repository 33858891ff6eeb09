"""Camera policies: estimated attitude, used inputs, learning and saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from policies.flight.vision import ESTIMATE, IMAGE, STATE, VisionPolicy, attitude, gained_velocity
from policies.flight.vision_fit import PoseSamples, fit_pose_estimator, pose_errors
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.engines.quad.layout import rotation_matrix

HISTORY, PX = 4, 16
ACTION = ActionSpec((-1.0,) * 4, (1.0,) * 4)
SPEC = EnvSpec(
    "pybullet/vision_hover",
    {IMAGE: ArraySpec((PX, PX, 3), "uint8"), STATE: ArraySpec((19 + HISTORY,))},
    ACTION,
    500,
    100.0,
)


def student(rows: int = 18 + HISTORY) -> VisionPolicy:
    torch.manual_seed(0)
    teacher = FlightPolicy(EnvSpec("quad/hover", {STATE: ArraySpec((rows,))}, ACTION, 500, 100.0), (8,))
    return VisionPolicy(SPEC, teacher, period_s=0.04, apart_s=0.08, width=4, features=8)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-1.4, 1.4), st.floats(-3.0, 3.0))
def test_attitude_from_tilt_and_heading_is_the_rotation_matrix(yaw: float, pitch: float, roll: float) -> None:
    """Any attitude but straight up or down: up vector and heading give all nine numbers."""
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
    """The network normalises an image by mean and contrast: half the brightness gives nearly the same
    features.
    """
    policy, picture = student(), torch.rand(3, 1, PX, PX, generator=torch.Generator().manual_seed(1))
    one, other = policy.eye.net(picture), policy.eye.net(0.5 * picture + 0.2)
    assert (one - other).abs().max() < 0.25 * (one - policy.eye.net(picture.flip(3))).abs().max()


def test_it_is_saved_with_its_teacher(tmp_path: Path) -> None:
    """Another process computes the same actions, and the teacher inside has no trainable parameter."""
    policy = student()
    save_policy(tmp_path / "p", policy, {})
    again = load_policy(tmp_path / "p")
    obs = {
        IMAGE: torch.randint(0, 256, (2, 1, PX, PX, 3), dtype=torch.uint8),
        STATE: torch.randn(2, 1, 19 + HISTORY),
    }
    noise = torch.zeros(2, 1, 4)
    torch.testing.assert_close(policy.sample(obs, noise), again.sample(obs, noise), atol=0.0, rtol=0.0)
    assert not any(p.requires_grad for p in policy.teacher.parameters())
    assert all(p.requires_grad for p in policy.eye.parameters())


def test_a_teacher_with_an_integral_is_refused() -> None:
    """A camera policy has no integral of the error."""
    with pytest.raises(ConfigError, match="without an integral"):
        student(18 + HISTORY + 3)


def test_impossible_times_of_pictures_are_refused() -> None:
    """Images of an observation cannot be closer in time than the camera's period."""
    teacher = student().teacher
    with pytest.raises(ConfigError, match="period_s"):
        VisionPolicy(SPEC, teacher, period_s=0.04, apart_s=0.02)


def test_velocity_from_slope_and_accelerometer() -> None:
    """p = t^3, 160 ms from the oldest image to the newest, 30 ms since: 0.16^3 / 0.16 on average, now 3 *
    0.19^2.
    """
    t_s = (torch.arange(19, dtype=torch.float64) + 0.5) * 0.01
    acceleration = (6.0 * t_s).view(19, 1, 1).expand(19, 2, 3)
    gained = gained_velocity(acceleration, 0.01, 16)
    torch.testing.assert_close(
        gained, torch.full((2, 3), 3 * 0.19**2 - 0.16**2, dtype=torch.float64), atol=1e-4, rtol=0
    )


def test_estimate_from_exact_poses() -> None:
    """With exact poses: 1 m/s east, heading north, 20 ms since the image, 0.5 m/s gained forwards."""
    policy, place = student(), torch.tensor([[0.16], [0.08], [0.0]])  # at the three pictures, newest first
    poses = iter(torch.cat([place, torch.zeros(3, 3), torch.ones(3, 1)], dim=1).split(1))
    policy.eye.pose = lambda features, tilt: next(poses)  # type: ignore[method-assign]
    state = torch.zeros(1, 19 + HISTORY)
    state[:, 2], state[:, -4], state[:, -3] = 1.0, 0.5, 0.5
    found = policy.estimate(torch.zeros(1, 3 * 8), state)
    expected = torch.tensor([[0.16 + 0.02 * 1.0, 0.02 * 0.5, 0.0, 1.0, 0.5, 0.0, 0.0, 1.0]])
    assert found.shape == (1, ESTIMATE)
    torch.testing.assert_close(found, expected)


def test_a_place_is_learned_from_pictures() -> None:
    """A bright spot at the position: the error falls to a fifth of that of a constant estimate."""
    rng = torch.Generator().manual_seed(2)
    place = 0.2 * (2.0 * torch.rand(240, 2, generator=rng) - 1.0)
    axis = torch.linspace(-0.4, 0.4, PX)
    across, down = ((axis - place[:, i : i + 1]).square() / 0.01 for i in (0, 1))
    spot = torch.exp(-across.unsqueeze(1) - down.unsqueeze(2))
    pose = torch.cat([place, torch.zeros(240, 1), torch.ones(240, 1), torch.zeros(240, 1)], dim=1)
    shots, policy = (
        PoseSamples((255 * spot).byte(), torch.tensor([[0.0, 0.0, 1.0]]).expand(240, 3), pose),
        student(),
    )
    fit_pose_estimator(policy.eye, [shots], 150, 5e-3, rng, batch=32)
    assert pose_errors(policy.eye, shots)[:2].max() < place.std() / 5.0
