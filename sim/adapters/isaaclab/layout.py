"""Conversion of an Isaac Lab task's observations and actions to the names of robo-rl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec

POLICY = "policy"  # Isaac Lab's group of policy inputs; other groups, such as "critic", keep their names


def obs_spec(space: Any) -> dict[str, ArraySpec]:
    """Observation specification of a Dict of groups, each a Box or a Dict of terms.

    Raises ConfigError without the group "policy".
    """
    groups = getattr(space, "spaces", None)
    if groups is None or POLICY not in groups:
        found = sorted(groups) if groups is not None else type(space).__name__
        raise ConfigError(
            f"The Isaac Lab task has the observation groups {found}; expected a group '{POLICY}'."
        )
    spec: dict[str, ArraySpec] = {}
    for group, inside in groups.items():
        terms = _terms(inside)
        flat = [term for term in terms if not _is_picture(terms[term])]
        if flat:
            spec[_key(group)] = ArraySpec(
                (sum(_size(terms[term]) for term in flat),), unit=", ".join(filter(None, flat))
            )
        for term, box in terms.items():
            if _is_picture(box):
                spec[f"image.{term or group}"] = ArraySpec(tuple(box.shape), "uint8")
    return spec


def obs_of(groups: Mapping[str, Any]) -> Obs:
    """New tensors: concatenated flat terms (n, o), and pictures (n, h, w, 3) uint8 by their names."""
    obs: Obs = {}
    for group, inside in groups.items():
        terms: Mapping[str, Tensor] = inside if isinstance(inside, Mapping) else {"": inside}
        flat = [value.flatten(1).float() for value in terms.values() if not _is_pixels(value)]
        if flat:
            obs[_key(group)] = torch.cat(flat, dim=1)
        obs |= {f"image.{term or group}": value.clone() for term, value in terms.items() if _is_pixels(value)}
    return obs


def action_spec(space: Any, limit: float) -> ActionSpec:
    """Action specification of `single_action_space`; dimensions without limits get [-limit, limit].

    Raises ConfigError for a space of more than one axis.
    """
    if len(getattr(space, "shape", None) or ()) != 1:
        raise ConfigError(f"The Isaac Lab task takes actions in {space}; expected a Box of one axis.")
    low = [max(float(each), -limit) for each in space.low]
    high = [min(float(each), limit) for each in space.high]
    return ActionSpec(tuple(low), tuple(high), "as the task's actions")


def _terms(inside: Any) -> dict[str, Any]:
    return dict(inside.spaces) if hasattr(inside, "spaces") else {"": inside}


def _key(group: str) -> str:
    return "state" if group == POLICY else group


def _size(box: Any) -> int:
    size = 1
    for count in box.shape:
        size *= int(count)
    return size


def _is_picture(box: Any) -> bool:
    return len(box.shape) == 3 and str(box.dtype) == "uint8"


def _is_pixels(value: Tensor) -> bool:
    return value.ndim == 4 and value.dtype == torch.uint8
