"""The verbs of datasets, what `info` lists, and folders of the wrong kind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import zarr

from policies.deploy.bundle import load_bundle
from robo_rl.apps import data as data_verb
from robo_rl.apps import info, train
from robo_rl.apps.imports import data_import
from robo_rl.conf.schema import DataImportConfig, DataInfoConfig, DataValidateConfig, InfoConfig
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.runs.loaded_policy import find_policy
from tests.apps.conftest import ENV, train_config


def test_wrong_kind_of_folder_is_named(dataset: Path, run: Path, tmp_path: Path) -> None:
    """A run is no dataset, a dataset no policy, a run no bundle, a file no run folder."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=f"{run} is a run, not a dataset"):
        train.main(train_config(run, tmp_path / "new"))
    with pytest.raises(CheckpointError, match=f"{dataset} is a dataset, not a policy"):
        find_policy(dataset)
    with pytest.raises(CheckpointError, match=f"{run} is a run, not a bundle.*robo-rl export"):
        load_bundle(run)
    with pytest.raises(ConfigError, match=f"{tmp_path / 'file'} is a file, and a run is a folder"):
        train.main(train_config(dataset, tmp_path / "file"))
    with pytest.raises(DataError, match=r"source=.*nowhere does not exist"):
        data_import.main(DataImportConfig(source=str(tmp_path / "nowhere"), out=str(tmp_path / "new")))
    assert (tmp_path / "file").read_text() == "x"
    assert not (tmp_path / "new").exists()


def test_data_verbs(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """info lists the contents; validate finds a flipped byte, names the episode and exits with 2."""
    assert data_verb.info(DataInfoConfig(str(dataset))) == 0
    assert "3/3 labelled episodes" in capsys.readouterr().out
    assert data_verb.info(DataInfoConfig(str(dataset), json=True)) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3
    shutil.copytree(dataset, tmp_path / "copy")
    assert data_verb.validate(DataValidateConfig(str(tmp_path / "copy"), recover=True)) == 0
    assert "sound" in capsys.readouterr().out
    shard = tmp_path / "copy" / "episodes" / "000001" / "action" / "c.0.0"
    data = bytearray(shard.read_bytes())
    data[3] ^= 1
    shard.write_bytes(data)
    assert data_verb.validate(DataValidateConfig(str(tmp_path / "copy"))) == 2
    assert "episode 000001" in capsys.readouterr().out


def test_data_import_maps_keys(tmp_path: Path) -> None:
    """A replay buffer in Push-T's layout; a key map; a malformed one is named."""
    source = str(tmp_path / "buffer.zarr")
    buffer = zarr.open_group(source, mode="w", zarr_format=2)
    buffer.create_array("data/state", data=np.ones((5, 5), "float32"))
    buffer.create_array("data/action", data=np.ones((5, 2), "float32"))
    buffer.create_array("meta/episode_ends", data=np.array([2, 5]))
    config = DataImportConfig(source, str(tmp_path / "out"), "pusht/state", limit=1)
    assert data_import.main(config) == 0
    assert [episode.frames for episode in EpisodeStore(tmp_path / "out")] == [2]
    with pytest.raises(ConfigError, match="expected key:array"):
        data_import.parse_keys(["state"])
    with pytest.raises(ConfigError, match="Give env= or robot=, not both"):
        data_import.main(DataImportConfig(source, "y", ENV, robot="sim_arm"))
    with pytest.raises(ConfigError, match="Name the array of the buffer x for each key: keys="):
        data_import.contract(DataImportConfig("x", "y"), [])
    with pytest.raises(ConfigError, match="Name the array"):
        data_import.contract(DataImportConfig("x", "y", ENV), [])
    named = ["state:data/s", "action:data/a"]
    spec, keys = data_import.contract(DataImportConfig(source, "y", ENV, keys=named), [])
    assert (spec.name, keys) == (ENV, {"state": "data/s", "action": "data/a"})


def test_info_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`info` lists the values of settings."""
    assert info.main(InfoConfig(json=True)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert ENV in facts["environments"]
    assert {"flow", "diffusion"} <= set(facts["processes"])
    assert info.main(InfoConfig()) == 0
    assert "reach-v3" in capsys.readouterr().out
