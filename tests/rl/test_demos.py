"""Demonstrations in the replay buffer: rewards, ends, and actions of the base."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from policies.executor import ChunkExecutor
from robo_rl.core.action_map import DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import episode_noise
from robo_rl.rl import demos
from robo_rl.rl.demo_outcomes import recorded_outcome, take_over_outcome
from robo_rl.rl.demos import demo_replay
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, widths

MAP = ResidualMap(1, 0.2)


@dataclass
class Demo:
    """n actions of 2 N (0.5 in [-1, 1]); the state counts the steps."""

    frames: int
    success: bool | None = True
    final_obs: bool = True
    paid: float = 0.5  # per step
    ended: bool = False
    human: tuple[int, ...] = ()  # steps in which a human acted
    continues: bool = False

    @property
    def intervention(self) -> NDArray[np.bool_]:
        return np.isin(np.arange(self.frames), self.human)

    @property
    def reward(self) -> NDArray[np.float32]:
        return np.full(self.frames, self.paid, np.float32)

    @property
    def terminated(self) -> NDArray[np.bool_]:
        return np.arange(self.frames) == (self.frames - 1 if self.ended else -1)

    @property
    def action(self) -> NDArray[np.float32]:
        return np.full((self.frames, 1), 2.0, np.float32)

    def obs(self, key: str) -> NDArray[np.float32]:
        rows = np.arange(self.frames + self.final_obs, dtype=np.float32)
        return np.stack([rows, rows], axis=1)


def test_success_is_worth_one_at_the_last_action() -> None:
    """Rewards 0, 0, 1, a termination there, gamma 0.5: returns 0.25, 0.5, 1."""
    store = demo_replay([Demo(3)], flow_policy(SPEC), MAP, widths(MAP), 0.5)
    assert store.data["reward"][0].tolist() == [0.0, 0.0, 1.0]
    assert store.data["terminated"][0].tolist() == [False, False, True]
    assert store.data["mc_return"][0].tolist() == [0.25, 0.5, 1.0]
    assert store.data["action"][0].flatten().tolist() == [0.5, 0.5, 0.5]
    assert store.data["demo"].eq(1.0).all()


def test_a_cut_is_no_success() -> None:
    """The part of an episode before `data edit split=` ends in mid-motion: it is bootstrapped there."""
    store = demo_replay([Demo(3, None, continues=True)], flow_policy(SPEC), MAP, widths(MAP), 0.5)
    assert store.data["reward"][0].tolist() == [0.0, 0.0, 0.0]
    assert not store.data["terminated"][0].any()
    assert store.data["truncated"][0].tolist() == [False, False, True]
    marked = demo_replay([Demo(3, True, continues=True)], flow_policy(SPEC), MAP, widths(MAP), 0.5)
    assert marked.data["reward"][0].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("ended", [True, False])
def test_recorded_rewards_are_used_if_dense(ended: bool) -> None:
    """0.5 per step, three times that minus 1: 0.5 again. An episode without a termination is truncated."""
    demos = [Demo(3, ended=ended)]
    store = demo_replay(
        demos, flow_policy(SPEC), MAP, widths(MAP), 0.5, 1.0, 3.0, -1.0, outcome_of=recorded_outcome
    )
    assert store.data["reward"][0].tolist() == [0.5, 0.5, 0.5]
    assert store.data["terminated"][0].tolist() == [False, False, ended]
    assert store.data["truncated"][0].tolist() == [False, False, not ended]


def test_time_out_is_bootstrapped_from_the_final_observation() -> None:
    """4 steps without an end bootstrap from the 5th observation and the base's action there; without that
    observation, 3 steps bootstrap from the 4th.
    """
    base = flow_policy(SPEC)
    seen, unseen = (
        demo_replay(
            [Demo(4, final_obs=final_obs)],
            base,
            MAP,
            widths(MAP),
            0.5,
            noise_scale=1.0,
            outcome_of=recorded_outcome,
        )
        for final_obs in (True, False)
    )
    assert (len(seen), len(unseen)) == (4, 3)
    assert unseen.data["truncated"][0, :3].tolist() == [False, False, True]
    assert unseen.data["mc_return"][0, :3].tolist() == [0.875, 0.75, 0.5]
    assert torch.equal(unseen.data["next_obs"][0, 2], seen.data["obs"][0, 3])
    torch.testing.assert_close(unseen.data["next_ctx"][0, 2], seen.data["ctx"][0, 3])
    features, noise = (
        seen.data["next_obs"][0, 3:],
        episode_noise(0, 3, (4, 1)),
    )  # a plan begins at rows 0, 2 and 4
    torch.testing.assert_close(seen.data["next_ctx"][0, 3:], base.sample_from(features, noise[2:])[:, 0])


def test_dense_rewards_are_needed_for_a_dense_task() -> None:
    with pytest.raises(ConfigError, match="hold no rewards"):
        demo_replay(
            [Demo(3, paid=0.0)], flow_policy(SPEC), MAP, widths(MAP), 0.5, outcome_of=recorded_outcome
        )


def test_a_take_over_is_the_reward_of_the_step_before_it() -> None:
    """A human acts in steps 2, 3 and 6 of 8: -1 at 1 and 5, in a failed episode too."""
    demos = [Demo(8, success=False, human=(2, 3, 6)), Demo(2, human=(0, 1))]
    store = demo_replay(demos, flow_policy(SPEC), MAP, widths(MAP), 0.5, 1.0, -1.0, 0.0, take_over_outcome)
    assert store.data["reward"][0].tolist() == [0.0, -1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    assert torch.nonzero(store.data["demo"][0]).flatten().tolist() == [2, 3, 6, 8, 9]  # the human's steps
    assert torch.nonzero(store.data["terminated"][0]).flatten().tolist() == [9]  # the success
    assert torch.nonzero(store.data["truncated"][0]).flatten().tolist() == [7]
    assert store.data["mc_return"][0, :2].tolist() == [-0.5 - 0.5**5, -1.0 - 0.5**4]


def test_steps_of_a_human_alone_are_held() -> None:
    """Steps 2, 3 and 6 of 8: at 3 and 6 sums end and are bootstrapped, as the next step is not held."""
    store = demo_replay([Demo(8, human=(2, 3, 6))], flow_policy(SPEC), MAP, widths(MAP), 0.5, human_only=True)
    assert len(store) == 3
    assert store.data["cut"][0, :3].tolist() == [False, True, True]
    batch = store.sample(64, torch.Generator().manual_seed(0), gamma=0.5, n_step=3)
    assert sorted(set(batch.discount.tolist())) == [0.25, 0.5]  # two steps from 2, one from 3 and from 6
    with pytest.raises(ConfigError, match="In none of the 1 episodes of demos= did a human take over"):
        demo_replay([Demo(3)], flow_policy(SPEC), MAP, widths(MAP), 0.5, human_only=True)


def test_failures_are_left_out() -> None:
    """`collect keep=all` keeps them; a reward of 1 at their end would teach failure."""
    store = demo_replay([Demo(3, False), Demo(2), Demo(4, None)], flow_policy(SPEC), MAP, widths(MAP), 0.5)
    assert len(store) == 2 + 4


def test_nothing_but_failures_is_refused() -> None:
    """One sentence instead of an empty replay."""
    with pytest.raises(ConfigError, match="None of the 2 demonstrations"):
        demo_replay([Demo(3, False), Demo(2, False)], flow_policy(SPEC), MAP, widths(MAP), 0.5)


@pytest.mark.parametrize("final_obs", [True, False])
def test_context_is_that_of_the_executor(final_obs: bool) -> None:
    """Chunks of 2 planned at steps 0, 2, 4 from the demonstrated history; next_ctx is the next step's."""
    base = flow_policy(SPEC)
    store = demo_replay([Demo(5, final_obs=final_obs)], base, MAP, widths(MAP), 0.5)
    executor, noise, found = ChunkExecutor(base, 1), episode_noise(0, 3, (4, 1)), []
    states = torch.arange(6.0).repeat(2, 1).T
    executor.reset({"state": states[:1]})
    for t in range(5):
        rows = executor.due()
        if len(rows):
            executor.plan(rows, noise[executor.decision])
        found.append(executor.peek()[0])
        executor.advance()
        executor.observe({"state": states[t + 1 : t + 2]})
    torch.testing.assert_close(store.data["ctx"][0], torch.stack(found))
    assert torch.equal(store.data["next_ctx"][0, :-1], store.data["ctx"][0, 1:])


