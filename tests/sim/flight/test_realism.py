"""Latency, delayed positions, gusts and battery: each has its stated effect, and none when off."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.dynamics import QuadPhysics
from sim.engines.quad.layout import POS, RATE, ROTOR, VEL, parameters, start
from sim.flight.command import motors_hover
from sim.flight.flight import first_observation, make_flight, noise_size
from sim.flight.memory import layout
from sim.flight.realism import (
    Realism,
    charge_used,
    check_realism,
    gust_model,
    next_gust,
    steps_of,
    voltage_share,
)
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses

CRAFT, TASK = load_craft("cf2x_l2f"), HoverTask(w_action_rate=0.0)
SENSES = FlightSenses(history=2, integral=False, noise=False)


def flown(
    actions: list[Tensor], realism: Realism, craft: Craft = CRAFT, noise: Tensor | None = None
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(state, memory, observation) after every action, from rest at hover speed."""
    flight = make_flight(craft, QuadPhysics(), TASK, SENSES, realism)
    state, external = start(1), torch.zeros(9, 1)
    state[ROTOR] = craft.hover_speed
    silence = torch.zeros(noise_size(realism), 1)
    memory, _ = first_observation(state, external, silence, motors_hover(craft), TASK, SENSES, realism)
    seen = []
    for action in actions:
        drawn = silence if noise is None else noise
        state, memory, obs, *_ = flight(state, memory, action, parameters(craft, 0.01), external, drawn)
        seen.append((state, memory, obs))
    return seen


def test_a_latency_of_three_steps_is_a_shift_of_three_steps() -> None:
    """The same commands: states with latency are those without it, three steps later; before that it
    hovers.
    """
    generator = torch.Generator().manual_seed(0)
    actions = [torch.rand(4, 1, generator=generator) * 0.4 for _ in range(12)]
    now, late = flown(actions, Realism()), flown(actions, Realism(latency_steps=3))
    hover = torch.full((4, 1), 2.0 * CRAFT.hover_speed - 1.0)
    shifted = flown([hover] * 3 + actions[:9], Realism())
    for (state, _, _), (expected, _, _) in zip(late, shifted, strict=True):
        torch.testing.assert_close(state, expected)
    assert not torch.allclose(late[-1][0], now[-1][0])
    assert torch.equal(late[-1][2][18:22], actions[-1])  # what the policy remembers is what it asked for


def test_a_late_position_is_the_one_of_four_steps_ago() -> None:
    """Only the position is delayed: velocity, attitude and rates are current, and so is the craft."""
    actions = [torch.full((4, 1), 0.8)] * 10
    now, late = flown(actions, Realism()), flown(actions, Realism(delay_steps=4))
    for step, (state, _, obs) in enumerate(late):
        assert torch.equal(state, now[step][0])
        expected = now[step - 4][0][POS] if step >= 4 else torch.zeros(3, 1)
        torch.testing.assert_close(obs[0:3], expected)
        torch.testing.assert_close(obs[12:15], state[VEL])


def test_a_late_velocity_is_the_one_of_three_steps_ago() -> None:
    """Only the velocity is delayed, also together with positions; rates are current, and so is the craft."""
    actions = [torch.full((4, 1), 0.8)] * 10
    now = flown(actions, Realism())
    for positions in (0, 4):
        late = flown(actions, Realism(flow_steps=3, delay_steps=positions))
        for step, (state, _, obs) in enumerate(late):
            assert torch.equal(state, now[step][0])
            expected = now[step - 3][0][VEL] if step >= 3 else torch.zeros(3, 1)
            torch.testing.assert_close(obs[12:15], expected)
            there = step - positions
            torch.testing.assert_close(obs[0:3], now[there][0][POS] if there >= 0 else torch.zeros(3, 1))
            torch.testing.assert_close(obs[15:18], state[RATE])


