"""Replay buffer: n-step and Monte-Carlo returns by hand; none crosses an episode, a lane or the ring's
end.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.data.replay import Replay
from robo_rl.eval.host_reads import HostReads
from tests.lane_forms import FORM, FORMS, in_each_form

WIDTHS = {"obs": 1, "ctx": 1, "critic_action": 1, "action": 1, "next_obs": 1, "next_ctx": 1}
GAMMA = 0.5
ENDS = ["", "", "terminated", "truncated"]


form = pytest.fixture(scope="module", autouse=True, params=FORMS)(in_each_form)


def add(
    replay: Replay, lane: int, x: float, reward: float, end: str = "", steps: int = 1, cut: bool = False
) -> None:
    lanes = Lanes.all(replay.lanes, masked=FORM["masked"])
    chosen = lanes.where(lanes.ids == lane)
    k = len(chosen)
    value = torch.full((k, 1), x)
    flags = {"terminated": "terminated" in end, "truncated": "truncated" in end, "cut": cut}
    replay.add(
        chosen,
        {
            "obs": value, "ctx": value, "critic_action": value, "action": value, "next_obs": value + 1.0,
            "next_ctx": value + 1.0, "reward": torch.full((k,), reward), "steps": torch.full((k,), steps),
            "demo": torch.zeros(k), **{name: torch.full((k,), flag) for name, flag in flags.items()},
        },
        GAMMA,
    )  # fmt: skip


Found = dict[float, tuple[float, float, float]]


def everything(replay: Replay, n_step: int, timeout_is_failure: bool = False) -> Found:
    """obs -> (return, discount, next_obs) of every stored decision."""
    batch = replay.sample(
        2000,
        torch.Generator().manual_seed(0),
        gamma=GAMMA,
        n_step=n_step,
        timeout_is_failure=timeout_is_failure,
    )
    rows = zip(batch.obs, batch.reward, batch.discount, batch.next_obs, strict=True)
    return {float(o): (float(r), float(d), float(s)) for o, r, d, s in rows}


def test_three_step_returns_by_hand() -> None:
    """Rewards 1, 2, 4, 8, the last one terminal, gamma 1/2."""
    replay = Replay(10, 1, WIDTHS)
    for i, reward in enumerate([1.0, 2.0, 4.0, 8.0]):
        add(replay, 0, float(i), reward, "terminated" if i == 3 else "")
    found = everything(replay, 3)
    assert found[0.0] == (1 + 1 + 1, 0.125, 3.0)  # 1 + 2/2 + 4/4, then bootstrap from the state after step 2
    assert found[1.0] == (2 + 2 + 2, 0.0, 4.0)  # reaches the end: nothing to bootstrap
    assert found[3.0] == (8.0, 0.0, 4.0)


def test_a_timeout_bootstraps_unless_declared_a_failure() -> None:
    """Time-outs count as failures only with the named option."""
    replay = Replay(4, 1, WIDTHS)
    add(replay, 0, 0.0, 1.0, "truncated")
    assert everything(replay, 3)[0.0] == (1.0, 0.5, 1.0)
    assert everything(replay, 3, timeout_is_failure=True)[0.0] == (1.0, 0.0, 1.0)


def test_the_newest_decision_bootstraps_from_where_it_stands() -> None:
    """A sample does not wait for n steps: a shorter return is valid."""
    replay = Replay(10, 1, WIDTHS)
    add(replay, 0, 0.0, 1.0)
    add(replay, 0, 1.0, 1.0)
    found = everything(replay, 5)
    assert found[0.0] == (1.5, 0.25, 2.0)
    assert found[1.0] == (1.0, 0.5, 2.0)


def test_chunks_discount_by_their_length() -> None:
    """A decision of 3 steps discounts later values by gamma^3."""
    replay = Replay(10, 1, WIDTHS)
    add(replay, 0, 0.0, 1.0, steps=3)
    add(replay, 0, 1.0, 8.0, "terminated", steps=2)
    assert everything(replay, 2)[0.0] == (1.0 + 8.0 / 8.0, 0.0, 2.0)
    assert everything(replay, 1)[0.0] == (1.0, 0.125, 1.0)


def test_a_cut_stops_the_sum_and_bootstraps() -> None:
    """The lane's next entry is not the successor of this one."""
    replay = Replay(10, 1, WIDTHS)
    add(replay, 0, 0.0, 1.0, cut=True)
    add(replay, 0, 50.0, 100.0)
    assert everything(replay, 5)[0.0] == (1.0, 0.5, 1.0)


