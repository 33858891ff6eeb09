"""Distillation killed at critical moments resumes to the same bits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from policies.checkpoint import save_policy
from robo_rl.apps import distill
from robo_rl.apps.tuning.distill_rounds import Rounds
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.files import state_io
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.rl.distillation.dagger import DaggerCollector
from robo_rl.runs.run_dir import RunDir
from tests.apps.tuning.dying import Killed, dying
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env

ROOT = Path(__file__).resolve().parents[3]
Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def toy(monkeypatch: Patch) -> None:
    """The toy task under every environment name."""
    monkeypatch.setattr(distill, "make_env", lambda name, lanes, *_, **__: make_env(lanes))


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kill") / "teacher"
    save_policy(folder, flow_policy(SPEC))
    return folder


def config(teacher: Path, out: Path, **changes: Any) -> DistillVerb:
    """Three rounds of 40 updates with both losses, a log line every 5 updates, a checkpoint every 15."""
    small: dict[str, Any] = {
        "teacher": str(teacher),
        "out": str(out),
        "steps": 40,
        "batch_size": 8,
        "consistency": 0.5,
        "log_every": 5,
        "rollout_steps": 100,
        "round_steps": 100,
        "num_envs": 2,
        "eval_episodes": 3,
        "checkpoint_every": 15,
        "net": MlpDenoiserConfig(width=16, depth=1),
    }
    return DistillVerb(**small | changes)


@pytest.fixture(scope="module")
def whole(teacher: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kill") / "whole"
    with Patch.context() as patch:
        patch.setattr(distill, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
        assert distill.main(config(teacher, out)) == 0
    return out


def same_run(one: Path, other: Path) -> None:
    """Head, log and counts are equal; seconds are not."""
    for name in ("policy/weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    results = [json.loads((run / "results.json").read_text()) for run in (one, other)]
    notes = [json.loads((run / "policy" / "policy.json").read_text())["train"] for run in (one, other)]
    for result in (*results, *notes):
        for part in (result, result.get("head"), result.get("teacher")):
            for key in ("wall_s", "cpu_s", "train_wall_s", "train_cpu_s") if isinstance(part, dict) else ():
                part.pop(key, None)
    assert results[0] == results[1]
    assert notes[0] == notes[1]


DEATHS: dict[str, tuple[Any, str, int, bool]] = {
    "in the first collection": (DaggerCollector, "_decide", 10, False),
    "between the first collection and its checkpoint": (Rounds, "collect", 1, True),
    "before the first checkpoint of the training": (Rounds, "update", 9, False),
    "in the middle of a round": (Rounds, "update", 33, True),
    "after the last update of a round": (Rounds, "update", 40, True),
    "in the student's first collection": (Rounds, "collect", 2, False),
    "after the student's first collection": (Rounds, "collect", 2, True),
    "in the last round": (Rounds, "update", 111, False),
    "while a checkpoint is written": (state_io, "write_json", 4, False),
    "between a checkpoint and the removal of the one before": (shutil, "rmtree", 6, False),
    "before the head is saved": (distill, "save_policy", 1, False),
    "in the comparison at the end": (distill, "evaluate", 2, False),
}


@pytest.mark.parametrize("death", DEATHS)
def test_resumed_equals_uninterrupted(death: str, teacher: Path, whole: Path, tmp_path: Path) -> None:
    """Promise 7: weights and all logged values are equal bit for bit."""
    where, name, call, after = DEATHS[death]
    with Patch.context() as patch:
        patch.setattr(where, name, dying(getattr(where, name), call, after))
        with pytest.raises(Killed):
            distill.main(config(teacher, tmp_path / "run"))
    assert distill.main(config(teacher, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


def test_resume_continues_from_the_newest_checkpoint(
    teacher: Path, tmp_path: Path, monkeypatch: Patch
) -> None:
    """After a kill at update 71 of 120, it continues from the checkpoint of 60 and collects for the last
    round only.
    """
    with Patch.context() as patch:
        patch.setattr(Rounds, "update", dying(Rounds.update, 71))
        with pytest.raises(Killed):
            distill.main(config(teacher, tmp_path / "run"))
    updates, collections = list[int](), list[int]()
    update, collect = Rounds.update, Rounds.collect
    monkeypatch.setattr(Rounds, "update", lambda self, *a: (update(self, *a), updates.append(self.updates)))
    monkeypatch.setattr(
        Rounds, "collect", lambda self, *a: (collect(self, *a), collections.append(self.round))
    )
    assert distill.main(config(teacher, tmp_path / "run", resume=True)) == 0
    assert updates == list(range(61, 121))
    assert collections == [2]


@pytest.mark.parametrize(
    ("where", "name", "call", "said"),
    [(Rounds, "update", 23, "saved update 23"), (DaggerCollector, "_decide", 40, "saved update 40")],
)
def test_ctrl_c_saves_and_prints_how_to_continue(
    where: Any, name: str, call: int, said: str, teacher: Path, whole: Path, tmp_path: Path
) -> None:
    """The running update is finished; a collection, here the second, is repeated by the resumed run."""
    calls, real = 0, getattr(where, name)

    def interrupted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            signal.raise_signal(signal.SIGINT)
        return real(*args)

    with Patch.context() as patch:
        patch.setattr(where, name, interrupted)
        with pytest.raises(KeyboardInterrupt, match=f"{said} in .*resume=true continues"):
            distill.main(config(teacher, tmp_path / "run"))
    assert calls == call
    assert distill.main(config(teacher, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


@pytest.mark.long
def test_sigkill_of_a_real_process(teacher: Path, whole: Path, tmp_path: Path) -> None:
    """The same with a process killed by the kernel."""
    program = [
        sys.executable,
        "-m",
        "tests.apps.tuning.die_in_distill",
        str(teacher),
        str(tmp_path / "run"),
        "77",
    ]
    died = subprocess.run(program, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    latest = RunDir(tmp_path / "run").latest()
    assert latest is not None
    assert latest[0] == 75
    assert distill.main(config(teacher, tmp_path / "run", resume=True)) == 0
    same_run(whole, tmp_path / "run")


def test_resume_of_a_finished_run_changes_nothing(teacher: Path, whole: Path, tmp_path: Path) -> None:
    """resume=true on a finished run changes nothing; another setting is refused by name."""
    shutil.copytree(whole, tmp_path / "run")
    assert distill.main(config(teacher, tmp_path / "run", resume=True, checkpoint_every=7)) == 0
    same_run(whole, tmp_path / "run")
    with pytest.raises(ConfigError, match=r"started with lr=0\.001 and cannot be resumed with lr=0\.1"):
        distill.main(config(teacher, tmp_path / "run", resume=True, lr=0.1))


def test_damaged_checkpoint_is_refused(teacher: Path, whole: Path, tmp_path: Path) -> None:
    """One sentence that names the folder and the state of its checkpoints."""
    shutil.copytree(whole, tmp_path / "run")
    for _, folder in RunDir(tmp_path / "run").steps():
        weights = folder / "state.safetensors"
        weights.write_bytes(weights.read_bytes()[:-10])
    with pytest.raises(
        RoboRLError, match=r"is damaged \(state\.safetensors changed.*no older one.*overwrite=true"
    ):
        distill.main(config(teacher, tmp_path / "run", resume=True))
    with pytest.raises(ConfigError, match="holds no checkpoint, though the run had saved some"):
        distill.main(config(teacher, tmp_path / "run", resume=True))
    assert distill.main(config(teacher, tmp_path / "run", overwrite=True)) == 0
    same_run(whole, tmp_path / "run")
