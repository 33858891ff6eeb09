"""Observations of other packages as one vector; dictionaries in alphabetical order of keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec


def flat(obs: Any) -> NDArray[Any]:
    """Vector (o,) of an array, or of a nested dictionary of arrays."""
    if isinstance(obs, Mapping):
        return np.concatenate([flat(obs[key]) for key in sorted(obs)])
    return np.ravel(obs)


def named(obs: Any) -> str:
    """Keys and sizes in order, for a unit: "achieved_goal 3, desired_goal 3, observation 25"."""
    if not isinstance(obs, Mapping):
        return ""
    return ", ".join(f"{key} {flat(obs[key]).size}" for key in sorted(obs))


def bounded(name: str, low: Any, high: Any) -> ActionSpec:
    """Action specification from a box's limits. Raises ConfigError for actions without limits."""
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ConfigError(f"'{name}' has actions without limits; expected finite limits in every dimension.")
    return ActionSpec(
        tuple(np.ravel(low).astype(float).tolist()), tuple(np.ravel(high).astype(float).tolist())
    )
