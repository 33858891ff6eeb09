"""`robo-rl <verb> -m seed=1,2,3`: one run per combination of values, in hydra's grammar of sweeps.

`key=a,b` and `key=range(1,4)` sweep over values. Runs are written below the folder of `out=`: out=runs/peg
with seed=1,2 gives runs/peg/seed=1 and runs/peg/seed=2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from robo_rl.core.errors import ConfigError

FLAGS = ("-m", "--multirun")


def multirun(verb: str, words: Sequence[str], run: Callable[[list[str]], int]) -> int:
    """Call `run` with the words of each run in turn; returns the first exit code other than 0, else 0."""
    code = 0
    for number, each in enumerate(runs := expand_sweeps(verb, words), start=1):
        print(f"[{number}/{len(runs)}] robo-rl {verb} {' '.join(each)}")
        code = run(each) or code
    return code


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
