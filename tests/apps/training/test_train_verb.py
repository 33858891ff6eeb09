"""`robo-rl train`: what it writes, refuses and warns of, and how it is stopped and resumed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from policies.checkpoint import load_policy
from policies.training.base import BaseTrainer
from robo_rl.apps import train
from robo_rl.apps.cli.main import main
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.runs.metrics import read_metrics
from tests.apps.conftest import train_config

ROOT = Path(__file__).resolve().parents[3]


def test_training_writes_policy_checkpoints_and_metrics(run: Path) -> None:
    """Policy folder, checkpoints, metrics and settings are in the run folder."""
    policy = load_policy(run / "policy")
    assert policy.chunk == 8
    assert json.loads((run / "policy" / "policy.json").read_text())["train"]["data"]["episodes"] == 3
    assert [m["step"] for m in read_metrics(run / "metrics.jsonl")] == [2, 4, 6, 8, 10, 12]
    assert list((run / "tb").iterdir())


@pytest.mark.long
def test_killed_training_resumes_to_the_same_policy(dataset: Path, run: Path, tmp_path: Path) -> None:
    """SIGKILL during training, then resume=true: weights and metrics equal those of an uninterrupted run."""
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from robo_rl.apps import train\n"
        "from policies.training import base as training\n"
        "from tests.apps.conftest import train_config\n"
        "real = training._report\n"
        "def report(step, *rest):\n"
        "    real(step, *rest)\n"
        "    if step == 10: os.kill(os.getpid(), signal.SIGKILL)\n"
        "training._report = report\n"
        f"train.main(train_config(Path({str(dataset)!r}), Path({str(tmp_path / 'run')!r})))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, timeout=120
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert [m["step"] for m in read_metrics(tmp_path / "run" / "metrics.jsonl")][-1] == 10
    assert main(["train", f"out={tmp_path / 'run'}", "resume=true"]) == 0  # with the settings of the run
    assert list(read_metrics(tmp_path / "run" / "metrics.jsonl")) == list(read_metrics(run / "metrics.jsonl"))
    ours = load_file(tmp_path / "run" / "policy" / "weights.safetensors")
    theirs = load_file(run / "policy" / "weights.safetensors")
    assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())


def test_a_loss_that_does_not_fall_is_told(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a rate of 100 it rises by orders of magnitude, and the training ends like any other."""
    words = [f"data={dataset}", "steps=5", "log_every=1", "batch_size=8", "net=mlp", "chunk=4", "execute=2"]
    assert main(["train", *words, f"out={tmp_path / 'bad'}", "lr=100"]) == 0
    assert "Warning: the loss began at" in capsys.readouterr().out
    assert main(["train", *words, f"out={tmp_path / 'good'}"]) == 0
    assert "Warning" not in capsys.readouterr().out


def test_missing_data_leave_no_run_folder(tmp_path: Path) -> None:
    """A wrong path must not leave a run folder that blocks the corrected command."""
    with pytest.raises(DataError, match="nowhere does not exist; the nearest existing folder is"):
        train.main(train_config(tmp_path / "nowhere", tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "slip",
    [
        "steps=0", "batch_size=0", "lr=nan", "lr=0", "beta1=2", "beta2=-1", "weight_decay=-1",
        "warmup_steps=-1", "final_lr=-1", "ema_power=-1", "ema_max=2", "log_every=0", "checkpoint_every=-1",
        "keep_checkpoints=0", "net.depth=100000", "image.crop=5", "image.pool=avg",
    ],
)  # fmt: skip
def test_unusable_settings_are_refused_first(
    slip: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Refused by its key before the dataset is read; a finished run in `out` is untouched by
    overwrite=true.
    """
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    words = [f"data={tmp_path / 'nowhere'}", f"out={tmp_path / 'run'}", "overwrite=true", slip]
    assert main(["train", *words]) == 2
    assert re.match(rf"robo-rl: {slip}(\.0)? cannot be used, expected:", capsys.readouterr().err)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["run.json"]


@pytest.mark.parametrize("slip", [{"chunk": 10000}, {"obs_steps": 1000}])
def test_windows_beyond_every_episode_are_refused(
    dataset: Path, slip: dict[str, int], tmp_path: Path
) -> None:
    """They would be mostly padding, in 100 GB of memory."""
    with pytest.raises(ConfigError, match=r"=\d+ cannot be used: the longest episode .* frames"):
        train.main(train_config(dataset, tmp_path / "run", **slip))
    assert not (tmp_path / "run").exists()


def test_sigterm_saves_training(
    dataset: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Job schedulers end jobs by SIGTERM: saved as by Ctrl-C, and resumed to the same weights."""
    advance = BaseTrainer.advance

    def stopped(trainer: BaseTrainer) -> None:
        advance(trainer)
        if trainer.step == 6:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(BaseTrainer, "advance", stopped)
        with pytest.raises(KeyboardInterrupt, match=r"saved update 6 in .*resume=true continues"):
            train.main(train_config(dataset, tmp_path / "run"))
    train.main(train_config(dataset, tmp_path / "run", resume=True))
    ours, theirs = (load_file(path / "policy" / "weights.safetensors") for path in (tmp_path / "run", run))
    assert all(tensor.equal(theirs[name]) for name, tensor in ours.items())


@pytest.mark.slow
def test_ctrl_c_saves_training(dataset: Path, tmp_path: Path) -> None:
    """SIGINT to a real training: code 130, a checkpoint, and a sentence on how to continue."""
    out = tmp_path / "run"
    command = [
        "train",
        f"data={dataset}",
        f"out={out}",
        "steps=100000",
        "batch_size=16",
        "log_every=1",
        "net.width=16",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "robo_rl.apps.cli.main", *command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 90
    while len(list(read_metrics(out / "metrics.jsonl"))) < 3 and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "with resume=true continues it" in said
    saved = [int(path.parent.name) for path in (out / "checkpoints").glob("*/state.json")]
    assert saved == [list(read_metrics(out / "metrics.jsonl"))[-1]["step"]]  # not one update is lost
