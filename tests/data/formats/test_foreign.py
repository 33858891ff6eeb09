"""Datasets that other programs wrote: the contract is inferred or given, and hostile files are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.apps.cli.main import main
from robo_rl.core.errors import DataError
from robo_rl.data.edit.changes import relabel_episodes
from robo_rl.data.formats.lerobot.reader import import_lerobot
from robo_rl.data.formats.lerobot.writer import export_lerobot
from robo_rl.data.formats.registry import load_part
from robo_rl.data.formats.robomimic import import_robomimic
from robo_rl.data.formats.rows import EpisodeRows, matching, rows_of
from robo_rl.data.store import EpisodeStore
from robo_rl.data.validate import validate
from tests.data.recordings import ENV, STATE_ENV, record

h5py = pytest.importorskip("h5py")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lerobot")
    record(folder / "set", [6, 5, 4])
    export_lerobot(folder / "set", folder / "plain")
    for name in ("robo_rl.json", "robo_rl_final.parquet"):  # what another program would not have written
        (folder / "plain/meta" / name).unlink()
    return folder


@pytest.fixture
def lerobot(export: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(export / "plain", tmp_path / "plain"))


def test_a_foreign_lerobot_dataset_gets_an_inferred_contract(export: Path, tmp_path: Path) -> None:
    """Rate and shapes of info.json, limits 5 % wider than the actions; a feature `next.success` is the
    label.
    """
    assert import_lerobot(export / "plain", tmp_path / "out") == 3
    before, after = EpisodeStore(export / "set"), EpisodeStore(tmp_path / "out")
    spec = after.spec
    assert (spec.name, spec.control_hz, spec.max_episode_steps) == ("robot/arm", 20.0, 6)
    assert {k: tuple(s.shape) for k, s in spec.obs.items()} == {k: tuple(s.shape) for k, s in ENV.obs.items()}
    actions = np.concatenate([episode.action for episode in before])
    margin = 0.05 * (actions.max(0) - actions.min(0))
    np.testing.assert_allclose(spec.action.low, actions.min(0) - margin, rtol=1e-6)
    for one, other in zip(before, after, strict=True):
        assert (one.success, one.meta.task) == (other.success, other.meta.task)
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.intervention, other.intervention)
        np.testing.assert_array_equal(one.obs("state")[:-1], other.obs("state"))
    assert [fault for fault in validate(tmp_path / "out") if fault.severity == "error"] == []


def test_labels_of_an_export_stay_with_another_contract(tmp_path: Path) -> None:
    """LeRobot keeps an unknown success as false; keys= or robot= must not make failures of it. A success that
    another program has set since stays.
    """
    record(tmp_path / "set", [3, 2], env=STATE_ENV)
    relabel_episodes(tmp_path / "set", [0], success=None)
    export_lerobot(tmp_path / "set", tmp_path / "export")
    keys = {"joints": "observation.state"}
    import_lerobot(tmp_path / "export", tmp_path / "out", keys=keys, task="push")
    found = list(EpisodeStore(tmp_path / "out"))
    assert [(e.success, e.meta.seed, e.meta.task) for e in found] == [(None, 0, "push"), (False, 1, "push")]
    _edit(
        tmp_path / "export/meta/robo_rl.json",
        lambda d: [entry.update(success=True) for entry in d["episodes"]],
    )
    import_lerobot(tmp_path / "export", tmp_path / "again", keys=keys)
    assert [e.success for e in EpisodeStore(tmp_path / "again")] == [False, False]


def _edit(path: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


ATTACKS: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "version": ("codebase_version 'v1.6'", lambda d: d.update(codebase_version="v1.6")),
    "pattern": ("names files as", lambda d: d.update(data_path="../../{episode}.parquet")),
    "format string": ("names files as", lambda d: d.update(video_path="{video_key.__class__}")),
    "key": ("is broken", lambda d: d["features"].update({"../x": d["features"]["action"]})),
    "size": ("is broken", lambda d: d["features"]["action"].update(shape=[10**9])),
    "object": ("is broken", lambda d: d["features"]["action"].update(dtype="object")),
    "rate": ("names files as", lambda d: d.update(fps=0)),
    "shape": ("feature states", lambda d: d["features"]["action"].update(shape=[5])),
    "picture": (
        "no image of shape",
        lambda d: d["features"]["observation.images.front"].update(shape=[8, 8, 3]),
    ),
    "no action": ("no feature 'action'", lambda d: d["features"].pop("action")),
    "list": ("codebase_version None", lambda d: (d.clear(), d.update({"features": []}))),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_info_is_refused(lerobot: Path, tmp_path: Path, attack: str) -> None:
    """No path leaves the folder, no format string is evaluated, no type builds objects."""
    words, change = ATTACKS[attack]
    _edit(lerobot / "meta/info.json", change)
    with pytest.raises(DataError, match=words):
        import_lerobot(lerobot, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_recording_that_was_killed_is_refused(lerobot: Path, tmp_path: Path) -> None:
    """LeRobot's tables have no footer before the recording ends."""
    table = lerobot / "data/chunk-000/file-000.parquet"
    table.write_bytes(table.read_bytes()[:-100])
    with pytest.raises(DataError, match="truncated, as after a recording that was killed"):
        import_lerobot(lerobot, tmp_path / "out")


