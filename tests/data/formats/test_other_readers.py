"""Exports read by other packages, where a variable names the Python of an environment with one."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy import ndarray

from robo_rl.data.formats.registry import load_part
from robo_rl.data.formats.rows import EpisodeRows, rows_of, short_name
from robo_rl.data.store import EpisodeStore
from tests.data.formats import mcap_reader, robomimic_reader, tfds_reader
from tests.data.formats.odd_dataset import ODD, write_odd

TFDS, ROBOMIMIC, MCAP = (f"ROBO_RL_{name}_PYTHON" for name in ("TFDS", "ROBOMIMIC", "MCAP"))
pytestmark = pytest.mark.slow


def read_by(python: str, reader: Any, form: str, folder: Path) -> tuple[list[EpisodeRows], dict[str, Any]]:
    """Rows of a dataset, and the values that another reader finds in its export."""
    if python not in os.environ:
        pytest.skip(f"needs {python}")
    write_odd(folder / "store")
    export = folder / ("export.hdf5" if form == "robomimic" else "export")
    load_part(form, "writer")(folder / "store", export)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [os.environ[python], reader.__file__, str(export), str(folder / "read.npz")]
    subprocess.run(words, env=environment | {"TF_CPP_MIN_LOG_LEVEL": "3"}, check=True)
    read = dict(np.load(folder / "read.npz"))
    print(f"read by version {read.pop('version')}")
    return [rows_of(episode) for episode in EpisodeStore(folder / "store")], read


def require_equal(read: dict[str, Any], expected: dict[str, Any]) -> None:
    """Both have the same names and values; types may be wider or narrower, as the format has them."""
    assert read.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(read[name], np.asarray(values).astype(read[name].dtype), name)


def padded(values: ndarray, steps: int) -> ndarray:
    """Rows, with zeros for a step after the last action."""
    return np.concatenate([values, np.zeros((steps - len(values), *values.shape[1:]), values.dtype)])


def test_tensorflow_datasets_reads_every_value(tmp_path: Path) -> None:
    """Every observation (float64 as float32), action, reward, flag, instruction and label, step by step."""
    episodes, read = read_by(TFDS, tfds_reader, "rlds", tmp_path)
    expected: dict[str, Any] = {}
    for i, rows in enumerate(episodes):
        steps = rows.frames + rows.has_final_obs
        last, label = np.arange(steps) == steps - 1, rows.labels.success
        columns = {f"observation/{short_name(ODD, key)}": values for key, values in rows.obs.items()}
        columns |= {name: padded(getattr(rows, name), steps) for name in ("action", "reward", "intervention")}
        columns |= {"is_first": np.arange(steps) == 0, "is_last": last, "discount": np.ones(steps)}
        columns |= {"is_terminal": last & rows.terminated[-1]}
        columns |= {"language_instruction": np.array([rows.labels.task] * steps)}
        expected |= {f"{i}/steps/{name}": values for name, values in columns.items()}
        expected[f"{i}/episode_metadata/success"] = -1 if label is None else int(label)
    require_equal(read, expected)


def test_robomimic_reads_every_value(tmp_path: Path) -> None:
    """Every observation in its own type, action, reward and end."""
    episodes, read = read_by(ROBOMIMIC, robomimic_reader, "robomimic", tmp_path)
    expected: dict[str, Any] = {}
    for i, rows in enumerate(episodes):
        for key, values in rows.obs.items():
            name = f"{i}/obs/{short_name(ODD, key)}" + "_image" * key.startswith("image.")
            assert read[name].dtype == values.dtype
            expected[name] = values[: rows.frames]
        expected |= {f"{i}/actions": rows.action, f"{i}/rewards": rows.reward}
        expected[f"{i}/dones"] = rows.terminated
    require_equal(read, expected)


def test_mcap_reads_every_value(tmp_path: Path) -> None:
    """Every observation, action, reward, flag and stamp at its frame's time, the instruction and label."""
    episodes, read = read_by(MCAP, mcap_reader, "mcap", tmp_path)
    expected: dict[str, Any] = {}
    for i, rows in enumerate(episodes):
        columns = {f"observation/{key.replace('.', '/')}": values for key, values in rows.obs.items()}
        columns |= {n: getattr(rows, n) for n in ("action", "reward", "terminated", "intervention")}
        columns |= {"stamps_ns": rows.stamps["t_capture_ns"]}
        if rows.labels.task:
            columns["task"] = np.array([rows.labels.task])
        if rows.labels.success is not None:
            columns["success"] = np.array([rows.labels.success])
        for name, values in columns.items():
            expected[f"{i}/{name}"] = values.reshape(read[f"{i}/{name}"].shape)
            expected[f"{i}/time_ns/{name}"] = np.rint(np.arange(len(values)) * 1e9 / ODD.control_hz)
    require_equal(read, expected)
