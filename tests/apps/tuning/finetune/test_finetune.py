"""`robo-rl finetune` and `distill` as called by users; killed or stopped ones run in their own process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policies.deploy.bundle import load_bundle
from robo_rl.apps.cli.main import main as robo_rl
from robo_rl.core.files.state_io import load_state
from robo_rl.data.store import EpisodeStore
from robo_rl.runs.run_dir import RunDir

pytest.importorskip("metaworld", reason="needs MetaWorld: pip install 'robo-rl[sim]'")


ROOT = Path(__file__).resolve().parents[4]
STEPS = ("env_steps=300", "method.base_steps=80", "method.burn_in=20", "method.learner.hidden=[16]")


QUICK = (
    "num_envs=2",
    "eval_every=150",
    "eval_episodes=2",
    "final_episodes=2",
    "max_episode_steps=40",
    "checkpoint_every=50",
)


def started(arguments: list[str], **pipes: int) -> subprocess.Popen[str]:
    """The verb in a process of its own."""
    here = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "robo_rl.apps.cli.main", *arguments]
    return subprocess.Popen(words, cwd=ROOT, env=here, text=True, stdout=subprocess.DEVNULL, **pipes)


def finetune(base: tuple[Path, Path], out: Path, method: str, *more: str) -> list[str]:
    given = {word.partition("=")[0] for word in more}
    return [
        "finetune",
        f"base={base[1]}",
        f"demos={base[0]}",
        f"out={out}",
        f"method={method}",
        *(word for word in (*STEPS, *QUICK) if word.partition("=")[0] not in given),
        *more,
    ]


@pytest.mark.long
@pytest.mark.parametrize("name", ["dsrl_na", "qc"])
def test_methods_of_chunks_learn_from_demonstrations(
    name: str, base: tuple[Path, Path], tmp_path: Path
) -> None:
    """From the command line to a policy: the replay holds a chunk from every demonstrated step on."""
    out = tmp_path / name
    assert robo_rl([*finetune(base, out, name), "method.map.candidates=3", "method.execute=4"]) == 0
    found = RunDir.open(out).newest_intact()
    assert found is not None
    stored = load_state(found[1])["tuner"]["mix"]["demo"]
    assert int(stored["head"]) == sum(episode.frames for episode in EpisodeStore(base[0]))
    assert set(stored["steps"].unique().tolist()) == {1.0, 2.0, 3.0, 4.0}


def same_files(one: Path, other: Path) -> None:
    """Weights and all logged values, bit for bit."""
    for name in ("policy/weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    curves = [json.loads((run / "curve.json").read_text()) for run in (one, other)]
    assert curves[0]["rates"] == curves[1]["rates"]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_killed_and_resumed_equals_uninterrupted(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Promise 7 with a real second process and SIGKILL, after a checkpoint of the online phase."""
    assert robo_rl(finetune(base, tmp_path / "whole", "residual")) == 0
    assert "exact McNemar" in capsys.readouterr().out

    killed = tmp_path / "killed"
    process = started(finetune(base, killed, "residual"), stderr=subprocess.DEVNULL)
    deadline_s = time.monotonic() + 120.0
    while not any(int(p.name) >= 150 for p in (killed / "checkpoints").glob("[0-9]*")):
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "policy").exists()
    assert robo_rl(finetune(base, killed, "residual", "resume=true")) == 0
    same_files(tmp_path / "whole", killed)


@pytest.mark.long
@pytest.mark.timeout(240)
def test_ctrl_c_saves_and_prints_how_to_continue(
    base: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 130, a checkpoint, one sentence; the resumed run can be distilled."""
    out = tmp_path / "run"
    given = finetune(base, out, "steering", "checkpoint_every=100000")
    process = started(given, stderr=subprocess.PIPE)
    log = out / "metrics.jsonl"
    while process.poll() is None and not (log.exists() and "train/success" in log.read_text()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "resume=true" in said
    (at,) = (int(folder.name) for folder in (out / "checkpoints").glob("[0-9]*"))
    short = ["episodes=1", "num_envs=1", "num_workers=0", "max_episode_steps=5"]
    assert robo_rl(["evaluate", f"policy={out}@{at}", *short]) == 0
    capsys.readouterr()
    assert robo_rl(["evaluate", f"policy={out}", *short]) == 2
    assert f"or give {out}@{at} for its newest checkpoint." in capsys.readouterr().err
    assert robo_rl([*given, "resume=true"]) == 0
    few = ["steps=50", "rounds=1", "rollout_steps=200", "round_steps=100", "eval_episodes=4", "net.width=16"]
    head = ["distill", f"teacher={out}", f"out={tmp_path / 'head'}", "max_episode_steps=40", *few]
    assert robo_rl(head) == 0
    assert "teacher on the same episodes" in capsys.readouterr().out


@pytest.mark.long
def test_returns_are_printed_without_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pendulum reports no success, only negative rewards: 0 of 2 would be wrong, also in `robo-rl runs`."""
    out = tmp_path / "sac"
    few = ["eval_every=0", "eval_episodes=2", "final_episodes=2", "num_envs=1", "num_workers=0"]
    small = ["env_steps=600", "method.base_steps=200", "method.learner.hidden=[16]"]
    assert robo_rl(["finetune", "method=sac", "env=gym/Pendulum-v1", f"out={out}", *small, *few]) == 0
    said = capsys.readouterr()
    assert "Advice" not in said.out
    mean = sum(json.loads((out / "results.json").read_text())["policy"]["returns"]) / 2
    assert f"CPU time: mean return {mean:.4g} [" in said.out
    assert "0 %" not in said.out
    assert robo_rl(["runs", f"path={out}"]) == 0
    assert capsys.readouterr().out.split()[:5] == [str(out), "finetune", "mean", "return", f"{mean:.4g}"]
    assert "return -" in said.err  # of the progress bar
    for noise in ("", "zero"):  # this policy takes no noise, so its success holds for both
        words = [
            f"policy={out}",
            f"out={tmp_path / f'bundle{noise}'}",
            *([f"noise={noise}"] if noise else []),
        ]
        assert robo_rl(["export", *words]) == 0
        assert "unknown" not in capsys.readouterr().out
        assert load_bundle(tmp_path / f"bundle{noise}").manifest["measured"]["n"] == 2
