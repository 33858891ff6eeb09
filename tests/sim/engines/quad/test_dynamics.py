"""Flight dynamics: falls, hovers and spins computed by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.engines.quad.craft import GRAVITY_M_S2, Craft, list_crafts, load_craft
from sim.engines.quad.dynamics import QuadPhysics, largest_step_s, make_step
from sim.engines.quad.layout import (
    EXTERNAL_SIZE,
    FORCE,
    POS,
    QUAT,
    RATE,
    ROTOR,
    TORQUE,
    VEL,
    WIND,
    Spread,
    parameters,
    rotation_matrix,
    start,
)

CF = load_craft("cf2x_l2f")


def fly(
    craft: Craft,
    state: Tensor,
    command: Tensor,
    steps: int,
    physics: QuadPhysics,
    external: Tensor | None = None,
) -> Tensor:
    step = make_step(craft, physics)
    params = parameters(craft, physics.dt_s / physics.substeps)
    outside = torch.zeros(EXTERNAL_SIZE, state.shape[1], dtype=state.dtype) if external is None else external
    for _ in range(steps):
        state = step(state, command, params.to(state.dtype), outside)
    return state


def hovering(craft: Craft, num: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    state = start(num).to(dtype)
    state[ROTOR] = craft.hover_speed
    return state


@pytest.mark.parametrize("integrator", ["rk4", "euler"])
def test_free_fall_matches_the_formula(integrator: str) -> None:
    """No thrust, 1 s: z = -g t^2 / 2, exactly for RK4 and to first order in dt for Euler; nothing moves
    sideways.
    """
    craft = replace(load_craft("cf21"), thrust_n=(0.0, 0.0, 0.0922), linear_drag_n_s_m=(0.0, 0.0))
    state = fly(craft, start(3).double(), torch.zeros(4, 3).double(), 100, QuadPhysics(integrator=integrator))
    bound = 1e-6 if integrator == "rk4" else 0.5 * GRAVITY_M_S2 * 0.01 + 1e-6
    assert (state[2] + 0.5 * GRAVITY_M_S2).abs().max() < bound
    assert state[:2].eq(0.0).all()


@pytest.mark.parametrize("name", list_crafts())
def test_every_craft_hovers_at_its_hover_speed(name: str) -> None:
    """Thrust equals weight: after one second nothing has moved."""
    craft = load_craft(name)
    state = fly(
        craft, hovering(craft), torch.full((4, 1), craft.hover_speed, dtype=torch.float64), 100, QuadPhysics()
    )
    assert state[POS].abs().max() < 1e-5
    assert state[RATE].abs().max() < 1e-9


def test_rotors_follow_their_first_order_response_exactly() -> None:
    """cf21 rises with 0.055 s and falls with 0.249 s: 1 - exp(-t / tau) after any number of steps."""
    craft = load_craft("cf21")
    state = start(1).double()
    state[15:17] = 1.0
    command = torch.tensor([[0.8], [0.8], [0.3], [0.3]]).double()
    state = fly(craft, state, command, 7, QuadPhysics(dt_s=0.01))
    assert state[13, 0] == pytest.approx(0.8 * (1.0 - math.exp(-0.07 / 0.055)), rel=1e-6)
    assert state[15, 0] == pytest.approx(0.3 + 0.7 * math.exp(-0.07 / 0.249), rel=1e-6)


@pytest.mark.parametrize(
    ("faster", "row", "sign"),
    [((0, 1), 10, -1), ((2, 3), 10, 1), ((1, 2), 11, 1), ((0, 3), 11, -1), ((1, 3), 12, 1), ((0, 2), 12, -1)],
)
def test_rotors_turn_the_body_the_right_way(faster: tuple[int, int], row: int, sign: int) -> None:
    """FLU: more thrust on the left rolls to the right (+x), at the back pitches the nose down (+y); clockwise
    rotors (back right, front left) push the body counter-clockwise (+z).
    """
    command = torch.full((4, 1), CF.hover_speed, dtype=torch.float64)
    command[list(faster)] += 0.05
    state = fly(CF, hovering(CF), command, 2, QuadPhysics())
    assert state[row, 0] * sign > 0.0
    others = [r for r in (10, 11, 12) if r != row]
    assert state[others].abs().max() < 1e-9


def test_the_integrator_is_of_fourth_order() -> None:
    """Halving dt divides RK4's error by about 16, on a tumbling craft with drag."""
    craft = replace(load_craft("racer5"), rise_s=0.0, fall_s=0.0)
    state = hovering(craft)
    state[RATE] = torch.tensor([[3.0], [-4.0], [2.0]]).double()
    state[VEL] = torch.tensor([[2.0], [1.0], [-1.0]]).double()
    command = torch.tensor([[0.5], [0.52], [0.49], [0.51]]).double()

    def after(steps: int) -> Tensor:
        return fly(craft, state, command, steps, QuadPhysics(dt_s=0.4 / steps))[:13]

    exact = after(640)
    coarse, fine = ((after(n) - exact).norm() for n in (20, 40))
    assert 12.0 < coarse / fine < 20.0


