"""`validate` names the fault, the episode and a remedy for every known kind of corruption."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.core.errors import DataError
from robo_rl.core.spec import ArraySpec
from robo_rl.data.episodes import dataset_writer
from robo_rl.data.info import dataset_info
from robo_rl.data.review.one_episode import episode_at
from robo_rl.data.store import DatasetWriter, Episode, EpisodeStore
from robo_rl.data.validate import Fault, validate
from tests.data import recordings
from tests.data.recordings import ENV, STATE_ENV, action, add_frames, interrupt, record, state

EPISODE = "episodes/000001"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("sound") / "set", [6, 5, 4])


@pytest.fixture
def dataset(sound: Path, tmp_path: Path) -> Path:
    """Copy of a valid dataset, to be damaged."""
    return Path(shutil.copytree(sound, tmp_path / "set"))


def _edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def _edit_array(path: Path, name: str, **changes: Any) -> None:
    arrays = json.loads(path.read_text())["arrays"]
    _edit(path, arrays={**arrays, name: {**arrays[name], **changes}})


def _flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)


def _truncate(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def _drop_array(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array for name, array in arrays.items() if name != "reward"}


CORRUPTIONS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "an array's directory is deleted": ("missing_array", lambda e: shutil.rmtree(e / "state")),
    "an array is not listed": (
        "missing_array",
        lambda e: _edit(
            e / "episode.json", arrays=_drop_array(json.loads((e / "episode.json").read_text())["arrays"])
        ),
    ),
    "a shard is deleted": ("missing_shard", lambda e: (e / "action/c.0.0").unlink()),
    "a shard is cut off": ("truncated_shard", lambda e: _truncate(e / "image.front/c.0.0.0.0", 1000)),
    "only the index is cut off": ("bad_index", lambda e: _truncate(e / "state/c.0.0", 6 * 12 + 3)),
    "a byte of the index flips": ("bad_index", lambda e: _flip(e / "reward/c.0", -1)),
    "a byte of an image flips": ("bad_checksum", lambda e: _flip(e / "image.wrist/c.0.0.0.0", 100)),
    "rows are missing": ("wrong_length", lambda e: _edit_array(e / "episode.json", "reward", shape=[4])),
    "frames are overstated": ("wrong_length", lambda e: _edit(e / "episode.json", frames=50)),
    "a row has another shape": (
        "wrong_shape",
        lambda e: _edit_array(e / "episode.json", "action", shape=[5, 3]),
    ),
    "an array has another type": (
        "wrong_dtype",
        lambda e: _edit_array(e / "episode.json", "state", dtype="float64"),
    ),
    "an array's zarr.json is no JSON": (
        "broken_zarr_json",
        lambda e: (e / "action/zarr.json").write_text("{oops"),
    ),
    "an array's zarr.json is gone": ("broken_zarr_json", lambda e: (e / "action/zarr.json").unlink()),
    "an array's zarr.json lies": (
        "broken_zarr_json",
        lambda e: _edit(e / "state/zarr.json", data_type="float64"),
    ),
    "the episode's zarr.json is broken": (
        "broken_zarr_json",
        lambda e: (e / "zarr.json").write_bytes(b"\xff\x00"),
    ),
    "episode.json is cut off": ("broken_episode_json", lambda e: _truncate(e / "episode.json", 40)),
    "episode.json is gone": ("broken_episode_json", lambda e: (e / "episode.json").unlink()),
    "episode.json lacks a field": ("broken_episode_json", lambda e: (e / "episode.json").write_text("{}")),
    "episode.json is a list": ("broken_episode_json", lambda e: (e / "episode.json").write_text("[]")),
    "the episode is empty": ("zero_length", lambda e: _edit(e / "episode.json", frames=0)),
    "a stranger's array lies there": ("unknown_array", lambda e: (e / "notes").mkdir()),
    "it was salvaged": ("incomplete", lambda e: _edit(e / "episode.json", complete=False)),
    "it was damaged by a power loss": (
        "damaged",
        lambda e: _edit(e / "episode.json", info={"damaged": "it differs"}),
    ),
}


@pytest.mark.parametrize("case", CORRUPTIONS)
def test_every_corruption_is_found_in_its_episode(dataset: Path, case: str) -> None:
    """One corruption gives one kind of fault, in episode 1 only, with a remedy."""
    kind, corrupt = CORRUPTIONS[case]
    corrupt(dataset / EPISODE)
    faults = validate(dataset)
    assert {(fault.episode, fault.kind) for fault in faults} == {(1, kind)}
    assert all(fault.fault and fault.what_to_do for fault in faults)
    assert "episode 000001" in str(faults[0])


@pytest.mark.parametrize(
    ("success", "label"),
    [(None, "no success label"), (True, "the label success"), (False, "the label failure")],
)
def test_the_label_of_an_interrupted_episode_is_told(dataset: Path, success: bool | None, label: str) -> None:
    """One that was labelled later has a label."""
    _edit(dataset / EPISODE / "episode.json", complete=False, success=success)
    (fault,) = validate(dataset)
    assert fault.what_to_do.startswith(f"It has {label}. Keep it if its motion is good")


def test_valid_dataset_has_no_faults(sound: Path) -> None:
    """A valid dataset has no fault."""
    assert validate(sound) == []


def test_there_are_more_than_twelve_kinds() -> None:
    """Target of the results page for this test and those below."""
    assert len({kind for kind, _ in CORRUPTIONS.values()}) >= 12


def _only(path: Path) -> Fault:
    faults = validate(path)
    assert len(faults) == 1, faults
    return faults[0]


def test_faults_of_the_dataset_itself(dataset: Path) -> None:
    """A gap in the numbers, a leftover recording and a stray file: one warning each."""
    shutil.move(dataset / EPISODE, dataset.parent / "aside")
    assert (_only(dataset).kind, _only(dataset).severity) == ("numbering_gap", "warning")
    assert "Episodes [1] are missing" in str(_only(dataset))
    shutil.move(dataset.parent / "aside", dataset / EPISODE)
    (dataset / "staging/abc").mkdir()
    assert _only(dataset).kind == "leftover_staging"
    (dataset / "staging/abc").rmdir()
    (dataset / "episodes/old copy").mkdir()
    assert _only(dataset).kind == "stray_entry"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "other"}, "not a dataset of this project"),
        ({"version": 2}, "version 2"),
        ({"env": 3}, "broken"),
    ],
)
def test_a_foreign_or_newer_dataset(dataset: Path, change: dict[str, Any], words: str) -> None:
    """Files below a foreign dataset.json cannot be checked: one fault, and no exception."""
    _edit(dataset / "dataset.json", **change)
    assert (_only(dataset).kind, _only(dataset).episode) == ("foreign_format", None)
    assert words in _only(dataset).fault


def test_missing_dataset_is_reported(tmp_path: Path) -> None:
    """A mistyped path is reported like any fault."""
    assert _only(tmp_path / "nothing").kind == "foreign_format"


def test_a_missing_episodes_folder(dataset: Path) -> None:
    """dataset.json alone is not a dataset."""
    shutil.rmtree(dataset / "episodes")
    assert _only(dataset).kind == "missing_folder"
    with pytest.raises(DataError, match=r"episodes is missing: .*Copy it again"):
        EpisodeStore(dataset)


def test_advice_on_a_folder_with_a_space_can_be_pasted(dataset: Path) -> None:
    """A shell would split the path."""
    spaced = dataset.rename(dataset.parent / "my data")
    with pytest.raises(DataError, match=re.escape(f"robo-rl data list 'path={spaced}'")):
        episode_at(spaced, 99)
    shutil.rmtree(spaced / "episodes")
    assert f"robo-rl data repair 'path={spaced}'" in str(_only(spaced))


def test_a_copy_without_its_contract_is_named(dataset: Path) -> None:
    """`cp -r` that was stopped early: the folder is not of unknown content."""
    (dataset / "dataset.json").unlink()
    with pytest.raises(DataError, match=r"is the copy of a dataset that lacks a part, .* no dataset\.json"):
        EpisodeStore(dataset)


def _recorded(path: Path, frames: list[dict[str, Any]], env: Any = STATE_ENV) -> list[Fault]:
    writer = DatasetWriter.create(path, env, min_free_bytes=0)
    with writer.episode() as episode:
        for i, frame in enumerate(frames):
            episode.add(
                {"state": frame.get("state", state(0, i))},
                frame.get("action", action(0, i)),
                reward=frame.get("reward", 0.0),
                stamps=frame.get("stamps"),
            )
        episode.commit()
    return validate(path)


@pytest.mark.parametrize(
    ("frame", "kind", "words"),
    [
        (
            {"state": np.array([0, np.nan, 0])},
            "non_finite",
            "'state' is not finite in 1 rows, first in row 3",
        ),
        ({"action": np.array([0, np.inf])}, "non_finite", "'action'"),
        ({"reward": float("nan")}, "non_finite", "'reward'"),
        ({"action": np.array([0, 2.1])}, "action_outside_limits", "first in frame 3, dimensions [1]"),
        ({"stamps": {"t_capture_ns": 5}}, "stamps_backwards", "'t_capture_ns' decreases 1 times"),
    ],
)
def test_bad_values_are_found(tmp_path: Path, frame: dict[str, Any], kind: str, words: str) -> None:
    """The bytes are as written, but frame 3 holds invalid values from the robot or driver."""
    frames: list[dict[str, Any]] = [{"stamps": {"t_capture_ns": 10 + i}} for i in range(6)]
    frames[3] |= frame
    faults = _recorded(tmp_path / "set", frames)
    assert kind in {fault.kind for fault in faults}
    assert any(words in fault.fault and fault.episode == 0 for fault in faults)


def test_rounding_at_a_limit_is_no_fault(tmp_path: Path) -> None:
    """float32 turns a clipped action in other units into 1 + 1e-6."""
    assert _recorded(tmp_path / "set", [{"action": [-1.000001, 2.000001]}, {"action": [0, 0]}]) == []


def test_frames_received_before_they_were_captured(tmp_path: Path) -> None:
    """Two clocks were mixed: the delay is wrong by an unknown amount."""
    frames = [{"stamps": {"t_capture_ns": 10 * i, "t_receive_ns": 10 * i - 1}} for i in range(4)]
    assert [f.kind for f in _recorded(tmp_path / "set", frames)] == ["stamps_order"]


def test_wrong_control_rate_is_reported(tmp_path: Path) -> None:
    """20 Hz declared, 16 Hz run: velocities learnt from it would be 25 % too high."""
    frames = [{"stamps": {"t_command_ns": round(i * 1e9 / 16)}} for i in range(30)]
    faults = _recorded(tmp_path / "set", frames)
    assert [(f.kind, f.severity) for f in faults] == [("rate", "warning")]
    assert "16.00 Hz" in faults[0].fault


def test_a_dimension_that_never_moves(tmp_path: Path) -> None:
    """Zero variance leads to NaN losses: a warning names the dimension over the entire dataset."""
    faults = _recorded(tmp_path / "set", [{"action": [0.1 * i, 0.5]} for i in range(5)])
    assert [(f.kind, f.severity, f.episode) for f in faults] == [("constant_action", "warning", None)]
    assert "dimensions [1]" in faults[0].fault


def test_broken_jpegs(tmp_path: Path) -> None:
    """Offsets outside the blob, and bytes that are no JPEG although their checksum is correct."""
    path = record(tmp_path / "set", [3], codec="jpeg")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Episode, "jpeg_ends", lambda self, key: np.array([0, 900, 800, 10**6]))
        assert {fault.kind for fault in validate(path)} == {"broken_jpeg"}
    junk = DatasetWriter.create(tmp_path / "junk", ENV, image_codec="jpeg", min_free_bytes=0)
    with pytest.MonkeyPatch.context() as patch, junk.episode() as episode:
        patch.setattr("robo_rl.data.jpeg.encode", lambda image, quality: np.zeros(9, dtype=np.uint8))
        add_frames(episode, 0, 2)
        episode.commit()
    faults = validate(tmp_path / "junk")
    assert {fault.kind for fault in faults} == {"broken_jpeg"}
    assert "not a JPEG image" in faults[0].fault


def test_info_counts_episodes_and_frames(tmp_path: Path) -> None:
    """The numbers of `robo-rl data info`, on a dataset whose numbers are known."""
    path = record(tmp_path / "set", [6, 5, 4])
    interrupt(DatasetWriter.open(path, min_free_bytes=0), 3, 2)
    info = dataset_info(path)
    assert json.loads(json.dumps(info)) is not None
    assert (info["env"], info["episodes"], info["frames"], info["interrupted"]) == ("test/arm", 3, 15, 1)
    assert (info["labelled"], info["successes"], info["seconds"]) == (3, 2, 0.75)
    assert info["frames_per_episode"] == {"min": 4, "median": 5.0, "max": 6}
    assert info["tasks"] == {"task 0": 2, "task 1": 1}
    assert (info["terminated_episodes"], info["intervention_frames"]) == (3, 3 + 2 + 2)
    assert info["obs"]["image.front"] == {"shape": [16, 12, 3], "dtype": "uint8", "unit": "rgb"}
    assert info["delays_ms"]["t_capture -> t_receive"] == {"p50": 5.0, "p99": 5.0}
    assert info["delays_ms"]["t_receive -> t_command"] == {"p50": 4.0, "p99": 4.0}


def test_info_of_an_empty_dataset(tmp_path: Path) -> None:
    """An empty dataset is no error."""
    DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0)
    info = dataset_info(tmp_path / "set")
    assert (info["episodes"], info["frames_per_episode"], info["delays_ms"]) == (0, None, {})


def test_episodes_that_were_recorded_twice(tmp_path: Path) -> None:
    """Equal contents are an error, the same seed with other contents a warning; stamps do not count."""
    path = record(tmp_path / "set", [6, 5, 4])
    shutil.copytree(path / "episodes/000001", path / "episodes/000003")
    shutil.copytree(path / "episodes/000002", path / "episodes/000004")
    _edit(path / "episodes/000002/episode.json", seed=0)
    faults = {fault.kind: fault for fault in validate(path)}
    assert faults["duplicate_episode"].severity == "error"
    assert "2 episodes repeat others exactly: 1 = 3, 2 = 4." in faults["duplicate_episode"].fault
    assert faults["repeated_seed"].severity == "warning"
    assert "1 seed occurs in several episodes: 0 = 2." in faults["repeated_seed"].fault
    assert faults.keys() == {"duplicate_episode", "repeated_seed"}


def test_float_images_of_an_older_writer_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Training would refuse the dataset, so `validate` must not call it valid."""
    monkeypatch.setattr(dataset_writer, "image_fault", lambda key, array: "")
    monkeypatch.setattr(recordings, "image", lambda seed, frame, shape: np.zeros(shape, np.float32))
    obs = {"state": ENV.obs["state"], "image.front": ArraySpec((16, 12, 3), "float32")}
    path = record(tmp_path / "set", [3], env=replace(ENV, obs=obs))
    (fault,) = validate(path)
    assert (fault.severity, fault.kind) == ("error", "wrong_image")
    assert "'image.front' is float32 (16, 12, 3), but an image must be uint8" in str(fault)
    assert "convert these images to uint8" in str(fault)


