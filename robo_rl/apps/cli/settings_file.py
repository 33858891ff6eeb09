"""`config=mine.yaml`: settings of any verb from a YAML file, overridden by the command line.

Keys are nested or dotted: `method: {env_steps: 100}` and `method.env_steps: 100` mean the same. The
config.yaml of a run is such a file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from robo_rl.apps.cli.overrides import did_you_mean, refuse_repeats
from robo_rl.conf.dotted import flat
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.durable import read_json
from robo_rl.core.files.yaml_error import yaml_words
from robo_rl.core.settings import free_keys

KEY = "config"
RUN_FILE = "config.yaml"  # in a run folder
_ABOUT = "run.json"  # beside it: verb, commit, machine
# What a verb learns from: a setting, and the short forms of it. A command without it does not repeat the one
# that started the run. Of several, the first that the run has counts.
_INPUTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "train": (("data",),),
    "pretrain": (("data",),),
    "finetune": (("base",), ("env", "task", "suite")),
    "distill": (("teacher",),),
    "fly": (("task",),),
    "swarm": (),
    "vision": (),
    "mission": (),
}
_TRUE = {"true", "yes", "y", "on", "1"}  # as hydra reads a switch, in capitals, too


def expand(words: Sequence[str], verb: str, *, sweeps: bool = False) -> tuple[list[str], dict[str, Path]]:
    """The words with `config=<file>` replaced by its settings, and the file of each of these.

    A key on the command line replaces the file's value, and `method=<name>` replaces the file's `method`, but
    not its `method.<key>`. `resume=true out=<run>` takes the settings of the run if no other is given than
    those of `free_keys`, or if the input of the verb is missing: the verb then refuses what has changed.
    sweeps: `out` is the folder around several runs. Raises ConfigError for a repeated key, a file without
    settings, and a folder to be resumed that is no run or lacks its settings.
    """
    refuse_repeats(words)
    given = {word.partition("=")[0] for word in words if "=" in word}
    files = [word.partition("=")[2] for word in words if word.startswith(f"{KEY}=")]
    rest = [word for word in words if not word.startswith(f"{KEY}=")]
    of_run = None if files or sweeps else _settings_of_run(rest, verb)
    if of_run is not None:
        files, given = [str(of_run)], given | {"overwrite"}
    if not files:
        return rest, {}
    values = {key: value for key, value in flat(read_mapping(files[0])) if key not in given}
    if of_run is not None:  # those of the run's method would be applied to the one that is given
        values = {key: value for key, value in values.items() if not _groups_of(key) & given}
    first = [word for word in rest if "=" not in word]  # `up arm_sim`: a word without a key stays first
    typed = [word for word in rest if "=" in word]
    return [*first, *(f"{key}={value}" for key, value in values.items()), *typed], dict.fromkeys(
        values, Path(files[0])
    )


def resumes(word: str) -> bool:
    """True for `resume=true`, in every spelling that hydra accepts."""
    key, _, value = word.partition("=")
    return key == "resume" and value.strip("'\"").lower() in _TRUE


def _groups_of(key: str) -> set[str]:
    """`method` and `method.map` of `method.map.scale`."""
    parts = key.split(".")
    return {".".join(parts[:depth]) for depth in range(1, len(parts))}


def _settings_of_run(words: Sequence[str], verb: str) -> Path | None:
    """Settings of the run that these words resume; None for words that repeat the command of the run.

    Raises ConfigError if the words need the settings of the run, and the folder is no run or lacks them.
    """
    given = dict(word.split("=", 1) for word in words if "=" in word)
    if not any(map(resumes, words)) or "out" not in given:
        return None
    file = Path(given["out"]).expanduser() / RUN_FILE
    if not file.is_file():
        if _INPUTS.get(verb) and given.keys() <= free_keys(verb) and len(given) == len(words):
            if file.with_name(_ABOUT).is_file():
                raise ConfigError(
                    f"{file.parent} is a run without {RUN_FILE}, which holds its settings. Restore the file "
                    "from a copy, or start the run again."
                )
            raise ConfigError(
                f"{not_a(file.parent, 'a run')} Give the folder of the run that is to be continued."
            )
        return None
    return file if given.keys() <= free_keys(verb) or _lacks_input(given.keys(), verb, file) else None


def _lacks_input(given: Collection[str], verb: str, file: Path) -> bool:
    """True for a verb that trains if nothing that is given is what its run learns from."""
    if verb not in _INPUTS:
        return False
    saved = read_mapping(str(file))
    forms: tuple[str, ...] = next((forms for forms in _INPUTS[verb] if saved.get(forms[0]) is not None), ())
    return not any(form in given for form in forms)


def check_keys(verb: str, words: Sequence[str], origin: Mapping[str, Path], known: Collection[str]) -> None:
    """Raise ConfigError that names the file for a key that the verb does not have."""
    for key in (word.partition("=")[0] for word in words):
        if key in origin and key not in known:
            if (other := _verb_of(origin[key])) not in ("", verb):
                raise ConfigError(
                    f"{origin[key]} holds settings of a run of robo-rl {other}, and robo-rl {verb} has no "
                    f"setting '{key}'. Run robo-rl {other} with it, or give settings of robo-rl {verb}."
                )
            raise ConfigError(
                f"{origin[key]} holds '{key}', which is no setting of robo-rl {verb}."
                f"{did_you_mean(key, known)} See: robo-rl {verb} --help"
            )


def _verb_of(file: Path) -> str:
    """The verb of the run whose settings the file holds; empty for a file that is in no run, or in a run with
    a damaged run.json.
    """
    about = file.expanduser().with_name(_ABOUT)
    if file.name != RUN_FILE or not about.is_file():
        return ""
    try:
        found = read_json(about)
    except DataError:
        return ""
    return str(found.get("verb", "")) if isinstance(found, dict) else ""


def read_mapping(file: str) -> dict[str, Any]:
    """Content of a YAML file as a dict. Raises ConfigError if it is missing, broken or not a mapping."""
    import yaml

    path = Path(file).expanduser()
    if not path.is_file():
        raise ConfigError(f"{file} is not a file, expected: a YAML file of settings.")
    try:
        found = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not valid YAML, {yaml_words(error)}. Correct the file.") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ConfigError(f"{file} holds no settings, expected: lines of `key: value`.")
    return found
