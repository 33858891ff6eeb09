"""The simulated human: interventions are reported, reproducible by seed, and part of snapshots."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs, VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from sim.vec.conformance import check_vec_env
from sim.vec.intervention import Intervened, by_distance
from sim.vec.workers import WorkerVecEnv
from tests.rl.worlds import LIMIT, TargetLane

SEEDS = ("test", 0)


class Human:
    """Moves towards the target with actions beyond the limits."""

    def act(self, obs: Obs, episode_seed: Tensor, step: Tensor) -> Tensor:
        target, position = obs["state"].unbind(1)
        return 10.0 * LIMIT * (target - position).sign().unsqueeze(1)


def make(error: float = 0.0, steps: int = 2, threshold: float = 0.5, lanes: int = 3) -> Intervened:
    env = WorkerVecEnv(TargetLane, lanes)
    return Intervened(env, Human(), by_distance(threshold), error=error, steps=steps, seed=3)


def roll(env: VecEnv, actions: Tensor) -> list[tuple[Tensor, ...]]:
    """(intervened, executed_action, state, episode_seed) of every step."""
    rows = []
    for action in actions:
        obs, _, _, _, info = env.step(action)
        rows.append((info["intervened"], info["executed_action"], obs["state"], info["episode_seed"]))
    return rows


def same(one: list[tuple[Tensor, ...]], other: list[tuple[Tensor, ...]]) -> bool:
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True))


def random_actions(steps: int = 24, lanes: int = 3) -> Tensor:
    return (torch.rand(steps, lanes, 1, generator=torch.Generator().manual_seed(0)) * 2.0 - 1.0) * LIMIT


def test_it_is_a_vector_environment() -> None:
    """Every clause of the contract, with a human who also errs."""
    check_vec_env(make(error=0.3))


def test_the_seeds_of_a_simulation_on_a_gpu_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intervention state is in host memory, while a snapshot is on the engine's device."""

    class Elsewhere:
        def __init__(self, value: Tensor) -> None:
            self.cpu = lambda: value

    env = make()
    inner, snapshot = env._env, env._env.snapshot
    monkeypatch.setattr(inner, "snapshot", lambda: {"episode_seed": Elsewhere(snapshot()["episode_seed"])})
    env.reset(EpisodeSeeds(SEEDS))
    first = EpisodeSeeds(SEEDS)
    assert env._episode.tolist() == [next(first) for _ in range(3)]


def test_info_reports_the_interventions() -> None:
    """The inner environment moved by exactly `executed_action`: the human's where `intervened`, else the
    policy's.
    """
    env = make()
    before = env.reset(EpisodeSeeds(SEEDS))["state"]
    for action in random_actions():
        human = Human().act({"state": before}, torch.zeros(3), torch.zeros(3)).clamp(-LIMIT, LIMIT)
        _, _, _, _, info = env.step(action)
        expected = torch.where(info["intervened"].unsqueeze(1), human, action)
        assert torch.equal(info["executed_action"], expected)
        moved = info["final_obs"]["state"][:, 1] - before[:, 1]
        torch.testing.assert_close(moved, expected[:, 0] / LIMIT)
        before = torch.where(info["final_mask"].unsqueeze(1), env._obs["state"], info["final_obs"]["state"])


def test_an_intervention_lasts_and_then_the_policy_has_a_turn() -> None:
    """Always-bad actions, 2 steps: human, human, policy, human, human, policy; a new episode restarts the
    pattern.
    """
    env = make(steps=2, lanes=1)
    env.reset(EpisodeSeeds(SEEDS))
    wrong = torch.full((1, 1), -LIMIT)  # away from the target, which lies at 1 ... 4, the start at 1
    env.human.act = lambda obs, seed, step: torch.zeros(1, 1)  # type: ignore[method-assign]  # never arrives
    turns = []
    for _ in range(9):
        *_, info = env.step(wrong)
        turns.append(bool(info["intervened"]))
    assert turns[:6] == [True, True, False, True, True, False]
    assert turns[6:] == [True, True, False]  # episodes are six steps long


def test_good_actions_are_let_pass_and_an_erring_human_is_wrong_at_its_rate() -> None:
    """error 0: never without a reason. error 0.3 with 1-step interventions: 0.3 of the steps without one."""
    calm = make(threshold=2.1)  # nothing in [-1, 1] is that far apart
    calm.reset(EpisodeSeeds(SEEDS))
    assert not any(bool(row[0].any()) for row in roll(calm, random_actions()))
    erring = make(error=0.3, steps=1, threshold=2.1)
    erring.reset(EpisodeSeeds(SEEDS))
    acted = torch.stack([row[0] for row in roll(erring, random_actions(600))])
    # One step of rest follows each: rate r = 0.3 (1 - r), so r = 0.3 / 1.3 = 0.23; 1800 draws, 4 sigma =
    # 0.04.
    assert abs(acted.float().mean() - 0.3 / 1.3) < 0.04


def test_coins_belong_to_the_episode_seed_and_the_step() -> None:
    """Same seeds and actions with another number of lanes give the same interventions; another seed does
    not.
    """
    actions = random_actions(30)
    rows = []
    for lanes in (3, 1):
        env = make(error=0.4, lanes=lanes)
        env.reset(EpisodeSeeds(SEEDS))
        rows.append(roll(env, actions[:6, :lanes]))
    assert all(torch.equal(a[0][:1], b[0]) for a, b in zip(*rows, strict=True))
    other = make(error=0.4)
    other.seed = 4
    other.reset(EpisodeSeeds(SEEDS))
    assert not same(rows[0], roll(other, actions[:6]))


@pytest.mark.parametrize("under_way", [False, True])
def test_a_snapshot_in_the_middle_of_an_intervention_is_exact(under_way: bool) -> None:
    """Intervention state, remaining steps and random state are restored, also in a new environment."""
    actions = random_actions()
    env = make(error=0.3, steps=3)
    seeds = EpisodeSeeds(SEEDS)
    env.reset(seeds)
    while not bool((env._left > 0).any()):
        env.step(actions[0])
    if under_way:
        env.step_async(actions[1])
    snapshot = env.snapshot()
    if under_way:
        env.step_wait()
        env.restore(snapshot)
    expected = roll(env, actions)
    fresh = make(error=0.3, steps=3)
    fresh.restore(snapshot, EpisodeSeeds(SEEDS, snapshot["env"]["seeds_count"]))
    assert same(expected, roll(fresh, actions))


def test_invalid_settings_are_refused() -> None:
    """A probability above 1, and a snapshot of an environment without a human."""
    with pytest.raises(ConfigError, match="probability"):
        make(error=1.5)
    plain = WorkerVecEnv(TargetLane, 3)
    plain.reset(EpisodeSeeds(SEEDS))
    with pytest.raises(CheckpointError, match="without interventions"):
        make().restore(plain.snapshot())
