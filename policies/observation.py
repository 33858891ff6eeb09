"""Encoding of raw observations as the flat input of networks, actors and critics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ArraySpec, sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoder, ImageEncoderConfig
from robo_rl.nets.point_encoder import PointEncoder, PointEncoderConfig

Crop = Float[Tensor, "b cameras 2"]


class ObsEncoder(nn.Module):
    """obs (b, To, *shape) -> (b, To * (state dims + cameras * image features + clouds * point features)).

    States are normalised and flattened. Images (RGB, classes or depth) and point clouds are encoded, with one
    network each. Keys are in the order of the spec; instructions and keys outside the spec are ignored.
    """

    def __init__(
        self,
        spec: Mapping[str, ArraySpec],
        obs_steps: int,
        normalizer: Normalizer,
        image: ImageEncoderConfig,
        points: PointEncoderConfig | None = None,
    ) -> None:
        super().__init__()
        points = PointEncoderConfig() if points is None else points
        senses = {key: sense_of(key, array) for key, array in spec.items()}
        self.spec = {key: array for key, array in spec.items() if senses[key] != "text"}
        self.obs_steps, self.image, self.points = obs_steps, image, points
        self.float_keys = tuple(key for key in spec if senses[key] == "state")
        self.image_keys = tuple(key for key in spec if senses[key] in ("image", "segmentation", "depth"))
        self.point_keys = tuple(key for key in spec if senses[key] == "points")
        if sorted(self.float_keys) != sorted(normalizer.keys):
            raise ConfigError(
                f"The normaliser was fitted on {sorted(normalizer.keys)}, but the observation has the float "
                f"keys {sorted(self.float_keys)}. Fit it on exactly these."
            )
        self.normalizer = normalizer
        self.cameras = nn.ModuleList(
            [ImageEncoder(spec[key].shape, image, senses[key] == "segmentation") for key in self.image_keys]
        )
        self.clouds = nn.ModuleList([PointEncoder(spec[key].shape, points) for key in self.point_keys])
        encoded = image.features * len(self.image_keys) + points.features * len(self.point_keys)
        self.dim = obs_steps * (sum(math.prod(spec[key].shape) for key in self.float_keys) + encoded)

    def forward(self, obs: Obs, crop: Crop | None = None) -> Float[Tensor, "b f"]:
        """Flat encoding. crop: position in [0, 1) of each camera's training crop, the same for all steps;
        None: centre.
        """
        self.check(obs)
        return self.encode(self.states(obs), obs, crop)

    def states(self, obs: Obs) -> Float[Tensor, "b s"]:
        """Normalised states (b, To, *shape) side by side; no weight of a network changes them."""
        values = self.normalizer.normalize({key: obs[key] for key in self.float_keys})
        parts = [values[key].flatten(1) for key in self.float_keys]
        if not parts:
            first = next(iter(obs.values()))
            return torch.zeros(len(first), 0, device=first.device)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def encode(
        self, states: Float[Tensor, "b s"], obs: Obs, crop: Crop | None = None
    ) -> Float[Tensor, "b f"]:
        """Flat encoding of `states(obs)` and the images and points of obs."""
        parts = [states] if self.float_keys else []
        for i, (key, camera) in enumerate(zip(self.image_keys, self.cameras, strict=True)):
            offset = None if crop is None else crop[:, i].repeat_interleave(self.obs_steps, dim=0)
            parts.append(camera(obs[key].flatten(0, 1), offset).unflatten(0, (-1, self.obs_steps)).flatten(1))
        for key, cloud in zip(self.point_keys, self.clouds, strict=True):
            parts.append(cloud(obs[key].flatten(0, 1)).unflatten(0, (-1, self.obs_steps)).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def picture_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the pictures, segmentations and depths that it encodes, by key."""
        return {key: self.spec[key].shape for key in self.image_keys}

    def check(self, obs: Obs) -> None:
        """Raise ConfigError unless every key is present with shape (b, To, *shape)."""
        for key, array in self.spec.items():
            if key not in obs:
                raise ConfigError(f"The policy needs observation '{key}', found only {sorted(obs)}.")
            if tuple(obs[key].shape[1:]) != (self.obs_steps, *array.shape):
                raise ConfigError(
                    f"Observation '{key}' has shape {tuple(obs[key].shape)}, expected (batch, "
                    f"{', '.join(map(str, (self.obs_steps, *array.shape)))}). Stack {self.obs_steps} steps "
                    "of history."
                )

    def networks_json(self) -> dict[str, Any]:
        """Entries "image" and "points" of a policy's configuration."""
        return {"image": asdict(self.image), "points": asdict(self.points)}


class EncoderStack(nn.Module):
    """Several encoders of the same observation, their features side by side: a base's, and those that
    fine-tuning has learned from it.
    """

    def __init__(self, encoders: Sequence[ObsEncoder]) -> None:
        super().__init__()
        first = encoders[0]
        self.encoders = nn.ModuleList(encoders)
        self.spec, self.obs_steps, self.normalizer = first.spec, first.obs_steps, first.normalizer
        self.dim = sum(encoder.dim for encoder in encoders)
        self._networks = first.networks_json()

    def forward(self, obs: Obs) -> Float[Tensor, "b f"]:
        return torch.cat([encoder(obs) for encoder in self.encoders], dim=-1)

    def networks_json(self) -> dict[str, Any]:
        """Entries of a policy's configuration: the networks of each, and their number."""
        return self._networks | {"encoders": len(self.encoders)}
