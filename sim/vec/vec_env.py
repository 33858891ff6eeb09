"""Parts of the vector-environment contract that all engines share; `conformance.py` checks all of it."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.spec import ActionSpec, EnvSpec

METADATA: Mapping[str, Any] = {"autoreset_mode": "same_step"}
# Always in `info`; engines may add more.
INFO_KEYS = ("final_obs", "final_mask", "success", "episode_seed", "next_seed")


def clipped_action(action: Tensor, spec: EnvSpec, num_envs: int) -> NDArray[np.float32]:
    """Copy of the actions (n, a) inside the limits, in the units of `spec.action`.

    Raises EnvError for anything but a tensor, for another shape, and for values that are not finite.
    """
    if not isinstance(action, Tensor):
        raise EnvError(
            f"{spec.name} takes a torch.Tensor, found {type(action).__name__}: use torch.as_tensor."
        )
    array = action.detach().cpu().numpy()
    if array.shape != (num_envs, spec.action.dim):
        raise EnvError(
            f"{spec.name} takes actions of shape {(num_envs, spec.action.dim)} (lanes, dimensions), "
            f"found {array.shape}."
        )
    if not np.isfinite(array).all():
        lane = int(np.argwhere(~np.isfinite(array))[0, 0])
        raise EnvError(
            f"The action of lane {lane} is not finite: {array[lane].tolist()}. "
            "The policy has diverged: check its inputs, its normaliser and its learning rate."
        )
    low, high = _limits(spec.action)
    clipped: NDArray[np.float32] = np.minimum(np.maximum(array.astype(np.float32, copy=False), low), high)
    return clipped


@lru_cache(maxsize=64)
def _limits(action: ActionSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return np.asarray(action.low, np.float32), np.asarray(action.high, np.float32)


def fresh(array: NDArray[Any]) -> Tensor:
    """Copy of the array as a tensor, which callers may keep."""
    return torch.from_numpy(array.copy())


def take_seeds(seeds: Iterator[int], count: int) -> list[int]:
    """The next `count` seeds. Raises EnvError when the iterator has no more, TypeError for other things."""
    taken = []
    for _ in range(count):
        try:
            taken.append(operator.index(seed := next(seeds)))
        except TypeError:
            raise TypeError(f"The next seed is {seed!r:.60}, expected: a whole number.") from None
        except StopIteration:
            raise EnvError(
                "The seed iterator has ended, but a lane needs the seed of its next episode. "
                "Give an endless one, such as robo_rl.core.seeding.EpisodeSeeds."
            ) from None
    return taken


def check_lane_count(num_envs: int, num_workers: int) -> None:
    """Raises ConfigError unless num_envs >= 1 and 0 <= num_workers <= num_envs."""
    if num_envs < 1 or not 0 <= num_workers <= num_envs:
        raise ConfigError(
            f"Found num_envs={num_envs}, num_workers={num_workers}; expected num_envs >= 1 and "
            "0 <= num_workers <= num_envs (0 runs the simulators in this process)."
        )
