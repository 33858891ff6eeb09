"""Options that environments share: the kind of reward, the length of an episode, and sizes of pictures."""

from __future__ import annotations

from robo_rl.core.errors import ConfigError, UnknownNameError

REWARDS = ("sparse", "dense")


def check_reward(reward: str) -> None:
    """Raises UnknownNameError for a reward other than sparse or dense."""
    if reward not in REWARDS:
        raise UnknownNameError("reward", reward, REWARDS)


def check_steps(max_episode_steps: int, most: int | None = None) -> None:
    """Raises ConfigError unless max_episode_steps is a whole number, 1 <= max_episode_steps <= most."""
    upper = "" if most is None else f" and at most {most}"
    if isinstance(max_episode_steps, bool) or not isinstance(max_episode_steps, int):
        raise ConfigError(
            f"max_episode_steps is {max_episode_steps!r}; expected a whole number of at least 1{upper}."
        )
    if max_episode_steps < 1 or (most is not None and max_episode_steps > most):
        raise ConfigError(f"max_episode_steps is {max_episode_steps}; expected at least 1{upper}.")


def check_flag(name: str, value: object) -> None:
    """Raises ConfigError for an option other than true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} is {value!r}; expected true or false.")


def check_pixels(name: str, value: object, most: int = 1024) -> None:
    """Raises ConfigError unless the size of a picture is a whole number from 8 to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 8 <= value <= most:
        raise ConfigError(f"{name} is {value!r}; expected 8 to {most} pixels.")


def check_number(name: str, value: object, low: float, high: float, *, whole: bool = False) -> None:
    """Raises ConfigError unless the option is a number, or a whole one, from `low` to `high`."""
    kinds = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not low <= value <= high:
        expected = "a whole number" if whole else "a number"
        raise ConfigError(f"{name} is {value!r}; expected {expected} from {low:g} to {high:g}.")


def check_keys(name: str, keys: object) -> None:
    """Raises ConfigError for an environment that reports no success: its reward cannot be sparse."""
    if not keys:
        raise ConfigError(
            f"{name} does not report success, so its reward cannot be sparse; give reward=dense."
        )


def score(reward: str, ends: bool | None, own: float, terminated: bool, success: bool) -> tuple[float, bool]:
    """(reward, terminated). sparse: 1 with success, which ends the episode; dense: the package's own reward.

    ends: whether success ends the episode; None: only with sparse rewards.
    """
    stops = success and (reward == "sparse" if ends is None else ends)
    return float(success) if reward == "sparse" else own, terminated or stops
