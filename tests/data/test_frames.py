"""Frames stored once: the same windows as a buffer that stores every observation and next observation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.data.frames import FrameRing
from robo_rl.eval.host_reads import HostReads
from tests.lane_forms import FORM, FORMS, in_each_form

SHAPES = {"image.a": (2, 2, 3), "image.b": (1, 3, 3)}

form = pytest.fixture(scope="module", autouse=True, params=FORMS)(in_each_form)


class Naive:
    """Windows of all frames, stacked when they are seen, as full observations are stored."""

    def __init__(self, lanes: int, obs_steps: int) -> None:
        self.obs_steps = obs_steps
        self.episode: list[list[Tensor]] = [[] for _ in range(lanes)]
        self.windows: list[list[Tensor]] = [[] for _ in range(lanes)]
        self.ages: list[list[int]] = [[] for _ in range(lanes)]

    def append(self, lane: int, frame: Tensor, first: bool) -> None:
        seen = self.episode[lane] = [frame] if first else [*self.episode[lane], frame]
        padded = [seen[0]] * self.obs_steps + seen
        self.windows[lane].append(torch.stack(padded[-self.obs_steps :]))
        self.ages[lane].append(len(seen) - 1)


def frames(count: int, rng: torch.Generator) -> dict[str, Tensor]:
    return {
        key: torch.randint(256, (count, *shape), generator=rng, dtype=torch.uint8)
        for key, shape in SHAPES.items()
    }


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=1, max_size=30),
    obs_steps=st.integers(1, 3),
    slots=st.integers(4, 12),
    seed=st.integers(0, 100),
)
def test_windows_equal_those_of_a_naive_buffer(
    ends: list[list[bool]], obs_steps: int, slots: int, seed: int
) -> None:
    """Over random episode ends, lanes and wrap-around. A lane whose episode ends stores its last observation
    and the next episode's first.
    """
    ring, lanes = FrameRing(slots, 3, SHAPES, obs_steps), Lanes.all(3, masked=FORM["masked"])
    naive = {key: Naive(3, obs_steps) for key in SHAPES}
    rng = torch.Generator().manual_seed(seed)

    def store(mask: Tensor, first: bool) -> None:
        chosen, made = lanes.where(mask), frames(3, rng)
        rows = {key: chosen.read(value) for key, value in made.items()}
        ring.append(chosen, rows, torch.full((len(chosen),), first))
        for lane in mask.nonzero().flatten().tolist():
            for key, value in made.items():
                naive[key].append(lane, value[lane], first)

    store(torch.ones(3, dtype=torch.bool), True)
    for over in ends:
        store(torch.ones(3, dtype=torch.bool), False)
        store(torch.tensor(over), True)
    for lane in range(3):
        total, ages = int(ring.head[lane]), naive["image.a"].ages[lane]
        assert total == len(ages)
        numbers = torch.arange(max(0, total - slots), total)
        at = torch.full_like(numbers, lane)
        whole = [n - min(obs_steps - 1, ages[n]) >= total - slots for n in numbers.tolist()]
        assert ring.holds(at, numbers).tolist() == whole
        kept = numbers[torch.tensor(whole)]
        found = ring.windows(at[: len(kept)], kept)
        for key, windows in found.items():
            assert torch.equal(windows, torch.stack([naive[key].windows[lane][n] for n in kept.tolist()]))


def test_frames_that_are_gone_or_to_come_are_not_held() -> None:
    ring, lanes = FrameRing(4, 1, SHAPES), Lanes.all(1, masked=FORM["masked"])
    for _ in range(6):
        ring.append(lanes, frames(1, torch.Generator().manual_seed(0)))
    assert ring.holds(torch.zeros(5, dtype=torch.long), torch.tensor([-1, 1, 2, 5, 6])).tolist() == [
        False, False, True, True, False,
    ]  # fmt: skip


def test_restored_ring_continues_alike() -> None:
    """A checkpoint of a partly filled ring, and of one that has wrapped around."""
    lanes, rng = Lanes.all(2, masked=FORM["masked"]), torch.Generator().manual_seed(0)
    ring, other = FrameRing(5, 2, SHAPES, 2), FrameRing(5, 2, SHAPES, 2)
    for count in (3, 4):
        for _ in range(count):
            ring.append(lanes, frames(2, rng))
        other.load_state_dict(ring.state_dict())
        made = frames(2, rng)
        assert torch.equal(ring.append(lanes, made), other.append(lanes, made))
        assert all(torch.equal(ring.data[key], other.data[key]) for key in SHAPES)
        assert torch.equal(ring.age, other.age)


def test_masked_form_reads_nothing_from_the_device() -> None:
    """In the form for a GPU, storing and finding windows never wait for it."""
    lanes, rng = Lanes.all(3, masked=True), torch.Generator().manual_seed(0)
    ring, made, mask = FrameRing(5, 3, SHAPES, 2), frames(3, rng), torch.tensor([True, False, True])
    reads = HostReads()
    with reads.watching():
        number = ring.append(lanes, made)
        ring.append(lanes.where(mask), made, mask)
        ring.windows(lanes.ids, number)
        ring.holds(lanes.ids, number)
    assert not reads.reads
    assert not reads.strays


def test_refusals_and_memory() -> None:
    """100,000 steps of two cameras of 84 pixels take 4.2 GB; stored pairs of To = 2 take 16.9 GB."""
    assert FrameRing.bytes_of(100_000, 1, {"a": (84, 84, 3), "b": (84, 84, 3)}) == 4_234_400_000
    with pytest.raises(ConfigError, match="at least 4"):
        FrameRing(3, 1, SHAPES, 3)
    state = FrameRing(5, 2, SHAPES).state_dict()
    with pytest.raises(CheckpointError, match="expected"):
        FrameRing(5, 3, SHAPES).load_state_dict(state)


@pytest.mark.gpu
def test_a_gpu_reads_and_writes_pinned_memory_itself() -> None:
    """The ring of `method.frames=host`: tensors of the GPU over memory of the host, with the same windows."""
    rng = torch.Generator().manual_seed(0)
    made = [FrameRing(5, 2, SHAPES, 2, "cuda", pinned=pinned) for pinned in (False, True)]
    lanes = Lanes.all(2, "cuda")
    for _ in range(7):
        seen = {key: value.cuda() for key, value in frames(2, rng).items()}
        numbers = [ring.append(lanes, seen) for ring in made]
    plain, pinned = (ring.windows(lanes.ids, number) for ring, number in zip(made, numbers, strict=True))
    for key, value in plain.items():
        assert pinned[key].device.type == "cuda"
        assert torch.equal(pinned[key], value)
