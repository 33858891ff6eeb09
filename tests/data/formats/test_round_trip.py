"""Export and import return every value; only video may differ, within bounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.core.errors import DataError, DiskFullError, UnknownNameError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.formats import output
from robo_rl.data.formats.lerobot.layout import own_features
from robo_rl.data.formats.registry import FORMATS, load_part, recognised
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.validate import validate
from robo_rl.data.windows import WindowDataset, WindowSpec
from tests.data.formats.differences import VIDEO_ERROR, errors
from tests.data.formats.odd_dataset import ODD, write_odd
from tests.data.recordings import record

pytest.importorskip("pyarrow")
pytest.importorskip("h5py")

READABLE = [name for name, each in FORMATS.items() if each.reader]
WRITABLE = [name for name in FORMATS if name != "rerun" or find_spec("rerun")]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_odd(tmp_path_factory.mktemp("odd") / "set")


@pytest.fixture(scope="module")
def smooth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("smooth") / "set", [6, 5, 40], codec="jpeg")


def there_and_back(path: Path, folder: Path, name: str, **options: Any) -> Path:
    out = folder / ("export.hdf5" if name == "robomimic" else "export")
    assert load_part(name, "writer")(path, out, **options) == len(EpisodeStore(path))
    load_part(name, "reader")(out, folder / "again")
    return folder / "again"


@pytest.mark.parametrize("name", READABLE)
def test_every_value_returns(odd: Path, tmp_path: Path, name: str) -> None:
    """Bit for bit, with labels, stamps, contract and the observation after the last action."""
    options = {"video": False} if name == "lerobot" else {}
    again = there_and_back(odd, tmp_path, name, **options)
    assert errors(odd, again) == []
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []


def test_tactile_arrays_and_images_train_after_an_import(odd: Path, tmp_path: Path) -> None:
    """Windows hold a field of forces and a tactile image of any size like every other observation."""
    again = there_and_back(odd, tmp_path, "zarr")
    keys = ("touch", "image.front")
    window = WindowDataset(again, WindowSpec(obs_steps=2, chunk=4), keys=keys)[2]
    for key in keys:
        stored = EpisodeStore(odd).episode(0).obs(key)[1:3]
        np.testing.assert_array_equal(window[key].numpy(), stored, key)
    assert window["action"].shape == (4, 1)


@pytest.mark.parametrize("name", READABLE)
def test_jpeg_datasets_are_exported_as_they_look(smooth: Path, tmp_path: Path, name: str) -> None:
    """Decoded images return exactly; in a video they differ by a few grey levels."""
    again = there_and_back(smooth, tmp_path, name)
    assert errors(smooth, again, VIDEO_ERROR if name == "lerobot" else 0) == []
    assert [fault for fault in validate(again) if fault.severity == "error"] == []


def test_episodes_of_one_frame_return_from_a_video(tmp_path: Path) -> None:
    """The encoder writes nothing before it holds several images."""
    path = record(tmp_path / "set", [1, 1])
    assert errors(path, there_and_back(path, tmp_path, "lerobot"), VIDEO_ERROR) == []


def test_every_kind_of_observation_is_logged_for_rerun(odd: Path, tmp_path: Path) -> None:
    """One file per episode."""
    pytest.importorskip("rerun")
    assert load_part("rerun", "writer")(odd, tmp_path / "out") == 3
    files = sorted((tmp_path / "out").glob("*.rrd"))
    assert [file.name for file in files] == [f"episode_{i:06d}.rrd" for i in range(3)]
    assert all(file.stat().st_size > 1000 for file in files)


@pytest.mark.parametrize("name", WRITABLE)
def test_a_failed_export_leaves_nothing(
    smooth: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, too little space to begin with, a damaged episode, and an output that exists."""
    write = load_part(name, "writer")
    out = tmp_path / "out"

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(output.os, "sync", full)
    with pytest.raises(DiskFullError, match="nothing of it remains"):
        write(smooth, out)
    monkeypatch.undo()
    monkeypatch.setattr(output, "require_free", _refuse)
    with pytest.raises(DiskFullError, match="needed"):
        write(smooth, out)
    monkeypatch.undo()
    with pytest.raises(DataError, match="exists already"):
        write(smooth, smooth)
    assert list(tmp_path.iterdir()) == []


def _refuse(*_: Any) -> None:
    raise DiskFullError("1 MiB needed")


@pytest.mark.parametrize("name", WRITABLE)
def test_an_empty_dataset_is_not_exported(tmp_path: Path, name: str) -> None:
    DatasetWriter.create(tmp_path / "set", ODD, min_free_bytes=0).close()
    with pytest.raises(DataError, match="no episodes to export"):
        load_part(name, "writer")(tmp_path / "set", tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["set"]


@pytest.mark.parametrize(
    ("unit", "names"),
    [
        ("rad: base, elbow", ["base", "elbow"]),
        ("rad: base; rad/s: base", ["base [rad]", "base [rad/s]"]),
        ("motor command: -1 stopped, 1 full speed", None),
    ],
)
def test_lerobot_gets_the_names_of_the_numbers(unit: str, names: list[str] | None, tmp_path: Path) -> None:
    """States and actions are exported with their names, or with none where the unit is free text."""
    action = ActionSpec((-1.0, -1.0), (1.0, 1.0), unit)
    env = EnvSpec("test/named", {"state": ArraySpec((2,), "float32", unit)}, action, 100, 20.0)
    features = own_features(DatasetMeta(env, "raw", stamps=()), "video")
    assert features["action"]["names"] == features["observation.state"]["names"] == names


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="lerobot"):
        load_part("lerobots", "writer")


@pytest.mark.parametrize("name", READABLE)
def test_an_import_of_some_episodes_takes_the_first(smooth: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / ("export.hdf5" if name == "robomimic" else "export")
    load_part(name, "writer")(smooth, out)
    assert load_part(name, "reader")(out, tmp_path / "again", limit=1, image_codec="jpeg") == 1
    store = EpisodeStore(tmp_path / "again")
    assert (len(store), store.meta.image_codec) == (1, "jpeg")
    assert name == "zarr" or recognised(out) == name


Damage = Callable[[Path], Any]


def truncate_all(path: Path) -> None:
    for file in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize("name", READABLE)
def test_a_half_copied_export_is_refused(smooth: Path, tmp_path: Path, name: str) -> None:
    """In one sentence, and no dataset appears; so is each single file that is cut."""
    out = tmp_path / ("export.hdf5" if name == "robomimic" else "export")
    load_part(name, "writer")(smooth, out)
    files = [out] if out.is_file() else sorted(p for p in out.rglob("*") if p.is_file())
    for file in files:
        before = file.read_bytes()
        file.write_bytes(before[: len(before) // 2])
        with suppress(DataError):
            load_part(name, "reader")(out, tmp_path / "again")
        if (tmp_path / "again").exists():  # statistics and the like are not read: then nothing may differ
            assert errors(smooth, tmp_path / "again", VIDEO_ERROR if name == "lerobot" else 0) == [], file
            (tmp_path / "again").rename(tmp_path / f"kept{len(list(tmp_path.iterdir()))}")
        file.write_bytes(before)
    truncate_all(out)
    with pytest.raises(DataError):
        load_part(name, "reader")(out, tmp_path / "again")
