"""`robo-rl <verb> -m seed=1,2,3`: one run per combination of values, in hydra's grammar of sweeps.

`key=a,b` and `key=range(1,4)` sweep over values. Runs are written below the folder of `out=`: out=runs/peg
with seed=1,2 gives runs/peg/seed=1 and runs/peg/seed=2. A combination that fails does not end the sweep. With
`resume=true`, finished combinations are skipped, those that had begun continue, and the others begin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path

from robo_rl.apps.cli.settings_file import resumes
from robo_rl.core.errors import ConfigError

FLAGS = ("-m", "--multirun")
Ended = tuple[int, str]  # exit code of a run, and the sentence of its error; empty: none was printed
UNMEASURED = ("train", "pretrain")  # verbs whose run ends with its policy or encoder, without results.json


def multirun(verb: str, words: Sequence[str], run: Callable[[list[str]], Ended]) -> int:
    """Call `run` with the words of each run in turn, and print which failed and why.

    Returns the first exit code other than 0, else 0.
    """
    failed: list[tuple[str, int, str]] = []
    runs = [_resumed(each) for each in expand_sweeps(verb, words)]
    for number, each in enumerate(runs, start=1):
        head = f"[{number}/{len(runs)}] robo-rl {verb} {' '.join(each)}"
        if _resumes(each) and _is_finished(verb, _out(each)):
            print(f"{head}\n{_out(each)} is finished and was skipped.")
            continue
        print(head)
        code, sentence = run(each)
        if code:
            failed.append((str(_out(each)), code, sentence or f"exit code {code}"))
    if failed:
        lines = [f"  {out}: {sentence}" for out, _, sentence in failed]
        print("\n".join([f"robo-rl: {len(failed)} of {len(runs)} runs failed:", *lines]), file=sys.stderr)
    return failed[0][1] if failed else 0


def _out(words: Sequence[str]) -> Path:
    """Folder of a run."""
    return Path(next(word.partition("=")[2] for word in words if word.startswith("out=")))


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
    """`seed=1,2` as seed=1 and seed=2. Text that is no sweep in hydra's grammar is returned unchanged."""
    if not ("," in word or "(" in word) or word.startswith("out="):
        return [word]
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_override(word)
    except HydraException:
        return [word]
    if not parsed.is_sweep_override():
        return [word]
    return [f"{parsed.get_key_element()}={value}" for value in parsed.sweep_string_iterator()]
