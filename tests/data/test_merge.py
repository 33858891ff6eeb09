"""Several datasets become one, byte for byte, or none is created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import EnvSpec
from robo_rl.data import merge as module
from robo_rl.data.episodes.schema import STAMP_COLUMNS, STAMPS
from robo_rl.data.merge import merge
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.validate import validate
from tests.data.recordings import ENV, STATE_ENV, add_frames


def make(path: Path, seeds: range, env: EnvSpec = ENV, **options: Any) -> Path:
    writer = DatasetWriter.create(path, env, min_free_bytes=0, durable=False, **options)
    for seed in seeds:
        with writer.episode(seed=seed, task=f"task {seed}") as episode:
            add_frames(episode, seed, 3 + seed, env)
            episode.commit(success=seed % 2 == 0)
    return path


@pytest.mark.parametrize("codec", ["raw", "jpeg"])
def test_merge_changes_only_the_number(tmp_path: Path, codec: str) -> None:
    """Every file of every episode, with labels and stamps; JPEGs are not encoded again."""
    sources = [
        make(tmp_path / "a", range(2), image_codec=codec),
        make(tmp_path / "b", range(5, 8), replace(ENV, max_episode_steps=30), image_codec=codec),
    ]
    said: list[tuple[int, int]] = []
    assert merge(sources, tmp_path / "out", lambda *done: said.append(done)) == 5
    assert said[-1] == (5, 5)
    before = [episode for source in sources for episode in EpisodeStore(source)]
    after = list(EpisodeStore(tmp_path / "out"))
    assert [episode.number for episode in after] == [0, 1, 2, 3, 4]
    for one, other in zip(before, after, strict=True):
        files = sorted(path.relative_to(one.path) for path in one.path.rglob("*") if path.is_file())
        assert files == sorted(
            path.relative_to(other.path) for path in other.path.rglob("*") if path.is_file()
        )
        for file in files:
            assert (one.path / file).read_bytes() == (other.path / file).read_bytes()
    assert EpisodeStore(tmp_path / "out").spec.max_episode_steps == 100
    assert not validate(tmp_path / "out")


@pytest.mark.parametrize(
    ("env", "options", "word"),
    [
        (STATE_ENV, {}, "environments"),
        (replace(ENV, control_hz=30.0), {}, "shapes, units, limits or rates"),
        (ENV, {"image_codec": "jpeg"}, "codecs of images"),
    ],
)
def test_datasets_with_different_contracts_are_refused(
    tmp_path: Path, env: EnvSpec, options: dict[str, Any], word: str
) -> None:
    """The first difference is named, and no dataset remains."""
    one, other = make(tmp_path / "a", range(1)), make(tmp_path / "b", range(0), env, **options)
    with pytest.raises(DataError, match=word):
        merge([one, other], tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("named", [(), (*STAMP_COLUMNS[::-1], "t_capture_ns.front")])
def test_missing_columns_of_stamps_become_unknown(tmp_path: Path, named: tuple[str, ...]) -> None:
    """A recording and an import of the same robot, which has other stamps or none."""
    sources = [make(tmp_path / "a", range(2)), make(tmp_path / "b", range(5, 7), stamps=named)]
    assert merge(sources, tmp_path / "out") == 4
    store = EpisodeStore(tmp_path / "out")
    assert store.meta.stamps == (*STAMP_COLUMNS, *(name for name in named if name not in STAMP_COLUMNS))
    before = [episode for source in sources for episode in EpisodeStore(source)]
    for one, other in zip(before, store, strict=True):
        for i, name in enumerate(store.meta.stamps):
            own = one.dataset.stamps.index(name) if name in one.dataset.stamps else None
            expected = -np.ones(one.frames) if own is None else one.array(STAMPS)[:, own]
            np.testing.assert_array_equal(other.array(STAMPS)[:, i], expected)
    group = zarr.open_group(tmp_path / "out/episodes/000003", mode="r")
    np.testing.assert_array_equal(group[STAMPS][:], store.episode(3).array(STAMPS))  # type: ignore[index]
    assert not validate(tmp_path / "out")


def test_interrupted_merge_leaves_no_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A merge of half of the episodes would look complete."""
    source, calls = make(tmp_path / "a", range(3)), []

    def interrupted(*_: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "copytree", interrupted)
    monkeypatch.setattr(module, "publish", lambda *_: 0)
    with pytest.raises(KeyboardInterrupt):
        merge([source], tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("target", ["/dev/zero", "/", "nothing", "zarr.json"])
def test_devices_and_bad_links_are_refused(tmp_path: Path, target: str) -> None:
    """A device never ends, and a link to a folder copies what is in it; `zarr.json` is a link to itself."""
    source = make(tmp_path / "a", range(2))
    file = source / "episodes/000000/zarr.json"
    file.unlink()
    file.symlink_to(target)
    with pytest.raises(DataError, match=r"zarr\.json is not a file"):
        merge([source], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    """As git-annex and DataLad keep large files."""
    source = make(tmp_path / "a", range(2))
    file = source / "episodes/000000/zarr.json"
    file.rename(tmp_path / "kept")
    file.symlink_to(tmp_path / "kept")
    assert merge([source], tmp_path / "out") == 2
    assert not (tmp_path / "out/episodes/000000/zarr.json").is_symlink()


def test_missing_sources_are_refused(tmp_path: Path) -> None:
    """`robo-rl data merge out=x` names the missing setting."""
    with pytest.raises(ConfigError, match="sources"):
        merge([], tmp_path / "out")


def test_a_dataset_cannot_be_merged_with_itself(tmp_path: Path) -> None:
    """Under any path: its episodes would count double."""
    source = make(tmp_path / "a", range(2))
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(ConfigError, match=r"names the same dataset twice: .*/a and .*/link"):
        merge([source, tmp_path / "link"], tmp_path / "out")
    assert not (tmp_path / "out").exists()
