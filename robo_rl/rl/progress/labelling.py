"""Demonstrations as labelled episodes: features of a policy, with the progress of every observation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from robo_rl.core.conditioning import encode, memory_shape, pooled
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy
from robo_rl.core.shapes import Float
from robo_rl.core.spec import ActionSpec, ArraySpec, sense_of
from robo_rl.core.text.named_numbers import parse_unit
from robo_rl.rl.demo_outcomes import DemoEpisode
from robo_rl.rl.demos import chosen_episodes, recorded_observations, stacked_obs
from robo_rl.rl.progress.milestones import gripper_changes, key_frames, progress_labels
from robo_rl.rl.progress.model import LabelledEpisode

GRIPPERS = ("grip", "finger", "jaw")  # in the name of an action's number


def gripper_of(action: ActionSpec) -> int | None:
    """Number of the action that commands the gripper, by its name in the unit; None if none is named.

    A unit that names a gripper without naming every number means the last one.
    """

    def is_gripper(name: str) -> bool:
        return any(word in name.lower() for word in GRIPPERS)

    names = [name for segment in parse_unit(action.unit) for name in segment.names]
    if len(names) == action.dim:
        found = [i for i, name in enumerate(names) if is_gripper(name)]
        return found[-1] if found else None
    return action.dim - 1 if is_gripper(action.unit) else None


def progress_episodes(episodes: Iterable[DemoEpisode], base: ChunkPolicy) -> list[DemoEpisode]:
    """Episodes that teach progress: those that did not fail, of two frames or more. Raises ConfigError for a
    policy with a memory.
    """
    if memory_shape(base) is not None:
        raise ConfigError(
            "Demonstrations hold no memory of decisions, which the base reads, so no progress can be learned "
            "from them. Set method.progress_weight=0."
        )
    return [episode for episode in chosen_episodes(episodes) if episode.frames > 1]


def labelled_episodes(
    episodes: Iterable[DemoEpisode],
    base: ChunkPolicy,
    gripper: int | None,
    columns: slice = slice(None),
    device: torch.device | str = "cpu",
) -> list[LabelledEpisode]:
    """Episodes that did not fail, with labels, on the CPU. device: of the policy. columns: of its features.

    gripper: number of the action that commands it; None: key frames are the only milestones. Raises
    ConfigError for a policy with a memory.
    """
    chosen = progress_episodes(episodes, base)
    speeds = speeds_of([_states(episode, base.obs_spec) for episode in chosen])
    commands = [_commands(episode, base.action_spec, gripper) for episode in chosen]
    low = min((float(each.min()) for each in commands), default=0.0)
    high = max((float(each.max()) for each in commands), default=0.0)
    made = []
    for episode, speed, command in zip(chosen, speeds, commands, strict=True):
        changes = gripper_changes(command, low, high)
        labels, milestones = progress_labels(episode.frames, changes, key_frames(speed))
        features = features_of(episode, base, columns, device)
        progress = torch.from_numpy(labels[: len(features)]).float()
        made.append(LabelledEpisode(features, progress, milestones))
    return made


@torch.no_grad()
def features_of(
    episode: DemoEpisode, base: ChunkPolicy, columns: slice, device: torch.device | str
) -> Float[Tensor, "n f"]:
    """These columns of the policy's features of every observation of an episode, on the CPU."""
    observations, blocks = recorded_observations(episode, base.obs_spec, device)
    each = [pooled(encode(base, stacked_obs(observations, rows, base.obs_steps))) for rows in blocks]
    return torch.cat([features[:, columns].cpu() for features in each])


def speeds_of(states: Sequence[Float[ndarray, "_ o"]]) -> list[Float[ndarray, " _"]]:
    """Speed in every step of each episode: root mean square change of the numbers of its state, in standard
    deviations over all episodes. Numbers that never change count nothing.

    Without any number the speed is 1 everywhere, so no step is a rest.
    """
    if not states or not states[0].shape[1]:
        return [np.ones(max(1, len(each) - 1)) for each in states]
    spread = np.concatenate(states).std(axis=0)
    varies = spread > 1e-6 * max(1.0, float(spread.max()))
    if not varies.any():
        return [np.ones(max(1, len(each) - 1)) for each in states]
    scaled = [each[:, varies] / spread[varies] for each in states]
    return [np.sqrt(np.square(np.diff(each, axis=0)).mean(axis=1)) for each in scaled]


def _states(episode: DemoEpisode, spec: Mapping[str, ArraySpec]) -> Float[ndarray, "n o"]:
    """Numbers that the policy sees of the robot's and the task's state, side by side."""
    keys = [key for key, array in spec.items() if sense_of(key, array) == "state"]
    if not keys:
        return np.zeros((episode.frames + 1, 0))
    found = [np.array(episode.obs(key), np.float64) for key in keys]
    return np.concatenate([each.reshape(len(each), -1) for each in found], axis=1)


def _commands(episode: DemoEpisode, action: ActionSpec, gripper: int | None) -> Float[ndarray, " n"]:
    """Commands of the gripper in [-1, 1]; zeros without a gripper."""
    if gripper is None:
        return np.zeros(episode.frames)
    normalised = action.normalize(torch.from_numpy(np.array(episode.action))).clamp(-1.0, 1.0)
    return normalised[:, gripper].double().numpy()
