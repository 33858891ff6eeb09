"""The camera under the craft: geometry, rate, and observations of the policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from policies.flight.vision import AGE, GAINED, turned
from robo_rl.core.errors import ConfigError
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera, FloorView, exposed, markers
from sim.engines.bullet.motion import quaternion, rotation
from sim.engines.bullet.scatter import poses, scattered
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import start
from sim.flight.bullet import vision
from sim.flight.bullet.vision import Record, VisionFlights, steps_per_picture, truth, vision_spec
from sim.tasks.flight.hover import HoverTask

pytest.importorskip("pybullet")

CRAFT = load_craft("cf2x_l2f")
EYE = FloorCamera(px=32)
TASK = replace(HoverTask(), start_tilt_rad=0.3, start_speed_m_s=0.3)


def look(view: FloorView, place: tuple[float, float, float], euler: tuple[float, float, float]) -> np.ndarray:
    turn = rotation(quaternion(np.array(euler)[:, None]))
    return view.look(np.array(place)[:, None], turn, np.ones(1, dtype=bool))[0].astype(float)


def test_the_picture_turns_and_shifts_with_the_craft() -> None:
    """Rotated by 180 degrees the image is upside down; 10.5 cm ahead, 1 m up, 6 pixels down."""
    view = FloorView(FloorCamera(px=96), floor_m=-1.0)
    here = look(view, (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert here.std() > 20.0
    around = look(view, (0.0, 0.0, 0.0), (0.0, 0.0, np.pi))
    assert np.abs(around[::-1, ::-1] - here).mean() < 0.4 * np.abs(around - here).mean()
    ahead = look(view, (0.105, 0.0, 0.0), (0.0, 0.0, 0.0))
    assert np.abs(ahead[6:] - here[:-6]).mean() < 0.5 * np.abs(ahead - here).mean()
    assert look(view, (0.0, 0.0, 0.0), (np.pi, 0.0, 0.0)).std() < 1.0  # on its back it sees sky
    view.close()


def test_ended_flight_has_no_picture() -> None:
    """Rendering costs time: the image of the second craft is black."""
    view = FloorView(EYE, floor_m=-1.0)
    turn = rotation(quaternion(np.zeros((3, 2))))
    seen = view.look(np.zeros((3, 2)), turn, np.array([True, False]))
    assert seen[0].max() > 0
    assert seen[1].max() == 0
    view.close()
    with pytest.raises(ConfigError, match="px = 8"):
        FloorView(FloorCamera(px=8), -1.0)


def test_the_floor_is_always_the_same_and_the_camera_is_not() -> None:
    """A map by its seed; gain 1.2 makes 100 to 120, and nothing passes 255."""
    one, two = markers(EYE), markers(EYE)
    assert len(one) == EYE.markers + 1
    assert all((a[0] == b[0]).all() and a[2:] == b[2:] for a, b in zip(one, two, strict=True))
    picture = np.full((2, 4, 4), 100, np.uint8)
    picture[1] = 250
    taken = exposed(picture, np.array([1.2, 1.2]), 0.0, np.random.default_rng(0))
    assert (taken[0] == 120).all()
    assert (taken[1] == 255).all()


def test_pictures_come_at_their_own_rate() -> None:
    """25 Hz at 100 Hz control: every fourth step; channels are now, two and four images ago; age counts up
    between.
    """
    flights = VisionFlights(CRAFT, TASK, 2, 3, 0, AirEffects(), EYE, 25.0)
    flights.record = Record()
    ages = []
    hover = torch.full((4, 3), 2.0 * CRAFT.hover_speed - 1.0)
    for _ in range(18):
        flights.look()
        ages.append(float(flights.state()[0, AGE]))
        flights.flights.advance(hover)
    assert ages[:6] == [0.0, 0.25, 0.5, 0.75, 0.0, 0.25]
    record, image = flights.record, flights.image().numpy()
    assert len(record.frames) == 5
    for channel, index in enumerate((4, 2, 0)):
        assert (image[..., channel] == record.frames[index]).all()
    spec = vision_spec(TASK, 2, EYE, 25.0, "pybullet/vision_hover")
    assert flights.image().shape[1:] == spec.obs["image.down"].shape
    assert flights.state().shape[1:] == spec.obs["state"].shape
    assert flights.pictures == 15 + 4 * 3  # and four each from before the start
    flights.close()


def test_velocity_from_true_positions_and_accelerations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A craft that sinks and drifts, from a start at 0.3 m/s: within 3 cm/s after half a second."""
    monkeypatch.setattr(vision, "ACCELEROMETER_STD_M_S2", 0.0)
    monkeypatch.setattr(vision, "ACCELEROMETER_BIAS_M_S2", 0.0)
    flights = VisionFlights(CRAFT, replace(TASK, start_rate_rad_s=0.0), 2, 3, 0, AirEffects(), EYE, 25.0)
    places = []
    for step in range(32):
        flights.look()
        now = truth(flights.flights.state)
        if flights.fresh:
            places.append(now[:, :3])
        if step >= 16:
            slope = (places[-1] - places[-5]) / 0.16
            found = slope + turned(flights.state()[:, GAINED], now[:, 6:8])
            assert (found - now[:, 3:6]).abs().max() < 0.03
        flights.flights.advance(torch.full((4, 3), 0.8 * (2.0 * CRAFT.hover_speed - 1.0)))
    flights.close()


def test_scattered_poses_are_rotations_and_lie_in_the_box() -> None:
    """Half within a few decimetres of the goal; labels are those poses, and every image has content."""
    rng = np.random.default_rng(0)
    position, turn = poses(400, 0.6, 0.5, rng)
    eye = np.broadcast_to(np.eye(3)[:, :, None], turn.shape)
    np.testing.assert_allclose(np.einsum("ijn,kjn->ikn", turn, turn), eye, atol=1e-12)
    assert (np.arccos(turn[2, 2]) < 0.8).all()
    assert np.abs(position).max() <= 0.6
    assert 0.35 < (np.linalg.norm(position, axis=0) < 0.25).mean() < 0.65
    frames, up, pose = scattered(EYE, -1.0, 30, 0.6, 0.5, np.random.default_rng(0))
    again = poses(30, 0.6, 0.5, np.random.default_rng(0))
    assert frames.shape == (30, 32, 32)
    assert (frames.float().std((1, 2)) > 5.0).all()
    np.testing.assert_allclose(pose[:, :3].T, again[0], atol=1e-6)
    np.testing.assert_allclose(up.T, again[1][2], atol=1e-6)


def test_truth_by_hand() -> None:
    """Turned by 90 degrees about the vertical: heading (0, 1)."""
    state = start(1)
    state[0:3], state[7:10] = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[4.0], [5.0], [6.0]])
    state[3], state[6] = 0.5**0.5, 0.5**0.5
    expected = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, 1.0]])
    torch.testing.assert_close(truth(state), expected, atol=1e-6, rtol=0.0)


@pytest.mark.parametrize(("rate", "steps"), [(25.0, 4), (33.3, 3), (50.0, 2), (100.0, 1)])
def test_rates_are_whole_control_steps(rate: float, steps: int) -> None:
    """Others are refused with a list of valid ones."""
    assert steps_per_picture(rate, 0.01) == steps
    with pytest.raises(ConfigError, match="whole number of control"):
        steps_per_picture(30.0, 0.01)
