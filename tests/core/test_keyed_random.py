"""Random numbers that are functions of (seed, counter)."""

from __future__ import annotations

import math

import pytest
import torch

from robo_rl.core.keyed_random import keyed_chunks, keyed_normal, keyed_uniform, splitmix64


def test_splitmix64_gives_the_published_numbers() -> None:
    """The first outputs from seed 0 of Vigna's reference implementation, https://prng.di.unimi.it."""
    found = [value & (2**64 - 1) for value in splitmix64(torch.tensor([0]), 3)[0].tolist()]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_keyed_numbers_look_random_and_belong_to_their_key() -> None:
    """Mean, spread and correlations of 200,000 numbers within four standard errors; one lane alone draws the
    same.
    """
    seeds = torch.arange(20_000)
    normal = keyed_normal(seeds, 3, 10)
    error = 4.0 / math.sqrt(normal.numel())
    assert abs(float(normal.mean())) < error
    assert abs(float(normal.std()) - 1.0) < error
    assert torch.corrcoef(normal)[~torch.eye(10, dtype=torch.bool)].abs().max() < 4.0 / math.sqrt(20_000)
    following = keyed_normal(seeds + 1, 3, 10)
    assert torch.corrcoef(torch.stack([normal[0], following[0]]))[0, 1].abs() < 4.0 / math.sqrt(20_000)
    assert torch.equal(keyed_normal(seeds[7:8], 3, 10), normal[:, 7:8])
    uniform = keyed_uniform(seeds, 0, 10)
    assert 0.0 < float(uniform.min()) < float(uniform.max()) < 1.0


def test_keyed_numbers_never_reach_one() -> None:
    """Both seeds draw the highest of the 2^24 numbers: as float32, (2^24 - 1 + 0.5) / 2^24 is 1."""
    assert (keyed_uniform(torch.tensor([12_694_113, 12_832_633]), 0, 1) == 1.0 - 2.0**-24).all()


def test_chunks_of_normal_numbers_have_the_moments_of_the_distribution() -> None:
    """Mean, variance and kurtosis of 2,000,000 numbers, and correlations between neighbours, lanes and
    counters, within four standard errors.
    """
    seeds = torch.arange(2_000)
    found = torch.cat([keyed_chunks(seeds, torch.full((2_000,), i), (25, 4)) for i in range(10)]).double()
    n = found.numel()
    assert abs(float(found.mean())) < 4.0 * math.sqrt(1.0 / n)
    assert abs(float(found.square().mean()) - 1.0) < 4.0 * math.sqrt(2.0 / n)
    assert abs(float((found**4).mean()) - 3.0) < 4.0 * math.sqrt(96.0 / n)
    flat = found.flatten(1)
    for lag, (first, second) in {
        "elements": (flat[:, 1:], flat[:, :-1]),
        "halves": (flat[:, 50:], flat[:, :50]),
        "lanes": (flat[1:], flat[:-1]),
        "counters": (flat[2_000:], flat[:-2_000]),
    }.items():
        assert abs(float((first * second).mean())) < 4.0 / math.sqrt(first.numel()), lag


@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (4, 2)])
def test_a_chunk_belongs_to_its_seed_counter_and_stream(shape: tuple[int, int]) -> None:
    """Lanes together draw what each draws alone; another counter or stream draws other numbers."""
    seeds, counter = torch.tensor([5, 6, 5]), torch.tensor([0, 0, 1])
    together = keyed_chunks(seeds, counter, shape)
    assert together.shape == (3, *shape)
    for lane in range(3):
        assert torch.equal(
            keyed_chunks(seeds[lane : lane + 1], counter[lane : lane + 1], shape)[0], together[lane]
        )
    assert len({tuple(row.flatten().tolist()) for row in together}) == 3
    assert not torch.equal(keyed_chunks(seeds, counter, shape, stream=1), together)


def test_the_largest_normal_number_is_finite() -> None:
    """Whatever the words are, the radius is at most sqrt(2 * 26 * log 2) = 6.0."""
    found = keyed_chunks(torch.arange(200_000), torch.zeros(200_000, dtype=torch.long), (16, 1))
    assert torch.isfinite(found).all()
    assert found.abs().max() < 6.01
