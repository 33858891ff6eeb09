"""Ground effect, downwash and rotor drag by numbers computed by hand, alone and acting on a drone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engines.bullet.effects import (
    AirEffects,
    borrowed,
    downwash_among,
    downwash_n,
    downwash_world_n,
    equipped,
    ground_gain,
)
from sim.engines.bullet.motion import euler_angles, quaternion, rotation
from sim.engines.bullet.step import BulletStep
from sim.engines.quad.craft import GRAVITY_M_S2, load_craft
from sim.engines.quad.downwash import downwash
from sim.engines.quad.dynamics import QuadPhysics
from sim.engines.quad.layout import FORCE, POS, QUAT, ROTOR, VEL, parameters, rotation_matrix, start

GYM = load_craft("cf2x_gym")


def test_ground_gain_by_hand() -> None:
    """5 cm: r / 4h = 0.0231348 / 0.2 = 0.115674, squared 0.0133805, times 11.36859: 15.21 % more thrust."""
    gains = ground_gain(GYM, np.array([0.05, 0.0, 10.0]))
    np.testing.assert_allclose(gains, [1.152117, 1.0 + 4.0 / 15.0, 1.0], atol=5e-6)


def test_downwash_by_hand() -> None:
    """1 m below: 2267.18 (0.0231348 / 4)^2 = 0.07584 N; 5 cm aside is one width (0.16 - 0.11 m): exp(-1/2) of
    it.
    """
    above = np.array([1.0, 1.0, 2.0, -1.0, 1.0])
    aside = np.array([0.0, 0.05, 0.0, 0.0, 10.5])
    expected = [0.0758399, 0.0758399 * np.exp(-0.5), 0.0758399 / 4.0, 0.0, 0.0]
    np.testing.assert_allclose(downwash_n(GYM, above, aside), expected, rtol=1e-5)
    close = downwash_n(GYM, np.array([1e-9, 0.1, 0.6875]), np.zeros(3))
    assert np.isfinite(close).all()
    assert close.max() == pytest.approx(0.027 * GRAVITY_M_S2)  # no more than a craft weighs


def test_downwash_is_felt_within_an_arena_only() -> None:
    """Two worlds of two: only the lower drone of the first is pushed."""
    position = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0], [1.0, 2.0, 1.0, 1.5]])
    np.testing.assert_allclose(downwash_among(GYM, position, 2), [0.0758399, 0.0, 0.0, 0.0], atol=1e-7)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_downwash_is_that_of_the_quad_engine(seed: int) -> None:
    """Two worlds of three, moved and rotated at random: the same force on each, up to rounding."""
    rng = np.random.default_rng(seed)
    position, quat = rng.uniform(-0.5, 1.5, (3, 6)), rng.normal(size=(4, 6))
    quat /= np.linalg.norm(quat, axis=0)
    state = start(6).double()
    state[POS], state[QUAT] = torch.from_numpy(position), torch.from_numpy(quat)
    force = downwash_world_n(downwash_among(GYM, position, 3), rotation(quat))
    np.testing.assert_allclose(force, downwash(state, 3, GYM)[FORCE].numpy(), atol=1e-9)


@pytest.mark.pybullet
def test_downwash_pushes_along_the_body_of_the_lower_craft() -> None:
    """Rolled by 90 degrees its body z axis lies along -y, so the push is along +y, and it falls freely."""
    step = BulletStep(
        GYM, QuadPhysics(dt_s=0.004, substeps=1), 2, AirEffects(effects=("downwash",)), per_arena=2
    )
    state = start(2)
    state[POS] = torch.tensor([[0.0, 0.0], [0.0, 0.0], [2.0, 1.0]])
    state[QUAT] = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5**0.5, 0.5**0.5, 0.0, 0.0]]).T
    after = step(state, torch.zeros(4, 2), parameters(GYM, 0.004), torch.zeros(9, 2))
    gained_n = (after - state)[VEL][:, 1] * GYM.mass_kg / 0.004
    np.testing.assert_allclose(gained_n, [0.0, 0.0758399, -GYM.mass_kg * GRAVITY_M_S2], atol=1e-5)


@pytest.mark.pybullet
@pytest.mark.parametrize(
    ("scene", "gained_n"),
    [
        (AirEffects(effects=("ground",), height_m=0.05), 0.152117 * 0.027 * GRAVITY_M_S2),
        (AirEffects(effects=("downwash",), above_m=1.0), -0.0758399),
        (AirEffects(effects=(), height_m=0.05, above_m=1.0), 0.0),
    ],
)
def test_a_hovering_drone_feels_it(scene: AirEffects, gained_n: float) -> None:
    """One sub-step from hovering: m dv / dt is the force of the formula, in a drone that borrows the
    coefficients.
    """
    craft = load_craft("cf2x_l2f")
    step = BulletStep(craft, QuadPhysics(dt_s=0.004, substeps=1), 1, scene)
    state = start(1)
    state[ROTOR] = craft.hover_speed
    after = step(state, torch.full((4, 1), craft.hover_speed), parameters(craft, 0.004), torch.zeros(9, 1))
    assert 0.027 * float(after[9]) / 0.004 == pytest.approx(gained_n, abs=2e-6)


@pytest.mark.pybullet
def test_rotor_drag_by_hand() -> None:
    """1 m/s along x, level, hovering: 9.1785e-7 times the sum of four rotor speeds in rad/s, against the
    motion.
    """
    craft = load_craft("cf2x_l2f")
    step = BulletStep(craft, QuadPhysics(dt_s=0.004, substeps=1), 1, AirEffects(effects=("drag",)))
    state = start(1)
    state[ROTOR], state[7] = craft.hover_speed, 1.0
    after = step(state, torch.full((4, 1), craft.hover_speed), parameters(craft, 0.004), torch.zeros(9, 1))
    rad_s = 4.0 * craft.hover_speed * 21702.0 * 2.0 * np.pi / 60.0
    assert 0.027 * (float(after[7]) - 1.0) / 0.004 == pytest.approx(-9.1785e-7 * rad_s, rel=1e-3)


def test_missing_coefficients_come_from_aero() -> None:
    """cf2x_gym has all effects; cf21 has its own fitted drag; cf2x_l2f has none."""
    scene = AirEffects()
    assert borrowed(GYM, scene) == {}
    assert borrowed(load_craft("cf21"), scene) == {}
    bare = load_craft("cf2x_l2f")
    assert set(borrowed(bare, scene)) == {"prop_radius_m", "ground_effect", "downwash", "rotor_drag_n_s2_m"}
    assert set(borrowed(bare, replace(scene, effects=("drag",)))) == {"rotor_drag_n_s2_m"}
    assert equipped(bare, replace(scene, effects=())) == bare


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-1.0, 1.0), min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 0.1))
def test_rotations_agree_with_quad(numbers: list[float]) -> None:
    """The product form equals the matrix in the policy's observation."""
    quat = np.array(numbers)[:, None] / np.linalg.norm(numbers)
    expected = rotation_matrix(torch.from_numpy(quat)).numpy()
    np.testing.assert_allclose(rotation(quat).reshape(9, 1), expected, atol=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3.0, 3.0), st.floats(-1.5, 1.5), st.floats(-3.0, 3.0))
def test_angles_and_quaternions_are_inverses(roll: float, pitch: float, yaw: float) -> None:
    """Away from the poles."""
    angles = np.array([[roll], [pitch], [yaw]])
    np.testing.assert_allclose(euler_angles(quaternion(angles)), angles, atol=1e-7)
