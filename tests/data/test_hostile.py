"""Datasets from untrusted sources: every reader raises DataError and checks what the files state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.info import dataset_info
from robo_rl.data.merge import merge
from robo_rl.data.plausible import check_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.data.validate import validate
from robo_rl.data.windows import WindowDataset, WindowSpec
from tests.data.recordings import STATE_ENV, record

EPISODE = "episodes/000000/episode.json"


def read_all(path: Path) -> None:
    """Read the dataset as train, info and merge do."""
    store = EpisodeStore(path)
    check_episodes(store)
    windows = WindowDataset(path, WindowSpec(2, 4))
    windows.gather(np.arange(len(windows)))
    dataset_info(path)
    merge([path], path.with_name("merged"))


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return record(tmp_path / "set", [4, 5], env=STATE_ENV)


@pytest.mark.parametrize("dtype", ["O", "|O", "V8", "S4", "M8[ns]", "float128", ">f4", ["float32"], None, 3])
def test_other_dtypes_are_refused(dataset: Path, dtype: Any) -> None:
    """Type "O" used to make a memory map of pointers, and reading it ended the process with SIGSEGV."""
    edit(dataset / EPISODE, lambda data: data["arrays"]["state"].update(dtype=dtype))
    with pytest.raises(DataError, match=r"episode\.json is broken .*'state' has type"):
        read_all(dataset)


@pytest.mark.parametrize("shape", [[], [-1, 3], [4.0, 3], "43", [[4], 3], [True, 3], [2**60, 2**60], None])
def test_invalid_shapes_are_refused(dataset: Path, shape: Any) -> None:
    edit(dataset / EPISODE, lambda data: data["arrays"]["state"].update(shape=shape))
    with pytest.raises(DataError, match=r"episode\.json is broken .*'state' has shape"):
        read_all(dataset)


@pytest.mark.parametrize(
    "entry", [{"dtype": "float64"}, {"shape": [3, 3]}, {"shape": [4, 2]}, {"shape": [4]}, {"shape": [9, 3]}]
)
def test_an_episode_must_have_the_arrays_of_its_dataset(dataset: Path, entry: dict[str, Any]) -> None:
    """Types and shapes that are valid elsewhere: readers compare them with the dataset."""
    edit(dataset / EPISODE, lambda data: data["arrays"]["state"].update(entry))
    with pytest.raises(DataError, match="changed after the recording, or belongs to another dataset"):
        EpisodeStore(dataset).episode(0).obs("state")
    with pytest.raises(DataError):
        read_all(dataset)


@pytest.mark.parametrize("file", ["dataset.json", EPISODE])
@pytest.mark.parametrize("text", ["[" * 100_000, '{"frames": ' + "9" * 6_000 + "}", "[]", "null", "\x00", ""])
def test_invalid_json_is_refused(dataset: Path, file: str, text: str) -> None:
    (dataset / file).write_text(text)
    with pytest.raises(DataError):
        read_all(dataset)
    assert [fault.severity for fault in validate(dataset)][:1] == ["error"]


@pytest.mark.parametrize("key", ["episode.json", "recording.json", "zarr.json", "action"])
def test_reserved_keys_are_refused(key: str) -> None:
    """An observation is a folder of its episode, so it cannot have the name of a file there."""
    env = EnvSpec("robot/x", {key: ArraySpec((2,))}, ActionSpec((-1.0,), (1.0,)), 10, 5.0)
    with pytest.raises(DataError, match=f"Observation key '{key}' cannot be stored"):
        DatasetMeta(env)


def test_a_changed_byte_is_noticed_when_it_is_read(dataset: Path) -> None:
    """Training and single reads compare checksums; earlier only `validate` did."""
    shard = next((dataset / "episodes/000001/state").glob("c.*"))
    data = bytearray(shard.read_bytes())
    data[5] ^= 1  # a low bit of the mantissa: plausible, finite and wrong
    shard.write_bytes(data)
    EpisodeStore(dataset).episode(0).obs("state")
    with pytest.raises(DataError, match=r"checksum of .*000001/state/c\.0\.0 differs"):
        WindowDataset(dataset, WindowSpec(2, 4))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["O", "float64", "raw", "jpeg", "../../x", "episode.json"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def _places(data: Any, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all values inside a JSON value."""
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [place for key, value in items for place in ((*prefix, key), *_places(value, (*prefix, key)))]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), file=st.sampled_from(["dataset.json", EPISODE]))
def test_any_changed_value_is_readable_or_an_error(dataset: Path, data: st.DataObject, file: str) -> None:
    """One value of a valid dataset is replaced: it is still readable, or a RoboRLError gives the reason."""
    path = dataset / file
    sound = path.read_text()
    broken = json.loads(sound)
    *parents, last = data.draw(st.sampled_from(_places(broken)))
    place = broken
    for key in parents:
        place = place[key]
    place[last] = data.draw(JSON_VALUES)
    path.write_text(json.dumps(broken))
    try:
        read_all(dataset)
    except RoboRLError:
        pass
    finally:
        validate(dataset)
        path.write_text(sound)
        shutil.rmtree(dataset.with_name("merged"), ignore_errors=True)
