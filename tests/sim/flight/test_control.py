"""Flight controllers: flights reach and hold their goal, and commands stay within their limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.compile.kernels import compile_kernel
from sim.engines.quad.craft import GRAVITY_M_S2, Craft, list_crafts, load_craft
from sim.engines.quad.dynamics import QuadPhysics, make_step
from sim.engines.quad.layout import EXTERNAL_SIZE, FORCE, POS, QUAT, RATE, ROTOR, VEL, parameters, start
from sim.flight.control.controllers import CONTROLLERS, Controller, hold, make_controller
from sim.flight.control.gains import gains_for
from sim.flight.control.levels import LEVELS, Ranges, make_level
from sim.flight.control.lqr import linearise, lqr_gain
from tests.sim.flight.flown import CF, CRAFTS, DT_S, act, action_for, anywhere, disturbed, fly, hovering

NAMES = tuple(CONTROLLERS)


@pytest.mark.parametrize("name", CRAFTS)
def test_every_controller_comes_back_and_stays(name: str) -> None:
    """0.3 m, 20 degrees, 0.5 m/s and up to a radian of yaw away, in 16 directions: reached within 4 s and
    held. No controller needs a smaller start, LQR included; gains are those computed for the craft.
    """
    craft = load_craft(name)
    yaw_rad = torch.linspace(-1.0, 1.0, 16)
    goal = hold(torch.zeros(3, 16), yaw_rad)[None].expand(400, -1, -1)
    seen = fly(craft, [make_controller(c, craft, DT_S) for c in NAMES], disturbed(craft, 16), 400, goal)
    for controller, last in zip(NAMES, seen[-50:].unbind(1), strict=True):
        worst_m = last[:, POS].norm(dim=1).max()
        assert worst_m < 0.02, f"{controller} flies {name} to {worst_m:.3f} m only"
        assert last[:, VEL].norm(dim=1).max() < 0.05
        assert (2.0 * torch.atan2(last[-1, 6], last[-1, 3]) - yaw_rad).abs().max() < 0.05


@torch.inference_mode()
@pytest.mark.parametrize("name", list_crafts())
def test_every_mode_about_hover_is_damped(name: str) -> None:
    """Eigenvalues of controller, rotors and body as one sampled loop, at 500, 100 and 50 Hz: damped to
    0.4.
    """
    craft = load_craft(name)
    for dt_s in (0.002, 0.01, 0.02):
        for controller in NAMES:
            values = np.linalg.eigvals(jacobian(craft, make_controller(controller, craft, dt_s), dt_s))
            lasting = values[np.abs(values) > 0.2]  # what is gone after a step or two is damped enough
            modes = np.log(lasting.astype(complex)) / dt_s
            assert modes.real.max() < -0.2
            assert (-modes.real / np.abs(modes)).min() > 0.4, (controller, dt_s)


def jacobian(craft: Craft, law: Controller, dt_s: float) -> NDArray[np.float64]:
    """Jacobian of one step about hover by finite differences: position, rotation vector, velocity, rates,
    rotor speeds, memory.
    """
    size, small = 16 + law.memory_size, 1e-6
    z = small * torch.cat([torch.eye(size), -torch.eye(size)], 1).double()
    half = 0.5 * z[3:6]
    quat = torch.cat([(1.0 - half.square().sum(0, keepdim=True)).sqrt(), half])
    state = torch.cat([z[0:3], quat, z[6:12], z[12:16] + craft.hover_speed])
    command, memory = law(state, hold(torch.zeros_like(z[0:3])), z[16:])
    params, outside = parameters(craft, dt_s).double(), torch.zeros(EXTERNAL_SIZE, 1).double()
    after = make_step(craft, QuadPhysics(dt_s=dt_s))(state, command, params, outside)
    rows = torch.cat([after[POS], 2.0 * after[QUAT][1:], after[VEL], after[RATE], after[ROTOR], memory])
    return ((rows[:, :size] - rows[:, size:]) / (2.0 * small)).numpy()


def test_geometric_control_recovers_from_upside_down() -> None:
    """Lee et al. 2010 start at 178 degrees: upright within 1.5 s, and returning with the lost height."""
    craft = load_craft("racer5")
    state, half = hovering(craft, 2), math.radians(178.0) / 2.0
    state[3], state[4:6] = math.cos(half), math.sin(half) * torch.eye(2)
    seen = fly(craft, [make_controller("geometric", craft, DT_S)], state, 250)[:, 0]
    up = 1.0 - 2.0 * (seen[:, 4].square() + seen[:, 5].square())
    assert up[0].max() < -0.99
    assert up[150:].min() > 0.7
    assert up[-1].min() > 0.99
    assert seen[-1, POS].norm(dim=0).max() < seen[:, POS].norm(dim=1).max()
    assert seen[-1, 9].min() > 0.5


@pytest.mark.parametrize("name", CRAFTS)
def test_no_state_makes_a_command_leave_its_limits_or_lose_its_gradient(name: str) -> None:
    """Any attitude, stopped rotors, and the goal itself: commands in [0, 1], finite derivatives."""
    craft = load_craft(name)
    state = torch.cat([anywhere(62), hovering(craft, 1), start(1)], 1).requires_grad_()
    reference = hold(torch.zeros(3, 64), 0.3)
    laws = {c: make_controller(c, craft, DT_S) for c in NAMES}
    commands = {c: law(state, reference, law.blank(64))[0] for c, law in laws.items()}
    action = torch.rand(4, 64, generator=torch.Generator().manual_seed(2)) * 4.0 - 2.0
    commands |= {level: make_level(level, craft, DT_S)(state, action) for level in LEVELS}
    for kind, command in commands.items():
        assert command.min() >= 0.0, kind
        assert command.max() <= 1.0, kind
        if command.requires_grad:
            (gradient,) = torch.autograd.grad(command.sum(), state, retain_graph=True)
            assert gradient.isfinite().all(), kind


@pytest.mark.parametrize("controller", NAMES)
def test_turning_the_world_about_z_changes_no_command(controller: str) -> None:
    """Physics is invariant to yaw: state, reference and integrals rotated by 1 rad give the same rotor
    speeds.
    """
    law, turn = make_controller(controller, CF, DT_S), 1.0
    state, reference = (
        disturbed(CF, 16),
        torch.randn(10, 16, generator=torch.Generator().manual_seed(3)) * 0.3,
    )
    memory = 0.1 * torch.ones(law.memory_size, 16)
    c, s = math.cos(turn), math.sin(turn)

    def turned(vectors: Tensor) -> Tensor:
        x, y, z = vectors.unbind(-2)
        return torch.stack([c * x - s * y, s * x + c * y, z], -2)

    w, x, y, z = state[QUAT]
    a, b = math.cos(turn / 2.0), math.sin(turn / 2.0)
    quat = torch.stack([a * w - b * z, a * x - b * y, a * y + b * x, a * z + b * w])
    there = torch.cat([turned(state[POS]), quat, turned(state[VEL]), state[RATE], state[ROTOR]])
    goal = torch.cat([*(turned(reference[i : i + 3]) for i in (0, 3, 6)), reference[9:] + turn])
    kept = torch.cat([turned(memory[:3]), memory[3:]]) if law.memory_size else memory
    command, after = law(state, reference, memory)
    again, after_there = law(there, goal, kept)
    assert command.std() > 0.01
    torch.testing.assert_close(again, command, rtol=0.0, atol=2e-4)
    if law.memory_size:
        torch.testing.assert_close(after_there[:3], turned(after[:3]), rtol=0.0, atol=1e-5)


def test_the_integral_of_pid_takes_a_constant_force_away() -> None:
    """A tenth of the weight, sideways and downwards, is 20 cm to a law without an integral: 2 cm are left
    after 5 s.
    """
    push = torch.zeros(EXTERNAL_SIZE, 1)
    push[FORCE] = 0.1 * CF.mass_kg * GRAVITY_M_S2 * torch.tensor([[1.0], [0.0], [-1.0]])
    seen = fly(CF, [make_controller("pid", CF, DT_S)], hovering(CF, 1), 500, external=push)[:, 0]
    error_m = seen[:, POS, 0].norm(dim=1)
    assert error_m.max() > 0.1
    assert error_m[-1] < 0.02


def test_a_far_point_is_reached_without_passing_it() -> None:
    """5 m up, with the weakest craft: all brake in time, and are there within 4 s, 5 s for the slow tail of
    PID.
    """
    craft = load_craft("cf21")
    state = hovering(craft, 1)
    state[2] = -5.0
    seen = fly(craft, [make_controller(c, craft, DT_S) for c in NAMES], state, 500)
    assert seen[:, :, 2].max() < 0.06
    assert seen[-1, :, 2].min() > -0.06


def test_a_circle_is_followed_with_its_acceleration() -> None:
    """Radius 0.5 m, 2 rad/s, 1 m/s, reference with velocity and acceleration: geometric control keeps within
    3 cm.
    """
    t = DT_S * torch.arange(1, 301)
    c, s, none = torch.cos(2.0 * t), torch.sin(2.0 * t), torch.zeros_like(t)
    rows = [0.5 * c, 0.5 * s, none, -s, c, none, -2.0 * c, -2.0 * s, none, none]
    state = hovering(CF, 1)
    state[0], state[8] = 0.5, 1.0
    seen = fly(CF, [make_controller("geometric", CF, DT_S)], state, 300, torch.stack(rows, 1)[..., None])[
        :, 0
    ]
    assert (seen[200:, POS, 0] - torch.stack(rows[:3], 1)[200:]).norm(dim=1).max() < 0.03


def test_lqr_linearisation_about_hover() -> None:
    """By hand: thrust lifts by dt / m, pitch torque turns by dt / Jy, a pitched craft accelerates by g; all
    stable.
    """
    a, b = linearise(CF, DT_S)
    assert b[5, 0] == pytest.approx(DT_S / CF.mass_kg, rel=1e-4)
    assert b[10, 2] == pytest.approx(DT_S / CF.inertia_kg_m2[1], rel=1e-4)
    assert a[3, 7] == pytest.approx(GRAVITY_M_S2 * DT_S, rel=1e-4)
    assert a[4, 6] == pytest.approx(-GRAVITY_M_S2 * DT_S, rel=1e-4)
    for name in CRAFTS:
        craft = load_craft(name)
        a, b = linearise(craft, DT_S)
        poles = np.linalg.eigvals(a - b @ lqr_gain(craft, DT_S, gains_for(craft, DT_S)))
        assert np.abs(poles).max() < math.exp(-DT_S), name  # each mode falls by half in 0.7 s or less


@pytest.mark.parametrize("controller", NAMES)
def test_controllers_can_be_traced(controller: str) -> None:
    """Compilation needs no branch on data, and a control law whose drones differ only by inputs."""
    law = make_controller(controller, CF, DT_S)
    first = (disturbed(CF, 8), hold(torch.zeros(3, 8)), law.blank(8))
    other = (disturbed(CF, 8, seed=5), hold(torch.ones(3, 8)), 0.1 + law.blank(8))
    traced = make_fx(law, tracing_mode="real")(*first)
    for ours, theirs in zip(traced(*other), law(*other), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0.0, atol=0.0)


@pytest.mark.slow
@pytest.mark.compile
def test_a_compiled_controller_equals_the_eager_one() -> None:
    """One fused loop for 64 drones."""
    law = make_controller("pid", CF, DT_S)
    given = (disturbed(CF, 64), hold(torch.zeros(3, 64)), law.blank(64))
    for ours, theirs in zip(compile_kernel(lambda *x: law(*x), given)(*given), law(*given), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["cf21", "x500"])
def test_action_levels_reach_their_setpoints(name: str) -> None:
    """Body rates of 2 rad/s, a roll of 0.2 rad, 0.5 m/s (drag costs a tenth of it), in steady state."""
    craft = load_craft(name)
    levels = {level: make_level(level, craft, DT_S) for level in LEVELS}
    weight_n = craft.mass_kg * GRAVITY_M_S2
    state = act(
        craft, levels["rates"], hovering(craft, 1), action_for(levels["rates"], [weight_n, 2.0, 0.0, 0.0]), 30
    )
    assert state[RATE][:, 0].tolist() == pytest.approx([2.0, 0.0, 0.0], abs=0.1)
    tilted = action_for(levels["attitude"], [weight_n, 0.2, -0.1, 0.0])
    state = act(craft, levels["attitude"], hovering(craft, 1), tilted, 80)
    w, x, y, z = state[QUAT][:, 0].tolist()
    roll, pitch = math.atan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y)), math.asin(2 * (w * y - z * x))
    assert (roll, pitch) == pytest.approx((0.2, -0.1), abs=0.01)
    moving = action_for(levels["velocity"], [0.5, 0.0, -0.2, 0.5])
    state = act(craft, levels["velocity"], hovering(craft, 1), moving, 150)
    assert state[VEL][:, 0].tolist() == pytest.approx([0.5, 0.0, -0.2], abs=0.06)
    assert state[12].item() == pytest.approx(0.5, abs=0.02)


def test_a_position_action_is_a_displacement_from_here() -> None:
    """Moved at the permitted speed; yaw is absolute; motor commands pass through."""
    level = make_level("position", CF, DT_S, Ranges(step_m=0.1))
    state = act(CF, level, hovering(CF, 1), action_for(level, [0.1, 0.0, 0.0, 1.0]), 150)
    assert state[7].item() == pytest.approx(0.05 * gains_for(CF, DT_S).position_rad_s, rel=0.05)
    assert 2.0 * math.atan2(state[6].item(), state[3].item()) == pytest.approx(1.0, abs=0.02)
    motors = make_level("motors", CF, DT_S)
    found = motors(hovering(CF, 1), torch.tensor([[-1.0], [0.0], [0.5], [3.0]]))
    assert found[:, 0].tolist() == [0.0, 0.5, 0.75, 1.0]
    assert motors.spec.low == (0.0,) * 4


def test_mistyped_names_are_suggested() -> None:
    """An unknown level or controller must not become another one."""
    with pytest.raises(UnknownNameError, match="Did you mean 'mellinger'"):
        make_controller("melinger", CF, DT_S)
    with pytest.raises(UnknownNameError, match="Did you mean 'velocity'"):
        make_level("velocities", CF, DT_S)
    with pytest.raises(ConfigError, match="dt_s"):
        make_controller("pid", CF, 0.0)
