"""From raw observations to the flat vector that networks, actors and critics see."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ArraySpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoder, ImageEncoderConfig

Crop = Float[Tensor, "b cameras 2"]


class ObsEncoder(nn.Module):
    """obs (b, To, *shape) -> (b, To * (state dims + cameras * image features)).

    Float keys are normalised and flattened, uint8 images encoded, one network per camera; keys in the order of the
    spec. Keys that the spec does not name are ignored.
    """

    def __init__(
        self, spec: Mapping[str, ArraySpec], obs_steps: int, normalizer: Normalizer, image: ImageEncoderConfig
    ) -> None:
        super().__init__()
        self.spec, self.obs_steps, self.image = dict(spec), obs_steps, image
        self.float_keys = tuple(key for key, array in spec.items() if array.dtype != "uint8")
        self.image_keys = tuple(key for key, array in spec.items() if array.dtype == "uint8")
        if sorted(self.float_keys) != sorted(normalizer.keys):
            raise ConfigError(
                f"The normaliser was fitted on {sorted(normalizer.keys)}, but the observation has the float keys "
                f"{sorted(self.float_keys)}. Fit it on exactly these."
            )
        self.normalizer = normalizer
        self.cameras = nn.ModuleList([ImageEncoder(spec[key].shape, image) for key in self.image_keys])
        per_step = sum(math.prod(spec[key].shape) for key in self.float_keys) + image.features * len(self.image_keys)
        self.dim = obs_steps * per_step

    def forward(self, obs: Obs, crop: Crop | None = None) -> Float[Tensor, "b f"]:
        """`crop` in [0, 1) places the training crop of each camera, equal for all steps of a sample; None: centre."""
        self.check(obs)
        values = self.normalizer.normalize({key: obs[key] for key in self.float_keys})
        parts = [values[key].flatten(1) for key in self.float_keys]
        for i, (key, camera) in enumerate(zip(self.image_keys, self.cameras, strict=True)):
            offset = None if crop is None else crop[:, i].repeat_interleave(self.obs_steps, dim=0)
            parts.append(camera(obs[key].flatten(0, 1), offset).unflatten(0, (-1, self.obs_steps)).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def check(self, obs: Obs) -> None:
        """Raise ConfigError unless every key is there with the shape (b, To, *shape)."""
        for key, array in self.spec.items():
            if key not in obs:
                raise ConfigError(f"The policy needs observation '{key}', found only {sorted(obs)}.")
            if tuple(obs[key].shape[1:]) != (self.obs_steps, *array.shape):
                raise ConfigError(
                    f"Observation '{key}' has shape {tuple(obs[key].shape)}, expected (batch, "
                    f"{', '.join(map(str, (self.obs_steps, *array.shape)))}). Stack {self.obs_steps} steps of history."
                )

    def image_json(self) -> dict[str, Any]:
        return asdict(self.image)