def test_next_observations_follow_and_the_first_is_repeated_as_history() -> None:
    """State 0 is stacked with itself, state t with t - 1; the observation after the last action is used."""
    base = flow_policy(SPEC)
    store = demo_replay([Demo(3)], base, DirectMap(1), widths(DirectMap(1)), 0.5)
    assert torch.equal(store.data["next_obs"][0, :-1], store.data["obs"][0, 1:])
    last = base.features({"state": torch.tensor([[[2.0, 2.0], [3.0, 3.0]]])})
    torch.testing.assert_close(store.data["next_obs"][0, -1:], last)


@pytest.mark.parametrize("final_obs", [True, False])
def test_long_demonstration_is_processed_in_pieces(final_obs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of a minute would not fit into memory; histories and contexts equal those of one piece."""
    base, sizes = flow_policy(SPEC), list[int]()
    features = base.features

    def counted(obs: Obs) -> Tensor:
        sizes.append(len(next(iter(obs.values()))))
        return features(obs)

    monkeypatch.setattr(base, "features", counted)
    demo = Demo(600, final_obs=final_obs)
    found = demo_replay([demo], base, MAP, widths(MAP), 0.5)
    assert max(sizes) <= 256
    monkeypatch.setattr(demos, "_BLOCK_ROWS", 1000)
    whole = demo_replay([demo], base, MAP, widths(MAP), 0.5)
    for name in ("obs", "ctx", "next_obs", "next_ctx", "mc_return"):
        torch.testing.assert_close(found.data[name], whole.data[name])


def test_steering_cannot_replay_a_demonstrator() -> None:
    """The noise behind a human's action is unknown."""
    latent = LatentMap(4, 1, 1.5)
    with pytest.raises(ConfigError, match=r"mix\.demo=0"):
        demo_replay([Demo(3)], flow_policy(SPEC), latent, widths(latent), 0.5)