def test_a_changed_export_is_not_taken_for_exact(export: Path, tmp_path: Path) -> None:
    """The labels of one export beside the rows of another: the checksum differs."""
    export_lerobot(export / "set", tmp_path / "a", video=False)
    record(tmp_path / "other", [6, 5, 3])
    export_lerobot(tmp_path / "other", tmp_path / "b", video=False)
    shutil.copy(tmp_path / "a/meta/robo_rl.json", tmp_path / "b/meta/robo_rl.json")
    with pytest.raises(DataError, match="differ from those that were exported"):
        import_lerobot(tmp_path / "b", tmp_path / "out")


@pytest.fixture
def robomimic(tmp_path: Path) -> Path:
    """A file as robosuite's collection writes it: several observation keys, control_freq in env_args."""
    with h5py.File(tmp_path / "demo.hdf5", "w") as file:
        data = file.create_group("data")
        data.attrs["env_args"] = json.dumps({"env_name": "Lift", "env_kwargs": {"control_freq": 10}})
        for i, frames in enumerate((4, 12)):
            demo = data.create_group(f"demo_{10 * i + 1}")
            demo.create_dataset("actions", data=np.linspace(-1, 1, 2 * frames).reshape(frames, 2))
            demo.create_dataset("dones", data=np.arange(frames) == frames - 1)
            demo.create_dataset("rewards", data=np.arange(frames) * 1.0)
            demo.create_dataset("obs/robot0_eef_pos", data=np.full((frames, 3), i, dtype="f8"))
            demo.create_dataset("obs/agentview_image", data=np.full((frames, 4, 6, 3), i, dtype="u1"))
    return tmp_path / "demo.hdf5"


@pytest.mark.parametrize("name", ["demo.hdf5", "demo", "demo.data"])
def test_a_foreign_robomimic_file_gets_an_inferred_contract(
    name: str, robomimic: Path, tmp_path: Path
) -> None:
    """HDF5 is recognised by its first bytes, whatever the name of the file."""
    robomimic = robomimic.rename(tmp_path / name)
    assert main(["data", "import", f"source={robomimic}", f"out={tmp_path / 'out'}"]) == 0
    store = EpisodeStore(tmp_path / "out")
    assert store.spec.control_hz == 10.0
    assert {k: (tuple(s.shape), s.dtype) for k, s in store.spec.obs.items()} == {
        "robot0_eef_pos": ((3,), "float64"),
        "image.agentview": ((4, 6, 3), "uint8"),
    }
    assert [episode.frames for episode in store] == [4, 12]
    assert not store.episode(1).terminated.any()


