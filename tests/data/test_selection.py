"""Selection of episodes for learning by their labels; unlabelled datasets are used entirely."""

from __future__ import annotations

from pathlib import Path

import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.data.selection import select_episodes
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from tests.data.recordings import ENV, add_frames, interrupt

MARKS = (True, False, None, True, None)


@pytest.fixture
def mixed(tmp_path: Path) -> EpisodeStore:
    """Two successes, a failure, two unlabelled episodes, and a salvaged one at index 5."""
    writer = DatasetWriter.create(tmp_path / "set", ENV, min_free_bytes=0, durable=False)
    for seed, mark in enumerate(MARKS):
        with writer.episode(seed=seed) as episode:
            add_frames(episode, seed, 2)
            episode.commit(success=mark)
    interrupt(writer, 9, 2)
    recover(tmp_path / "set")
    return EpisodeStore(tmp_path / "set")


@pytest.mark.parametrize(
    ("rule", "positions", "left_out"),
    [
        ("unfailed", (0, 2, 3, 4), {"failed": 1, "interrupted": 1, "unmarked": 0}),
        ("success", (0, 3), {"failed": 1, "interrupted": 1, "unmarked": 2}),
        ("all", (0, 1, 2, 3, 4, 5), {"failed": 0, "interrupted": 0, "unmarked": 0}),
    ],
)
def test_labels_select_the_episodes(
    mixed: EpisodeStore, rule: str, positions: tuple[int, ...], left_out: dict[str, int]
) -> None:
    """Every episode is selected or counted under one reason."""
    choice = select_episodes(mixed, rule)
    assert (choice.positions, choice.left_out) == (positions, left_out)
    assert len(positions) + sum(left_out.values()) == len(mixed)
    assert [episode.number for episode in choice.episodes] == list(positions)


def test_left_out_episodes_are_described(mixed: EpisodeStore) -> None:
    """Number and reasons; empty if none was left out."""
    assert select_episodes(mixed, "all").sentence() == ""
    said = select_episodes(mixed, "success").sentence()
    assert said.startswith(f"Learning from 2 of the 6 episodes in {mixed.path}; left out: ")
    assert said.endswith("1 marked as failed, 1 interrupted, 2 not marked as successful.")


def test_unknown_rule_is_refused(mixed: EpisodeStore) -> None:
    """Also in Python, where no command line has checked the rule."""
    with pytest.raises(ConfigError, match=r"learn_from=best .* unfailed \| success \| all"):
        select_episodes(mixed, "best")
