"""Flights with rewards: observations of critic and actor, and values at the end."""

from __future__ import annotations

import pytest
import torch

from sim.engines.quad.craft import GRAVITY_M_S2, load_craft
from sim.engines.quad.layout import POS, ROTOR, VEL
from sim.flight.flights import Flights
from sim.flight.tensor_env import FlightTensorEnv
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.hover_reward import HoverReward
from sim.tasks.flight.observation import FlightSenses

CRAFT, SENSES = load_craft("cf2x_l2f"), FlightSenses()
SEEN = SENSES.obs_size


def rows(kind: str = "task", num: int = 16, asymmetric: bool = True, **task: float) -> FlightTensorEnv:
    made = HoverTask(train_box_m=0.6, **task)  # type: ignore[arg-type]
    flights = Flights(CRAFT, made, SENSES, num, seed=2, gradient=False, eager=True)
    return FlightTensorEnv(flights, HoverReward(made, kind), torch.ones(SEEN), asymmetric)


def test_the_critic_sees_the_truth_and_the_actor_noise() -> None:
    """True position and push are in the critic's part only; the actor's position has sensor noise of 1 mm."""
    env = rows()
    env.step(torch.zeros(16, 4))
    actor, critic = env.obs[:, env.views.actor], env.obs[:, env.views.critic]
    assert actor.shape[1] == SEEN
    assert critic.shape[1] == 18 + 6 + 4 + 4 + 3
    state, external = env.flights.state, env.flights.external
    torch.testing.assert_close(critic[:, 0:3], 5.0 * state[POS].T)
    push = external[:3].T / (0.05 * CRAFT.mass_kg * GRAVITY_M_S2)
    torch.testing.assert_close(critic[:, 18:21], push)
    torch.testing.assert_close(critic[:, 24:28], 2.0 * (state[ROTOR].T - CRAFT.hover_speed))
    off = (actor[:, 0:3] - state[POS].T).abs()
    assert 0.0 < off.max() < 6e-3


def test_symmetric_critic_sees_the_observation() -> None:
    env = rows(asymmetric=False)
    assert env.obs.shape[1] == SEEN
    assert torch.equal(env.obs[:, env.views.critic], env.obs[:, env.views.actor])


def test_final_observation_survives_the_reset() -> None:
    """New flights overwrite it in place; final_obs read afterwards is the observation before the reset, in
    every lane.
    """
    flights = rows().flights
    for _ in range(80):
        _, ended = flights.fly_on(-torch.ones(4, 16))
        if ended.any():
            break
    reached = flights.obs.clone()
    flights.renew(ended)
    assert torch.equal(flights.final_obs, reached)
    assert not torch.equal(flights.obs[:, ended], reached[:, ended])


def test_an_ending_shows_where_it_ended_and_earns_nothing() -> None:
    """Rotors stopped: all fall out of the box; the last observation is outside, the next one a new start."""
    env = rows()
    for _ in range(80):
        step = env.step(-torch.ones(16, 4))
        if step.terminated.any():
            break
    out = step.terminated
    assert out.any()
    assert not step.truncated[out].any()
    assert (step.final_obs[out][:, :3].abs().amax(1) > 0.59).all()
    assert (env.obs[out][:, :3].abs().amax(1) < 0.21).all()
    assert step.reward[out].eq(0.0).all()
    assert torch.equal(env.obs[~out], step.final_obs[~out])


def test_the_rewards_by_hand() -> None:
    """0.3 m off, 1 m/s, level, at hover: L2F earns 2 - 0.5 (5 0.09 + 0.01); in lesson 2 with 1.2^2 and
    1.4^2.
    """
    env = rows("l2f")
    state = env.flights.state.clone()
    state[:13] = 0.0
    state[3], state[VEL.start], state[POS.start] = 1.0, 1.0, 0.3
    hover = 2.0 * CRAFT.hover_speed - 1.0
    parts = env.reward.parts(state, torch.full((4, 16), hover), torch.zeros(16), hover)
    never = torch.zeros(16, dtype=torch.bool)
    assert env.reward_of(parts, never)[0].item() == pytest.approx(2.0 - 0.5 * 0.46, abs=1e-6)
    env.advance_curriculum()
    env.advance_curriculum()
    expected = 2.0 - 0.5 * (0.45 * 1.44 + 0.01 * 1.96)
    assert env.reward_of(parts, never)[0].item() == pytest.approx(expected, abs=1e-6)


def test_a_positive_reward_is_worth_more_than_the_end_everywhere() -> None:
    """2 exp(-cost / 2): near the goal 2 - cost as before, far out above the 0 after an end, in any lesson."""
    task = HoverTask()
    plain, positive = HoverReward(task), HoverReward(task, positive=True)
    near, far = torch.tensor([[0.02, 0.0, 0.0, 0.0]]), torch.tensor([[1.8, 0.5, 0.1, 5.0]])
    never = torch.zeros(1, dtype=torch.bool)
    assert positive.reward(near, never, 0).item() == pytest.approx(
        plain.reward(near, never, 0).item(), abs=1e-4
    )
    assert plain.reward(far, never, 12).item() < 0.0 < positive.reward(far, never, 12).item()
    assert positive.reward(far, ~never, 0).item() == 0.0


def test_the_parts_of_the_task_add_up_to_its_cost() -> None:
    """Twice alive less twice the reward is the cost that first-order learning follows."""
    first, second = rows(num=8), rows(num=8)
    action = 0.3 * torch.ones(8, 4)
    cost, _ = second.flights.fly_on(action.T.contiguous())
    step = first.step(action)
    torch.testing.assert_close(step.parts.sum(1), cost)
