"""`robo-rl data replay`: the recorded actions of an episode in the simulator or on a robot, compared
with the recording.
"""

from __future__ import annotations

from contextlib import closing

import numpy as np
import torch

from robo_rl.conf.datasets.replay import DataReplayConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import reported_success
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.review.one_episode import episode_at
from robo_rl.data.review.replay_difference import ReplayDifference, replay_differences
from robo_rl.runs.progress import progress
from sim.registry import make_env


def main(config: DataReplayConfig) -> int:
    """Play the episode, print the largest differences; returns 1 if one exceeds `tolerance`."""
    if config.robot is not None:
        from robo_rl.apps.datasets.robot_replay import replay_on_robot

        return replay_on_robot(config)
    episode = episode_at(config.path, config.episode)
    name = config.env or episode.dataset.env.name
    if config.env is None and not episode.dataset.env.simulated:
        raise ConfigError(
            f"{config.path} was recorded on a robot, '{name}'. Replay it on that robot while it runs: "
            f"robot=<its description>.yaml; or name a simulated task with the same observations and "
            "actions by env=."
        )
    seed = episode.meta.seed if config.seed is None else config.seed
    if seed is None:
        raise ConfigError(
            f"Episode {config.episode} has no seed, so its start is unknown. Give one by seed=."
        )
    seen, success, steps = _play(episode, name, seed)
    found = replay_differences(episode, seen)
    print(
        f"{config.path}, episode {config.episode}: {counted(steps, 'frame')} replayed in {name}, seed {seed}"
    )
    for each in found:
        print(_line(each, config.tolerance))
    print(f"success: recorded {_word(episode.success)}, replayed {_word(success)}")
    if steps < episode.frames:
        print(f"The replay ended after {steps} of {counted(episode.frames, 'frame')}.")
    far = any(each.largest > config.tolerance * max(each.scale, 1e-9) for each in found)
    return 1 if far or steps < episode.frames else 0


def _play(episode: Episode, name: str, seed: int) -> tuple[list[dict[str, np.ndarray]], bool | None, int]:
    """Observations of the replay, from the first to the one after the last action, its success and frames."""
    with closing(make_env(name, 1)) as env, progress(episode.frames, "replay", "frame") as bar:
        if env.spec.action.dim != episode.dataset.env.action.dim:
            raise ConfigError(
                f"{name} takes actions of {env.spec.action.dim} numbers, the episode has "
                f"{episode.dataset.env.action.dim}. Choose the task that it was recorded in."
            )
        seen = [_row(env.reset(iter([seed] * (episode.frames + 2))))]
        success: bool | None = False
        for i in range(episode.frames):
            action = torch.from_numpy(np.array(episode.action[i : i + 1]))
            _, _, _, _, info = env.step(action)
            seen.append(_row(info["final_obs"]))
            success = reported_success(info, 0)
            bar.update()
            if bool(info["final_mask"][0]):
                break
    return seen, success, len(seen) - 1


def _row(obs: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    return {key: value[0].cpu().numpy().copy() for key, value in obs.items()}


def _line(found: ReplayDifference, tolerance: float) -> str:
    share = found.largest / found.scale if found.scale else 0.0
    mark = "" if share <= tolerance else "   differs"
    return (
        f"  {found.key:<24} largest difference {found.largest:.3g} in row {found.row} "
        f"({share:.2%} of its range){mark}"
    )


def _word(success: bool | None) -> str:
    return {True: "yes", False: "no", None: "unknown"}[success]
