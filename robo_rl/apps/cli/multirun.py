"""`robo-rl <verb> -m seed=1,2,3`: one run per combination of values.

`key=a,b`, `key=choice(a,b)` and hydra's `key=range(1,4)` sweep over values. Commas in quotes or brackets are
part of a value, as are those of a task or instruction of several words, unless a value is quoted. Runs are
written below the folder of `out=`: out=runs/peg with seed=1,2 gives runs/peg/seed=1 and runs/peg/seed=2. A
combination that fails does not end the sweep. With `resume=true`, finished combinations are skipped, those
that had begun continue, and the others begin; one whose settings have changed is refused.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from robo_rl.apps.cli.overrides import with_home
from robo_rl.apps.cli.settings_file import resumes
from robo_rl.conf.dotted import comma_parts, is_quoted, quoted
from robo_rl.core.errors import ConfigError
from robo_rl.core.settings import free_keys

FLAGS = ("-m", "--multirun")
Ended = tuple[int, str]  # exit code of a run, and the sentence of its error; empty: none was printed
FREE_TEXT = ("task", "instruction")  # text of several words may have commas of its own
_FUNCTION = re.compile(r"(choice|range|sort|shuffle|tag|int|float|str|bool)\((.*)\)")
_SUITE = re.compile(r"[\w.-]+/")
UNMEASURED = ("train", "pretrain")  # verbs whose run ends with its policy or encoder, without results.json


def multirun(verb: str, words: Sequence[str], run: Callable[[list[str]], Ended]) -> int:
    """Call `run` with the words of each run in turn, and print which failed and why.

    Returns the first exit code other than 0, else 0.
    """
    for note in filter(None, map(_divided_text, words)):
        print(note)
    failed: list[tuple[str, int, str]] = []
    runs = [_resumed(each) for each in expand_sweeps(verb, words)]
    for number, each in enumerate(runs, start=1):
        print(f"[{number}/{len(runs)}] robo-rl {verb} {shlex.join(each)}")
        code, sentence = run(each)
        if code:
            failed.append((str(_out(each)), code, sentence or f"exit code {code}"))
    if failed:
        lines = [f"  {out}: {sentence}" for out, _, sentence in failed]
        print("\n".join([f"robo-rl: {len(failed)} of {len(runs)} runs failed:", *lines]), file=sys.stderr)
    return failed[0][1] if failed else 0


def skips(verb: str, words: Sequence[str]) -> bool:
    """True, with a message, if the words resume a run that is finished, with the same settings.

    The verb itself refuses other settings. Compared here are those given now and those in the command that
    started the run: the run may have resolved others, such as num_envs.
    """
    out = _out(words)
    if not (_resumes(words) and _is_finished(verb, out)):
        return False
    from robo_rl.apps.cli.config import load_config
    from robo_rl.apps.cli.help import load_schema
    from robo_rl.apps.cli.verbs import VERBS
    from robo_rl.core.text.setting_changes import setting_changes
    from robo_rl.runs.run_dir import RunDir

    run = RunDir.open(out)
    info = run.info()
    first = (*info.get("arguments", ()), *info.get("keys_in_file", ()))  # the file may have others now
    given = {word.partition("=")[0] for word in (*words, *map(str, first))}
    config: Any = load_config(verb, words, load_schema(VERBS[verb]))
    if any(change.key in given for change in setting_changes(config, run.config(), free_keys(verb))):
        return False
    print(f"{out} is finished and was skipped.")
    return True


def _out(words: Sequence[str]) -> Path:
    """Folder of a run."""
    return Path(with_home(next(word.partition("=")[2] for word in words if word.startswith("out="))))


def _resumes(words: Sequence[str]) -> bool:
    return any(map(resumes, words))


def _resumed(words: list[str]) -> list[str]:
    """Words of a run, without `resume=true` if it has not begun."""
    if not _resumes(words) or (_out(words) / "run.json").is_file():
        return words
    return [word for word in words if not resumes(word)]


def _is_finished(verb: str, run: Path) -> bool:
    """True if the run has its last file. A run that was stopped in its last measurement has none."""
    made = any((run / name).is_dir() for name in ("policy", "encoder"))
    return made and (verb in UNMEASURED or (run / "results.json").is_file())


def expand_sweeps(verb: str, words: Sequence[str]) -> list[list[str]]:
    """Words of every run. Raises ConfigError if no setting is swept or `out=` is missing."""
    values = {word: _values(word) for word in words}
    swept = [word for word in words if len(values[word]) > 1]
    if not swept:
        raise ConfigError(
            f"-m needs a setting with several values, e.g. robo-rl {verb} -m seed=1,2,3; found none."
        )
    out = next((word.partition("=")[2] for word in words if word.startswith("out=")), None)
    if out is None:
        raise ConfigError(
            "-m writes every run into a folder of its own: give the folder around them by out=..."
        )
    runs = []
    for chosen in product(*(values[word] for word in words)):
        names = [each for word, each in zip(words, chosen, strict=True) if word in swept]
        folder = f"out={out}/{','.join(name.replace('/', '_') for name in names)}"
        runs.append([folder if each.startswith("out=") else each for each in chosen])
    return runs


def _values(word: str) -> list[str]:
    """`seed=1,2` as seed=1 and seed=2. A word that is no sweep is returned unchanged."""
    key, equals, text = word.partition("=")
    if not equals or key == "out":
        return [word]
    if (function := _FUNCTION.fullmatch(text)) and function[1] != "choice":
        return _evaluated(word)
    parts = comma_parts(function[2] if function else text)
    if not function and key == "env":
        parts = _environments(parts)
    if not function and key in FREE_TEXT and " " in text and not any(map(is_quoted, parts)):
        return [word]
    return [f"{key}={each}" for each in parts] if all(parts) else [word]


def _divided_text(word: str) -> str:
    """Sentence on a value that looks like a text of several words and is divided; empty for others."""
    key, _, text = word.partition("=")
    values = _values(word)
    if len(values) == 1 or ", " not in text or _FUNCTION.fullmatch(text) or key == "env":
        return ""
    if not any(" " in each and not is_quoted(each) for each in comma_parts(text)):
        return ""
    whole = shlex.quote(f"{key}={quoted(text)}")
    divided = f"{key}= is swept over {len(values)} values, divided at the commas."
    return f"{divided} If it is one text, quote it: {whole}"


def _environments(parts: Sequence[str]) -> list[str]:
    """Names of environments, whose options have commas of their own: arm/lift:engine=mujoco,cameras=view."""
    names: list[str] = []
    for part in parts:
        if names and ":" in names[-1] and not _SUITE.match(part):
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def _evaluated(word: str) -> list[str]:
    """The values of a function of hydra, such as range(1,4)."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException:
        return [word]
    if not parsed.is_sweep_override():
        return [word]
    return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]