def test_an_end_that_may_be_a_time_out_is_no_termination(
    robomimic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`dones` is 1 at the end of every demo, whatever ended it; only a success tells that the task did. RL
    estimates returns of 0 after a termination.
    """
    with h5py.File(robomimic, "a") as file:
        file.create_dataset("mask/successful", data=np.array([b"demo_11"]))
    assert main(["data", "import", f"source={robomimic}", f"out={tmp_path / 'out'}"]) == 0
    store = EpisodeStore(tmp_path / "out")
    assert [bool(episode.terminated[-1]) for episode in store] == [False, True]
    assert "1 episode ended by a flag of done" in capsys.readouterr().out


@pytest.mark.parametrize("truncated", [None, False, True])
def test_a_done_of_lerobot_may_be_a_time_out(lerobot: Path, tmp_path: Path, truncated: bool | None) -> None:
    """`next.done` is true at the end of every episode: a termination only where the episode succeeded, or
    where `next.truncated` says that it did not run out of time. Episodes 0 and 2 succeeded.
    """
    table = lerobot / "data/chunk-000/file-000.parquet"
    rows = pq.read_table(table).drop_columns(["next.terminated"])

    def change(info: dict[str, Any]) -> None:
        flag = info["features"].pop("next.terminated")
        if truncated is not None:
            info["features"]["next.truncated"] = flag

    _edit(lerobot / "meta/info.json", change)
    if truncated is not None:
        rows = rows.append_column("next.truncated", pa.array([truncated] * len(rows)))
    pq.write_table(rows, table)
    notes: list[str] = []
    import_lerobot(lerobot, tmp_path / "out", notes=notes)
    ends = [bool(episode.terminated[-1]) for episode in EpisodeStore(tmp_path / "out")]
    assert ends == {None: [True, False, True], False: [True] * 3, True: [False] * 3}[truncated]
    expected = ["The limits were inferred"] + ([] if truncated is not None else ["1 episode ended by a fla"])
    assert [note[:24] for note in notes] == expected


def test_keys_choose_and_name_observations(robomimic: Path, tmp_path: Path) -> None:
    keys = "keys=['state:robot0_eef_pos']"
    words = [f"source={robomimic}", f"out={tmp_path / 'out'}", keys, "rate_hz=10", "task=lift"]
    assert main(["data", "import", *words]) == 0
    store = EpisodeStore(tmp_path / "out")
    assert (list(store.spec.obs), store.spec.control_hz) == (["state"], 10.0)
    assert store.episode(0).meta.task == "lift"


def test_a_wrong_observation_of_a_robomimic_file_is_said_with_those_it_has(
    robomimic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file's own path was repeated as obs/obs/..., without the names that exist."""
    words = [f"source={robomimic}", f"out={tmp_path / 'out'}", "keys=[state:obs/robot0_eef_pos]"]
    assert main(["data", "import", *words]) == 2
    said = capsys.readouterr().err
    assert "has no observation 'obs/robot0_eef_pos'. Did you mean 'robot0_eef_pos'?" in said
    assert "It has agentview_image, robot0_eef_pos." in said
    assert "obs/obs" not in said


def test_a_robomimic_file_without_observations_is_refused(
    robomimic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`obs` may be no group at all."""
    for obs in (None, np.zeros((4, 3))):
        with h5py.File(robomimic, "a") as file:
            for demo in file["data"].values():
                demo.pop("obs", None)
                if obs is not None:
                    demo["obs"] = obs
        for keys in ([], ["keys=[state:state]"]):
            words = [f"source={robomimic}", f"out={tmp_path / 'out'}", "rate_hz=10", *keys]
            assert main(["data", "import", *words]) == 2
            said = capsys.readouterr().err
            assert ("has no observation 'state'. It has none." in said) is bool(keys)
            assert "please report" not in said


@pytest.mark.parametrize(("name", "guess"), [("observation.stat", "observation.state"), ("zzz", None)])
def test_a_feature_that_is_missing_is_compared_with_the_others(
    name: str, guess: str | None, lerobot: Path, tmp_path: Path
) -> None:
    """As other unknown names: the nearest first, and no list in the notation of Python."""
    with pytest.raises(DataError, match=f"has no feature '{name}'") as refused:
        import_lerobot(lerobot, tmp_path / "out", keys={"state": name})
    said = str(refused.value)
    assert (f"Did you mean '{guess}'?" in said) == (guess is not None)
    assert "It has action, episode_index, " in said
    assert "[" not in said


@pytest.mark.parametrize(
    ("name", "pair"),
    [
        ("lerobot", "state:observation.state"),
        ("robomimic", "state:state"),
        ("rlds", "state:observation/state"),
    ],
)
def test_further_observations_are_left_out_by_keys(
    name: str, pair: str, export: Path, tmp_path: Path
) -> None:
    """The message holds the setting that does so, with the names of the source."""
    source, read = tmp_path / "export.hdf5", load_part(name, "reader")
    load_part(name, "writer")(export / "set", source)
    with pytest.raises(
        DataError, match=r"has the observations image\.front, .*; expected state\."
    ) as refused:
        read(source, tmp_path / "out", env=STATE_ENV)
    assert f"Choose and rename them by keys=[{pair}]; others are then left out." in str(refused.value)
    assert read(source, tmp_path / "out", env=STATE_ENV, keys=dict([pair.split(":")])) == 3
    with pytest.raises(DataError, match=r"keys=.joints:<its name in the source>.; others"):
        matching(replace(STATE_ENV, obs={"joints": ENV.obs["state"]}), _first(export / "set"), "here")


def _first(path: Path) -> EpisodeRows:
    return rows_of(EpisodeStore(path).episode(0))


def test_a_limit_of_episodes_does_not_change_an_inferred_contract(robomimic: Path, tmp_path: Path) -> None:
    """As in the other formats: a trial with the first episodes has the limits and lengths of the import."""
    with h5py.File(robomimic, "a") as file:
        file["data/demo_11/actions"][3] = 5.0
    assert import_robomimic(robomimic, tmp_path / "all") == 2
    assert import_robomimic(robomimic, tmp_path / "first", limit=1) == 1
    assert EpisodeStore(tmp_path / "first").spec == EpisodeStore(tmp_path / "all").spec


def test_another_rate_than_that_of_the_source_is_refused(
    robomimic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames of 10 Hz at 25 Hz are a motion of 2.5 times its speed; a file without a rate takes any."""
    words = ["data", "import", f"source={robomimic}", f"out={tmp_path / 'out'}", "rate_hz=25"]
    assert main(words) == 2
    assert "states 10 Hz, and its frames are imported one by one" in (said := capsys.readouterr().err)
    assert "Leave it out, or resample the source to 25 Hz." in said
    with h5py.File(robomimic, "a") as file:
        del file["data"].attrs["env_args"]
    assert main(words) == 0
    assert EpisodeStore(tmp_path / "out").spec.control_hz == 25.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda demo: demo.__delitem__("actions"), "no array 'actions'"),
        (
            lambda demo: demo.__setitem__("obs/link", h5py.ExternalLink("other.hdf5", "/x")),
            "only numbers inside the file",
        ),
        (lambda demo: demo.__delitem__("obs"), "no observations|no array 'obs"),
    ],
)
def test_broken_robomimic_files_are_refused(
    robomimic: Path, tmp_path: Path, change: Callable[[Any], Any], words: str
) -> None:
    """An external link is not followed into another file."""
    with h5py.File(tmp_path / "other.hdf5", "w") as other:
        other.create_dataset("x", data=np.zeros((4, 2)))
    with h5py.File(robomimic, "a") as file:
        change(file["data/demo_1"])
    with pytest.raises(DataError, match=words):
        import_robomimic(robomimic, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_export_and_import_from_the_command_line(export: Path, tmp_path: Path, capsys: Any) -> None:
    """And a path that is no dataset is named."""
    out = tmp_path / "out"
    assert main(["data", "export", f"path={export / 'set'}", "format=lerobot", f"out={out}"]) == 0
    assert "3 episodes as lerobot" in capsys.readouterr().out
    assert main(["data", "import", f"source={out}", f"out={tmp_path / 'again'}"]) == 0
    assert main(["data", "export", f"path={export / 'plain'}", f"out={tmp_path / 'x'}"]) == 2
    assert "is a LeRobot dataset, not a dataset" in (said := capsys.readouterr().err)
    assert f"Import it first: robo-rl data import source={export / 'plain'}" in said
