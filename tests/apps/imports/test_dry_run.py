"""`dry_run=true` of import, export and merge: it says what would be written, writes nothing, and ends
like the real command.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from robo_rl.apps.cli.main import main
from robo_rl.data.formats.registry import FORMATS, load_part
from robo_rl.data.store import EpisodeStore
from tests.data.recordings import STATE_ENV, record

pytest.importorskip("pyarrow")
pytest.importorskip("h5py")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("dry") / "set", [6, 5, 4])


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder for outputs, beside a folder that all temporary files use."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def tree(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*")}


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "rerun"])
def test_a_dry_run_says_what_the_real_one_does(
    name: str, dataset: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Export: the size is right within a quarter, though two episodes are converted. Import: every number."""
    before = tree(work)
    export = ["data", "export", f"path={dataset}", f"format={name}", f"out={work / 'a' / 'x.hdf5'}"]
    assert main([*export, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert tree(work) == before
    assert main(export) == 0
    size = sum(
        path.stat().st_size for path in [work / "a/x.hdf5", *(work / "a/x.hdf5").rglob("*")] if path.is_file()
    )
    assert "3 episodes (15 frames)" in said
    assert float(re.findall(r"about ([\d.]+) MB", said)[0]) == pytest.approx(size / 1e6, rel=0.25, abs=0.06)
    before = tree(work)
    back = ["data", "import", f"source={work / 'a' / 'x.hdf5'}", f"out={work / 'b' / 'back'}"]
    assert main([*back, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    assert tree(work) == before
    assert "Would import 3 episodes" in said
    assert "15 frames" in said
    assert "test/arm at 20 Hz, of the source" in said
    assert "Nothing was written" in said
    assert main(back) == 0
    assert len(EpisodeStore(work / "b" / "back")) == 3


def test_a_dry_run_of_a_foreign_source_names_what_it_does_not_know(
    dataset: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of another program has no labels, no stamps, no last observation."""
    out = work / "file.hdf5"
    assert main(["data", "export", f"path={dataset}", "format=robomimic", f"out={out}"]) == 0
    with pytest.importorskip("h5py").File(out, "a") as file:
        del file["mask"]
        for group in (file["data"], *file["data"].values()):
            del group.attrs["robo_rl"]
    command = ["data", "import", f"source={out}", "keys=[state:state]", f"out={work / 'x'}", "dry_run=true"]
    capsys.readouterr()
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "robot/file at 20 Hz, of the source" in said
    assert "observed   state float32[3]" in said
    unknown = "success labels, instructions, observations after the last action, time stamps"
    assert f"not known  {unknown}" in said
    assert "The limits were inferred: they are 5 % wider than the actions of all episodes" in said
    assert "The dataset has no units." in said


@pytest.mark.parametrize("name", ["lerobot", "zarr", "robomimic", "rlds"])
def test_inferred_limits_are_reported_where_they_were_inferred(
    name: str, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An export states its limits, also without units; keys= reads it as a dataset of another program."""
    env = replace(STATE_ENV, name="robot/mine", action=replace(STATE_ENV.action, unit=""))
    export = work / "export.hdf5"
    load_part(name, "writer")(record(work / "set", [3], env=env), export)
    words = ["data", "import", f"source={export}", "dry_run=true"]
    assert main([*words, f"out={work / 'a'}"]) == 0
    said = capsys.readouterr().out
    assert "The dataset has no units." in said
    assert "limits were" not in said
    pairs = {
        "lerobot": "joints:observation.state",
        "zarr": "joints:data/state,action:data/action",
        "robomimic": "joints:state",
        "rlds": "joints:observation/state",
    }
    assert main([*words, f"keys=[{pairs[name]}]", f"out={work / 'b'}"]) == 0
    assert capsys.readouterr().out.count("The limits were inferred: they are 5 % wider") == 1


@pytest.mark.parametrize("name", ["zarr", "robomimic", "lerobot"])
def test_bad_input_ends_a_dry_run_as_the_real_run(
    name: str, dataset: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A changed byte in the last episode, an output that exists, a file that was cut: exit code and sentence
    are the same.
    """
    bad = Path(shutil.copytree(dataset, work / "bad"))
    shard = bad / "episodes/000002/action/c/0/0"
    shard = shard if shard.exists() else next((bad / "episodes/000002/action").rglob("c*0*"))
    data = bytearray(shard.read_bytes())
    data[3] ^= 1
    shard.unlink()
    shard.write_bytes(data)
    source = work / "export.hdf5"
    assert main(["data", "export", f"path={dataset}", f"format={name}", f"out={source}"]) == 0
    cut = max(
        (path for path in [source, *source.rglob("*")] if path.is_file()),
        key=lambda path: path.stat().st_size,
    )
    os.truncate(cut, cut.stat().st_size // 2)
    for command in (
        ["data", "export", f"path={bad}", f"format={name}", f"out={work / 'out'}"],
        ["data", "export", f"path={dataset}", f"format={name}", f"out={dataset}"],
        ["data", "export", f"path={work}", f"format={name}", f"out={work / 'out'}"],
        ["data", "import", f"source={source}", f"out={work / 'out'}"],
        ["data", "import", f"source={source}", f"out={dataset}"],
        ["data", "merge", f"sources=[{dataset},{dataset}]", f"out={work / 'out'}"],
        ["data", "merge", f"sources=[{dataset}]", f"out={dataset}"],
    ):
        capsys.readouterr()
        dry, said = main([*command, "dry_run=true"]), capsys.readouterr().err.splitlines()[-1]
        assert (dry, said) == (main(command), capsys.readouterr().err.splitlines()[-1])
        assert dry == 2
        assert not (work / "out").exists()


def test_a_dry_run_needs_the_space_of_one_episode(
    dataset: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import of 100 GB must not fill the disk of temporary files to say how large it would be."""
    from robo_rl.data.episodes import rehearsal

    found: list[int] = []
    usual = rehearsal._CountingWriter.episode

    def watched(self: rehearsal._CountingWriter, **options: object) -> object:
        started = usual(self, **options)
        found.append(len(list((self.path / "episodes").glob("[0-9]*"))))
        return started

    assert main(["data", "export", f"path={dataset}", "format=robomimic", f"out={work / 'a.hdf5'}"]) == 0
    monkeypatch.setattr(rehearsal._CountingWriter, "episode", watched)
    assert main(["data", "import", f"source={work / 'a.hdf5'}", f"out={work / 'b'}", "dry_run=true"]) == 0
    assert found == [0, 0, 0]
    assert not list((work / "temporary").iterdir())


def test_a_dry_run_of_a_merge_writes_nothing(
    dataset: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = record(work / "other", [3])
    before = tree(work)
    assert (
        main(["data", "merge", f"sources=[{dataset},{other}]", f"out={work / 'm' / 'x'}", "dry_run=true"])
        == 0
    )
    assert "Would write 4 episodes (18 frames" in capsys.readouterr().out
    assert tree(work) == before


def test_an_import_without_pictures_speaks_of_none(
    dataset: Path, work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The format is named, and not files of it that this source may not have."""
    source = work / "export"
    assert main(["data", "export", f"path={dataset}", "format=lerobot", f"out={source}"]) == 0
    capsys.readouterr()
    assert main(["data", "import", f"source={source}", f"out={work / 'in'}"]) == 0
    assert "Imported 3 episodes (LeRobotDataset v3.0) into" in capsys.readouterr().out
