"""The recall task: observations hide the button between light and release, and its expert succeeds."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
import torch

from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env, make_expert
from sim.tasks.recall.buttons import RELEASE_STEPS, SHOWN_STEPS, ButtonsState, after, new_episode
from sim.tasks.recall.lane import picture_of

STILL, FULL_RIGHT = np.zeros(2), np.ones(2)


def episode(seed: int = 0) -> ButtonsState:
    return new_episode(np.random.Generator(np.random.Philox(seed)))


def test_the_picture_shows_the_button_only_while_it_is_lit() -> None:
    """From the step in which the light goes out, two episodes with other buttons look the same."""
    one = episode()
    other = replace(one, lit=1 - one.lit)
    for step in range(RELEASE_STEPS[1] + 1):
        alike = np.array_equal(picture_of(one, 32), picture_of(other, 32))
        assert alike == (step >= SHOWN_STEPS)
        one, other = after(one, STILL), after(other, STILL)


def test_the_hand_cannot_mark_the_button_before_the_release() -> None:
    """Else a policy without memory could go to the button while it is lit."""
    state = episode()
    start_m = state.hand_m
    for _ in range(state.release):
        state = after(state, FULL_RIGHT)
        assert (state.hand_m == start_m).all()
    assert (after(state, FULL_RIGHT).hand_m > start_m).all()


@pytest.mark.parametrize("right", [True, False])
def test_touching_a_button_ends_the_episode(right: bool) -> None:
    state = replace(episode(), step=20)
    goal_m = state.buttons_m[state.lit if right else 1 - state.lit]
    for _ in range(12):
        if not state.over:
            state = after(state, (goal_m - state.hand_m) / 0.04)
    assert state.over
    assert state.success == right


def test_the_expert_succeeds_and_both_buttons_are_as_frequent() -> None:
    with closing(make_env("recall/buttons", 64)) as env:
        expert, seeds = make_expert("recall/buttons", noise=0.2, env=env), EpisodeSeeds(("test",))
        obs, step = env.reset(seeds), torch.zeros(64, dtype=torch.long)
        left = (obs["privileged.state"][:, 0] < 0).float().mean()
        done = torch.zeros(64, dtype=torch.bool)
        seed = torch.arange(64)
        while not done.all():
            obs, reward, _, _, info = env.step(expert.act(obs, seed, step))
            assert reward[info["final_mask"] & ~done].eq(1.0).all()
            done |= info["final_mask"]
            step += 1
    assert 0.3 < left < 0.7
