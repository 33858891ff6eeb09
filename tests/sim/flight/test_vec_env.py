"""The engine under the contract of vector environments."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.errors import CheckpointError, EnvError, UnknownNameError
from robo_rl.core.keyed_random import keyed_uniform
from robo_rl.core.seeding import EpisodeSeeds
from sim.engines.quad.craft import load_craft
from sim.flight.vec_env import QuadVecEnv
from sim.registry import list_envs, make_env
from sim.tasks.flight.hover import START_NUMBERS, HoverTask, tilted
from sim.vec.conformance import check_vec_env


def test_contract() -> None:
    """Every clause: same-step reset, final observations, pure episodes, snapshots, clipping."""
    check_vec_env(QuadVecEnv("hover", 3, max_episode_steps=12), steps=40)


def test_it_is_found_by_name_with_its_options() -> None:
    """The same factory as for other environments; a mistyped option gets a suggestion."""
    assert "quad/hover" in list_envs()
    env = make_env("quad/hover", 2, craft="cf21", history=0, integral=False)
    assert env.spec.obs["state"].shape == (18,)
    assert env.render().shape == (240, 480, 3)
    with pytest.raises(UnknownNameError, match="history"):
        make_env("quad/hover", 2, histroy=4)


def test_an_action_that_is_no_tensor_is_answered() -> None:
    """A list, or NumPy's array: the message states the expected type instead of an attribute error."""
    env = make_env("quad/hover", 2)
    env.reset(EpisodeSeeds(("test", 0)))
    with pytest.raises(EnvError, match=r"quad/hover takes a torch.Tensor, found list: use torch.as_tensor"):
        env.step([[0.0] * 4] * 2)  # type: ignore[arg-type]


def test_holding_still_succeeds_and_falling_does_not() -> None:
    """Rotors stopped: the box is left within a second, which terminates; that is not a success."""
    env = QuadVecEnv("hover", 4)
    env.reset(EpisodeSeeds(("test", 0)))
    for _ in range(100):
        _, _, terminated, truncated, info = env.step(torch.full((4, 4), -1.0))
        if terminated.any():
            assert not truncated.any()
            assert not info["success"].any()
            assert info["final_obs"]["state"][terminated, :3].abs().max() > 0.6
            break
    else:
        pytest.fail("nobody fell in 100 steps")


@pytest.mark.parametrize("task", ["hover", "figure8"])
def test_leaving_the_box_never_pays(task: str) -> None:
    """Tumbling flights under random commands, many of which leave: each step has more reward than the 0 after
    the end.
    """
    env = QuadVecEnv(task, 64, compiled=False)
    env.reset(EpisodeSeeds(("test", 0)))
    generator, left, least = torch.Generator().manual_seed(0), 0, math.inf
    for _ in range(100):
        _, reward, terminated, _, _ = env.step(2.0 * torch.rand(64, 4, generator=generator) - 1.0)
        left, least = left + int(terminated.sum()), min(least, float(reward.min()))
    assert left > 20
    assert least > 0.0


def test_a_reward_is_alive_less_the_cost_near_the_goal_and_falls_with_every_cost() -> None:
    """2 exp(-c / 2): 1.9025 where it costs 0.1, and at 10, in a corner of the box, still more than
    nothing.
    """
    cost = torch.tensor([0.0, 0.1, 2.0, 10.0])
    assert HoverTask().reward(cost).tolist() == pytest.approx([2.0, 1.9025, 0.7358, 0.01348], rel=1e-3)


def test_a_snapshot_of_another_number_of_lanes_is_refused() -> None:
    """One sentence instead of a shape error later on."""
    env = QuadVecEnv("hover", 2)
    env.reset(EpisodeSeeds(("test", 0)))
    with pytest.raises(CheckpointError, match="2"):
        QuadVecEnv("hover", 3).restore(env.snapshot())


def test_no_uniform_number_is_one() -> None:
    """24 set bits plus a half would be rounded up: with this seed hover was pushed with infinite force."""
    unit = keyed_uniform(torch.tensor([5330368]), 0, START_NUMBERS)
    assert float(unit.max()) == 1.0 - 2.0**-24
    state, external = HoverTask().start(load_craft("cf2x_l2f"), unit)
    assert torch.isfinite(torch.cat([state, external])).all()


def test_tilts_are_spread_evenly_over_rotations() -> None:
    """The share of uniform rotations below 90 degrees that is within 45 is (a - sin a) / (m - sin m)."""
    unit = keyed_uniform(torch.arange(100_000), 0, 3)
    quat = tilted(unit, math.pi / 2)
    assert quat.norm(dim=0) == pytest.approx(torch.ones(100_000).numpy(), abs=1e-5)
    angle = 2.0 * quat[0].clamp(max=1.0).acos()
    assert angle.max() <= math.pi / 2 + 1e-3
    expected = (math.pi / 4 - math.sin(math.pi / 4)) / (math.pi / 2 - 1.0)
    assert float((angle < math.pi / 4).float().mean()) == pytest.approx(expected, abs=5e-3)
