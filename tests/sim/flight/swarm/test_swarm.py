"""Worlds with gradients: exact through physics and observations, independent of each other, and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import POS, VEL
from sim.flight.swarm.swarm import Swarm, TrainingRules
from sim.flight.swarm.swarm_trial import fly_swarm, measure
from sim.tasks.swarm.terms import SwarmSenses
from sim.tasks.swarm.world import SwarmWorld
from tests.sim.flight.swarm.resumed import check_goes_on

CRAFT = load_craft("cf2x_l2f")
SENSES = SwarmSenses(neighbours=3, cylinders=2, history=1, noise=False)


def swarm(
    worlds: int = 3, *, training: TrainingRules | None = None, craft: str = "cf2x_l2f", **changes: object
) -> Swarm:
    world = SwarmWorld(drones=4, density=0.5, seconds=0.4)
    return Swarm(load_craft(craft), world, SENSES, worlds, 5, training=training, eager=True, **changes)  # type: ignore[arg-type]


def actions(num: int, steps: int, seed: int = 0) -> Tensor:
    hover = 2.0 * CRAFT.hover_speed - 1.0
    return hover + 0.2 * torch.randn(steps, 4, num, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("craft", ["cf2x_l2f", "cf2x_gym"])
def test_the_gradient_is_that_of_finite_differences(craft: str) -> None:
    """One command of one drone, moved by +-1e-3: its own cost over ten steps changes as its gradient says."""
    made = swarm(training=TrainingRules(replay=0.0), craft=craft, with_downwash=craft == "cf2x_gym")
    begun, given = made.state_dict(), actions(made.num, 10)

    def cost(shift: Tensor) -> Tensor:
        made.load_state_dict(dict(begun))
        total = torch.zeros(())
        for i in range(10):
            step_cost, _ = made.step(given[i] + (shift if i == 0 else 0.0))
            total = total + step_cost[2]
        return total

    shift = torch.zeros(4, made.num, requires_grad=True)
    cost(shift).backward()
    small = torch.zeros(4, made.num)
    small[1, 2] = 1e-2
    slope = (cost(small) - cost(-small)).item() / 2e-2
    assert shift.grad is not None
    assert shift.grad[1, 2].item() == pytest.approx(slope, rel=5e-2, abs=2e-4)


def test_worlds_never_meet() -> None:
    """Moving one drone changes observations of its own world only."""
    made = swarm(gradient=False)
    before, given = made.obs.clone(), actions(made.num, 1)[0]
    begun = made.state_dict()
    made.advance(given)
    plain = made.obs.clone()
    made.load_state_dict(dict(begun))
    made.now.state = made.now.state.clone()
    made.now.state[POS, 1] = made.now.state[POS, 0] + 0.3
    made.advance(given)
    changed = (made.obs - plain).abs().amax(0) > 0.0
    assert changed[:2].all()
    assert not changed[4:].any()
    assert before.shape == plain.shape


def test_loaded_swarm_continues_identically(tmp_path: Path) -> None:
    """Thirty steps of training, saved after ten, with worlds ending in between: equal costs and
    observations.
    """
    rules = TrainingRules(seconds=0.12, replay=0.5)
    one, two = swarm(training=rules), swarm(training=rules)
    check_goes_on(one, two, actions(one.num, 30), 10, tmp_path)


def test_reset_drone_passes_no_gradient() -> None:
    """More than a metre outside the wall: reset to its start, at any height, and its action has no effect any
    more.
    """
    made = swarm(training=TrainingRules(replay=0.0))
    made.now.state = made.now.state.clone()
    made.now.state[0, 2], made.now.state[VEL, 2] = 7.0, 1.0
    action = actions(made.num, 1)[0].requires_grad_()
    cost, back = made.step(action)
    assert back.tolist() == [i == 2 for i in range(made.num)]
    assert made.now.state[0:2, 2].equal(made.now.home[0:2, 2])
    cost.sum().backward()
    assert action.grad is not None
    assert action.grad[:, 2].abs().max() == 0.0
    assert action.grad[:, 3].abs().max() > 0.0


def test_a_collision_is_flown_again_from_before_it() -> None:
    """A drone is pushed onto another after 2 s: the stored moment is 1.5 to 1.75 s earlier."""
    made = swarm(worlds=1, training=TrainingRules(seconds=60.0, replay=1.0))
    made.now.since = torch.zeros_like(made.now.since)
    seen: list[Tensor] = []
    for step in range(200):
        made.now.state = made.now.state.detach()
        if step == 199:
            made.now.state = made.now.state.clone()
            made.now.state[POS, 1] = made.now.state[POS, 0] + 0.02
        seen.append(made.now.state)
        made.detach()
        made.step(made.idle)
    assert len(made.replay) == 1
    moment = made.replay.take(made.generator)["state"]
    distance = torch.stack([(moment - state).abs().max() for state in seen])
    assert 150 <= 200 - int(distance.argmin()) <= 176


def test_a_collision_at_the_first_step_is_not_kept() -> None:
    """The curriculum enables the replay in running worlds, which have no stored moment yet."""
    made = swarm(worlds=1, training=TrainingRules(seconds=60.0))
    made.now.since = torch.full_like(made.now.since, 1000)
    made.now.state = made.now.state.clone()
    made.now.state[POS, 1] = made.now.state[POS, 0] + 0.02
    _, back = made.step(made.idle)
    assert back[0:2].all()
    assert len(made.replay) == 0


def test_an_episode_is_scored_by_hand() -> None:
    """Hovering drones: those that start at their goal reach it at once; those placed together have
    collided.
    """
    made = swarm(gradient=False)
    made.now.goal = made.now.goal.clone()
    made.now.goal[0:3, :6], made.now.goal[3:, :6] = made.now.home[:, :6], 0.0
    made.now.state = made.now.state.clone()
    made.now.state[POS, 5] = made.now.state[POS, 4] + 0.01
    hover = torch.full((4, made.num), 2.0 * CRAFT.hover_speed - 1.0)
    trial, paths = fly_swarm(made, lambda obs: hover, 2)
    assert trial.success.flatten()[:6].tolist() == [True, True, True, True, False, False]
    assert trial.hit_drone.flatten()[4:6].all()
    assert trial.time_to_goal_s.flatten()[0] == 0.0
    assert paths.position_m.shape[1:] == (3, 2, 4)


def test_episodes_of_several_batches_are_joined() -> None:
    """Seven worlds from batches of three; every scenario can be evaluated alone."""
    hover = torch.full((4, 12), 2.0 * CRAFT.hover_speed - 1.0)
    trial, _ = measure(lambda i: swarm(gradient=False), lambda obs: hover, 7, 1)
    assert trial.reached.shape == (7, 4)
    assert len(trial.of(0).scenario) == 3
