"""Controllers as experts: they fly their tasks through the interface of `robo-rl collect`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.seeding import EpisodeSeeds
from sim.flight.expert import FlightExpert
from sim.flight.vec_env import QuadVecEnv
from sim.registry import make_env, make_expert
from sim.vec.expert import WatchingExpert
from sim.vec.intervention import Intervened, by_distance

ZERO = torch.zeros(4, dtype=torch.long)


def flown(name: str, lanes: int, steps: int, noise: float = 0.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """(actions (t, n, 4), success at the end of each lane's first episode (n,)) of the expert."""
    env = make_env(name, lanes)
    expert = make_expert(name, noise, seed, env)
    obs, made = env.reset(EpisodeSeeds(("expert", 3))), torch.zeros(lanes, dtype=torch.long)
    episode = env.snapshot()["episode_seed"]
    ended, success, actions = torch.zeros(lanes, dtype=torch.bool), torch.zeros(lanes, dtype=torch.bool), []
    for _ in range(steps):
        actions.append(expert.act(obs, episode, made))
        obs, _, _, _, info = env.step(actions[-1])
        success |= info["success"] & ~ended
        ended |= info["final_mask"]
        made, episode = torch.where(info["final_mask"], 0, made + 1), info["next_seed"]
        if ended.all():
            break
    return torch.stack(actions), success


def test_pid_hovers() -> None:
    """It holds 94 of 100 tumbling starts; 13 of 16 is three standard errors below that."""
    _, success = flown("quad/hover", 16, 500)
    assert int(success.sum()) >= 13


def test_pid_hovers_by_thrust_and_rates() -> None:
    """It holds most tumbling starts as with motors, and recorded actions are in weights and rad/s, as the
    unit says.
    """
    actions, success = flown("quad/hover:level=rates", 16, 500)
    assert int(success.sum()) >= 12
    assert actions[-1, :, 0].mean() == pytest.approx(1.0, abs=0.1)  # weights
    assert actions[..., 1:3].abs().max() == pytest.approx(6.0)  # rad/s, while it tumbled


@pytest.mark.parametrize("task", ["figure8", "waypoints", "race"])
def test_pid_follows_its_reference(task: str) -> None:
    """After 2 s all are close to the reference: of a figure-eight, a point, the path through the gates."""
    env = QuadVecEnv(task, 4)
    expert = make_expert(f"quad/{task}", env=env)
    obs = env.reset(EpisodeSeeds(("expert", 3)))
    for i in range(200):
        obs, _, terminated, _, _ = env.step(expert.act(obs, ZERO, torch.full((4,), i)))
        assert not terminated.any()
    far_m = (env.measured()[:3] - env.reference()[:3]).norm(dim=0)
    assert far_m.max() < (1.6 if task == "waypoints" else 0.35)  # the next point is up to 1.6 m away


def test_an_episode_is_the_same_in_any_lane() -> None:
    """Datasets do not depend on the number of lanes: the controller's memory and the noise belong to the
    episode.
    """
    three, _ = flown("quad/hover", 3, 30, noise=0.2)
    one, _ = flown("quad/hover", 1, 30, noise=0.2)
    assert torch.equal(three[:, :1], one)


def test_noise_has_its_standard_deviation() -> None:
    """noise = sigma in action units where no limit clips it, another draw for another expert seed."""
    env = QuadVecEnv("hover", 200, compiled=False)
    obs = env.reset(EpisodeSeeds(("expert", 3)))
    seeds, step = env.snapshot()["episode_seed"], torch.ones(200, dtype=torch.long)
    clean, noisy, other = (
        make_expert("quad/hover", noise, seed, env).act(obs, seeds, step)
        for noise, seed in ((0.0, 0), (0.05, 0), (0.05, 1))
    )
    inside = (clean.abs() < 0.7) & (noisy.abs() < 1.0)
    assert int(inside.sum()) > 100
    assert float((noisy - clean)[inside].std()) == pytest.approx(0.05, rel=0.15)
    assert not torch.equal(noisy, other)


def test_the_state_comes_through_the_accessors_alone() -> None:
    """An expert without observations, or with another engine's environment, reports what is missing."""
    expert = make_expert("quad/waypoints")
    assert isinstance(expert, WatchingExpert)
    with pytest.raises(EnvError, match="`watch` was not called"):
        expert.act({}, ZERO, ZERO)
    with make_env("gym/Hopper-v5", 1) as hopper, pytest.raises(EnvError, match="Hopper"):
        expert.watch(hopper)
    with pytest.raises(ConfigError, match="0 or more"):
        FlightExpert("hover", noise=-1.0)


def test_interrupted_intervention_resumes_identically() -> None:
    """The expert's integral is part of the snapshot: otherwise a resumed training would differ."""

    def supervised() -> Intervened:
        env = make_env("quad/hover", 2)
        human = make_expert("quad/hover", env=env)
        return Intervened(env, human, by_distance(0.3), error=0.1, steps=4)

    def on(env: Intervened, steps: int) -> Tensor:
        return torch.stack([env.step(torch.full((2, 4), 0.3))[-1]["executed_action"] for _ in range(steps)])

    first = supervised()
    first.reset(EpisodeSeeds(("expert", 3)))
    on(first, 20)
    snapshot, rest = first.snapshot(), on(first, 10)
    second = supervised()
    second.reset(EpisodeSeeds(("other", 0)))
    on(second, 3)
    second.restore(snapshot)
    assert torch.equal(on(second, 10), rest)