def test_gyro_bias_is_constant_within_a_flight() -> None:
    """20,000 flights: no mean, the given standard deviation on every axis, equal at the start and 20 steps
    later; the flight and the observed position, attitude and velocity are unchanged.
    """
    num, realism = 20_000, Realism(gyro_bias_rad_s=0.03)
    noise = torch.randn(noise_size(realism), num, generator=torch.Generator().manual_seed(2))
    state, external = start(num), torch.zeros(9, num)
    memory, obs = first_observation(state, external, noise, motors_hover(CRAFT), TASK, SENSES, realism)
    bias = obs[15:18]
    assert bias.mean(1).abs().max() < 4.0 * 0.03 / math.sqrt(num)
    torch.testing.assert_close(bias.std(1), torch.full((3,), 0.03), rtol=0.03, atol=0.0)
    flight, plain = (make_flight(CRAFT, QuadPhysics(), TASK, SENSES, real) for real in (realism, Realism()))
    silence = torch.zeros_like(noise)
    bare, alone = first_observation(state, external, None, motors_hover(CRAFT), TASK, SENSES)[0], state
    for _ in range(20):
        command, params = torch.full((4, num), 0.2), parameters(CRAFT, 0.01)
        state, memory, obs, *_ = flight(state, memory, command, params, external, silence)
        alone, bare, seen, *_ = plain(alone, bare, command, params, external, silence[:18])
    assert torch.equal(state, alone)
    assert torch.equal(obs[:15], seen[:15])
    torch.testing.assert_close(obs[15:18] - seen[15:18], bias, rtol=0.0, atol=1e-6)


def test_gusts_have_the_spread_and_the_memory_of_their_model() -> None:
    """200,000 steps of 0.05 s: standard deviations within 3 %, and correlation exp(-1) after T on each
    axis.
    """
    generator = torch.Generator().manual_seed(0)
    std, time_s = gust_model(0.5)
    gust, dt_s, rows = torch.zeros(3, 2000), 0.05, []
    for _ in range(600):
        gust = next_gust(gust, torch.randn(3, 2000, generator=generator), 0.5, dt_s)
        rows.append(gust)
    late = torch.stack(rows[300:])
    for axis in range(3):
        assert float(late[:, axis].std()) == pytest.approx(std[axis], rel=0.03)
        lag = round(time_s[axis] / dt_s)
        product = (late[lag:, axis] * late[:-lag, axis]).mean() / late[:, axis].var()
        assert float(product) == pytest.approx(math.exp(-lag * dt_s / time_s[axis]), abs=0.04)


def test_the_gust_model_is_the_military_one_at_ten_feet() -> None:
    """By hand: 0.177 + 0.00823 = 0.18523; sigma_w / sigma_u = 0.18523^0.4 = 0.5094; W20 = 10 sigma_w; T = L /
    W20.
    """
    std, time_s = gust_model(1.0)
    assert std == pytest.approx((1.0, 1.0, 0.50943), abs=1e-4)
    assert time_s[2] == pytest.approx(3.048 / 5.0943, rel=1e-3)
    assert time_s[0] == pytest.approx(3.048 / 0.18523**1.2 / 5.0943, rel=1e-3)


def test_a_steady_gust_carries_a_craft_with_drag() -> None:
    """cf21 in a gust that blows along x: it is pushed that way with drag over mass, and not at all without
    gusts.
    """
    craft = load_craft("cf21")
    hover = torch.full((4, 1), 2.0 * craft.hover_speed - 1.0)
    noise = torch.zeros(21, 1)
    noise[18] = 3.0
    blown = flown([hover] * 20, Realism(gust_m_s=1.0), craft, noise)
    still = flown([hover] * 20, Realism(), craft)
    assert still[-1][0][VEL][0] == 0.0
    gusts = torch.stack(
        [memory[layout(TASK, SENSES, Realism(gust_m_s=1.0)).gust][0] for _, memory, _ in blown]
    )
    expected = 0.01 * craft.linear_drag_n_s_m[0] / craft.mass_kg * gusts.sum()
    assert float(blown[-1][0][VEL][0]) == pytest.approx(float(expected), rel=0.1)


def test_the_voltage_falls_as_the_cells_curve_does() -> None:
    """By hand: full 4.194 V, half 3.7348 - 0.01752 + 0.468 exp(-1.7647) = 3.7974 V; it never rises."""
    share = voltage_share(torch.tensor([0.0, 0.5]))
    assert share.tolist() == pytest.approx([1.0, 3.7974 / 4.19404], abs=1e-4)
    assert (voltage_share(torch.linspace(0.0, 1.0, 101)).diff() < 0.0).all()


