"""Settings of encoders that the data give nothing to read."""

from __future__ import annotations

from collections.abc import Iterator

from robo_rl.conf.train import PretrainConfig, StartedImageConfig, TrainConfig
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoderConfig

PICTURES = {"image", "segmentation", "depth"}


def unused_by_training(config: TrainConfig, spec: EnvSpec) -> Iterator[str]:
    """Sentences on settings that differ from their defaults and have no effect on a policy of these data."""
    senses = {sense_of(key, array) for key, array in spec.for_datasets().obs.items()}
    if not senses & PICTURES:
        if config.image != StartedImageConfig():
            yield "The data have no pictures, so image.* has no effect."
    elif "depth" not in senses:
        yield from _unused_far_m(config.image, "The data have no depth pictures")
    if "points" not in senses and config.points != PointEncoderConfig():
        yield "The data have no point clouds, so points.* has no effect."


def unused_by_pretraining(config: PretrainConfig) -> Iterator[str]:
    """Sentences on settings that differ from their defaults and have no effect on pre-training."""
    yield from _unused_far_m(config.image, "Pre-training reads colour pictures alone")


def _unused_far_m(image: ImageEncoderConfig, why: str) -> Iterator[str]:
    if image.far_m != ImageEncoderConfig().far_m:
        yield f"{why}, so image.far_m has no effect."