def test_monte_carlo_returns_come_with_the_end() -> None:
    """NaN while the episode runs, discounted sums afterwards, per lane."""
    replay = Replay(20, 2, WIDTHS)
    add(replay, 0, 0.0, 0.0)
    add(replay, 1, 9.0, 3.0)
    add(replay, 0, 1.0, 4.0, "terminated")
    assert replay.data["mc_return"][0, :2].tolist() == [2.0, 4.0]
    assert math.isnan(replay.data["mc_return"][1, 0])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from(ENDS)), min_size=1, max_size=60),
    st.integers(1, 6),
)
def test_returns_never_cross_an_episode_a_lane_or_the_ring(
    events: list[tuple[int, str]], n_step: int
) -> None:
    """Rewards identify their episode: a sum over two would be no multiple of one reward."""
    replay, names = Replay(24, 2, WIDTHS), [1.0, 1000.0]
    for count, (lane, end) in enumerate(events):
        add(replay, lane, names[lane] + count / 64.0, names[lane], end)
        if end:
            names[lane] += 1.0
    batch = replay.sample(300, torch.Generator().manual_seed(1), gamma=1.0, n_step=n_step)
    episode = batch.obs.squeeze(1).floor()
    used = batch.reward / episode
    assert torch.equal(used, used.round())
    assert used.max() <= n_step
    assert torch.equal(batch.next_obs.squeeze(1).floor(), episode + 1.0)


def floors(replay: Replay, timeout_is_failure: bool = False) -> dict[float, float | None]:
    """obs -> return_floor of every stored decision; None if it is unknown."""
    batch = replay.sample(
        2000, torch.Generator().manual_seed(0), gamma=GAMMA, n_step=3, timeout_is_failure=timeout_is_failure
    )
    rows = zip(batch.obs, batch.return_floor, strict=True)
    return {float(o): None if r.isnan() else float(r) for o, r in rows}


def test_a_terminated_episode_floors_every_decision_by_its_own_return() -> None:
    """Chunks of 2, 1 and 2 steps, gamma 1/2, rewards 1, -4, 8: 8; -4 + 8/2 = 0; 1 + 0/4 = 1, whatever n
    is.
    """
    replay = Replay(10, 1, WIDTHS)
    for i, (reward, steps) in enumerate([(1.0, 2), (-4.0, 1), (8.0, 2)]):
        add(replay, 0, float(i), reward, "terminated" if i == 2 else "", steps)
    assert floors(replay) == {0.0: 1.0, 1.0: 0.0, 2.0: 8.0}


def test_a_timeout_is_a_floor_only_where_it_is_the_end() -> None:
    """A cost of 1 per step, gamma 1/2: -1.5 and -1 are no floors after a time-out, unless it counts as a
    failure.
    """
    replay = Replay(10, 1, WIDTHS)
    add(replay, 0, 0.0, -1.0)
    add(replay, 0, 1.0, -1.0, "truncated")
    add(replay, 0, 2.0, 4.0, "terminated")
    assert floors(replay) == {0.0: None, 1.0: None, 2.0: 4.0}
    assert floors(replay, timeout_is_failure=True) == {0.0: -1.5, 1.0: -1.0, 2.0: 4.0}


