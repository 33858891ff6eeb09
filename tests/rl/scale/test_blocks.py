"""Decisions that travel in blocks give the replay that they would give one by one."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.lanes import Lanes
from robo_rl.data.replay import Replay
from robo_rl.rl.scale.blocks import BlockStore, _rank

LANES, FIRST, GAMMA = 3, 2, 0.9
WIDTHS = {name: 2 for name in Replay.VECTORS}
ENDS = st.sampled_from(["none", "none", "terminated", "truncated", "cut"])
STEP = st.tuples(st.lists(st.tuples(st.booleans(), ENDS), min_size=LANES, max_size=LANES), st.booleans())


def entry(count: int, number: int) -> dict[str, torch.Tensor]:
    """Values of `count` decisions that differ from all others."""
    values = {
        name: torch.arange(2.0 * count).view(count, 2) + 100.0 * number + at for at, name in enumerate(WIDTHS)
    }
    values |= {"reward": torch.arange(count) + 1.0 * number, "steps": torch.full((count,), 2)}
    return (
        values
        | {"demo": torch.zeros(count)}
        | {name: torch.zeros(count, dtype=torch.bool) for name in Replay.FLAGS}
    )


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(STEP, max_size=12), cuts=st.sets(st.integers(0, 12)), punished=st.sets(st.integers(0, 12))
)
def test_blocks_give_the_replay_of_single_decisions(
    steps: list[tuple[list[tuple[bool, str]], bool]], cuts: set[int], punished: set[int]
) -> None:
    """Lanes finish decisions at different times, episodes end, rewards are changed later, and blocks may be
    cut anywhere: also between a decision and the change of its reward.
    """
    direct, received = (Replay(60, LANES + FIRST, WIDTHS) for _ in range(2))
    store = BlockStore()
    started: set[int] = set()
    for number, (lanes, _) in enumerate(steps):
        chosen = [(lane, end) for lane, (there, end) in enumerate(lanes) if there]
        if chosen:
            ids, values = torch.tensor([lane for lane, _ in chosen]), entry(len(chosen), number)
            for row, (lane, end) in enumerate(chosen):
                started.add(lane)
                if end != "none":
                    values[end][row] = True
            direct.add(Lanes.of(ids + FIRST), values, GAMMA)
            store.add(Lanes.of(ids), values, GAMMA)
        if number in cuts:
            store.take().add_to(received, FIRST, GAMMA)
        open_lanes = [lane for lane, end in chosen if end == "none"]
        if number in punished and open_lanes:
            direct.set_last_reward(Lanes.of(torch.tensor(open_lanes) + FIRST), -1.0)
            store.set_last_reward(Lanes.of(torch.tensor(open_lanes)), -1.0)
    store.take().add_to(received, FIRST, GAMMA)
    expected, found = direct.state_dict(), received.state_dict()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)


def test_read_only_arrays_can_be_added() -> None:
    """An object store hands out arrays of shared memory that must not be written."""
    store, replay = BlockStore(), Replay(10, LANES, WIDTHS)
    store.add(Lanes.of(torch.tensor([0, 2])), entry(2, 1), GAMMA)
    taken = store.take()
    for array in (taken.lanes, *taken.columns.values()):
        array.flags.writeable = False
    taken.add_to(replay, 0, GAMMA)
    assert replay.head.tolist() == [1, 0, 1]
    assert taken.size_bytes == 2 * (8 + 6 * 2 * 4 + 4 + 8 + 4 + 3)


def test_ranks_count_earlier_rows_of_the_same_lane() -> None:
    assert _rank(np.array([2, 0, 2, 2, 1, 0])).tolist() == [0, 0, 1, 2, 0, 1]


def test_a_lost_actor_leaves_no_episode_that_continues() -> None:
    """The lane's next episode neither continues the lost one in n-step sums nor in its return."""
    replay, lane = Replay(10, 1, WIDTHS), Lanes.of(torch.tensor([0]))
    for number in range(2):
        replay.add(lane, entry(1, number) | {"reward": torch.ones(1)}, GAMMA)
    replay.cut_running(lane)
    replay.cut_running(lane)  # nothing more to cut
    last = entry(1, 5) | {"reward": torch.full((1,), 10.0), "terminated": torch.tensor([True])}
    replay.add(lane, last, GAMMA)
    assert replay.data["cut"][0, :3].tolist() == [False, True, False]
    assert replay.data["mc_return"][0, :3].isnan().tolist() == [True, True, False]
    reward, discount, _, used, _ = replay._n_step(None, torch.tensor([0, 2]), GAMMA, 5)
    torch.testing.assert_close(reward, torch.tensor([1.0 + 0.81, 10.0]))
    assert (used.tolist(), discount[0].item()) == ([1, 2], torch.tensor(0.9).pow(4).item())


def test_an_empty_lane_has_nothing_to_cut() -> None:
    replay = Replay(10, 2, WIDTHS)
    replay.cut_running(Lanes.all(2))
    assert not replay.data["cut"].any()
