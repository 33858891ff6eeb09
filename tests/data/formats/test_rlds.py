"""TFRecord and Example without TensorFlow: known bytes, every number, and hostile files."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from robo_rl.apps.cli.main import main
from robo_rl.core.errors import DataError
from robo_rl.data.formats.contract import inferred
from robo_rl.data.formats.rlds.reader import describe_rlds, folder_of, import_rlds
from robo_rl.data.formats.rlds.records import (
    Value,
    decode_example,
    encode_example,
    read_records,
    write_record,
)
from robo_rl.data.formats.rlds.writer import export_rlds
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.data.formats.foreign_rlds import make_foreign
from tests.data.recordings import STATE_ENV, add_frames, record

# tf.train.Example(features={"a": int64_list [1, -1]}), serialised by TensorFlow 2.21
EXAMPLE = bytes.fromhex("0a160a140a016112 0f1a0d0a0b01ffffffffffffffffff01".replace(" ", ""))


def test_an_example_has_the_bytes_of_tensorflow() -> None:
    assert encode_example({"a": np.array([1, -1])}) == EXAMPLE
    np.testing.assert_array_equal(decode_example(EXAMPLE, "x")["a"], [1, -1])


def test_every_number_returns() -> None:
    numbers = np.array([0, 1, 127, 128, 2**31, 2**62, 2**63 - 1, -1, -(2**63), 16383, 16384])
    floats = np.array([0.0, -0.0, 1e-45, np.inf, np.nan, 3.4e38], dtype=np.float32)
    data = encode_example({"i": numbers, "f": floats, "b": [b"", b"\x00\xff" * 100]})
    found = decode_example(data, "x")
    np.testing.assert_array_equal(found["i"], numbers)
    assert np.asarray(found["f"]).tobytes() == floats.tobytes()
    assert found["b"] == [b"", b"\x00\xff" * 100]


def test_damaged_records_are_refused(tmp_path: Path) -> None:
    """Each byte of a file of two records is changed and each length is tried: nothing wrong is read."""
    file = io.BytesIO()
    for data in (b"first", EXAMPLE):
        write_record(file, data)
    whole, path = file.getvalue(), tmp_path / "x.tfrecord"
    path.write_bytes(whole)
    assert list(read_records(path)) == [b"first", EXAMPLE]
    for i in range(len(whole)):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :])
        with pytest.raises(DataError):
            list(read_records(path))
        path.write_bytes(whole[:i])
        if i not in (0, 4 + 8 + 5 + 4):  # the end of a record: a shorter file is a valid one
            with pytest.raises(DataError):
                list(read_records(path))


@pytest.mark.parametrize("cut", range(1, len(EXAMPLE)))
def test_messages_that_are_cut_are_refused(cut: int) -> None:
    """Or give nothing: no wrong number."""
    try:
        found = decode_example(EXAMPLE[:cut], "x")
    except DataError:
        return
    assert all(np.array_equal(value, [1, -1]) for value in found.values())


def test_a_foreign_dataset_gets_an_inferred_contract(tmp_path: Path) -> None:
    """Steps become frames; the instruction becomes the task; a version folder may be given or its parent."""
    record(tmp_path / "set", [6, 5], final=False)
    export_rlds(tmp_path / "set", tmp_path / "arm" / "1.0.0")
    (tmp_path / "arm/1.0.0/robo_rl.json").unlink()
    with pytest.raises(DataError, match="states no rate"):
        import_rlds(tmp_path / "arm", tmp_path / "out")
    spec = inferred(replace(describe_rlds(tmp_path / "arm"), rate_hz=10.0))
    assert import_rlds(tmp_path / "arm", tmp_path / "out", env=spec) == 2
    before, after = EpisodeStore(tmp_path / "set"), EpisodeStore(tmp_path / "out")
    assert after.spec.control_hz == 10.0
    assert set(after.spec.obs) == set(before.spec.obs)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.obs("image.front"), other.obs("image.front"))
        assert one.meta.task == other.meta.task
        assert bool(one.terminated[-1]) == bool(other.terminated[-1])


def test_the_newest_version_is_imported(tmp_path: Path) -> None:
    """1.10.0 follows 1.9.0, and what is no version is only taken without any."""
    for name in ("1.9.0", "1.10.0", "old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "features.json").touch()
    assert folder_of(tmp_path) == tmp_path / "1.10.0"
    assert folder_of(tmp_path / "old") == tmp_path / "old"
    assert folder_of(tmp_path / "nothing") is None


def test_splits_are_not_mixed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Episodes kept for validation are no training data; the report names what it left out."""
    for split, lengths in (("train", [3, 2]), ("val", [4])):
        record(tmp_path / split, lengths, env=STATE_ENV)
        export_rlds(tmp_path / split, tmp_path / "all" / split)
    (shard,) = (tmp_path / "all/val").glob("*.tfrecord*")
    shard.rename(tmp_path / "all/train" / shard.name.replace("-train.", "-val."))
    source = tmp_path / "all/train"
    (source / "robo_rl.json").unlink()
    for words, frames, left_out in (([], [3, 2], "val"), (["split=val"], [4], "train")):
        out = tmp_path / f"without_{left_out}"
        assert main(["data", "import", f"source={source}", f"out={out}", "rate_hz=20", *words]) == 0
        assert [episode.frames for episode in EpisodeStore(out)] == frames
        assert f"; left out: split={left_out}" in capsys.readouterr().out
    assert main(["data", "import", f"source={source}", f"out={tmp_path / 'x'}", "split=test"]) == 2
    assert "has no split 'test': give split=train or split=val" in capsys.readouterr().err


