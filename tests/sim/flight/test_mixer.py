"""The mixer's rotor speeds give the requested wrench, and saturation gives up the right part of it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft, allocation, load_craft
from sim.flight.control.mixer import make_mixer, make_motors
from tests.sim.flight.flown import CF, CRAFTS, DT_S


def given(craft: Craft, speeds: Tensor) -> Tensor:
    """(4, n) thrust and torques of rotors at these speeds."""
    c0, c1, c2 = craft.thrust_n
    return torch.from_numpy(allocation(craft)).float() @ (c0 + speeds * (c1 + c2 * speeds))


def one(*numbers: float) -> tuple[Tensor, ...]:
    return tuple(torch.tensor([number]) for number in numbers)


def wrench(
    thrust_n: float, roll_nm: float, pitch_nm: float, yaw_nm: float
) -> tuple[Tensor, tuple[Tensor, ...]]:
    thrust, *torque = one(thrust_n, roll_nm, pitch_nm, yaw_nm)
    return thrust, tuple(torque)


def test_the_mixer_inverts_the_allocation_by_hand() -> None:
    """cf2x_l2f, arms 28 mm: 0.3 N is 75 mN each; 1.12 mN m of roll is 10 mN more on the left; 0.56 of pitch
    (nose down) is 5 mN more at the back; 4 x 5.964552 mm x 2 mN of yaw is 2 mN from FR and BL to BR and FL.
    Then s = sqrt(t / k).
    """
    speeds = make_mixer(CF)(*wrench(0.3, 1.12e-3, 0.56e-3, 4 * 5.964552e-3 * 2e-3))
    thrusts = torch.tensor([0.058, 0.072, 0.088, 0.082])[:, None]
    torch.testing.assert_close(speeds, (thrusts / 0.148829).sqrt(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CRAFTS)
def test_rotors_give_the_requested_wrench(name: str) -> None:
    """Through each craft's own thrust curve, offset and linear part included."""
    craft = load_craft(name)
    weight_n, arm_m = craft.mass_kg * GRAVITY_M_S2, craft.rotors_m[3][1]
    asked = [1.1 * weight_n, 0.03 * weight_n * arm_m, -0.05 * weight_n * arm_m, 0.02 * weight_n * arm_m * 0.1]
    found = given(craft, make_mixer(craft)(*wrench(*asked)))[:, 0]
    torch.testing.assert_close(found, torch.tensor(asked), rtol=1e-4, atol=1e-5 * weight_n * arm_m)


@pytest.mark.parametrize("name", CRAFTS)
def test_saturation_gives_up_yaw_then_thrust_then_tilt(name: str) -> None:
    """Too much yaw reduces only yaw; too much or too little thrust with a roll reduces only thrust; an
    impossible roll is given as far as possible.
    """
    craft = load_craft(name)
    mix, full_n, arm_m = make_mixer(craft), craft.max_thrust_n, craft.rotors_m[3][1]
    idle_n, yaw_nm = 4.0 * craft.thrust_n[0], full_n * craft.torque_per_thrust_m
    roll_nm = 0.1 * full_n * arm_m
    thrust, roll, pitch, yaw = given(craft, mix(*wrench(0.6 * full_n, roll_nm, 0.0, yaw_nm)))[:, 0].tolist()
    assert (thrust, roll, pitch) == pytest.approx((0.6 * full_n, roll_nm, 0.0), rel=1e-4, abs=1e-4 * roll_nm)
    assert 0.1 * yaw_nm < yaw < 0.5 * yaw_nm
    for asked_n, expected_n in ((2.0 * full_n, 0.9 * full_n), (0.0, idle_n + 0.1 * full_n)):
        thrust, roll, _, yaw = given(craft, mix(*wrench(asked_n, roll_nm, 0.0, yaw_nm)))[:, 0].tolist()
        assert (thrust, roll) == pytest.approx((expected_n, roll_nm), rel=1e-3)
        assert abs(yaw) < 1e-3 * yaw_nm
    speeds = mix(*wrench(0.9 * full_n, 10.0 * full_n * arm_m, 0.0, 0.0))[:, 0]
    torch.testing.assert_close(speeds, torch.tensor([0.0, 0.0, 1.0, 1.0]), rtol=0.0, atol=1e-5)


def test_slow_rotors_give_up_thrust_before_tilt() -> None:
    """At hover with a lag of 0.15 s, full thrust and a roll at once: after a step the rotors have moved as
    far towards the roll as without the thrust, 1 - exp(-dt / 0.02 s); commands clipped one by one would not
    have moved.
    """
    roll_nm = 2e-4
    motors, hover = make_motors(CF, DT_S, 0.02), torch.full((4, 1), CF.hover_speed)
    share = 1.0 - math.exp(-DT_S / CF.rise_s)
    found = {}
    for thrust_n in (CF.mass_kg * GRAVITY_M_S2, CF.max_thrust_n):
        command = motors(*wrench(thrust_n, roll_nm, 0.0, 0.0), hover.unbind(0))
        found[thrust_n] = given(CF, hover + share * (command - hover))[:, 0]
    (_, calm, *_), (_, hurried, *_) = found.values()
    assert calm == pytest.approx(roll_nm * (1.0 - math.exp(-DT_S / 0.02)), rel=0.02)
    assert hurried == pytest.approx(calm.item(), rel=0.1)


def test_rotors_that_cannot_turn_a_craft_are_refused() -> None:
    """Four rotors of equal spin give no yaw, rotors on one side no level flight: the message names the
    entries.
    """
    with pytest.raises(ConfigError, match="yaw_sign"):
        make_mixer(replace(CF, yaw_sign=(1.0, 1.0, 1.0, 1.0)))
    with pytest.raises(ConfigError, match="rotors_m"):
        make_mixer(replace(CF, rotors_m=((0.1, -0.03), (0.05, -0.03), (0.05, 0.03), (0.1, 0.03))))
