"""The verbs end to end, on one small dataset and one small policy."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import av
import numpy as np
import pytest
import zarr
from safetensors.torch import load_file

from policies.checkpoint import load_policy
from policies.deploy.bundle import load_bundle
from policies.training.base import BaseTrainer
from robo_rl.apps import data as data_verb
from robo_rl.apps import evaluate, export, info, train
from robo_rl.apps import run as run_verb
from robo_rl.apps.cli.main import main
from robo_rl.apps.imports import data_import
from robo_rl.conf.schema import (
    DataImportConfig,
    DataInfoConfig,
    DataValidateConfig,
    EvaluateConfig,
    ExportConfig,
    InfoConfig,
    RunConfig,
)
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.eval.rollout import EvalResult
from robo_rl.runs.loaded_policy import find_policy, open_policy
from robo_rl.runs.metrics import read_metrics
from robo_rl.runs.success_note import read_success_note, success_note, write_success_note
from tests.apps.conftest import ENV, train_config

ROOT = Path(__file__).resolve().parents[2]


def evaluate_config(policy: Path, **changes: object) -> EvaluateConfig:
    tiny = {"policy": str(policy), "episodes": 3, "max_episode_steps": 10, "num_workers": 0, "device": "cpu"}
    return EvaluateConfig(**tiny | changes)  # type: ignore[arg-type]


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


def test_wrong_kind_of_folder_is_named(dataset: Path, run: Path, tmp_path: Path) -> None:
    """A run is no dataset, a dataset no policy, a run no bundle, a file no run folder."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match=f"{run} is a run, not a dataset"):
        train.main(train_config(run, tmp_path / "new"))
    with pytest.raises(CheckpointError, match=f"{dataset} is a dataset, not a policy"):
        find_policy(dataset)
    with pytest.raises(CheckpointError, match=f"{run} is a run, not a bundle.*robo-rl export"):
        load_bundle(run)
    with pytest.raises(ConfigError, match=f"{tmp_path / 'file'} is a file, and a run is a folder"):
        train.main(train_config(dataset, tmp_path / "file"))
    with pytest.raises(DataError, match=r"source=.*nowhere does not exist"):
        data_import.main(DataImportConfig(source=str(tmp_path / "nowhere"), out=str(tmp_path / "new")))
    assert (tmp_path / "file").read_text() == "x"
    assert not (tmp_path / "new").exists()


def test_checkpoint_can_be_evaluated(run: Path, tmp_path: Path) -> None:
    """run@8 is the average after 8 of 12 updates; it can be evaluated, and its note names its own steps."""
    found = find_policy(f"{run}@8")
    assert json.loads((found / "policy.json").read_text())["train"]["steps"] == 8
    last = load_file(find_policy(f"{run}@12") / "weights.safetensors")
    final = load_file(run / "policy" / "weights.safetensors")
    assert all(tensor.equal(final[name]) for name, tensor in last.items())
    assert evaluate.main(evaluate_config(Path(f"{run}@8"))) == 0
    with pytest.raises(CheckpointError, match="has no checkpoint of step 4, it has 8, 12"):
        find_policy(f"{run}@4")
    with pytest.raises(DataError, match="not a run"):
        find_policy(f"{tmp_path}@4")


