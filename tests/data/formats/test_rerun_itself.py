"""Exports read by Rerun's own reader."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

pytest.importorskip("rerun")
pytest.importorskip("rerun.chunk", reason="this rerun-sdk cannot read .rrd files by chunks")

from robo_rl.data.formats.registry import load_part
from robo_rl.data.formats.rows import rows_of
from robo_rl.data.store import EpisodeStore
from tests.data.formats.odd_dataset import write_odd
from tests.data.formats.rerun_reader import read_rrd
from tests.data.recordings import record

GREY_LEVELS = 3.0  # mean error of a smooth picture as JPEG; noise is not compared


@pytest.mark.parametrize("name", ["odd", "smooth"])
def test_rerun_reads_every_value(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Observations, actions, rewards and interventions at their frames and times; pictures as far as JPEG."""
    path = tmp_path / "store"
    path = write_odd(path) if name == "odd" else record(path, [6, 5])
    load_part("rerun", "writer")(path, tmp_path / "export")
    store = EpisodeStore(path)
    for episode in store:
        rows = rows_of(episode)
        read = read_rrd(tmp_path / "export" / f"episode_{episode.number:06d}.rrd")
        expected = {f"/observation/{key.replace('.', '/')}": values for key, values in rows.obs.items()}
        expected |= {"/action": rows.action, "/reward": rows.reward, "/intervention": rows.intervention}
        for entity, values in expected.items():
            assert read[entity]["frame"] == list(range(len(values)))
            seconds = [timedelta(seconds=i / store.spec.control_hz) for i in range(len(values))]
            assert read[entity]["time"] == seconds
            for i, value in enumerate(values):
                found = shown(read[entity], i, value)
                if "/image/" not in entity:
                    np.testing.assert_array_equal(found, value.astype(found.dtype), entity)
                else:
                    assert found.shape == value.shape
                    assert name == "odd" or np.abs(found.astype(int) - value).mean() < GREY_LEVELS
        label = {True: "success", False: "failure", None: "not labelled"}[rows.labels.success]
        text = read["/episode"]["TextDocument:text"][0][0]
        assert text == f"{rows.labels.task or 'no task'}: {label}, {rows.frames} frames"
    assert "WARN" not in capfd.readouterr().err


def shown(entity: dict[str, list[Any]], i: int, like: Any) -> Any:
    """Value of row i of an entity, as an array in the shape of `like`."""
    if "Scalars:scalars" in entity:
        return np.array(entity["Scalars:scalars"][i], dtype=np.float64).reshape(np.shape(like))
    if "EncodedImage:blob" in entity:
        blob = np.array(entity["EncodedImage:blob"][i][0], dtype=np.uint8)
        return cv2.imdecode(blob, cv2.IMREAD_COLOR)[..., ::-1]
    if "Points3D:positions" in entity:
        return np.array(entity["Points3D:positions"][i], dtype=np.float32)
    if "Tensor:data" in entity:
        tensor = entity["Tensor:data"][i][0]
        return np.array(tensor["buffer"], dtype=like.dtype).reshape(tensor["shape"])
    name, dtype = ("Depth", np.float32) if "DepthImage:buffer" in entity else ("Segmentation", np.uint8)
    data = np.array(entity[f"{name}Image:buffer"][i][0], dtype=np.uint8)
    return data.view(dtype).reshape(np.shape(like))