@pytest.mark.parametrize("codec", ["raw", "jpeg"])
def test_a_camera_that_repeats_an_image_is_reported(tmp_path: Path, codec: str) -> None:
    """While the robot moves; an arm at rest looks the same for as long as it rests."""
    writer = DatasetWriter.create(
        tmp_path / "set", ENV, image_codec=codec, stamps=(), min_free_bytes=0, durable=False
    )
    for moves in (True, False):
        with writer.episode() as episode:
            for i in range(20):
                seen = recordings.obs(0, 0 if 4 <= i < 16 else i)
                seen["state"] = state(0, i if moves else 0)
                episode.add(seen, action(0, i))
            episode.commit()
    writer.close()
    found = [fault for fault in validate(tmp_path / "set") if fault.kind == "frozen_camera"]
    assert [(fault.episode, fault.severity) for fault in found] == [(0, "warning")] * 2
    assert "frames 4 to 15" in found[0].fault


def test_a_recording_in_which_nobody_moved_the_robot(tmp_path: Path) -> None:
    """Rounding errors of a simulated arm at rest are no motion: its cameras are right to repeat an image."""
    writer = DatasetWriter.create(tmp_path / "set", ENV, stamps=(), min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        for i in range(20):
            seen = recordings.obs(0, 0) | {"state": np.array([0.0, 1.0, 7e-38 * i], np.float32)}
            episode.add(seen, action(0, i))
        episode.commit()
    writer.close()
    (fault,) = validate(tmp_path / "set")
    assert (fault.kind, fault.severity) == ("no_motion", "warning")
    assert (
        "The robot did not move: no number of its observations changes by 0.0001 or more in 20" in fault.fault
    )
