"""Seed and actions of the running episodes: enough to restore the present state by replay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from robo_rl.core.errors import CheckpointError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec


class LaneHistory:
    """Seed and actions of the running episode of n lanes; t <= `spec.max_episode_steps` steps made."""

    def __init__(self, spec: EnvSpec, num_envs: int) -> None:
        self.seed = np.zeros(num_envs, np.int64)  # (n,)
        self.length = np.zeros(num_envs, np.int64)  # (n,) t of each lane
        self._actions = np.zeros((num_envs, spec.max_episode_steps, spec.action.dim), np.float32)
        self._lanes = np.arange(num_envs)

    def push(self, action: NDArray[np.float32]) -> None:
        """Append the action (n, a) that every lane has just executed."""
        self._actions[self._lanes, self.length] = action
        self.length += 1

    def begin(self, lanes: Sequence[int] | NDArray[np.int64], seeds: Sequence[int]) -> None:
        """Start a new episode in these lanes."""
        self.seed[lanes] = seeds
        self.length[lanes] = 0

    def restore(self, seeds: NDArray[np.int64], actions: Mapping[int, NDArray[np.float32]]) -> None:
        """Replace the history by these episodes; `actions`: lane -> (t, a)."""
        self.seed[:] = seeds
        for lane, sequence in actions.items():
            self.length[lane] = len(sequence)
            self._actions[lane, : len(sequence)] = sequence

    def actions(self, lane: int) -> NDArray[np.float32]:
        """Actions (t, a) of the lane's running episode."""
        return self._actions[lane, : self.length[lane]]

    def describe(self) -> str:
        """Seeds and steps of the running episodes, for error messages."""
        lanes = (
            f"{lane}: {seed}, {t}" for lane, (seed, t) in enumerate(zip(self.seed, self.length, strict=True))
        )
        return f"Running episodes (lane: seed, steps made): {'; '.join(lanes)}."


SeedsPlace = tuple[tuple[int | str, ...], int] | None  # root and count of an `EpisodeSeeds`


def place_of(seeds: Iterator[int] | None) -> SeedsPlace:
    """Position of an `EpisodeSeeds` without repetitions; None for any other iterator, whose position is
    unknown.
    """
    if isinstance(seeds, EpisodeSeeds) and seeds.repeat == 1:
        return seeds.root, seeds.count
    return None


def pack(spec: EnvSpec, history: LaneHistory, place: SeedsPlace) -> dict[str, Any]:
    """Snapshot of tensors, numbers and strings, which `unpack` and `seeds_of` read."""
    return {
        "env": spec.name,
        "episode_seed": torch.from_numpy(history.seed.copy()),  # (n,) int64
        "length": torch.from_numpy(history.length.copy()),  # (n,) int64
        "actions": torch.from_numpy(
            np.concatenate([history.actions(lane) for lane in range(len(history.seed))])
        ),
        "seeds_root": None if place is None else list(place[0]),
        "seeds_count": None if place is None else place[1],
    }


def unpack(snapshot: Mapping[str, Any], spec: EnvSpec, num_envs: int) -> dict[int, NDArray[np.float32]]:
    """Lane -> its recorded actions (t, a). Raises CheckpointError for another environment's snapshot."""
    found = f"{snapshot.get('env')} with {len(snapshot.get('episode_seed', ()))} parallel environments"
    expected = f"{spec.name} with {num_envs} parallel environments"
    if found != expected:
        raise CheckpointError(
            f"The snapshot is of {found}, this environment is {expected}. Make an environment that fits it."
        )
    length, actions = snapshot["length"].numpy(), snapshot["actions"].numpy()
    if actions.shape != (length.sum(), spec.action.dim) or length.max() >= spec.max_episode_steps:
        raise CheckpointError(
            f"The snapshot holds {actions.shape} actions in episodes of up to {length.max()} steps; expected "
            f"{(int(length.sum()), spec.action.dim)} in episodes under {spec.max_episode_steps}. "
            "Restore it with the options it was taken with."
        )
    ends = np.cumsum(length)
    return {lane: actions[end - t : end] for lane, (end, t) in enumerate(zip(ends, length, strict=True))}


def seeds_of(snapshot: Mapping[str, Any]) -> Iterator[int] | None:
    """Seed iterator at the position stored in the snapshot; None where none is stored."""
    root, count = snapshot.get("seeds_root"), snapshot.get("seeds_count")
    return None if root is None or count is None else EpisodeSeeds(root, int(count))
