from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds, derive_seed, episode_seeds


def test_count_is_enough_to_go_on() -> None:
    """A resumed run continues the seeds of the killed one from the saved root and count."""
    seeds = EpisodeSeeds(("train", 3))
    first = list(islice(seeds, 5))
    assert first == [derive_seed("train", 3, i) for i in range(5)]
    assert next(EpisodeSeeds(seeds.root, seeds.count)) == next(seeds) == derive_seed("train", 3, 5)


def test_a_single_name_is_a_root_too() -> None:
    """EpisodeSeeds("train") and EpisodeSeeds(7) read better than one-element tuples."""
    assert next(EpisodeSeeds("train")) == derive_seed("train", 0)
    assert next(EpisodeSeeds(7, 2)) == derive_seed(7, 2)


def test_numbers_and_lists_give_seeds_without_end() -> None:
    """A number is the root of all seeds; a list gives the first ones; an iterator stays what it is."""
    assert list(islice(episode_seeds(7, 2), 3)) == list(islice(EpisodeSeeds(7), 3))
    listed = list(islice(episode_seeds([4, 2], 2), 4))
    assert listed[:2] == [4, 2]
    assert listed == list(islice(episode_seeds((4, 2), 2), 4))
    own = iter([1])
    assert episode_seeds(own, 3) is own


@pytest.mark.wrong_types
def test_seeds_of_an_array_count_as_a_list() -> None:
    for array in (np.array([4, 2]), torch.tensor([4, 2])):
        assert list(islice(episode_seeds(array, 2), 4)) == list(islice(episode_seeds([4, 2], 2), 4))


@pytest.mark.wrong_types
@pytest.mark.parametrize("seeds", ["ab", 0.5, None, True, {0: 1}, [0.5], ["a"]])
def test_what_is_no_seed_is_refused(seeds: Any) -> None:
    with pytest.raises(TypeError, match=r"^seeds is .*, expected: a whole number, a list of them, or an"):
        episode_seeds(seeds, 1)


@pytest.mark.parametrize("seeds", [-1, [0], [0, -1]])
def test_seeds_below_zero_and_too_few_are_refused(seeds: Any) -> None:
    with pytest.raises(ConfigError, match=r"cannot be used|expected at least 2, one for each lane"):
        episode_seeds(seeds, 2)
