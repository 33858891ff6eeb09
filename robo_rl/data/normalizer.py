"""Normalisation of observations, whose statistics every checkpoint and bundle holds, and range of actions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor, nn

from robo_rl.core.errors import CheckpointError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float, Shaped
from robo_rl.core.spec import ActionSpec, ArraySpec

# limits: those of the data's contract. data: the range of the recorded actions, see `used_range`. auto: data
# for recordings of a robot, limits for a simulator, whose environment has the same ones in fine-tuning.
ACTION_RANGES = ("auto", "limits", "data")
MARGIN = 0.1  # of the range of the recorded actions, added at both ends
LEAST_MARGIN = 0.01  # of the range of the limits: a joint that hardly moved keeps a range


class Normalizer(nn.Module):
    """x -> clamp((x - center) / scale, -clip, clip) for every fitted key; other keys are not changed.

    Numbers of any type (float64, integers, bool) become float32, in which networks compute.

    `fit` maps the range of the data to [-1, 1]. A dimension that is almost constant in the data is only
    centred (scale 1), because division by its tiny range would turn sensor noise into large inputs. The clamp
    bounds the effect of states far outside the data.

    With a `floor`, a dimension that moved less is scaled as if its range were the floor, so that states a
    little outside few demonstrations are not clamped.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], clip: float = 5.0) -> None:
        super().__init__()
        self.keys = tuple(sorted(shapes))
        self.clip = clip
        for i, key in enumerate(self.keys):
            self.register_buffer(f"center_{i}", torch.zeros(shapes[key]))
            self.register_buffer(f"scale_{i}", torch.ones(shapes[key]))

    @classmethod
    def fit(
        cls,
        data: Mapping[str, Shaped[Tensor, "n ..."]],
        min_range: float = 1e-4,
        clip: float = 5.0,
        floor: float = 0.0,
    ) -> Normalizer:
        """Statistics of arrays of numbers of any type, whose first axis is the sample. min_range, below which
        a dimension is constant, and floor: in the units of the data.
        """
        normalizer = cls({key: tuple(value.shape[1:]) for key, value in data.items()}, clip)
        for i, key in enumerate(normalizer.keys):
            low, high = _extremes(data[key])
            half = (high - low) / 2
            normalizer.get_buffer(f"center_{i}").copy_((high + low) / 2)
            normalizer.get_buffer(f"scale_{i}").copy_(
                torch.where(half < min_range / 2, torch.ones_like(half), half.clamp_min(floor / 2))
            )
        return normalizer

    def config(self) -> dict[str, Any]:
        """Argument of `from_config`, without the statistics, which are weights."""
        return {"keys": list(self.keys), "clip": self.clip}

    @classmethod
    def from_config(cls, data: Mapping[str, Any], obs: Mapping[str, ArraySpec]) -> Normalizer:
        """Normaliser with empty statistics. obs: observations of the policy, which have the keys."""
        return cls({key: obs[key].shape for key in data["keys"]}, float(data["clip"]))

    def statistics(self) -> dict[str, tuple[Tensor, Tensor]]:
        """key -> (center, scale), for manifests and graphs."""
        return {
            key: (self.get_buffer(f"center_{i}"), self.get_buffer(f"scale_{i}"))
            for i, key in enumerate(self.keys)
        }

    def normalize(self, obs: Obs) -> Obs:
        """Normalise the fitted keys, as float32; leading axes are free. Raises CheckpointError if a key is
        missing or its shape differs.
        """
        out = dict(obs)
        for i, key in enumerate(self.keys):
            if key not in obs:
                raise CheckpointError(
                    f"The normaliser was fitted on observation '{key}', found only {sorted(obs)}. "
                    "Use the environment or robot that the policy was trained for."
                )
            center, scale = self.get_buffer(f"center_{i}"), self.get_buffer(f"scale_{i}")
            if obs[key].shape[obs[key].dim() - center.dim() :] != center.shape:
                raise CheckpointError(
                    f"The normaliser was fitted on '{key}' of shape {tuple(center.shape)}, found "
                    f"{tuple(obs[key].shape)}. Use the environment or robot that the policy was trained for."
                )
            value = (obs[key].to(center.dtype) - center) / scale
            out[key] = value.clamp(-self.clip, self.clip)
        return out


def _extremes(values: Shaped[Tensor, "n ..."]) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Smallest and largest value of every number. Integers become float64: the sum of two large ones exceeds
    their own type.
    """
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    elif values.dtype != torch.float32:
        values = values.double()
    return values.amin(0), values.amax(0)


def used_range(limits: ActionSpec, actions: Float[ndarray, "n a"]) -> ActionSpec:
    """Limits around the recorded actions, with a margin, and inside the given limits.

    A robot's limits are those of its joints, and a task often needs a tenth of them: the noise of a
    generative policy has the scale of the limits, and would be ten times the motion that it learns.
    """
    low, high = np.array(limits.low), np.array(limits.high)
    seen = np.clip(actions, low, high)
    least, most = seen.min(axis=0), seen.max(axis=0)
    margin = np.maximum(MARGIN * (most - least), LEAST_MARGIN * (high - low))
    narrow = np.maximum(low, least - margin), np.minimum(high, most + margin)
    return ActionSpec(tuple(narrow[0].tolist()), tuple(narrow[1].tolist()), limits.unit)