def test_free_rotation_keeps_energy_and_angular_momentum() -> None:
    """Without torque, |J w| in the world and w J w / 2 are constant, also with the rotors' spin; detects a
    wrong sign in w x J w.
    """
    craft = replace(
        CF,
        inertia_kg_m2=(2e-5, 3e-5, 4e-5),
        rotor_inertia_kg_m2=2e-8,
        rise_s=0.0,
        fall_s=0.0,
        yaw_sign=(-1.0, 1.0, -1.0, 1.0),
    )
    state = start(1).double()
    state[RATE] = torch.tensor([[5.0], [0.2], [-3.0]]).double()
    state[ROTOR] = torch.tensor([[0.9], [0.2], [0.9], [0.2]]).double()
    craft = replace(craft, thrust_n=(0.0, 0.0, 1.0), torque_per_thrust_m=1e-12, rotors_m=((1e-9, 0.0),) * 4)
    inertia = torch.tensor(craft.inertia_kg_m2).double()

    def energy(at: Tensor) -> float:
        return float((inertia[:, None] * at[RATE].square()).sum() / 2.0)

    later = fly(craft, state, state[ROTOR].clone(), 500, QuadPhysics(dt_s=0.002))
    assert energy(later) == pytest.approx(energy(state), rel=1e-5)  # parameters are float32
    spin = -craft.rotor_inertia_kg_m2 * craft.max_rpm * 2 * math.pi / 60 * (-0.9 + 0.2 - 0.9 + 0.2)

    def momentum(at: Tensor) -> Tensor:
        body = inertia * at[RATE][:, 0] + torch.tensor([0.0, 0.0, spin]).double()
        return rotation_matrix(at[QUAT])[:, 0].view(3, 3) @ body

    torch.testing.assert_close(momentum(later), momentum(state), rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "rotor", "quadratic"])
def test_drag_dissipates(kind: str) -> None:
    """Drag removes energy in any direction; a peer's drag added energy."""
    changes = {
        "linear": {"linear_drag_n_s_m": (0.02, 0.01)},
        "rotor": {"rotor_drag_n_s2_m": (9e-7, 1e-6)},
        "quadratic": {"quadratic_drag_n_s2_m2": 0.01},
    }[kind]
    state = hovering(CF, 64)
    state[VEL] = torch.randn(3, 64, generator=torch.Generator().manual_seed(0)).double() * 3.0
    command = torch.full((4, 64), CF.hover_speed, dtype=torch.float64)
    plain = fly(CF, state, command, 1, QuadPhysics(dt_s=1e-3))
    dragged = fly(replace(CF, **changes), state, command, 1, QuadPhysics(dt_s=1e-3))
    assert (dragged[VEL].norm(dim=0) < plain[VEL].norm(dim=0)).all()


