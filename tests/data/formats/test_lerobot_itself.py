"""Exports read by LeRobot's own reader, where an environment with lerobot is named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from robo_rl.data.formats.registry import load_part
from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.data import recordings
from tests.data.formats import lerobot_reader

LEROBOT = os.environ.get("ROBO_RL_LEROBOT_PYTHON")  # python of an environment with lerobot


@pytest.mark.slow
@pytest.mark.skipif(LEROBOT is None, reason="needs ROBO_RL_LEROBOT_PYTHON")
def test_lerobot_reads_every_value(tmp_path: Path) -> None:
    """Two episodes with PNG images: states, actions, rewards, marks, tasks and pictures, row by row."""
    writer = DatasetWriter.create(tmp_path / "store", recordings.ENV, min_free_bytes=0, durable=False)
    for seed, frames in ((0, 5), (1, 7)):
        with writer.episode(task=f"task {seed}", seed=seed) as episode:
            for i in range(frames):
                episode.add(
                    recordings.obs(seed, i), recordings.action(seed, i), reward=0.5 * i, intervention=i > 2
                )
            episode.commit(success=seed == 1)
    writer.close()
    load_part("lerobot", "writer")(tmp_path / "store", tmp_path / "export", video=False)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    words = [str(LEROBOT), lerobot_reader.__file__, str(tmp_path / "export"), str(tmp_path / "read.npz")]
    subprocess.run(words, env=environment | {"HF_HUB_OFFLINE": "1"}, check=True)

    read, store = np.load(tmp_path / "read.npz"), EpisodeStore(tmp_path / "store")
    assert (float(read["fps"]), int(read["episodes"])) == (20.0, 2)
    for key, values in {
        "observation.state": [each.obs("state") for each in store],
        "action": [each.action for each in store],
        "next.reward": [each.reward for each in store],
        "intervention": [each.intervention for each in store],
    }.items():
        np.testing.assert_array_equal(read[key].reshape(12, -1), np.concatenate(values).reshape(12, -1), key)
    for camera in ("front", "wrist"):
        shown = np.concatenate([each.obs(f"image.{camera}") for each in store])
        pixels = np.rint(read[f"observation.images.{camera}"] * 255).astype(np.uint8)
        np.testing.assert_array_equal(pixels.transpose(0, 2, 3, 1), shown)
    np.testing.assert_array_equal(read["episode_index"], [0] * 5 + [1] * 7)
    np.testing.assert_array_equal(read["frame_index"], [*range(5), *range(7)])
    assert read["task"].tolist() == ["task 0"] * 5 + ["task 1"] * 7
