from __future__ import annotations

from itertools import islice

from robo_rl.core.seeding import EpisodeSeeds, derive_seed


def test_count_is_enough_to_go_on() -> None:
    """A resumed run hands out the seeds that the killed one would have: root and count are saved, nothing
    else.
    """
    seeds = EpisodeSeeds(("train", 3))
    first = list(islice(seeds, 5))
    assert first == [derive_seed("train", 3, i) for i in range(5)]
    assert next(EpisodeSeeds(seeds.root, seeds.count)) == next(seeds) == derive_seed("train", 3, 5)


def test_a_single_name_is_a_root_too() -> None:
    """EpisodeSeeds("train") and EpisodeSeeds(7) read better than one-element tuples."""
    assert next(EpisodeSeeds("train")) == derive_seed("train", 0)
    assert next(EpisodeSeeds(7, 2)) == derive_seed(7, 2)