def test_hover_time_of_the_battery() -> None:
    """420 s of hover speed in steps of 1 s use the charge up; 1.26 times that speed takes half as long."""
    used, speeds = torch.zeros(1, 1), torch.full((4, 1), CRAFT.hover_speed)
    for _ in range(420):
        used = charge_used(used, speeds, CRAFT, 420.0, 1.0)
    assert used.item() == pytest.approx(1.0, abs=1e-4)
    assert charge_used(torch.zeros(1, 1), 2.0 ** (1 / 3) * speeds, CRAFT, 420.0, 1.0).item() == pytest.approx(
        2 / 420
    )


def test_thrust_falls_with_the_charge() -> None:
    """At half charge rotors reach 90.5 % of the commanded speed, so thrust is 82 %: it sinks."""
    realism = Realism(battery_s=420.0)
    full, half = torch.zeros(19, 1), torch.zeros(19, 1)
    full[18], half[18] = -8.0, 0.3186  # 0.8 Phi(x) of the charge are used at the start
    place = layout(TASK, SENSES, realism)
    state = start(1)
    memory, _ = first_observation(state, torch.zeros(9, 1), half, motors_hover(CRAFT), TASK, SENSES, realism)
    assert memory[place.used].item() == pytest.approx(0.5, abs=1e-3)
    fresh, _ = first_observation(state, torch.zeros(9, 1), full, motors_hover(CRAFT), TASK, SENSES, realism)
    flight = make_flight(CRAFT, QuadPhysics(), TASK, SENSES, realism)
    speeds = []
    for start_memory in (fresh, memory):
        now, kept = start(1), start_memory
        for _ in range(300):  # 20 time constants of the rotors
            now, kept, *_ = flight(
                now, kept, torch.full((4, 1), 0.2), parameters(CRAFT, 0.01), torch.zeros(9, 1), full
            )
        speeds.append(now[ROTOR].mean().item())
    assert speeds[0] == pytest.approx(0.6, abs=2e-3)
    assert speeds[1] / speeds[0] == pytest.approx(3.7974 / 4.19404, abs=5e-3)


def test_disabled_effects_are_absent() -> None:
    """No rows, no numbers, the same step: all realism switched off has no effect."""
    assert layout(TASK, SENSES, Realism()).size == SENSES.memory_size
    assert Realism().noise_size == 0
    actions = [torch.full((4, 1), 0.5)] * 5
    assert torch.equal(flown(actions, Realism())[-1][0], flown(actions, Realism(delay_steps=2))[-1][0])


def test_action_rate_cost() -> None:
    """0.5 per squared change: from 0.2 to 0.4 on all four motors costs 0.5 * 4 * 0.04 more than holding
    0.4.
    """
    for senses in (SENSES, replace(SENSES, history=0)):
        task = HoverTask(w_action_rate=0.5)
        flight = make_flight(CRAFT, QuadPhysics(), task, senses)
        memory, _ = first_observation(start(1), torch.zeros(9, 1), None, motors_hover(CRAFT), task, senses)
        costs = []
        for first in (0.2, 0.4):
            _, kept, *_ = flight(start(1), memory, torch.full((4, 1), first), parameters(CRAFT, 0.01),
                                 torch.zeros(9, 1), torch.zeros(18, 1))  # fmt: skip
            *_, cost, _, _ = flight(start(1), kept, torch.full((4, 1), 0.4), parameters(CRAFT, 0.01),
                                    torch.zeros(9, 1), torch.zeros(18, 1))  # fmt: skip
            costs.append(cost.item())
        assert costs[0] - costs[1] == pytest.approx(0.5 * 4 * 0.04, rel=1e-4)


def test_invalid_settings_are_refused() -> None:
    """Half steps, half minutes, and gusts on a craft without drag."""
    assert steps_of("latency_s", 0.03, 0.01) == 3
    with pytest.raises(ConfigError, match=r"latency_s = 0.005 .* whole control steps"):
        steps_of("latency_s", 0.005, 0.01)
    with pytest.raises(ConfigError, match=r"0 \.\.\. 0.5 s"):
        steps_of("sensor_delay_s", 2.0, 0.01)
    with pytest.raises(ConfigError, match=r"flow_delay_s = 0.6 .* 0 \.\.\. 0.5 s"):
        steps_of("flow_delay_s", 0.6, 0.01)
    with pytest.raises(ConfigError, match="no drag"):
        check_realism(Realism(gust_m_s=1.0), CRAFT)