def test_a_termination_at_the_limit_of_the_clock_is_a_termination() -> None:
    """An environment may set both flags: the episode has ended and is not bootstrapped."""
    replay = Replay(4, 1, WIDTHS)
    add(replay, 0, 0.0, 4.0, "terminated truncated")
    assert floors(replay) == {0.0: 4.0}


def test_running_and_cut_episodes_floor_nothing() -> None:
    """Decisions after the cut are stored elsewhere; the episode of lane 1 has not ended."""
    replay = Replay(20, 2, WIDTHS)
    add(replay, 0, 0.0, 1.0, cut=True)
    add(replay, 0, 1.0, 2.0, "terminated")
    add(replay, 1, 9.0, 3.0)
    assert floors(replay, timeout_is_failure=True) == {0.0: None, 1.0: 2.0, 9.0: None}


def test_a_slot_that_is_used_again_forgets_how_its_episode_ended() -> None:
    """Three decisions of a time-out; two of their slots are then overwritten by a success and a running
    episode.
    """
    replay = Replay(3, 1, WIDTHS)
    for i in range(3):
        add(replay, 0, float(i), 1.0, "truncated" if i == 2 else "")
    add(replay, 0, 3.0, 4.0, "terminated")
    add(replay, 0, 4.0, 8.0)
    assert floors(replay) == {2.0: None, 3.0: 4.0, 4.0: None}
    assert not replay.data["timed_out"][0, 1]


def test_floors_are_restored_and_not_made_up_for_old_checkpoints() -> None:
    """States saved before `timed_out` existed do not distinguish time-outs: no floor where that matters."""
    replay, other, older = (Replay(8, 1, WIDTHS) for _ in range(3))
    add(replay, 0, 0.0, 4.0, "terminated")
    add(replay, 0, 1.0, 2.0, "truncated")
    other.load_state_dict(replay.state_dict())
    assert floors(other) == floors(replay) == {0.0: 4.0, 1.0: None}
    older.load_state_dict({name: value for name, value in replay.state_dict().items() if name != "timed_out"})
    assert floors(older) == {0.0: None, 1.0: None}
    assert floors(older, timeout_is_failure=True) == {0.0: 4.0, 1.0: 2.0}


def test_the_ring_forgets_the_oldest() -> None:
    """After six decisions in four slots only the last four can be drawn."""
    replay = Replay(4, 1, WIDTHS)
    for i in range(6):
        add(replay, 0, float(i), 0.0)
    assert sorted(everything(replay, 1)) == [2.0, 3.0, 4.0, 5.0]
    assert len(replay) == 4


def test_state_round_trip() -> None:
    """A restored replay draws the same batches."""
    replay, other = Replay(8, 2, WIDTHS), Replay(8, 2, WIDTHS)
    for i in range(5):
        add(replay, i % 2, float(i), 1.0)
    other.load_state_dict(replay.state_dict())
    assert everything(replay, 2) == everything(other, 2)
    assert torch.equal(other.head, replay.head)


def test_too_small_a_replay_is_refused() -> None:
    """Fewer slots than lanes cannot work, and the message names the setting."""
    with pytest.raises(ConfigError, match="replay_capacity"):
        Replay(1, 2, WIDTHS)


def test_returns_are_not_known_across_a_cut() -> None:
    """Successors are stored elsewhere: NaN before the cut, correct values after it, and no mixing of
    episodes.
    """
    replay = Replay(10, 1, WIDTHS)
    add(replay, 0, 0.0, 1.0)
    add(replay, 0, 1.0, 1.0, cut=True)
    add(replay, 0, 50.0, 4.0)
    add(replay, 0, 51.0, 8.0, "terminated", cut=True)
    assert replay.data["mc_return"][0, :4].isnan().tolist() == [True, True, False, False]
    assert replay.data["mc_return"][0, 2:4].tolist() == [8.0, 8.0]