def test_air_that_moves_with_the_craft_does_not_drag() -> None:
    """Drag acts on the velocity relative to the air."""
    craft = load_craft("cf21")
    state = hovering(craft)
    state[VEL] = torch.tensor([[2.0], [0.0], [0.0]]).double()
    external = torch.zeros(EXTERNAL_SIZE, 1).double()
    external[WIND] = state[VEL]
    command = torch.full((4, 1), craft.hover_speed, dtype=torch.float64)
    after = fly(craft, state, command, 10, QuadPhysics(wind=True), external)
    assert after[7, 0] == pytest.approx(2.0, abs=1e-9)
    assert fly(craft, state, command, 10, QuadPhysics())[7, 0] < 1.96


def test_external_force_and_torque() -> None:
    """0.01 N for 1 s on 27 g is 0.3704 m/s; 1e-7 N m on Jzz turns it at 1e-7 t / Jzz."""
    external = torch.zeros(EXTERNAL_SIZE, 1).double()
    external[FORCE.start], external[TORQUE.stop - 1] = 0.01, 1e-7
    command = torch.full((4, 1), CF.hover_speed, dtype=torch.float64)
    after = fly(CF, hovering(CF), command, 100, QuadPhysics(), external)
    assert after[7, 0] == pytest.approx(0.01 / 0.027, rel=1e-6)
    assert after[12, 0] == pytest.approx(1e-7 / 5.97e-6, rel=1e-6)


def test_the_ground_carries_and_lifts() -> None:
    """Rotors stopped, a craft falls to the floor and stays; near the floor the same speed gives more
    thrust.
    """
    craft = load_craft("cf21")
    state = start(1).double()
    state[2], state[7] = 0.5, 1.0
    down = fly(craft, state, torch.zeros(4, 1).double(), 200, QuadPhysics(ground=True))
    assert down[2, 0] == 0.0
    assert down[VEL].abs().max() < 0.1
    low, floor, high = hovering(craft), hovering(craft), hovering(craft)
    low[2], floor[2], high[2] = 0.05, 0.0, 2.0
    command = torch.full((4, 1), craft.hover_speed, dtype=torch.float64)
    gain = [
        float(fly(craft, s, command, 1, QuadPhysics(ground_effect=True))[9, 0]) for s in (low, floor, high)
    ]
    ratio = 1.0 + 11.36859 * (0.0231348 / (4 * 0.05)) ** 2
    assert gain[0] == pytest.approx((ratio - 1.0) * GRAVITY_M_S2 * 0.01, rel=2e-2)
    assert gain[1] == pytest.approx(4.0 / 15.0 * GRAVITY_M_S2 * 0.01, rel=2e-2)  # as in PyBullet
    assert gain[2] == pytest.approx(0.0, abs=1e-4)


def test_euler_with_substeps_comes_close_to_rk4() -> None:
    """Four semi-implicit substeps stay within 1 mm of RK4 over a 0.5 s manoeuvre."""
    command = torch.tensor([[0.70], [0.68], [0.66], [0.67]]).double()
    ends = [
        fly(CF, hovering(CF), command, 25, QuadPhysics(dt_s=0.005, integrator=integrator, substeps=substeps))
        for integrator, substeps in (("rk4", 1), ("euler", 4))
    ]
    assert (ends[0][POS] - ends[1][POS]).norm() < 1e-3


def test_randomised_craft_flies_with_its_parameters() -> None:
    """A drone 10 % heavier falls short of hovering by exactly its extra weight."""
    unit = torch.zeros(9, 2)
    unit[0, 1] = 1.0
    params = parameters(CF, 0.01, 2, Spread(mass=0.1), unit)
    assert (1.0 / params[0]).tolist() == pytest.approx([0.027, 0.0297])
    state = make_step(CF, QuadPhysics())(
        hovering(CF, 2, torch.float32),
        torch.full((4, 2), CF.hover_speed),
        params,
        torch.zeros(EXTERNAL_SIZE, 2),
    )
    assert state[9, 1] == pytest.approx((1 / 1.1 - 1) * GRAVITY_M_S2 * 0.01, rel=1e-3)


