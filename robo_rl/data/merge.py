"""Merging datasets of one contract, e.g. demonstrations and successful episodes of a policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.atomic_dataset import atomic_dataset, refuse_existing
from robo_rl.data.episodes.commit import publish
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import STAGING
from robo_rl.data.episodes.stamps import extend_stamps
from robo_rl.data.spec_difference import differences


def merge(
    sources: Sequence[str | Path],
    out: str | Path,
    progress: Callable[[int, int], None] | None = None,
    *,
    dry_run: bool = False,
) -> int:
    """Copy all episodes of `sources`, in order and byte for byte, into a new dataset; returns their number.

    Datasets may have different columns of stamps: the new one has all of them, with -1, unknown, where a
    source has no such column. The dataset appears under `out` when it is complete. progress: called with
    (episodes done, episodes). dry_run: only check. Raises DataError if a source is no
    dataset, if contracts differ or if `out` exists, ConfigError without sources.
    """
    if not sources:
        raise ConfigError("sources names no dataset. Give at least one: sources=[data/first,data/second]")
    _refuse_repeated(sources)
    stores = [EpisodeStore(source) for source in sources]
    first = stores[0]
    for other in stores[1:]:
        if what := difference(first, other):
            raise DataError(
                f"{first.path} and {other.path} cannot be merged: they have different {what}. Merge only "
                "datasets of one contract."
            )
    episodes = [episode for store in stores for episode in store]
    if dry_run:
        refuse_existing(out)
        for episode in episodes:
            _refuse_odd_files(episode.path)
        return len(episodes)
    stamps = tuple(dict.fromkeys(name for store in stores for name in store.meta.stamps))
    info = {"merged": [str(source) for source in sources]}
    longest = replace(first.spec, max_episode_steps=max(store.spec.max_episode_steps for store in stores))
    with atomic_dataset(out, longest, image_codec=first.meta.image_codec, stamps=stamps, info=info) as writer:
        for i, episode in enumerate(episodes):
            staged = writer.path / STAGING / f"{i:06d}"
            _refuse_odd_files(episode.path)
            copytree(episode.path, staged)
            if episode.dataset.stamps != stamps:
                extend_stamps(episode, staged, stamps)
            publish(writer.path, staged)
            if progress is not None:
                progress(i + 1, len(episodes))
    return len(episodes)


def _refuse_odd_files(folder: Path) -> None:
    """Raise DataError where a copy would not end or would follow a link out of the dataset's files."""
    for path in folder.rglob("*"):
        is_linked_folder = path.is_symlink() and path.is_dir()
        if is_linked_folder or not (path.is_dir() or path.is_file()):
            raise DataError(
                f"{path} is not a file: a device, or a link to a folder or to nothing. Restore the episode "
                "from a copy, or delete its directory."
            )


def _refuse_repeated(sources: Sequence[str | Path]) -> None:
    """Raise ConfigError for a dataset that is named twice, whose episodes would count double."""
    places = [Path(source).resolve() for source in sources]
    for i, place in enumerate(places):
        if (first := places.index(place)) < i:
            raise ConfigError(
                f"sources names the same dataset twice: {sources[first]} and {sources[i]}. Name each one "
                "once."
            )


def difference(first: EpisodeStore, other: EpisodeStore) -> str:
    """First difference that prevents a merge of two datasets; empty if there is none."""
    anyhow = replace(
        other.spec, max_episode_steps=first.spec.max_episode_steps
    )  # the length limit may differ
    facts = {
        "environments": (first.spec.name, other.spec.name),
        "observations": (sorted(first.spec.obs), sorted(other.spec.obs)),
        "shapes, units, limits or rates": (first.spec, anyhow),
        "codecs of images": (first.meta.image_codec, other.meta.image_codec),
    }
    for what, (one, two) in facts.items():
        if one != two:
            if isinstance(one, EnvSpec) and isinstance(two, EnvSpec):
                return f"{what} ({differences(two, one)})"
            return f"{what} ({one} and {two})"
    return ""
