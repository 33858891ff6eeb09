"""GRPO: advantages by hand, episodes of one start, what stays in the store until a group is complete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.action_map import DirectMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.on_policy.groups import GroupConfig, check_groups, check_rounds, group_advantage
from robo_rl.rl.on_policy.ppo import PpoConfig
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import Rollout
from robo_rl.rl.on_policy.tuner import PpoTuner
from sim.vec.history import place_of
from tests.apps.tuning.small_methods import METHODS, session

WIDTHS = {"obs": 1, "ctx": 0, "u": 1, "next_obs": 1, "next_ctx": 0}


def test_advantages_by_hand() -> None:
    """Start 7: returns 1, 0, 0, 1. Start 9: all succeed. Start 4: one episode is missing."""
    group = torch.tensor([7, 9, 7, 4, 9, 7, 7, 4, 9, 9, 4])
    total = torch.tensor([1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 1.0, 0.0, 2.0, 2.0, 1.0])
    advantage, complete, learned = group_advantage(group, total, total > 0.0, GroupConfig(size=4))
    torch.testing.assert_close(advantage[group == 7], torch.tensor([1.0, -1.0, -1.0, 1.0]))
    assert advantage[group == 9].tolist() == [0.0] * 4
    assert torch.equal(complete, group != 4)
    assert torch.equal(learned, group == 7)


def test_groups_are_filtered_by_success_and_not_by_return() -> None:
    """One success of four is 0.25: inside [0.25, 0.5], outside [0.3, 0.9]."""
    group, total = torch.zeros(4, dtype=torch.long), torch.tensor([5.0, 1.0, 2.0, 3.0])
    success = torch.tensor([True, False, False, False])
    for lowest, highest, expected in ((0.25, 0.5, True), (0.3, 0.9, False), (0.0, 0.2, False)):
        config = GroupConfig(size=4, lowest=lowest, highest=highest)
        assert group_advantage(group, total, success, config)[2].all() == expected


def test_seeds_repeat_in_turn_and_continue() -> None:
    """Three episodes each; a continued iterator goes on inside a group. Snapshots hold no repetitions."""
    seeds = EpisodeSeeds("x", repeat=3)
    drawn = [next(seeds) for _ in range(8)]
    plain = EpisodeSeeds("x")
    once = [next(plain) for _ in range(3)]
    assert drawn == [once[i // 3] for i in range(8)]
    again = EpisodeSeeds("x", 8, repeat=3)
    assert [next(again), next(again)] == [once[2], next(plain)]
    assert place_of(plain) == (("x",), 4)
    assert place_of(seeds) is None


def store(rollout: Rollout, lane: int, obs: float, reward: float = 0.0, seed: int | None = None) -> None:
    """A decision of this lane; with a seed it ends the episode, successfully if it has a reward."""
    values: dict[str, Tensor] = {name: torch.full((1, width), obs) for name, width in WIDTHS.items()}
    values |= {"reward": torch.tensor([reward]), "steps": torch.ones(1, dtype=torch.long)}
    values |= {"terminated": torch.tensor([seed is not None]), "truncated": torch.tensor([False])}
    if seed is not None:
        values |= {"episode_seed": torch.tensor([seed]), "success": torch.tensor([reward > 0.0])}
    rollout.add(Lanes.of(torch.tensor([lane])), values, 1.0)


@pytest.mark.parametrize(("by_length", "one", "two"), [(False, 1.0, 1.0), (True, 1.5, 0.75)])
def test_decisions_wait_for_the_rest_of_their_group(by_length: bool, one: float, two: float) -> None:
    """Start 1 is complete in the first round, start 2 in the second, start 3 never: its episode is dropped
    after a round of waiting. Running episodes continue across rounds with all their decisions and rewards.
    one, two: weight of each decision of an episode with one or two of them; by length both have 1.5 in all.
    """
    config = GroupConfig(size=2, lowest=0.0, highest=1.0, by_length=by_length)
    rollout = Rollout(2, 20, WIDTHS, grouped=True)
    for obs, reward, seed in ((1.0, 0.0, None), (2.0, 1.0, 1), (3.0, 0.0, 2), (4.0, 0.25, None)):
        store(rollout, 0, obs, reward, seed)
    for obs, reward, seed in ((5.0, 0.0, 1), (6.0, 0.0, 3), (7.0, 0.0, None)):
        store(rollout, 1, obs, reward, seed)
    taken, info = rollout.take_groups(config)
    assert taken.obs.flatten().tolist() == [1.0, 2.0, 5.0]
    torch.testing.assert_close(taken.advantage, torch.tensor([two, two, -one]))
    assert taken.returns is None
    assert [float(info[f"train/groups_{key}"]) for key in ("complete", "learned")] == [1.0, 1.0]
    assert rollout.count.tolist() == [2, 2]  # decisions 3, 4 and 6, 7
    store(rollout, 0, 8.0, 0.5, 2)
    store(rollout, 1, 9.0, 0.0, 4)
    restored = Rollout(2, 20, WIDTHS, grouped=True)
    restored.load_state_dict(rollout.state_dict())
    for each in (rollout, restored):
        taken, _ = each.take_groups(config)
        assert taken.obs.flatten().tolist() == [3.0, 4.0, 8.0]
        # returns 0 and 0.25 + 0.5
        torch.testing.assert_close(taken.advantage, torch.tensor([-one, two, two]), atol=1e-4, rtol=0.0)
        assert each.count.tolist() == [0, 0]  # the episodes 6 and 7, 9 have waited a round


def test_lengths_are_those_of_the_episodes_learned_from() -> None:
    """Start 1 has episodes of one and two decisions. Start 2, with one of five, has no success: left out."""
    rollout = Rollout(2, 20, WIDTHS, grouped=True)
    for lane, obs, reward, seed in (
        *((0, 1.0, 0.0, None), (0, 2.0, 1.0, 1), (1, 3.0, 0.0, 1), (1, 4.0, 0.0, 2)),
        *((0, 5.0, 0.0, None),) * 4,
        (0, 5.0, 0.0, 2),
    ):
        store(rollout, lane, obs, reward, seed)
    taken, _ = rollout.take_groups(GroupConfig(size=2))
    assert taken.obs.flatten().tolist() == [1.0, 2.0, 3.0]
    torch.testing.assert_close(taken.advantage, torch.tensor([0.75, 0.75, -1.5]), atol=1e-4, rtol=0.0)


def test_learning_from_groups_uses_no_critic_and_no_other_normalisation() -> None:
    """The critic keeps its weights, and the actor learns even in its warm-up; no group, no update."""
    learner = PpoLearner(
        1, DirectMap(1), LearnerConfig(hidden=[4]), PpoConfig(epochs=1, warmup=0, critic_warmup=3),
        torch.Generator().manual_seed(0),
    )  # fmt: skip
    before = learner.weights()
    rollout = Rollout(2, 8, WIDTHS, grouped=True)
    for lane, reward in ((0, 1.0), (1, 0.0)):
        store(rollout, lane, 0.5 + lane, reward, 7)
    data, _ = rollout.take_groups(GroupConfig(size=2))
    torch.testing.assert_close(data.advantage, torch.tensor([1.0, -1.0]), atol=1e-4, rtol=0.0)
    info = learner.update(data, 5)
    now = learner.weights()
    assert "critic/loss" not in info
    assert all(torch.equal(value, before["critic"][key]) for key, value in now["critic"].items())
    assert any(not torch.equal(value, before["actor"][key]) for key, value in now["actor"].items())
    empty, _ = rollout.take_groups(GroupConfig(size=2))
    assert len(empty.u) == 0
    learner.update(empty, 5)
    assert (learner.rounds, learner.updates) == (2, 1)


@pytest.mark.parametrize(
    ("config", "given", "words"),
    [
        (GroupConfig(size=1), {}, "size=2"),
        (GroupConfig(size=4, lowest=0.8, highest=0.2), {}, "lowest below highest"),
        (GroupConfig(size=4), {"normalized": True}, "normalize_reward=false"),
        (GroupConfig(size=4), {"draws": True}, "kind=chain"),
        (GroupConfig(size=4), {"growing": True}, "random_step=decision"),
        (GroupConfig(by_length=False), {}, "groups.by_length=False has no effect: give method.groups.size=8"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(
    config: GroupConfig, given: dict[str, Any], words: str
) -> None:
    """The message names the setting and the remedy."""
    with pytest.raises(ConfigError, match=words):
        check_groups(config, **{"normalized": False, "draws": False} | given)


def test_rollouts_shorter_than_an_episode_are_refused() -> None:
    """An episode would begin and end in rollouts that are not neighbours. Episodes here have six steps."""
    config = replace(METHODS["GRPO"], ppo=replace(METHODS["GRPO"].ppo, rollout=5))
    with pytest.raises(ConfigError, match="rollout=5"):
        session(config, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("lanes", "size"), [(3, 8), (4, 16), (1, 3)])
def test_groups_that_never_become_complete_are_refused(lanes: int, size: int) -> None:
    """Rollouts of 13 steps hold two episodes of six steps in each lane: the message names what is enough."""
    size *= 2
    words = (
        rf"num_envs={size // 4 + (size % 4 > 0)} .*rollout={6 * -(-size // (2 * lanes))} .*size={4 * lanes} "
    )
    with pytest.raises(ConfigError, match=words):
        check_rounds(GroupConfig(size=size), 13, lanes, 6)
    check_rounds(GroupConfig(size=4 * lanes), 13, lanes, 6)


def test_two_rounds_without_a_complete_group_are_reported_once() -> None:
    """Not the first of them, which may have begun within a group."""
    config = METHODS["GRPO"]
    (made, _), said = session(config, None), list[str]()  # type: ignore[arg-type]
    tuner = made.tuner
    assert isinstance(tuner, PpoTuner)
    tuner._say = said.append
    none, one = ({"train/groups_complete": torch.tensor(count)} for count in (0.0, 1.0))
    for info, count in ((none, 0), (one, 0), (none, 0), (none, 1), (none, 1)):
        tuner._watch_groups(info)
        assert len(said) == count
    assert "No group of 2 episodes was complete" in said[0]


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        ("ppo", "gae_lambda", 0.1),
        ("ppo", "critic_warmup", 5),
        ("learner", "lr_critic", 1.0),
        ("learner", "timeout_is_failure", True),
    ],
)
def test_settings_of_a_critic_are_refused(part: str, name: str, value: float) -> None:
    """Groups have none."""
    config = METHODS["GRPO"]
    config = replace(config, **{part: replace(getattr(config, part), **{name: value})})
    with pytest.raises(ConfigError, match=f"no use for method.{part}.{name}={value}"):
        session(config, None)  # type: ignore[arg-type]
