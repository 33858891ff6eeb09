"""The chunk executor: queues, history, resets and the temporal ensemble, per lane."""

from __future__ import annotations

import math

import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError
from tests.eval.fakes import NoisyPolicy


def obs(*values: float) -> dict[str, torch.Tensor]:
    return {"state": torch.tensor([[v, v] for v in values])}


def executor(lanes: int = 2, **options: object) -> ChunkExecutor:
    made = ChunkExecutor(NoisyPolicy(spread=1.0), lanes, **options)  # type: ignore[arg-type]
    made.reset(obs(*map(float, range(lanes))))
    return made


def chunk(*values: float) -> torch.Tensor:
    return torch.tensor([[[v] for v in values]])


def test_a_chunk_is_executed_and_then_planned_again() -> None:
    """Chunks of 4, of which 2 are executed: due at 0, 2, 4 ..."""
    ex, due = executor(1), []
    for _ in range(5):
        rows = ex.due()
        due.append(len(rows))
        if len(rows):
            ex.plan(rows, chunk(0.1, 0.2, 0.3, 0.4))
        ex.advance()
    assert due == [1, 0, 1, 0, 1]
    assert ex.decision.tolist() == [3]


def test_a_reset_empties_only_its_own_lane() -> None:
    """A stale queue would execute actions of the last episode in the next one."""
    ex = executor()
    ex.plan(ex.due(), torch.cat([chunk(0.1, 0.2, 0, 0), chunk(0.5, 0.6, 0, 0)]))
    ex.advance()
    ex.reset(obs(9.0, 9.0), torch.tensor([1]))
    assert ex.due().ids.tolist() == [1]
    assert ex.peek(torch.tensor([0])).item() == pytest.approx(0.2)
    assert ex.decision.tolist() == [1, 0]
    assert ex.history()["state"][:, :, 0].tolist() == [[0.0, 0.0], [9.0, 9.0]]


def test_history_is_stacked_newest_last() -> None:
    """To = 2: the first observation is repeated, then the window moves."""
    ex = executor(1)
    ex.observe(obs(5.0))
    ex.observe(obs(7.0))
    assert ex.history()["state"][0, :, 0].tolist() == [5.0, 7.0]


def test_history_rows_do_not_change_afterwards() -> None:
    """Observations that a collector keeps must not change when another lane is reset."""
    ex = executor()
    kept = ex.history(torch.tensor([0]))["state"]
    before = kept.clone()
    ex.reset(obs(3.0, 3.0), torch.tensor([0]))
    assert torch.equal(kept, before)


def test_temporal_ensemble_by_hand() -> None:
    """Chunks (1, 2, ..) then (4, ..) with m = log 2: the older one weighs 1, the newer 1/2 -> (2 + 4 / 2) /
    1.5.
    """
    ex = executor(1, ensemble=math.log(2.0))
    ex.policy.spread = 0.1  # type: ignore[attr-defined]
    ex.plan(ex.due(), chunk(1.0, 2.0, 3.0, 4.0))
    assert ex.peek().item() == pytest.approx(0.1)
    ex.advance()
    ex.plan(ex.due(), chunk(4.0, 0.0, 0.0, 0.0))
    assert ex.peek().item() == pytest.approx(0.1 * (2.0 + 4.0 / 2.0) / 1.5, rel=1e-5)


def test_state_round_trip_continues_bit_for_bit() -> None:
    """Exact resume needs queues, positions and histories, and nothing else."""
    one, noise = executor(), EpisodeNoise((4, 1))
    noise.reset([0, 1], [11, 12])
    one.act(noise)
    other = ChunkExecutor(NoisyPolicy(), 2)
    other.load_state_dict(one.state_dict())
    again = EpisodeNoise((4, 1))
    again.load_state_dict(noise.state_dict())
    for _ in range(5):
        assert torch.equal(one.act(noise), other.act(again))


def test_noise_depends_on_episode_and_decision_only() -> None:
    """Pairing: another lane or order gives the same draw; streams are independent; scale 0 gives zero."""
    one, other = EpisodeNoise((4, 1)), EpisodeNoise((4, 1))
    one.reset([0, 1], [5, 6])
    other.reset([3], [6])
    one.draw([0, 1], [0, 0])
    assert torch.equal(one.draw([1], [2]), other.draw([3], [2]))
    stream = EpisodeNoise((4, 1), stream=1)
    stream.reset([3], [6])
    assert not torch.equal(stream.draw([3], [2]), other.draw([3], [2]))
    assert EpisodeNoise((4, 1), scale=0.0).draw([0], [0]).abs().sum() == 0.0


def test_noise_depends_on_the_decision_and_on_nothing_drawn_before() -> None:
    """A robot's head draws for days without a reset: any decision can be drawn at any time."""
    noise = EpisodeNoise((4, 1))
    noise.reset([0, 1], [1, 2])
    first = noise.draw([0, 1], [0, 0])
    far = noise.draw([0, 0], [10_000_000, 10_000_001])
    assert not torch.equal(far[0], far[1])
    assert torch.equal(noise.draw([0, 1], [0, 0]), first)


@pytest.mark.parametrize("execute", [0, 5])
def test_execute_must_fit_the_chunk(execute: int) -> None:
    """More actions than the chunk holds would repeat stale ones."""
    with pytest.raises(ConfigError, match="execute"):
        executor(1, execute=execute)


@pytest.mark.parametrize("ensemble", [100.0, float("nan"), float("inf")])
def test_an_ensemble_that_would_overflow_is_refused(ensemble: float) -> None:
    """Weights of older chunks grow by exp(m k), which float32 limits."""
    with pytest.raises(ConfigError, match="ensemble"):
        executor(1, ensemble=ensemble)


def test_an_ensemble_forgets_the_episode_before() -> None:
    """After a reset the mean contains the new chunk only."""
    ex = executor(2, ensemble=0.01)
    ex.plan(ex.due(), torch.cat([chunk(0.9, 0.9, 0.9, 0.9), chunk(0.9, 0.9, 0.9, 0.9)]))
    ex.advance()
    ex.reset(obs(0.0, 0.0), torch.tensor([1]))
    ex.plan(ex.due(), torch.cat([chunk(-0.9, 0, 0, 0), chunk(-0.9, 0, 0, 0)]))
    assert abs(ex.peek()[0].item()) < 0.1
    assert ex.peek()[1].item() == pytest.approx(-0.9)


def test_lanes_do_not_see_each_other() -> None:
    """Three lanes together act like each alone."""
    noise = EpisodeNoise((4, 1))
    noise.reset([0, 1, 2], [11, 12, 13])
    together = executor(3)
    found = torch.stack([together.act(noise) for _ in range(5)])
    for lane in range(3):
        alone = executor(1)
        single = EpisodeNoise((4, 1))
        single.reset([0], [11 + lane])
        assert torch.equal(torch.stack([alone.act(single)[0] for _ in range(5)]), found[:, lane])
