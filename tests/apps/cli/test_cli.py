"""The command line as a second process: output and exit code."""

from __future__ import annotations

import operator
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps.cli import main as cli
from robo_rl.apps.cli.help import HEADINGS, load_schema, overview
from robo_rl.apps.cli.most_used import MOST_USED
from robo_rl.apps.cli.verbs import VERBS, Verb
from robo_rl.apps.info import gather, text
from robo_rl.conf.fields import settings
from robo_rl.conf.schema import InfoConfig
from robo_rl.core.errors import DiskFullError, EnvError

ROOT = Path(__file__).resolve().parents[3]


def robo_rl(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "robo_rl.apps.cli.main", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "120"},
    )


def test_help_is_fast_and_names_every_verb() -> None:
    """`--help` imports neither torch nor hydra; measured in CPU time, so that load does not matter."""
    before = os.times()
    done = robo_rl("--help")
    after = os.times()
    assert done.returncode == 0
    assert after.children_user + after.children_system - before.children_user - before.children_system < 0.3
    for name, verb in VERBS.items():
        assert name in done.stdout
        assert verb.examples[0] in done.stdout
    for name, heading in HEADINGS.items():
        assert f"\n{heading}\n  {name} " in done.stdout


def test_ctrl_c_during_imports_prints_one_sentence() -> None:
    """Ctrl-C during the imports gives a sentence, not a traceback."""
    code = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'robo_rl.apps.cli.verbs': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "from robo_rl.__main__ import main\n"
        "sys.exit(main())"
    )
    here = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=here, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "robo-rl: stopped; nothing was started.\n")


def test_the_overview_has_single_blank_lines() -> None:
    """Before the first heading, too."""
    assert "\n\n\n" not in overview()
    assert "\n\n  data import" in overview("data")
    assert "\n\n\n" not in overview("data")


def test_examples_are_written_as_the_table_writes_settings() -> None:
    """json=true, although --json is understood."""
    assert not [each for verb in VERBS.values() for each in verb.examples if "--json" in each]


def test_titles_of_info_are_followed_by_a_gap() -> None:
    """Also the longest one."""
    lines = text(gather()).splitlines()
    first = next(line for line in lines if "gymrobotics/" in line)
    assert "environments gymrobotics/  " in first


def test_the_overview_tells_which_verbs_end_with_1() -> None:
    """Code 1 alone would read as an error in robo-rl to a script around `data replay`."""
    told = next(line for line in overview().splitlines() if line.startswith("data replay ends with 1"))
    for verb in ("call", "demo"):
        assert f"{verb} if" in told


def test_no_argument_prints_the_overview() -> None:
    """Without a verb the overview is printed."""
    assert robo_rl().stdout == robo_rl("--help").stdout


@pytest.mark.parametrize("verb", ["collect", "data validate", "doctor"])
def test_verb_help_shows_keys_types_and_defaults(verb: str) -> None:
    """Generated from the schema, without importing torch."""
    done = robo_rl(*verb.split(), "--help")
    assert done.returncode == 0
    assert "Setting" in done.stdout
    assert "Examples" in done.stdout
    assert VERBS[verb].examples[0] in done.stdout


