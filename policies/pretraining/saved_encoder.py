"""A picture encoder on disk, and policies whose encoders start from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from policies.checkpoint import load_weights
from policies.observation import ObsEncoder
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.spec import sense_of
from robo_rl.core.text.setting_changes import change_words, setting_changes
from robo_rl.nets.image_encoder import ImageEncoder, ImageEncoderConfig

FORMAT = 1
FREE = ("crop", "far_m")  # settings of an encoder without effect on its weights


@dataclass(frozen=True)
class SavedEncoder:
    """Weights of a picture encoder, with the size of its pictures and its settings.

    train: note on its origin.
    """

    shape: tuple[int, ...]
    image: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    train: Mapping[str, Any]


def save_encoder(
    folder: Path, encoder: ImageEncoder, image: ImageEncoderConfig, train: Mapping[str, Any]
) -> None:
    """Write the encoder. train: note on its origin."""
    state = {"shape": list(encoder.shape), "image": asdict(image), "train": train}
    save_state(folder, {"format": FORMAT, **state, "weights": encoder.state_dict()})


def load_encoder(folder: Path) -> SavedEncoder:
    """Encoder of a folder. Raises CheckpointError if it is damaged or of another format."""
    state = load_state(folder)
    if state.get("format") != FORMAT:
        raise CheckpointError(
            f"{folder} has format {state.get('format')!r}, expected {FORMAT}. Pre-train with this version of "
            "robo-rl."
        )
    return SavedEncoder(tuple(state["shape"]), state["image"], state["weights"], state["train"])


def start_encoders(encoder: ObsEncoder, saved: SavedEncoder, source: str) -> list[str]:
    """Give every camera with colour pictures the weights of `saved`; returns the cameras' keys.

    Raises ConfigError that names `source` if there is no such camera, or if its settings or size differ.
    """
    cameras = {
        key: camera
        for key, camera in zip(encoder.image_keys, encoder.cameras, strict=True)
        if sense_of(key, encoder.spec[key]) == "image"
    }
    if not cameras:
        raise ConfigError(
            f"image.init={source} starts encoders of pictures, but the data hold none "
            f"({', '.join(encoder.spec)}). Leave it out."
        )
    free = (*FREE, "keypoints") if encoder.image.pool == "mean" else FREE
    if changes := setting_changes(encoder.image, saved.image, free):
        before, now = (words.replace(", ", ", image.") for words in change_words(changes))
        raise ConfigError(
            f"The encoder in {source} has image.{before}, but this training image.{now}. Give the settings "
            "of the encoder, or pre-train with those of the training."
        )
    for key, camera in cameras.items():
        if encoder.spec[key].shape != saved.shape:
            raise ConfigError(
                f"The encoder in {source} was trained on pictures of {_size(saved.shape)} pixels, but those "
                f"of '{key}' have {_size(encoder.spec[key].shape)}. Pre-train on pictures of that size."
            )
        load_weights(camera, saved.weights, source)
    return list(cameras)


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
