"""Playback of late chunks: no action is skipped, none is played twice."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hardware.loop.player import ChunkPlayer, Counter, resampled


def labelled(start: int, length: int) -> np.ndarray:
    """A chunk whose actions hold their own number."""
    return np.arange(start, start + length, dtype=float)[:, None]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(
    delays=st.lists(st.integers(0, 50), min_size=1, max_size=30),
    length=st.integers(1, 60),
    every=st.integers(1, 30),
    lost=st.lists(st.booleans(), min_size=1, max_size=10),
)
def test_no_action_is_skipped_or_played_twice(
    delays: list[int], length: int, every: int, lost: list[bool]
) -> None:
    """0-500 ms of delay in ticks of 10 ms, chunks that overtake each other, lost chunks, empty queues."""
    player, under_way, played = ChunkPlayer(), list[tuple[int, int]](), list[int]()
    asked = 0
    for tick in range(600):
        if tick % every == 0:
            if not lost[asked % len(lost)]:
                under_way.append((tick + delays[asked % len(delays)], player.played))
            asked += 1
        for row in [row for row in under_way if row[0] <= tick]:
            under_way.remove(row)
            player.offer(labelled(row[1], length), row[1])
        action = player.next()
        if action is not None:
            played.append(int(action[0]))
    assert played == list(range(len(played)))
    if not all(lost) and length > max(delays) + every * len(lost) + every:
        assert len(played) >= 600 - max(delays) - every * len(lost)  # long enough chunks never run dry


def test_late_chunk_begins_at_the_current_action() -> None:
    """Requested at action 0, received at action 3: its first three actions are skipped."""
    player = ChunkPlayer()
    assert player.offer(labelled(0, 4), 0)
    assert [float(player.next()[0]) for _ in range(3)] == [0.0, 1.0, 2.0]
    assert player.offer(100.0 + labelled(0, 8), 0)
    assert float(player.next()[0]) == 103.0
    assert player.left == 4


def test_useless_chunks_are_refused() -> None:
    """All actions too late; older than a newer one; from the future. A reset clears everything."""
    player = ChunkPlayer()
    player.offer(labelled(0, 6), 0)
    for _ in range(6):
        player.next()
    assert player.next() is None
    assert not player.offer(labelled(0, 6), 0)
    assert player.late == 1
    assert player.offer(labelled(6, 6), 6)
    assert not player.offer(labelled(5, 60), 5)
    assert not player.offer(labelled(7, 6), 7)
    player.reset()
    assert (player.left, player.played) == (0, 0)


def test_states_are_found_by_their_stamps() -> None:
    """Also if that very state was lost on the way to the player; not if none came before."""
    counter = Counter()
    for i in range(5):
        counter.see(10.0 + i, 3 * i)
    assert counter.find(12.0) == 6
    assert counter.find(12.5) == 6
    assert counter.find(9.0) is None


def test_waypoints_are_interpolated_linearly() -> None:
    """25 Hz waypoints at 50 Hz: each once, and the middle between two; the first is held until its time."""
    chunk, times = np.array([[1.0, 10.0], [2.0, 20.0], [4.0, 0.0]]), np.array([0.04, 0.08, 0.12])
    out = resampled(chunk, times, 0.02)
    assert out[:, 0] == pytest.approx([1.0, 1.0, 1.5, 2.0, 3.0, 4.0])
    assert out[:, 1] == pytest.approx([10.0, 10.0, 15.0, 20.0, 10.0, 0.0])
    assert resampled(chunk, times, 0.04) is chunk


def test_a_way_from_the_last_command_goes_straight_to_the_next_waypoint() -> None:
    """Now is 20 ms into the chunk, at 4: the first waypoint, 1, is reached at 40 ms, the others as before."""
    chunk, times = np.array([[1.0], [2.0], [4.0]]), np.array([0.04, 0.08, 0.12])
    out = resampled(chunk, times, 0.01, 0.02, np.array([4.0]))[:, 0]
    assert out[1:6] == pytest.approx([4.0, 2.5, 1.0, 1.25, 1.5])
    late = resampled(chunk, times, 0.01, 0.05, np.array([5.0]))[:, 0]  # past the first waypoint
    assert late[4:8] == pytest.approx([5.0, 4.0, 3.0, 2.0])
    assert (
        resampled(chunk, times, 0.01, 0.2, np.array([5.0]))[-1] == 4.0
    )  # past all: nothing is left to reach
    assert resampled(chunk, times, 0.04, 0.0, np.array([5.0])) is chunk
