"""A small policy is evaluated, exported and run; its measured success stays with its weights."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import av
import pytest
from safetensors.torch import load_file

from policies.checkpoint import save_policy
from robo_rl.apps import collect, data, evaluate, export
from robo_rl.apps import run as run_verb
from robo_rl.apps.datasets import export as data_export
from robo_rl.apps.datasets import show
from robo_rl.conf.datasets.exchange import DataExportConfig
from robo_rl.conf.datasets.replay import DataShowConfig
from robo_rl.conf.schema import DataMergeConfig, EvaluateConfig, ExportConfig, RunConfig
from robo_rl.core.errors import CheckpointError, ConfigError, DataError, DiskFullError
from robo_rl.eval.rollout import EvalResult
from robo_rl.runs.loaded_policy import find_policy, open_policy
from robo_rl.runs.success_note import read_success_note, success_note, write_success_note
from sim.registry import make_env
from tests.apps.conftest import ENV, collect_config
from tests.policies.small import flow_policy


def evaluate_config(policy: Path, **changes: object) -> EvaluateConfig:
    tiny = {"policy": str(policy), "episodes": 3, "max_episode_steps": 10, "num_workers": 0, "device": "cpu"}
    return EvaluateConfig(**tiny | changes)  # type: ignore[arg-type]


def test_checkpoint_can_be_evaluated(run: Path, tmp_path: Path) -> None:
    """run@8 is the average after 8 of 12 updates; it can be evaluated, and its note names its own steps."""
    found = find_policy(f"{run}@8")
    assert json.loads((found / "policy.json").read_text())["train"]["steps"] == 8
    last = load_file(find_policy(f"{run}@12") / "weights.safetensors")
    final = load_file(run / "policy" / "weights.safetensors")
    assert all(tensor.equal(final[name]) for name, tensor in last.items())
    assert evaluate.main(evaluate_config(Path(f"{run}@8"))) == 0
    with pytest.raises(CheckpointError, match=r"of step 4: .* older ones, and steps 8, 12 are left"):
        find_policy(f"{run}@4")
    with pytest.raises(CheckpointError, match="has no checkpoint of step 9: it has 8, 12"):
        find_policy(f"{run}@9")
    bare = tmp_path / "bare"  # as robo-rl pull makes it
    shutil.copytree(run, bare, ignore=shutil.ignore_patterns("checkpoints"))
    with pytest.raises(
        CheckpointError, match=r"bare holds no checkpoints\. Give .*bare for the final policy"
    ):
        find_policy(f"{bare}@8")
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
    evaluate.check_outputs(evaluate_config(run, out=str(tmp_path / "e.json")))  # an earlier report
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
    """A wrong out= is reported before the evaluation, and no other file is replaced."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "empty").touch()
    (tmp_path / "link").symlink_to(tmp_path / "empty")  # as /dev/stdout of a command with > file
    for key, path, words in (
        ("out", tmp_path, "is a folder, expected a file"),
        ("out", tmp_path / "file", "is no file of a report of this verb, so it is not replaced"),
        ("out", "/dev/null", "is no file of a report of this verb, so it is not replaced"),
        ("out", tmp_path / "link", "is no file of a report of this verb, so it is not replaced"),
        ("out", tmp_path / "run.json", "is no file of a report of this verb, so it is not replaced"),
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


def test_out_of_exports_is_refused_by_the_name_that_was_given(run: Path, tmp_path: Path) -> None:
    """Not by the name of the partial file beside it, and before any work."""
    (tmp_path / "file").write_text("x")
    out = str(tmp_path / "file" / "new")
    with pytest.raises(ConfigError, match=f"^out={out} cannot be written"):
        export.main(ExportConfig(str(run), out))
    with pytest.raises(ConfigError, match=f"^out={out} cannot be written"):
        data_export.main(DataExportConfig("a dataset that is not even looked for", out=out))
    with pytest.raises(ConfigError, match=f"^out={out} cannot be written"):
        data.merge(DataMergeConfig(["not looked for"], out))
    with pytest.raises(ConfigError, match=f"^out={out}.png cannot be written"):
        show.main(DataShowConfig("not looked for", out=f"{out}.png"))


def test_a_dataset_takes_no_other_inside(tmp_path: Path) -> None:
    """It is copied, moved and deleted as a whole."""
    collect.main(collect_config(tmp_path / "data", episodes=1))
    inside, source = str(tmp_path / "data" / "more" / "out"), str(tmp_path / "data")
    with pytest.raises(DataError, match=f"{inside} would lie inside the dataset {source}"):
        data.merge(DataMergeConfig([source], inside))
    with pytest.raises(DataError, match=f"{inside} would lie inside the dataset {source}"):
        data_export.main(DataExportConfig(source, "zarr", inside))
    assert not (tmp_path / "data" / "more").exists()


@pytest.mark.parametrize(("name", "given"), [("images", "png"), ("crf", 30)])
def test_picture_settings_of_lerobot_are_refused_elsewhere(name: str, given: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}={given} is of format=lerobot and has no effect on"):
        data_export.main(DataExportConfig("not looked for", "robomimic", "new.hdf5", **{name: given}))


def test_a_full_disk_costs_no_measurement(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result is printed before its file is written."""

    def full(path: Path, report: object) -> None:
        raise DiskFullError(f"The disk is full: could not write {path}.")

    monkeypatch.setattr(evaluate, "write_json", full)
    config = EvaluateConfig(str(run), episodes=1, max_episode_steps=5, out=str(tmp_path / "e.json"))
    with pytest.raises(DiskFullError):
        evaluate.main(config)
    assert "success 0/1" in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("given", "same"),
    [
        (None, True),
        ("quad/hover:history=2,craft=cf21", True),
        ("quad/hover:history=2, craft=cf21", True),
        ("quad/hover:craft=cf21,history=2,max_episode_steps=9", False),
    ],
)
def test_success_in_its_own_environment_is_noted(given: str | None, same: bool, tmp_path: Path) -> None:
    """Options in another order name the same environment; the note has the policy's own name of it."""
    with closing(make_env("quad/hover:craft=cf21,history=2", 1)) as env:
        save_policy(tmp_path / "policy", flow_policy(env.spec))
    evaluate.main(EvaluateConfig(str(tmp_path / "policy"), env=given, episodes=1, num_workers=0))
    note = read_success_note(tmp_path / "policy")
    assert (note is not None) is same
    assert note is None or note["env"] == "quad/hover:craft=cf21,history=2"


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
    """The note of a policy that was trained again is outdated: nothing reads it, an export neither."""
    shutil.copytree(run / "policy", tmp_path / "policy")
    _note_success(tmp_path, noise=1.0)
    assert read_success_note(tmp_path / "policy") is not None
    written = json.loads((tmp_path / "policy" / "policy.json").read_text())
    written["weights_crc32"] += 1
    (tmp_path / "policy" / "policy.json").write_text(json.dumps(written))
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
