from __future__ import annotations

from itertools import islice

from robo_rl.core.seeding import EpisodeSeeds, derive_seed


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
