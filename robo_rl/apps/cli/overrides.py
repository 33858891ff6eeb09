"""Words of the command line, `key=value`: checked against the known settings and converted to hydra's
grammar.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from robo_rl.apps.cli.aliases import OBSERVED
from robo_rl.conf.dotted import comma_parts, is_quoted, quoted
from robo_rl.conf.fields import Setting
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.text.nearest import nearest

_FLOAT = re.compile(r"(?<![\w.+-])[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?(?![\w.])")


def split(
    verb: str, override: str, known: Collection[str], of_tasks: Sequence[str] = (), following: str = ""
) -> tuple[str, str]:
    """Key and value. Raises ConfigError if the word is not `key=value`, or for an unknown key.

    of_tasks: keys that are valid only with task=; with it they have been removed before. following: the next
    word, which may be the value of `--key`.
    """
    key, equals, value = override.partition("=")
    key = key.lstrip("+")  # hydra's "append"; all keys exist already
    if override.startswith("-") or not equals:
        hint = f" Did you mean 'path={override}'?" if "path" in known and Path(override).exists() else ""
        value = value or ("" if "=" in following or following.startswith("-") else following)
        name = key.strip("-").replace("-", "_") if override.startswith("-") else key
        hint = hint or did_you_mean(name, known, f"={shlex.quote(value)}" if value else "=...")
        raise ConfigError(
            f"Found '{override}', expected a setting written key=value.{hint} See: robo-rl {verb} --help"
        )
    if key in of_tasks and key not in known:  # `run` has a setting robot of its own
        whose = "task=... or env=..." if key in OBSERVED else "task=..."
        raise ConfigError(f"{key}={value} belongs to a task: give {whose} too. See: robo-rl {verb} --help")
    if key not in known:
        hint = did_you_mean(key, [*known, *of_tasks, *(["task"] if of_tasks else [])])
        raise ConfigError(f"robo-rl {verb} has no setting '{key}'.{hint} See: robo-rl {verb} --help")
    return key, value


def for_hydra(key: str, value: str, known: Mapping[str, Setting], groups: Mapping[str, Sequence[str]]) -> str:
    """The override in hydra's grammar, with quoted text, so that any path or name is accepted."""
    if key in groups:
        if value not in groups[key]:
            raise UnknownNameError(key, value, groups[key])  # a YAML file has been registered under its name
    elif known[key].optional and value in ("none", "null"):
        value = "null"
    elif known[key].plain_type is str:
        value = quoted(with_home(value))
    elif known[key].plain_type == list[str] and value.startswith("[") and value.endswith("]"):
        parts = filter(None, comma_parts(with_home(value)[1:-1]))
        value = f"[{','.join(each if is_quoted(each) else quoted(each) for each in parts)}]"
    elif "whole number" in known[key].type_words:
        value = _FLOAT.sub(_whole, value)
    return f"{key}={value}"


def with_home(text: str) -> str:
    """`~/` at the beginning of a path, or of the paths in [a,b], as the home folder: not every shell replaces
    it in key=value.
    """
    at = r"(^\[\s*['\"]?|,\s*['\"]?)~/" if text.startswith("[") else r"(^)~/"
    return re.sub(at, lambda found: f"{found[1]}{Path.home()}/", text)


def _whole(found: re.Match[str]) -> str:
    """1e4 as 10000 and 3.0 as 3; 1.5 stays as it is, to be refused."""
    number = float(found[0])
    return str(int(number)) if abs(number) < 2**53 and number.is_integer() else found[0]


# A setting of one verb -> settings of other verbs with the same meaning.
SYNONYMS = {
    "steps": ("updates", "method.env_steps"),
    "step": ("steps", "updates", "method.env_steps"),
    "updates": ("steps", "method.env_steps"),
    "env_steps": ("updates", "steps"),
    "epochs": ("updates", "steps", "method.env_steps"),
    "episodes": ("eval_episodes",),
    "eval_episodes": ("episodes",),
    "eval_flights": ("eval_episodes", "episodes"),
}
# A setting of another library -> ours, the first that a verb has; nothing else is meant where it has none.
OF_OTHER_LIBRARIES = {
    # Stable-Baselines3
    "total_timesteps": ("env_steps", "steps", "updates"),
    "learning_rate": ("lr", "method.learner.lr_actor"),
    "n_envs": ("num_envs",),
    "n_epochs": ("steps", "updates", "method.ppo.epochs"),
    "n_steps": ("method.ppo.rollout",),
    "buffer_size": ("method.replay_capacity",),
    "learning_starts": ("method.base_steps",),
    "gradient_steps": ("method.utd",),
    "ent_coef": ("method.learner.alpha",),
    "max_grad_norm": ("grad_clip", "method.learner.grad_clip"),
    "eval_freq": ("eval_every",),
    "n_eval_episodes": ("eval_episodes", "episodes"),
    "save_freq": ("checkpoint_every",),
    "tensorboard_log": ("logger",),
    # LeRobot
    "output_dir": ("out",),
    "dataset": ("data", "demos", "path"),
    "dataset.repo_id": ("data", "demos"),
    "policy.path": ("base", "teacher", "init", "policy"),
    "policy.type": ("policy", "method"),
    "env.type": ("env",),
    "env.task": ("env",),
    "eval.n_episodes": ("episodes", "eval_episodes"),
    "eval.batch_size": ("num_envs",),
    "chunk_size": ("chunk",),
    "horizon": ("chunk",),
    "n_action_steps": ("execute", "method.execute"),
    "n_obs_steps": ("obs_steps",),
}


def did_you_mean(name: str, known: Collection[str], suffix: str = "") -> str:
    """The hint "Did you mean ...?", or nothing. The last part of a dotted key suffices: "lr" finds
    "learner.lr". Of equally similar keys, one without a dot is meant.
    """
    same = (*SYNONYMS.get(name, ()), *OF_OTHER_LIBRARIES.get(name, ()))
    if (ours := next((word for word in same if word in known), None)) is not None:
        return f" Did you mean '{ours}{suffix}'?"
    if name in OF_OTHER_LIBRARIES:
        return ""
    meant = {key.rpartition(".")[2]: key for key in reversed(list(known))} | {key: key for key in known}
    names = sorted(meant, key=lambda each: "." in meant[each])
    close = nearest(name, names, 1) or nearest(name.rpartition(".")[2], names, 1)
    return f" Did you mean '{meant[close[0]]}{suffix}'?" if close else ""


def refuse_repeats(words: Iterable[str]) -> None:
    """Raise ConfigError for a key that is given twice, because one value would be lost silently."""
    seen: dict[str, str] = {}
    for word in words:
        key, equals, _ = word.partition("=")
        key = key.lstrip("+")
        if equals and key in seen:
            raise ConfigError(f"{key} is given twice, found {seen[key]} and {word}. Give it once.")
        seen[key] = word