def test_a_dataset_is_exported_while_it_is_recorded(tmp_path: Path) -> None:
    """Committed episodes only; the running one is not touched."""
    path = record(tmp_path / "set", [4, 3])
    writer = DatasetWriter.open(path, min_free_bytes=0)
    with writer.episode(seed=9) as episode:
        add_frames(episode, 9, 2)
        assert export_rlds(path, tmp_path / "out") == 2
        episode.commit()
    writer.close()
    assert import_rlds(tmp_path / "out", tmp_path / "again") == 2


@pytest.mark.parametrize("ours", [True, False])
def test_the_observation_after_the_last_action_is_no_frame(tmp_path: Path, ours: bool) -> None:
    """An export ends with a step that holds only this observation: no action of zeros may come of it, with
    our record of the export and without.
    """
    record(tmp_path / "set", [4, 3], env=STATE_ENV)
    export_rlds(tmp_path / "set", tmp_path / "export")
    if not ours:
        make_foreign(tmp_path / "export")
    notes: list[str] = []
    import_rlds(tmp_path / "export", tmp_path / "out", env=STATE_ENV, notes=notes)
    for one, other in zip(EpisodeStore(tmp_path / "set"), EpisodeStore(tmp_path / "out"), strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.reward, other.reward)
        np.testing.assert_array_equal(one.terminated, other.terminated)
        np.testing.assert_array_equal(one.obs("state"), other.obs("state"))
    assert [note.partition(",")[0] for note in notes] == ([] if ours else ["In 2 episodes"])


def test_a_last_step_with_an_action_or_a_reward_is_a_frame(tmp_path: Path) -> None:
    """Many RLDS datasets mark their last frame as is_last; none of its numbers is dropped."""
    record(tmp_path / "set", [4, 3], env=STATE_ENV)
    export_rlds(tmp_path / "set", tmp_path / "export")

    def reward_at_the_end(example: dict[str, Value]) -> None:
        example["steps/reward"] = np.append(np.asarray(example["steps/reward"])[:-1], np.float32(1.0))

    make_foreign(tmp_path / "export", reward_at_the_end)
    import_rlds(tmp_path / "export", tmp_path / "out", env=STATE_ENV)
    assert [episode.frames for episode in EpisodeStore(tmp_path / "out")] == [5, 4]


def test_the_rate_of_an_export_stays_with_other_names(tmp_path: Path) -> None:
    """RLDS has no place for the rate; our record beside it has."""
    record(tmp_path / "set", [3], env=STATE_ENV)
    export_rlds(tmp_path / "set", tmp_path / "export")
    words = [f"source={tmp_path / 'export'}", "keys=['joints:observation/state']", f"out={tmp_path / 'out'}"]
    assert main(["data", "import", *words]) == 0
    assert EpisodeStore(tmp_path / "out").spec.control_hz == STATE_ENV.control_hz
