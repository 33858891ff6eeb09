"""Dump of a world whose physics diverged: enough to inspect its last state and to simulate it again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int

MOST_FILES = 20  # a task that always diverges must not fill a disk


def dump_diverged(
    name: str,
    diverged: Bool[Tensor, " n"],
    episode_seed: Int[Tensor, " n"],
    age: Int[Tensor, " n"],
    before: Mapping[str, Tensor],
    action: Float[Tensor, "n a"],
) -> None:
    """Write the engine's state before the step and the action, one file per world, into the working folder,
    and warn.

    before: the result of `Engine.save`; tensors whose first axis is the worlds are cut to the one.
    """
    n, written = len(diverged), []
    for world in diverged.nonzero()[:, 0].tolist():
        seed, step = int(episode_seed[world]), int(age[world])
        path = Path(f"diverged-{name.split(':')[0].replace('/', '-')}-{seed}-{step}.npz")
        if len(list(Path().glob("diverged-*.npz"))) < MOST_FILES:
            arrays: dict[str, Any] = {f"before_{key}": _of(value, world, n) for key, value in before.items()}
            np.savez(path, **arrays, action=action[world].cpu().numpy(), seed=seed, step=step)
            written.append(str(path))
    warnings.warn(
        f"{name}: the physics of {int(diverged.sum())} worlds has failed, its speeds are beyond reason "
        f"(seeds {episode_seed[diverged].tolist()}, steps {age[diverged].tolist()}); their episodes end as "
        "failures. State and action before it: "
        f"{', '.join(written) or f'not written, {MOST_FILES} such files are here'}.",
        RuntimeWarning,
        stacklevel=3,
    )


def _of(value: Tensor, world: int, n: int) -> np.ndarray:
    return (value[world] if value.ndim and len(value) == n else value).cpu().numpy()