@pytest.mark.parametrize("name", list_crafts())
def test_a_randomised_body_can_exist(name: str) -> None:
    """No moment of inertia exceeds the sum of the other two; each differs by up to 20 % from the craft's."""
    craft, own = load_craft(name), torch.tensor(load_craft(name).inertia_kg_m2)
    unit = torch.rand(9, 2000, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0
    unit[:, 0], unit[:, 1] = 0.0, 1.0
    inertia = 1.0 / parameters(craft, 0.01, 2000, Spread(inertia=0.2), unit)[1:4]
    most = inertia.amax(0)
    assert (most <= 1.001 * (inertia.sum(0) - most)).all()
    change = inertia / own.unsqueeze(1)
    assert change.min() >= 0.8 - 1e-5
    assert change.max() <= 1.2 + 1e-3
    torch.testing.assert_close(change[:, 0:2], torch.tensor([[1.0, 1.2]]).expand(3, 2), rtol=0.0, atol=1e-3)


@pytest.mark.parametrize(
    "drag",
    [
        {"linear_drag_n_s_m": (0.02, 0.02)},
        {"rotor_drag_n_s2_m": (1e-6, 1e-6)},
        {"quadratic_drag_n_s2_m2": 0.01},
    ],
)
def test_every_drag_is_randomised(drag: dict[str, Any]) -> None:
    """A drone with 20 % more drag brakes 20 % harder, whatever the kind of drag."""
    craft, unit, state = replace(CF, **drag), torch.zeros(9, 2), hovering(CF, 2, torch.float32)
    unit[7:9, 1], state[7] = 1.0, 2.0
    params = parameters(craft, 0.001, 2, Spread(drag=0.2), unit)
    step = make_step(craft, QuadPhysics(dt_s=0.001))
    after = step(state, torch.full((4, 2), CF.hover_speed), params, torch.zeros(EXTERNAL_SIZE, 2))
    braked = 2.0 - after[7]
    assert float(braked[1] / braked[0]) == pytest.approx(1.2, rel=2e-3)


def test_every_craft_can_be_randomised() -> None:
    """Also for drones whose rotors have no lag."""
    for name in list_crafts():
        assert parameters(
            load_craft(name), 0.01, 5, Spread(0.1, 0.1, 0.1, 0.1, 0.1), torch.zeros(9, 5)
        ).shape == (
            12,
            5,
        )


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mass_kg": -1.0}, "mass_kg = -1"),
        ({"mass_kg": 0.1}, "cannot take off"),
        ({"inertia_kg_m2": (1e-5, 1e-5, 9e-5)}, "no body"),
        ({"rise_s": 5.0}, "rise_s = 5"),
        ({"torque_per_thrust_m": float("nan")}, "torque_per_thrust_m"),
        ({"thrust_n": (0.3, 0.0, -0.1)}, "must rise"),
        ({"downwash": (1.0,)}, "downwash of craft 'cf2x_l2f' has 1 values, expected 3"),
        ({"rotors_m": ((0.1, 0.1),) * 3}, "has 3 rotors"),
    ],
)
def test_impossible_crafts_are_refused(changes: dict[str, object], words: str) -> None:
    """The message names the value and its bound."""
    with pytest.raises(ConfigError, match=words):
        load_craft("cf2x_l2f", **changes)


@pytest.mark.parametrize("text", ["just words", "mass_kg: [1, 2", "mass_kg: heavy", ""])
def test_files_that_are_no_craft_are_refused(text: str, tmp_path: Path) -> None:
    """Not YAML, not a mapping, not numbers, empty: the message names the file, and one to compare with."""
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(ConfigError, match=r"mine\.yaml does not describe a craft"):
        load_craft(str(tmp_path / "mine.yaml"))


def test_unknown_crafts_and_unstable_steps_are_refused() -> None:
    """A mistyped name gets the nearest one; a step that is too long, the longest valid one."""
    with pytest.raises(UnknownNameError, match="cf21"):
        load_craft("cf12")
    bound = largest_step_s(CF)
    make_step(CF, QuadPhysics(dt_s=bound * 0.99))
    with pytest.raises(ConfigError, match="dt_s"):
        make_step(CF, QuadPhysics(dt_s=bound * 1.01))
    with pytest.raises(ConfigError, match="integrator"):
        make_step(CF, QuadPhysics(integrator="rk5"))
