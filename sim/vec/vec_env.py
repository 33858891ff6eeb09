"""Parts of the vector-environment contract that every engine shares; `conformance.py` checks the whole of
it.
"""

from __future__ import annotations

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
    """(n, a) -> a fresh array inside the limits. Raises EnvError for what is no tensor, for another shape, or
    when something is not finite.
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
    """A tensor of its own, so that callers may keep it."""
    return torch.from_numpy(array.copy())


def take_seeds(seeds: Iterator[int], count: int) -> list[int]:
    """The next `count` seeds. Raises EnvError when the iterator runs dry."""
    taken = []
    for _ in range(count):
        try:
            taken.append(int(next(seeds)))
        except StopIteration:
            raise EnvError(
                "The seed iterator ran dry, but a lane needs its next episode. "
                "Give an endless one, such as robo_rl.core.seeding.EpisodeSeeds."
            ) from None
    return taken


def check_lane_count(num_envs: int, num_workers: int) -> None:
    """Raises ConfigError for counts that make no environment."""
    if num_envs < 1 or not 0 <= num_workers <= num_envs:
        raise ConfigError(
            f"Found num_envs={num_envs}, num_workers={num_workers}; expected num_envs >= 1 and "
            "0 <= num_workers <= num_envs (0 runs the simulators in this process)."
        )
