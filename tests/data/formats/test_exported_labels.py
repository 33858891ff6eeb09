"""Imports of our own exports with another contract or other names: labels and failures stay with their
episodes.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from robo_rl.data.edit.changes import relabel_episodes
from robo_rl.data.formats.lerobot.reader import import_lerobot
from robo_rl.data.formats.lerobot.writer import export_lerobot
from robo_rl.data.formats.registry import load_part
from robo_rl.data.formats.rlds.reader import import_rlds
from robo_rl.data.formats.rlds.writer import export_rlds
from robo_rl.data.formats.robomimic import import_robomimic
from robo_rl.data.formats.rows import rows_of, write_rows
from robo_rl.data.importers import import_replay_buffer
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.data.formats.foreign_rlds import make_foreign
from tests.data.recordings import STATE_ENV, record

h5py = pytest.importorskip("h5py")
pytest.importorskip("pyarrow")

FORMATS = ["lerobot", "zarr", "robomimic", "rlds"]
KEYS = {"state": "data/state", "action": "data/action", "terminated": "data/terminated"}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes that succeed, fail, and are not labelled."""
    path = record(tmp_path_factory.mktemp("recorded") / "set", [4, 3, 5], env=STATE_ENV)
    relabel_episodes(path, [2], success=None)
    return path


def _export(name: str, path: Path, out: Path) -> Path:
    out = out.with_suffix(".hdf5") if name == "robomimic" else out
    load_part(name, "writer")(path, out)
    return out


def _import(name: str, source: Path, out: Path, notes: list[str]) -> list[Any]:
    """Import with the contract stated again."""
    if name == "zarr":
        import_replay_buffer(source, out, STATE_ENV, KEYS, notes=notes)
    else:
        load_part(name, "reader")(source, out, env=STATE_ENV, notes=notes)
    return list(EpisodeStore(out))


@pytest.mark.parametrize("name", FORMATS)
def test_everything_known_of_an_episode_stays_with_another_contract(
    name: str, recorded: Path, tmp_path: Path
) -> None:
    """Else learn_from=unfailed trains on failures, and fine-tuning rewards them as demonstrations."""
    notes: list[str] = []
    found = _import(name, _export(name, recorded, tmp_path / "export"), tmp_path / "out", notes)
    assert [each.success for each in found] == [True, False, None]
    for one, other in zip(EpisodeStore(recorded), found, strict=True):
        facts = [(e.meta.task, e.meta.seed, e.meta.complete, e.has_final_obs) for e in (one, other)]
        assert facts[0] == facts[1]
        np.testing.assert_array_equal(one.intervention, other.intervention)
        np.testing.assert_array_equal(one.terminated, other.terminated)
        np.testing.assert_array_equal(one.obs("state"), other.obs("state"))
    assert notes == []


def test_labels_follow_episodes_that_another_program_deleted_or_moved(recorded: Path, tmp_path: Path) -> None:
    """The record of the export counts more episodes, in another order: the actions tell which is which."""
    writer = DatasetWriter.create(tmp_path / "moved", STATE_ENV, min_free_bytes=0, durable=False)
    for number in (2, 0):
        write_rows(writer, rows_of(EpisodeStore(recorded).episode(number)))
    writer.close()
    export_lerobot(recorded, tmp_path / "export")
    export_lerobot(tmp_path / "moved", tmp_path / "changed")
    for name in ("robo_rl.json", "robo_rl_final.parquet"):
        shutil.copy(tmp_path / "export/meta" / name, tmp_path / "changed/meta" / name)
    import_lerobot(tmp_path / "changed", tmp_path / "out", env=STATE_ENV)
    found = list(EpisodeStore(tmp_path / "out"))
    assert [(each.success, each.meta.seed) for each in found] == [(None, 2), (True, 0)]
    assert [each.obs("state")[-1].tolist() for each in found] == [[2, 5, 2005], [0, 4, 4]]


def test_labels_of_other_episodes_are_not_used(recorded: Path, tmp_path: Path) -> None:
    """And the import says that it left them out; the flags in the dataset itself stay."""
    export_lerobot(recorded, tmp_path / "export")
    own = tmp_path / "export/meta/robo_rl.json"
    data = json.loads(own.read_text())
    for entry in data["episodes"]:
        entry["action_crc32c"] += 1
    own.write_text(json.dumps(data))
    notes: list[str] = []
    import_lerobot(tmp_path / "export", tmp_path / "out", env=STATE_ENV, notes=notes)
    found = list(EpisodeStore(tmp_path / "out"))
    assert [(e.success, e.meta.seed) for e in found] == [(True, None), (False, None), (False, None)]
    assert [note.partition(" in ")[0] for note in notes] == ["The labels of 3 episodes"]


@pytest.mark.parametrize("name", ["lerobot", "rlds", "zarr"])
def test_exports_of_older_releases_count_by_position(name: str, recorded: Path, tmp_path: Path) -> None:
    """They hold no checksum of the actions; with another number of episodes, their labels are not used."""
    source = _export(name, recorded, tmp_path / "export")
    for dropped, seeds in ((0, [0, 1, 2]), (1, [None] * 3)):
        _edit(name, source, dropped)
        found = _import(name, source, tmp_path / f"out{dropped}", [])
        assert [each.meta.seed for each in found] == seeds


def _edit(name: str, source: Path, dropped: int) -> None:
    """Take the checksums of actions, and the last entries, out of the record of an export."""
    if name == "zarr":
        group = zarr.open_group(source, mode="a")
        data: Any = dict(group.attrs)["robo_rl"]
    else:
        own = source / ("meta/robo_rl.json" if name == "lerobot" else "robo_rl.json")
        data = json.loads(own.read_text())
    for entry in data["episodes"]:
        entry.pop("action_crc32c", None)
    data["episodes"] = data["episodes"][: len(data["episodes"]) - dropped]
    if name == "zarr":
        group.attrs["robo_rl"] = data
    else:
        own.write_text(json.dumps(data))


def test_masks_of_a_robomimic_file_label_its_demos(recorded: Path, tmp_path: Path) -> None:
    """Also in a file of another program, which has nothing else of ours."""
    source = _export("robomimic", recorded, tmp_path / "export")
    with h5py.File(source, "a") as file:
        del file["data"].attrs["robo_rl"]
        for demo in file["data"].values():
            del demo.attrs["robo_rl"]
    import_robomimic(source, tmp_path / "out")
    assert [each.success for each in EpisodeStore(tmp_path / "out")] == [True, False, None]


def test_metadata_of_rlds_label_its_episodes(recorded: Path, tmp_path: Path) -> None:
    """Also in a dataset of another program; its flags of interventions are read, too."""
    export_rlds(recorded, tmp_path / "export")
    import_rlds(make_foreign(tmp_path / "export"), tmp_path / "out", env=STATE_ENV)
    found = list(EpisodeStore(tmp_path / "out"))
    assert [each.success for each in found] == [True, False, None]
    assert found[0].intervention.tolist() == [False, True, False, True]
