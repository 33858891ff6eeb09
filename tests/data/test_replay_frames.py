"""A replay that finds pictures by their numbers: hand-worked windows over episode ends and a turned ring.

One lane sees frames 0, 1, 2 (an episode that terminates), then 3, 4, 5, ...; frame k is a picture of value k.
Decision 0 begins at frame 0 and ends at 1, decision 1 begins at 1 and ends at 2, decision 2 begins at 3.
"""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.lanes import Lanes
from robo_rl.data.frames import FrameRing
from robo_rl.data.replay import Batch, Replay
from robo_rl.eval.host_reads import HostReads
from robo_rl.rl.mix import ReplayMix, concatenate
from tests.lane_forms import FORM, FORMS, in_each_form

WIDTHS = {"obs": 1, "next_obs": 1, "critic_action": 1, "action": 1, "ctx": 0, "next_ctx": 0}
FRAME_OF = [0, 1, 3, 4, 5, 6]  # frame at which decision d begins
WINDOW = {0: [0, 0], 1: [0, 1], 2: [1, 2], 3: [3, 3], 4: [3, 4], 5: [4, 5], 6: [5, 6], 7: [6, 7]}

form = pytest.fixture(scope="module", autouse=True, params=FORMS)(in_each_form)


def filled(decisions: int, slots: int = 20, lanes: int = 2) -> Replay:
    """A replay of equal lanes, but for 100 added to the pictures of lane 1. obs is the decision's number."""
    ring = FrameRing(slots, lanes, {"image.a": (2, 2, 3)}, obs_steps=2)
    store, every = Replay(20, lanes, WIDTHS, frames=ring), Lanes.all(lanes, masked=FORM["masked"])

    def see(value: int, first: bool) -> None:
        pictures = torch.full((lanes, 2, 2, 3), value, dtype=torch.uint8)
        pictures += 100 * torch.arange(lanes, dtype=torch.uint8).view(-1, 1, 1, 1)
        ring.append(every, {"image.a": pictures}, torch.full((lanes,), first))

    see(0, True)
    for decision in range(decisions):
        begins, over = ring.newest, decision == 1
        see(FRAME_OF[decision] + 1, False)
        flags = {name: torch.full((lanes,), over) for name in ("terminated",)}
        no = torch.zeros(lanes, dtype=torch.bool)
        numbers = {
            name: torch.full((lanes, 1), float(decision)) for name in ("obs", "critic_action", "action")
        }
        empty = torch.zeros(lanes, 0)
        store.add(
            every,
            numbers | flags | {
                "next_obs": numbers["obs"] + 1.0, "ctx": empty, "next_ctx": empty, "truncated": no, "cut": no,
                "reward": torch.ones(lanes), "steps": torch.ones(lanes), "demo": torch.zeros(lanes),
                "frame": begins, "next_frame": ring.newest,
            },
            0.9,
        )  # fmt: skip
        if over:
            see(FRAME_OF[decision] + 2, True)
    return store


def drawn(store: Replay, n_step: int = 1) -> Batch:
    return store.sample(400, torch.Generator().manual_seed(0), gamma=0.9, n_step=n_step)


def windows(batch: Batch) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
    """(lane, decision) -> (values of its window, values of the next observation's)."""
    found = {}
    for i in range(len(batch.reward)):
        one, two = (
            pictures["image.a"][i, :, 0, 0, 0].tolist() for pictures in (batch.pictures, batch.next_pictures)
        )
        lane = one[-1] // 100
        found[lane, int(batch.obs[i])] = [v - 100 * lane for v in one], [v - 100 * lane for v in two]
    return found


def test_windows_never_cross_the_end_of_an_episode() -> None:
    """Decision 2 is the first of its episode: its history is its own first frame, not frame 2."""
    found = windows(drawn(filled(5)))
    assert set(found) == {(lane, decision) for lane in (0, 1) for decision in range(5)}
    for (_, decision), (now, after) in found.items():
        assert now == WINDOW[FRAME_OF[decision]]
        assert after == WINDOW[FRAME_OF[decision] + 1]


def test_the_observation_after_n_steps_stays_in_the_episode() -> None:
    """Three steps from decision 0 end with the episode's last frame, 2; from decision 2 with frame 6."""
    found = windows(drawn(filled(5), n_step=3))
    last = {0: 2, 1: 2, 2: 6, 3: 6, 4: 6}
    assert {decision: WINDOW[frame] for decision, frame in last.items()} == {
        decision: after for (_, decision), (_, after) in found.items()
    }


def test_decisions_whose_pictures_are_overwritten_are_not_drawn() -> None:
    """Frames 0 to 7 in a ring of 5: 3 to 7 are left. Decision 2 begins at frame 3, with a history of it alone
    (frame 2 would be needed for a decision inside an episode, so it is left out); 3, 4 and 5 remain.
    """
    store = filled(6, slots=5)
    assert {decision for _, decision in windows(drawn(store))} == {3, 4, 5}
    assert len(store) == 2 * 3
    for (_, decision), (now, after) in windows(drawn(store, n_step=2)).items():
        assert now == WINDOW[FRAME_OF[decision]]
        assert after == WINDOW[min(FRAME_OF[decision] + 2, 7)]


def test_a_restored_replay_draws_the_same_pictures() -> None:
    for decisions, slots in ((3, 20), (6, 5)):
        store, other = filled(decisions, slots), filled(0, slots)
        other.load_state_dict(store.state_dict())
        one, two = drawn(store), drawn(other)
        assert torch.equal(one.pictures["image.a"], two.pictures["image.a"])
        assert torch.equal(one.next_pictures["image.a"], two.next_pictures["image.a"])


def test_a_mix_joins_pictures_of_all_buffers() -> None:
    stores = {"online": filled(5), "demo": filled(5, lanes=1)}
    mix = ReplayMix(stores, {"online": 0.5, "demo": 0.5})
    batch = mix.sample(8, torch.Generator().manual_seed(0), gamma=0.9, n_step=1, timeout_is_failure=False)
    assert batch.pictures["image.a"].shape == (8, 2, 2, 2, 3)
    plain = concatenate([batch, batch])
    assert plain.next_pictures["image.a"].shape == (16, 2, 2, 2, 3)


def test_sampling_pictures_reads_nothing_from_the_device() -> None:
    store, rng = filled(6, slots=5), torch.Generator().manual_seed(0)
    with HostReads().watching() as found:
        store.sample(32, rng, gamma=0.9, n_step=3)
    assert not found.reads
    assert not found.strays