@pytest.mark.parametrize("verb", sorted(MOST_USED))
def test_the_help_of_a_verb_with_many_settings_lists_the_most_used(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """10 to 17 settings, the number of the others and how to list all; `--help all` lists each once."""
    known = settings(load_schema(VERBS[verb]))
    assert len(known) > 35
    assert cli.main([verb, "--help"]) == 0
    brief = [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert 10 <= len(MOST_USED[verb]) <= 17
    assert brief[1 : len(MOST_USED[verb]) + 1] == list(MOST_USED[verb])
    assert cli.main([verb, "--help", "all"]) == 0
    full = [
        line.split()[0]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("  ") and line[2] != " "
    ]
    assert all(full.count(key) == 1 for key in known)


def test_the_help_says_which_method_is_the_default_and_how_many_settings_follow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`method` has a default although it is a group of values."""
    assert cli.main(["finetune", "--help"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^  method +name or file +auto +sets", said, re.MULTILINE)
    assert re.search(r"^\d+ more settings: robo-rl finetune --help all$", said, re.MULTILINE)
    assert cli.main(["finetune", "base=my run", "--help"]) == 0
    assert "more settings: robo-rl finetune 'base=my run' --help all" in capsys.readouterr().out
    assert cli.main(["finetune", "method=residual", "--help"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^  method +name or file +residual +sets", said, re.MULTILINE)
    assert "robo-rl finetune method=residual --help all" in said


def test_the_help_shows_an_empty_default_in_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    """`empty` where that is the default, whose meaning follows; `up` takes the defaults of its set."""
    assert cli.main(["record", "--help", "all"]) == 0
    assert re.search(r"^  policy +text +empty +bundle of a policy", capsys.readouterr().out, re.MULTILINE)
    assert cli.main(["up", "--help"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^  bundle +text +set's own +folder of the bundle.*; empty: none", said, re.MULTILINE)
    assert re.search(r"^  namespace +text +empty ", said, re.MULTILINE)
    assert re.search(r"^  seconds +number >= 0 +none ", said, re.MULTILINE)


def test_the_help_of_train_explains_task(capsys: pytest.CaptureFixture[str]) -> None:
    """The example `train task=race` has its setting in the list, and data= is none with it."""
    assert cli.main(["train", "--help"]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^  task +text +none +hover \|", said, re.MULTILINE)
    assert "dataset, or [a,b] of several; left out with task=<a flight>" in said
    assert cli.main(["train", "task=trajectory", "seeds=3", "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("robo-rl train task=trajectory: train a quadcopter policy")
    assert "Usage:   robo-rl train task=trajectory key=value" in said
    assert "more settings: robo-rl train task=trajectory seeds=3 --help all" in said
    assert cli.main(["train", "task=swarm", "--help"]) == 0
    assert capsys.readouterr().out.startswith("robo-rl train task=swarm: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["colect"], "Unknown verb 'colect'. Did you mean 'collect'?"),
        (["data", "valdate"], "Did you mean 'data validate'?"),
        (["fly", "steps=700"], "no setting 'steps'. Did you mean 'updates'?"),
        (["swarm", "episodes=9"], "no setting 'episodes'. Did you mean 'eval_episodes'?"),
        (["transfer", "eval_episodes=9"], "no setting 'eval_episodes'. Did you mean 'episodes'?"),
        (["collect", "epsiodes=3"], "no setting 'epsiodes'. Did you mean 'episodes'?"),
        (["view", "tsk=lift"], "no setting 'tsk'. Did you mean 'task'?"),
        (["view", "task=lift", "engin=pybullet"], "no setting 'engin'. Did you mean 'engine'?"),
        (["finetune", "engine=pybullet", "out=o"], "give task=... too"),
        (["collect", "policy=p", "cameras=view", "out=o"], "give task=... or env=... too"),
        (
            ["collect", "env=e", "out=o", "episodes=many"],
            "episodes=many cannot be used, expected: whole number >= 1",
        ),
        (["collect", "out=o"], "needs env=..."),
        (["train", "--data", "data/peg20"], "Did you mean 'data=data/peg20'?"),
        (["train", "--data=data/peg20", "out=o"], "Did you mean 'data=data/peg20'?"),
        (["collect", "--max-episode-steps", "5"], "Did you mean 'max_episode_steps=5'?"),
        (["train", "--data", "out=o"], "Did you mean 'data=...'?"),
        (["data", "info", "path=nowhere"], "nowhere"),
    ],
)
def test_user_error_is_one_sentence_and_exit_code_2(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """No traceback, nothing on stdout, a remedy in the sentence."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    assert_one_sentence(*capfd.readouterr(), words)


def test_user_error_of_a_process_is_one_sentence_and_its_exit_code(tmp_path: Path) -> None:
    """Imports, which a second process does anew, print nothing, and the code is that of the process."""
    done = robo_rl("train", "--data", "data/peg20", cwd=tmp_path)
    assert done.returncode == 2
    assert_one_sentence(done.stdout, done.stderr, "Did you mean 'data=data/peg20'?")


def assert_one_sentence(out: str, err: str, words: str) -> None:
    """A sentence on stderr that holds `words`, and nothing else."""
    assert words in err
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""


def fake_verb(monkeypatch: pytest.MonkeyPatch, run: Callable[[object], int | None]) -> None:
    """Make `robo-rl fake` call `run`."""
    monkeypatch.setattr(cli, "fake_main", run, raising=False)
    monkeypatch.setitem(
        VERBS, "fake", Verb("robo_rl.apps.cli.main:fake_main", "sim", VERBS["info"].schema, "", ("",))
    )


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (EnvError("The environment died."), 3, "The environment died."),
        (DiskFullError("The disk is full."), 4, "The disk is full."),
        (OSError(28, "No space left on device", "a.zarr"), 4, "disk is full (a.zarr)"),
        (PermissionError(13, "Permission denied", "/data"), 2, "Permission denied: /data"),
        (FileExistsError(17, "File exists", "runs"), 2, "File exists: runs. Choose another path"),
        (KeyboardInterrupt("saved 3 episodes in data/x"), 130, "stopped; saved 3 episodes in data/x."),
        (KeyboardInterrupt(), 130, "stopped; what was committed before is kept."),
        (ModuleNotFoundError("No module", name="metaworld"), 2, "pip install 'robo-rl[sim]'"),
        (ModuleNotFoundError("No module", name="cv2.data"), 2, "pip install 'robo-rl[train]'"),
    ],
)
def test_exit_code_of_each_error(
    error: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each kind of failure has its own exit code, for scripts."""

    def run(config: object) -> int:
        raise error

    fake_verb(monkeypatch, run)
    assert cli.main(["fake"]) == code
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said


def test_defect_prints_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A defect is printed in full, with a request to report it."""
    fake_verb(monkeypatch, partial(operator.floordiv, 1))  # has no line in a file of its own
    assert cli.main(["fake"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "TypeError" in said
    assert "error in robo-rl itself" in said
    assert "robo-rl doctor" in said


@pytest.mark.parametrize(
    ("code", "words", "exit_code"),
    [
        ("def run(config):\n    return {}['cub']\n", "the error is in {file} line 2, see", 2),
        ("def run(config):\n    return sorted(3)\n", "the error is in {file} line 2, see", 2),
        (
            "import statistics\ndef run(config):\n    statistics.mean(3)\n",
            "the error is in {file} line 3, see",
            2,
        ),
        (
            "from sim.tasks.scripted import between\ndef run(config):\n    between('a', 0, 1.0)\n",
            "the error is in what {file} line 3 asks of robo-rl",
            1,
        ),
    ],
)
def test_error_in_a_users_file_names_its_line(
    code: str,
    words: str,
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is to be reported where a user's own task fails; Python's own library is no user's file."""
    file = tmp_path / "my_tasks.py"
    space: dict[str, Any] = {}
    exec(compile(code, str(file), "exec"), space)
    fake_verb(monkeypatch, space["run"])
    assert cli.main(["fake"]) == exit_code
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert words.format(file=file) in said
    assert "error in robo-rl itself" not in said


def test_missing_module_of_robo_rl_is_a_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing module of robo-rl must not be reported as a missing package."""

    def run(config: object) -> int:
        raise ModuleNotFoundError("No module named 'sim.gone'", name="sim.gone")

    fake_verb(monkeypatch, run)
    assert cli.main(["fake"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_closed_pipe_is_no_error() -> None:
    """`robo-rl --help | head -1` ends without an error."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import time; time.sleep(0.5); from robo_rl.apps.cli.main import main; raise "
            "SystemExit(main([]))",
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    process.wait(timeout=60)
    assert b"Traceback" not in said


def test_json_flag_is_a_setting(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """`--json` means json=true."""
    seen: list[object] = []
    fake_verb(monkeypatch, lambda config: seen.append(config))
    assert cli.main(["fake", "--json"]) == 0
    assert seen == [InfoConfig(json=True)]


def test_every_verb_has_a_schema_and_a_summary() -> None:
    """Every verb of the table can be called."""
    start = time.monotonic()
    for verb in VERBS.values():
        assert verb.summary
        assert all(example.startswith("robo-rl ") for example in verb.examples)
    assert time.monotonic() - start < 1.0
