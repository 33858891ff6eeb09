"""Reward for progress: milestones by hand, the model on episodes of its own, shaping sums that telescope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.spec import ActionSpec
from robo_rl.data.replay import Replay
from robo_rl.rl.decision_writer import DecisionWriter
from robo_rl.rl.demo_outcomes import recorded_outcome
from robo_rl.rl.demos import demo_replay
from robo_rl.rl.progress.labelling import gripper_of, labelled_episodes, speeds_of
from robo_rl.rl.progress.milestones import gripper_changes, key_frames, progress_labels
from robo_rl.rl.progress.model import LabelledEpisode, fit_progress
from robo_rl.rl.progress.shaping import PotentialShaping
from tests.lane_forms import FORMS, in_each_form
from tests.policies.small import flow_policy
from tests.rl.test_collect import collect, lane, random_act
from tests.rl.test_demos import Demo
from tests.rl.worlds import SPEC, widths

form = pytest.fixture(params=FORMS)(in_each_form)
GAMMA, WEIGHT = 0.9, 0.5


def potential(features: Tensor) -> Tensor:
    """Some function to [0, 1] of the four features."""
    return torch.sigmoid(features.sum(dim=1))


# -- segmentation


def test_the_gripper_changes_where_it_reaches_its_other_end() -> None:
    """Open, noise, a middle level, closed, open: changes at 4 and 6. A range of 0.4 is no gripper."""
    command = np.array([-1.0, -0.9, -0.7, 0.0, 0.8, 1.0, -1.0])
    assert gripper_changes(command, -1.0, 1.0) == [4, 6]
    assert gripper_changes(0.2 * command, -0.2, 0.2) == []


def test_key_frames_are_the_slowest_steps_of_rests_inside() -> None:
    """Mean speed 0.6: rests below 0.06 at 3 and 4, of which 4 is slower. Those at both ends are none."""
    speed = np.array([0.0, 1.0, 1.0, 0.05, 0.01, 1.0, 2.0, 1.0, 0.9, 0.0])
    assert key_frames(speed) == [4]


def test_labels_are_linear_between_milestones() -> None:
    """40 steps, the gripper closes at 20, a key frame at 10: two stages, the first cut into two parts."""
    labels, milestones = progress_labels(40, [20], [10])
    assert milestones == 2
    expected = [0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0]
    assert labels[[0, 5, 10, 15, 20, 30, 40]].tolist() == pytest.approx(expected)


def test_milestones_too_close_to_others_are_left_out() -> None:
    """5 of 100 steps must lie between: a change at 3, rests beside a change at 50, and one of 70 and 72."""
    labels, milestones = progress_labels(100, [3, 50], [48, 52, 70, 72])
    assert milestones == 2
    assert labels[[50, 70, 100]].tolist() == pytest.approx([0.5, 0.75, 1.0])


def test_without_milestones_progress_is_the_share_of_time() -> None:
    labels, milestones = progress_labels(4, [], [])
    assert (labels.tolist(), milestones) == ([0.0, 0.25, 0.5, 0.75, 1.0], 0)


def test_a_gripper_is_found_by_its_name() -> None:
    """By its place among named numbers; the last number of a unit that only mentions one."""
    for unit, expected in (
        ("rad: a, gripper, b", 1),
        ("cm per step, gripper effort", 2),
        ("tool x, y 0.02 m, fingers: -1 closed, 1 open", 2),
        ("rad: a, b, c", None),
        ("", None),
    ):
        assert gripper_of(ActionSpec((-1.0,) * 3, (1.0,) * 3, unit)) == expected, unit


def test_speeds_are_relative_to_the_spread_of_each_number() -> None:
    """A number that moves by its standard deviation of 1 per step, and one that never moves: speed 1."""
    states = [np.array([[0.0, 7.0], [2.0, 7.0], [0.0, 7.0], [2.0, 7.0]])]
    assert speeds_of(states)[0].tolist() == [2.0, 2.0, 2.0]
    assert speeds_of([np.zeros((3, 0))])[0].tolist() == [1.0, 1.0]


# -- the model


def test_episodes_get_a_label_for_every_observation() -> None:
    """5 steps of constant speed without a gripper: 0, 1/5, ..., 1; without the last observation up to 4/5."""
    base = flow_policy(SPEC)
    whole, cut, failed = Demo(5), Demo(5, final_obs=False), Demo(5, success=False)
    found = labelled_episodes([whole, failed, cut], base, None)
    assert [len(each.features) for each in found] == [6, 5]
    torch.testing.assert_close(found[0].progress, torch.arange(6) / 5)
    torch.testing.assert_close(found[1].progress, torch.arange(5) / 5)


def straight(episodes: int, seed: int = 0) -> list[LabelledEpisode]:
    """Episodes of 20 steps: the first feature is the progress, the second a number of the episode."""
    rng = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(episodes):
        progress = torch.linspace(0.0, 1.0, 21)
        other = torch.randn(1, generator=rng).expand(21)
        made.append(LabelledEpisode(torch.stack([progress, other], dim=1), progress, 0))
    return made


def test_the_model_learns_progress_and_reports_its_error_on_unseen_episodes() -> None:
    """Far below the error of a constant, 0.25, in [0, 1], and the same from the same seed."""
    model, report = fit_progress(straight(6), torch.Generator().manual_seed(1), updates=200)
    again, _ = fit_progress(straight(6), torch.Generator().manual_seed(1), updates=200)
    assert (report.episodes, report.members) == (6, 5)
    assert report.held_out_error < 0.05
    assert report.constant_error == pytest.approx(0.262, abs=0.01)
    far = model(torch.tensor([[-9.0, 0.0], [0.5, 0.0], [9.0, 0.0]]))
    assert far.min() >= 0.0
    assert far.max() <= 1.0
    assert far[1] == pytest.approx(0.5, abs=0.1)
    for one, other in zip(model.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(one, other)


def test_one_episode_is_too_few() -> None:
    with pytest.raises(ConfigError, match="two successful demonstrations"):
        fit_progress(straight(1), torch.Generator())


# -- shaping


def decisions(reward: list[float], end: str | None, shaping: PotentialShaping | None) -> Replay:
    """One lane with an episode of one-step decisions through features 0, 1, 2, ...; `end`: its flag."""
    sizes = {"obs": 1, "ctx": 0, "critic_action": 1, "action": 1, "next_obs": 1, "next_ctx": 0}
    store, one = Replay(20, 1, sizes), torch.ones(1)
    writer = DecisionWriter(store, GAMMA, None, shaping)
    for t, each in enumerate(reward):
        last = t == len(reward) - 1
        flags = {name: torch.tensor([last and name == end]) for name in ("terminated", "truncated")}
        row = torch.full((1, 1), float(t))
        values: dict[str, Tensor] = {
            "obs": row,
            "next_obs": row + 1.0,
            "ctx": row[:, :0],
            "next_ctx": row[:, :0],
        }
        values |= {"critic_action": row, "action": row, "reward": torch.tensor([each]), "steps": one}
        values |= {"demo": 0.0 * one, "cut": torch.tensor([False])} | flags
        writer.write(Lanes.all(1), values)
    return store


def counted(features: Tensor) -> Tensor:
    """Phi = 0, 0.25, 0.5, 0.75, 1 for features 0 to 4."""
    return features[:, 0] / 4.0


@pytest.mark.parametrize(
    ("end", "fails", "last"),
    [("terminated", False, 0.0), ("truncated", False, 1.0), ("truncated", True, 0.0)],
    ids=["termination", "time-out, bootstrapped", "time-out as failure"],
)
def test_shaping_by_hand(end: str, fails: bool, last: float) -> None:
    """Four steps, reward 1 at the last. 0.5 (0.9 Phi' - Phi) is 0.1125, 0.1, 0.0875, 0.5 (0.9 * last - 0.75).

    The return telescopes: 0.9^3 + 0.5 (0.9^4 * last - 0).
    """
    shaping = PotentialShaping(counted, WEIGHT, timeout_is_failure=fails)
    store = decisions([0.0, 0.0, 0.0, 1.0], end, shaping)
    expected = [0.1125, 0.1, 0.0875, 1.0 + 0.5 * (0.9 * last - 0.75)]
    torch.testing.assert_close(store.data["reward"][0, :4], torch.tensor(expected))
    total = 0.9**3 + 0.5 * 0.9**4 * last
    torch.testing.assert_close(store.data["mc_return"][0, 0], torch.tensor(total))


def test_sums_of_n_steps_keep_only_the_potentials_of_both_ends() -> None:
    """Every n-step return of a shaped replay is that of the plain one plus w (gamma^h Phi(s') - Phi(s))."""
    shaping = PotentialShaping(counted, WEIGHT, timeout_is_failure=False)
    plain, shaped = (
        decisions([0.0, 0.0, 0.0, 1.0], "terminated", each).sample(
            64, torch.Generator().manual_seed(0), gamma=GAMMA, n_step=3
        )
        for each in (None, shaping)
    )
    assert torch.equal(plain.obs, shaped.obs)
    added = plain.discount * counted(plain.next_obs) - counted(plain.obs)
    torch.testing.assert_close(shaped.reward, plain.reward + WEIGHT * added)
    torch.testing.assert_close(shaped.mc_return, plain.mc_return - WEIGHT * counted(plain.obs))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("action_map", [ResidualMap(1, 0.5), ResidualMap(1, 0.5, 2), LatentMap(4, 1, 1.5)])
def test_collected_decisions_of_steps_and_chunks_are_shaped_in_every_lane(
    action_map: ActionMap, fails: bool
) -> None:
    """Reward and Monte-Carlo return of every decision in three lanes, against those without shaping."""
    shaping = PotentialShaping(potential, WEIGHT, timeout_is_failure=fails)
    act = (random_act(action_map.dim), random_act(action_map.dim))
    plain, _, _ = collect(action_map, act[0])
    shaped, _, _ = collect(action_map, act[1], shaping=shaping)
    for index in range(3):
        name = {key: lane(plain, index, key) for key in (*plain.data,)}
        assert torch.equal(name["obs"], lane(shaped, index, "obs"))
        over = name["terminated"] | (name["truncated"] & fails)
        after = GAMMA ** name["steps"] * potential(name["next_obs"]).masked_fill(over, 0.0)
        expected = name["reward"] + WEIGHT * (after - potential(name["obs"]))
        torch.testing.assert_close(lane(shaped, index, "reward"), expected)
        ended = name["mc_return"].isfinite() & (name["timed_out"].logical_not() | fails)
        returns = name["mc_return"] - WEIGHT * potential(name["obs"])
        torch.testing.assert_close(lane(shaped, index, "mc_return")[ended], returns[ended])
        assert ended.any() or not fails


@pytest.mark.parametrize("ended", [True, False])
def test_demonstrations_are_shaped_as_collected_decisions(ended: bool) -> None:
    """A termination and a time-out that is bootstrapped from the observation after it."""
    base, action_map = flow_policy(SPEC), ResidualMap(1, 0.2)
    given: dict[str, Any] = {"outcome_of": recorded_outcome}
    shaping = PotentialShaping(potential, WEIGHT, timeout_is_failure=False)
    plain, shaped = (
        demo_replay(
            [Demo(5, ended=ended)], base, action_map, widths(action_map), GAMMA, shaping=each, **given
        )
        for each in (None, shaping)
    )
    data = {name: value[0, :5] for name, value in plain.data.items()}
    after = GAMMA * potential(data["next_obs"]).masked_fill(data["terminated"], 0.0)
    torch.testing.assert_close(
        shaped.data["reward"][0, :5], data["reward"] + WEIGHT * (after - potential(data["obs"]))
    )


def test_only_the_columns_of_the_critics_are_read() -> None:
    """Rows of a packed prefix hold more than a critic sees."""
    shaping = PotentialShaping(counted, 1.0, timeout_is_failure=False, columns=slice(1, 2))
    no = torch.tensor([False])
    values = {"obs": torch.tensor([[9.0, 1.0]]), "next_obs": torch.tensor([[9.0, 2.0]])}
    values |= {"reward": torch.zeros(1), "steps": torch.ones(1), "terminated": no, "truncated": no}
    torch.testing.assert_close(shaping.reward(values, GAMMA), torch.tensor([0.9 * 0.5 - 0.25]))
