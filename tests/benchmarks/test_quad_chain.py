"""The workflow on a quadcopter: the page's commands equal the benchmark's settings."""

from __future__ import annotations

import re
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("env", "out", "data", "base", "demos", "teacher")
ONLY_MEASURED = ("eval_episodes", "final_episodes")  # a user may look longer on the way


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("quad_chain")


def page() -> dict[str, dict[str, str]]:
    """Verb -> its settings in the first block of the page."""
    block = re.findall(r"```bash\n(.*?)```", (ROOT / "docs" / "flight-chain.md").read_text(), re.DOTALL)[0]
    found = {}
    for line in block.replace("\\\n", " ").splitlines():
        _, verb, *words = shlex.split(line)
        found[verb] = dict(word.split("=", 1) for word in words)
    return found


@pytest.mark.parametrize("verb", ["collect", "train", "finetune", "distill"])
def test_the_page_and_the_benchmark_agree(chain: ModuleType, verb: str) -> None:
    """Page and benchmark have the same settings, except folders."""
    settings = getattr(chain, verb.upper())
    expected = {key: str(value) for key, value in settings.items() if key not in ONLY_MEASURED}
    told = {key: value for key, value in page()[verb].items() if key not in (*FOLDERS, *ONLY_MEASURED)}
    assert told == expected
    assert page()["collect"]["env"] == f"quad/{chain.TASK}"


def test_a_report_counts_all_seeds(chain: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 of 4 over two seeds; the error is the mean of the three that stayed, 20 mm."""
    lines: dict[str, tuple[float, dict[str, object]]] = {}
    monkeypatch.setattr(
        chain, "emit", lambda name, value, unit, **extra: lines.update({name: (value, extra)})
    )
    chain.report("a", [[True, True], [True, False]], [[0.01, 0.03], [0.02, None]])
    assert lines["a/success"][0] == 0.75
    assert lines["a/success"][1]["per_seed"] == [2, 1]
    assert lines["a/error_m"] == (0.02, {"stayed": 3, "n": 4, "per_seed": [0.02, 0.02]})
