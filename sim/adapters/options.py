"""What the adapters share about their options."""

from __future__ import annotations

from robo_rl.core.errors import ConfigError, UnknownNameError

REWARDS = ("sparse", "dense")


def check_reward(reward: str) -> None:
    if reward not in REWARDS:
        raise UnknownNameError("reward", reward, REWARDS)


def check_steps(max_episode_steps: int, most: int | None = None) -> None:
    """Raises ConfigError unless 1 <= max_episode_steps <= most."""
    if max_episode_steps < 1 or (most is not None and max_episode_steps > most):
        upper = "" if most is None else f" and at most {most}"
        raise ConfigError(f"max_episode_steps is {max_episode_steps}; expected at least 1{upper}.")