def test_evaluation_is_paired_and_repeatable(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A policy against itself differs in no episode; the JSON holds every seed; two lanes give what one
    gives.
    """
    assert (
        evaluate.main(
            evaluate_config(run, against=str(run / "policy"), out=str(tmp_path / "e.json"), num_envs=2)
        )
        == 0
    )
    said = capsys.readouterr().out
    assert "success 0/3 = 0 % [0, 56]" in said
    assert (
        "only the first policy solves 0, only the second 0; exact McNemar p = 1.00: no significant difference"
        in said
    )
    report = json.loads((tmp_path / "e.json").read_text())
    assert report["policy"]["success"] == report["against"]["success"]
    assert len(set(report["policy"]["seeds"])) == 3
    assert not (
        run / "policy" / "evaluation.json"
    ).exists()  # a shortened episode says nothing about the policy


def test_unwritable_out_is_refused_first(run: Path, tmp_path: Path) -> None:
    """A wrong out= is reported before the evaluation."""
    (tmp_path / "file").write_text("x")
    for key, path, words in (
        ("out", tmp_path, "is a folder, expected a file"),
        ("out", tmp_path / "file" / "x.json", "is a file, expected a folder"),
        ("video", tmp_path / "file" / "x.mp4", "is a file, expected a folder"),
    ):
        with pytest.raises(ConfigError, match=rf"^{key}=.*{words}"):
            evaluate.main(EvaluateConfig("a policy that is not even looked for", **{key: str(path)}))
    film = str(tmp_path / "film.mp4")
    with pytest.raises(ConfigError, match="video_episodes=3 cannot exceed episodes=1"):
        evaluate.main(EvaluateConfig("not looked for", episodes=1, video=film, video_episodes=3))
    evaluate.check_outputs(EvaluateConfig("not looked for", episodes=1, video=film))
    for name in ("true", "film", "film.webp"):
        with pytest.raises(ConfigError, match=rf"^video={name} cannot be used, expected: a file .* \.mp4"):
            evaluate.check_outputs(EvaluateConfig("not looked for", video=name))


def test_a_film_shows_as_many_episodes_as_there_are(run: Path, tmp_path: Path) -> None:
    """One episode of four steps: four frames, and its last one for 0.8 s."""
    film = tmp_path / "film.mp4"
    evaluate.main(evaluate_config(run, episodes=1, max_episode_steps=4, video=str(film)))
    with av.open(str(film)) as opened:
        frames, stream = sum(1 for _ in opened.decode(video=0)), opened.streams.video[0]
        assert frames == 4 + round(0.8 * float(stream.average_rate or 0))


def test_read_only_policy_is_evaluated(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a read-only policy folder, results are written, and the missing note is reported."""
    policy, out = tmp_path / "policy", tmp_path / "results.json"
    shutil.copytree(run / "policy", policy)
    (policy / "evaluation.json").mkdir(parents=True)  # cannot be replaced by a file, for whomever
    evaluate.main(EvaluateConfig(str(policy), episodes=2, num_workers=0, out=str(out)))
    assert json.loads(out.read_text())["n"] == 2
    assert f"success not saved in {policy} (Is a directory)" in capsys.readouterr().out


@pytest.mark.long
def test_export_and_run_keep_the_measured_success(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """evaluate -> export -> run: the manifest holds k, n and the noise; the loop reports its deadlines."""
    evaluate.main(evaluate_config(run, max_episode_steps=None, episodes=1, noise=0.0))
    assert export.main(ExportConfig(str(run), str(tmp_path / "bundle"))) == 0
    manifest = json.loads((tmp_path / "bundle" / "manifest.json").read_text())
    assert manifest["measured"]["n"] == 1
    assert manifest["noise"]["mode"] == "zero"
    assert manifest["training"]["steps"] == 12
    config = RunConfig(
        str(tmp_path / "bundle"), episodes=1, max_episode_steps=8, out=str(tmp_path / "loop.json")
    )
    assert run_verb.main(config) == 0
    assert "8 ticks at 80 Hz" in capsys.readouterr().out
    assert json.loads((tmp_path / "loop.json").read_text())["ticks"] == 8
    assert evaluate.main(evaluate_config(tmp_path / "bundle", episodes=1)) == 0


@pytest.mark.long
def test_success_at_another_noise_is_not_exported(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Measured at zero noise, exported with N(0, I): the bundle states no success, and the message gives the
    command.
    """
    _note_success(run, noise=0.0)
    assert export.main(ExportConfig(str(run), str(tmp_path / "bundle"), noise="gaussian")) == 0
    assert json.loads((tmp_path / "bundle" / "manifest.json").read_text())["measured"] is None
    assert "its success with gaussian noise is unknown" in capsys.readouterr().out


def test_unsupported_noise_scale_is_refused(run: Path, tmp_path: Path) -> None:
    """Measured at half the noise, which a bundle does not support, so the user must choose."""
    _note_success(run, noise=0.5)
    with pytest.raises(ConfigError, match=r"scaled by 0\.5"):
        export.main(ExportConfig(str(run), str(tmp_path / "bundle")))
    assert export.noise_mode("gaussian", read_success_note(run / "policy"), {}) == "gaussian"


def _solved() -> EvalResult:
    """One episode that succeeded."""
    return EvalResult((0,), (True,), (9,), (1.0,), None, 9, 1.0, 1.0)


def _note_success(run: Path, noise: float) -> None:
    write_success_note(run / "policy", success_note(_solved(), ENV, 0, noise))


def test_success_of_other_weights_is_not_exported(run: Path, tmp_path: Path) -> None:
    """A note of a policy that was trained again is outdated: the bundle states no success."""
    import shutil

    shutil.copytree(run / "policy", tmp_path / "policy")
    note = {"k": 1, "n": 1, "wilson95": [0, 1], "noise": 1.0, "weights_crc32": 1}
    (tmp_path / "policy" / "evaluation.json").write_text(json.dumps(note))
    assert read_success_note(tmp_path / "policy") is None


def test_wrong_policies_are_refused(run: Path, tmp_path: Path) -> None:
    """A folder without a policy, and a policy with an environment that it does not fit."""
    with pytest.raises(CheckpointError, match="is an empty folder, not a policy"):
        evaluate.main(evaluate_config(tmp_path))
    with pytest.raises(CheckpointError, match="pusht/state"):
        evaluate.main(evaluate_config(run, env="pusht/state"))
    with pytest.raises(ConfigError, match="device=cuda:7"):
        evaluate.main(evaluate_config(run, device="cuda:7"))
    with pytest.raises(ConfigError, match="rate_hz=0"):
        run_verb.main(RunConfig("bundle", rate_hz=0.0))
    with pytest.raises(CheckpointError, match="is a run, not a bundle"):
        run_verb.main(RunConfig(str(run)))


def test_run_folder_is_accepted_as_a_policy(run: Path) -> None:
    """`policy=runs/base` finds runs/base/policy, and the environment it was trained on."""
    import torch

    actor = open_policy(run, torch.device("cpu"))
    assert actor.folder == run / "policy"
    assert (actor.env, actor.noise) == (ENV, 1.0)


def test_data_verbs(dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """info lists the contents; validate finds a flipped byte, names the episode and exits with 2."""
    assert data_verb.info(DataInfoConfig(str(dataset))) == 0
    assert "3/3 labelled episodes" in capsys.readouterr().out
    assert data_verb.info(DataInfoConfig(str(dataset), json=True)) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 3
    import shutil

    shutil.copytree(dataset, tmp_path / "copy")
    assert data_verb.validate(DataValidateConfig(str(tmp_path / "copy"), recover=True)) == 0
    assert "sound" in capsys.readouterr().out
    shard = tmp_path / "copy" / "episodes" / "000001" / "action" / "c.0.0"
    data = bytearray(shard.read_bytes())
    data[3] ^= 1
    shard.write_bytes(data)
    assert data_verb.validate(DataValidateConfig(str(tmp_path / "copy"))) == 2
    assert "episode 000001" in capsys.readouterr().out


def test_data_import_maps_keys(tmp_path: Path) -> None:
    """A replay buffer in Push-T's layout; a key map; a malformed one is named."""
    source = str(tmp_path / "buffer.zarr")
    buffer = zarr.open_group(source, mode="w", zarr_format=2)
    buffer.create_array("data/state", data=np.ones((5, 5), "float32"))
    buffer.create_array("data/action", data=np.ones((5, 2), "float32"))
    buffer.create_array("meta/episode_ends", data=np.array([2, 5]))
    config = DataImportConfig(source, str(tmp_path / "out"), "pusht/state", limit=1)
    assert data_import.main(config) == 0
    assert [episode.frames for episode in EpisodeStore(tmp_path / "out")] == [2]
    with pytest.raises(ConfigError, match="expected key:array"):
        data_import.parse_keys(["state"])
    with pytest.raises(ConfigError, match="Give env= or robot=, not both"):
        data_import.main(DataImportConfig(source, "y", ENV, robot="sim_arm"))
    with pytest.raises(ConfigError, match="Name the array of the buffer x for each key: keys="):
        data_import.contract(DataImportConfig("x", "y"), [])
    with pytest.raises(ConfigError, match="Name the array"):
        data_import.contract(DataImportConfig("x", "y", ENV), [])
    named = ["state:data/s", "action:data/a"]
    spec, keys = data_import.contract(DataImportConfig(source, "y", ENV, keys=named), [])
    assert (spec.name, keys) == (ENV, {"state": "data/s", "action": "data/a"})


def test_info_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`info` lists the values of settings."""
    assert info.main(InfoConfig(json=True)) == 0
    facts = json.loads(capsys.readouterr().out)
    assert ENV in facts["environments"]
    assert {"flow", "diffusion"} <= set(facts["processes"])
    assert info.main(InfoConfig()) == 0
    assert "reach-v3" in capsys.readouterr().out


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