def test_an_episode_longer_than_the_ring_still_gets_its_returns() -> None:
    """Six steps of reward 1 in four slots, gamma 1/2: the last four are 1.875, 1.75, 1.5, 1."""
    replay = Replay(4, 1, WIDTHS)
    for i in range(6):
        add(replay, 0, float(i), 1.0, "truncated" if i == 5 else "")
    slots = torch.arange(2, 6) % 4
    assert replay.data["mc_return"][0, slots].tolist() == [1.875, 1.75, 1.5, 1.0]


def test_lanes_may_advance_at_different_moments() -> None:
    """Decisions of chunks end at different times: lanes of 5, 1 and 0 decisions are sampled in proportion."""
    replay = Replay(30, 3, WIDTHS)
    for i in range(5):
        add(replay, 0, float(i), 0.0)
    add(replay, 1, 100.0, 0.0)
    found = everything(replay, 3)
    assert sorted(found) == [0.0, 1.0, 2.0, 3.0, 4.0, 100.0]


@pytest.mark.parametrize("length", [3, 4, 6])
def test_lanes_that_end_together_have_the_returns_of_lanes_that_end_in_turn(length: int) -> None:
    """Three episodes in 8 slots, in one piece and across the ring's end, with chunks of 1 and 2 steps."""
    together, in_turn = Replay(16, 2, WIDTHS), Replay(16, 2, WIDTHS)
    every = Lanes.all(2, masked=FORM["masked"])
    for step in range(3 * length):
        x, end = torch.tensor([[step], [100.0 + step]]), step % length == length - 1
        values = dict.fromkeys(WIDTHS, x) | {
            "reward": x[:, 0], "steps": torch.tensor([1.0, 2.0]), "demo": torch.zeros(2),
            "terminated": torch.tensor([False, end]), "truncated": torch.tensor([end, False]),
            "cut": torch.tensor([step == 1, False]),
        }  # fmt: skip
        together.add(every, values, GAMMA)
        for lane in range(2):
            chosen = every.where(every.ids == lane)
            in_turn.add(chosen, {k: every.rows(v, every.ids == lane) for k, v in values.items()}, GAMMA)
    for name, column in together.data.items():
        torch.testing.assert_close(column, in_turn.data[name], rtol=0.0, atol=0.0, equal_nan=True)


@pytest.mark.parametrize("same_steps", [True, False])
def test_storing_an_episode_makes_no_tensor_without_a_device(same_steps: bool) -> None:
    """Demonstrations are stored on the run's device: a tensor on the CPU would meet those of the GPU."""
    replay, lanes = Replay(8, 1, WIDTHS), Lanes.all(1, masked=FORM["masked"])
    one = torch.ones(1, 1)
    values = dict.fromkeys(WIDTHS, one) | {name: one[0] for name in ("reward", "demo")}
    with HostReads().watching() as found:
        for step in range(3):
            flags = dict.fromkeys(("truncated", "cut"), one[0] < 0.0) | {"terminated": one[0] * step > 1.0}
            steps = one[0] if same_steps else one[0] * (step + 1)
            replay.add(lanes, values | flags | {"steps": steps}, GAMMA)
    assert not found.strays, dict(found.strays)
    assert replay.data["mc_return"][0, :3].isfinite().all()


@pytest.mark.parametrize(
    "other", [Replay(6, 3, WIDTHS), Replay(4, 2, WIDTHS), Replay(8, 2, WIDTHS | {"obs": 2})]
)
def test_a_state_of_another_replay_is_refused(other: Replay) -> None:
    """Other lanes, slots or widths give one sentence, and the state is not loaded in part."""
    replay = Replay(8, 2, WIDTHS)
    for i in range(4):
        add(replay, 0, float(i), 1.0)
    with pytest.raises(CheckpointError, match="replay of this checkpoint"):
        other.load_state_dict(replay.state_dict())
    assert len(other) == 0
