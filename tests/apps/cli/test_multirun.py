"""Words of the runs that `-m` starts."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from robo_rl.apps.cli import main as cli
from robo_rl.apps.cli.multirun import expand_sweeps, multirun


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("seed=1,2", ["1", "2"]),
        ("seed=range(1,4)", ["1", "2", "3"]),
        ("data=my data,d2", ["my data", "d2"]),
        ("data=dätä,bob's", ["dätä", "bob's"]),
        ("policy=s/seed=1,s/seed=2", ["s/seed=1", "s/seed=2"]),
        ("base='a,b',c", ["'a,b'", "c"]),
        ("sources=[a,b],[c]", ["[a,b]", "[c]"]),
        ("task=reach,lift", ["reach", "lift"]),
        ("task='reach it, then stop',lift it", ["'reach it, then stop'", "lift it"]),
        ("task=choice(reach it,lift it)", ["reach it", "lift it"]),
        (
            "env=arm/lift:engine=mujoco,cameras=view,arm/reach",
            ["arm/lift:engine=mujoco,cameras=view", "arm/reach"],
        ),
    ],
)
def test_values_of_a_sweep_are_those_that_were_typed(word: str, values: list[str]) -> None:
    """Spaces, quotes, = and letters outside ASCII are kept as they are."""
    key = word.partition("=")[0]
    runs = expand_sweeps("evaluate", [word, "out=s"])
    assert [run[0] for run in runs] == [f"{key}={value}" for value in values]


@pytest.mark.parametrize(
    "word", ["task=reach it, then stop", "env=arm/lift:engine=mujoco,cameras=view", "data=[a,b]", "data=a,"]
)
def test_commas_of_a_value_are_no_sweep(word: str) -> None:
    """An instruction, the options of an environment and a list stay whole beside a swept seed."""
    assert [run[0] for run in expand_sweeps("collect", [word, "seed=1,2", "out=s"])] == [word, word]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        (
            "name=red cube, on top",
            """name= is swept over 2 values, divided at the commas. If it is one text""",
        ),
        ("data=my data,d2", ""),
        ("seed=1, 2", ""),
        ("name='red cube, on top'", ""),
        ("task=reach it, then stop", ""),
    ],
)
def test_a_text_that_is_divided_at_its_commas_is_named(
    word: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the quotes that keep it whole; only the text of a task needs none."""
    assert multirun("export", [word, "noise=zero,gaussian", "out=s"], lambda words: (0, "")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(said or "[1/")
    if said:
        quoted = shlex.split(lines[0].rpartition("quote it: ")[2])
        assert expand_sweeps("export", [*quoted, "noise=zero,gaussian", "out=s"])[0][0] == quoted[0]
        assert "'red cube, on top'" in quoted[0]


def test_task_and_engine_can_be_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Short forms are replaced in each combination, whose command is printed as it can be pasted."""
    called: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(cli, "_call", lambda name, words, origin, typed: called.append((name, words)) or 0)
    out = tmp_path / "s 1"
    assert cli.main(["collect", "-m", "task=reach,lift", "engine=mujoco,pybullet", f"out={out}"]) == 0
    assert [words[0] for _, words in called] == [
        f"env=arm/{task}:engine={engine}" for task in ("reach", "lift") for engine in ("mujoco", "pybullet")
    ]
    assert called[0][1][1] == f"out={out}/task=reach,engine=mujoco"
    assert f"'out={out}/task=reach,engine=mujoco'" in capsys.readouterr().out
