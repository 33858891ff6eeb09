"""Settings of encoders that the data give nothing to read are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps import pretrain, train
from robo_rl.apps.training.unused_settings import unused_by_training
from robo_rl.conf.train import StartedImageConfig, TrainConfig
from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoderConfig
from tests.apps.conftest import train_config
from tests.apps.training.test_pretrain import SMALL, pretrain_config
from tests.data.recordings import ENV, STATE_ENV, record
from tests.policies.dot_video import record_dots

DEPTH = replace(STATE_ENV, obs={**STATE_ENV.obs, "depth.view": ArraySpec((24, 24), "float32", "m")})
POINTS = replace(STATE_ENV, obs={**STATE_ENV.obs, "points.view": ArraySpec((64, 3), "float32", "m")})
FAR, WIDE = StartedImageConfig(far_m=3.0), PointEncoderConfig(widths=[8])


@pytest.mark.parametrize(
    ("env", "settings", "said"),
    [
        (ENV, {"image": FAR}, ["The data have no depth pictures, so image.far_m has no effect."]),
        (DEPTH, {"image": FAR}, []),
        (STATE_ENV, {"image": FAR}, ["The data have no pictures, so image.* has no effect."]),
        (POINTS, {"image": FAR, "points": WIDE}, ["The data have no pictures, so image.* has no effect."]),
        (ENV, {"points": WIDE}, ["The data have no point clouds, so points.* has no effect."]),
        (ENV, {"image": StartedImageConfig(features=8)}, []),
        (STATE_ENV, {}, []),
    ],
)
def test_what_the_data_lack_decides(env: EnvSpec, settings: dict[str, Any], said: list[str]) -> None:
    assert list(unused_by_training(TrainConfig(**settings), env)) == said


def test_train_and_pretrain_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`points.widths` and `image.far_m` were accepted without a word."""
    data = record(tmp_path / "data", [12, 8], env=STATE_ENV)
    config = train_config(data, tmp_path / "run", steps=1, points=WIDE)
    assert train.main(config) == 0
    assert "The data have no point clouds, so points.* has no effect.\n" in capsys.readouterr().out
    dots, image = record_dots(tmp_path / "dots", 2), ImageEncoderConfig(**SMALL, far_m=3.0)  # type: ignore[arg-type]
    assert pretrain.main(pretrain_config(dots, tmp_path / "video", steps=1, image=image)) == 0
    assert (
        "Pre-training reads colour pictures alone, so image.far_m has no effect.\n" in capsys.readouterr().out
    )
