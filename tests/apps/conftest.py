"""A small dataset and a small trained policy, made by the verbs, for all tests of the verbs.

The verbs are imported where they are used: tests of the command line alone run without the trainer's
packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from robo_rl.conf.schema import CollectConfig

if TYPE_CHECKING:
    from robo_rl.conf.train import StartedImageConfig, TrainConfig

ENV = "metaworld/reach-v3"  # the cheapest task
TWO_CAMERAS = """
cameras:
  wrist: {width_px: 64, height_px: 48, rate_hz: 20, source: pattern}
  front: {width_px: 84, height_px: 84, rate_hz: 10, source: 2}
"""


def collect_config(out: Path, **changes: object) -> CollectConfig:
    small = {"env": ENV, "out": str(out), "episodes": 3, "noise": 0.1, "num_workers": 0}
    return CollectConfig(**small | changes)  # type: ignore[arg-type]


def train_config(data: Path, out: Path, **changes: object) -> TrainConfig:
    from robo_rl.conf.train import TrainConfig
    from robo_rl.nets.denoiser import MlpDenoiserConfig

    small = {
        "data": str(data),
        "out": str(out),
        "steps": 12,
        "batch_size": 16,
        "log_every": 2,
        "checkpoint_every": 4,
        "device": "cpu",
        "net": MlpDenoiserConfig(width=16, depth=1),
    }
    return TrainConfig(**small | changes)  # type: ignore[arg-type]


def mean_pool() -> StartedImageConfig:
    """Encoder for the tests' pictures, of whose crops one pixel is left: key points would see nothing."""
    from robo_rl.conf.train import StartedImageConfig

    return StartedImageConfig(pool="mean")


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from robo_rl.apps import collect

    folder = tmp_path_factory.mktemp("data") / "reach"
    assert collect.main(collect_config(folder)) == 0
    return folder


@pytest.fixture(scope="session")
def run(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from robo_rl.apps import train

    folder = tmp_path_factory.mktemp("runs") / "base"
    assert train.main(train_config(dataset, folder)) == 0
    return folder


@pytest.fixture
def seeing_robot(tmp_path: Path) -> str:
    """The simulated arm's description with two cameras."""
    from hardware.description import FOLDER

    file = tmp_path / "two.yaml"
    file.write_text((FOLDER / "sim_arm.yaml").read_text() + TWO_CAMERAS)
    return str(file)
