"""`robo-rl train policy=vla` on datasets of two robots: one run, a policy for each, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from policies.checkpoint import load_policy
from policies.vla.config import VlaConfig
from robo_rl.apps import distill, evaluate, train
from robo_rl.apps.hub.contents import contents_of
from robo_rl.apps.training.embodiments import folder_names
from robo_rl.apps.training.train_data import TrainData
from robo_rl.apps.tuning import start
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import with_instruction
from robo_rl.data.store import DatasetWriter
from robo_rl.eval.stats import SuccessRate
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.loaded_policy import open_policy
from robo_rl.runs.next_step import after_evaluation
from robo_rl.runs.resumable import RunSession
from robo_rl.runs.success_note import note_path
from tests.apps.tuning.dying import Killed, dying

ARM = EnvSpec(
    "robot/arm",
    {"state": ArraySpec((4,)), "image.view": ArraySpec((16, 16, 3), "uint8")},
    ActionSpec((-1.0,) * 3, (1.0,) * 3),
    10,
    10.0,
)
COPTER = replace(ARM, name="robot/copter", obs={**ARM.obs, "state": ArraySpec((2,))})
COPTER = replace(COPTER, action=ActionSpec((-1.0,) * 4, (1.0,) * 4), control_hz=20.0)


def recorded(folder: Path, env: EnvSpec, episodes: int = 2) -> Path:
    writer = DatasetWriter.create(folder, env)
    obs = {key: np.zeros(array.shape, array.dtype) for key, array in env.obs.items()}
    for _ in range(episodes):
        with writer.episode(task="do it") as episode:
            for step in range(5):
                episode.add(obs, np.full(env.action.dim, 0.1 * step, np.float32), reward=0.0)
            episode.commit(success=True, final_obs=obs)
    writer.close()
    return folder


def config(tmp_path: Path, out: str, **changes: object) -> TrainConfig:
    data = f"[{tmp_path / 'arm'},{tmp_path / 'copter'}]"
    shape = VlaConfig(width=16, layers=1, heads=2, kv_heads=1)
    settings: dict[str, object] = {
        "policy": shape,
        "steps": 4,
        "batch_size": 8,
        "checkpoint_every": 2,
        "action_range": "limits",
    }
    return TrainConfig(**({"data": data, "out": str(tmp_path / out), "device": "cpu"} | settings | changes))  # type: ignore[arg-type]


@pytest.fixture
def robots(tmp_path: Path) -> Path:
    recorded(tmp_path / "arm", ARM)
    recorded(tmp_path / "copter", COPTER)
    return tmp_path


def test_each_robot_has_a_policy_of_its_own(robots: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also in every checkpoint. A policy given for the other robot names the one that fits."""
    assert train.main(config(robots, "both")) == 0
    said = capsys.readouterr().out
    assert "One network for 2 embodiments" in said
    assert "policies/copter: " in said
    assert "differs from the first: " in said
    assert "control_hz: 20, expected 10" in said
    run = robots / "both"
    arm, copter = run / "policy", run / "policies/copter"
    assert [load_policy(folder).action_spec.dim for folder in (arm, copter)] == [3, 4]
    newest = sorted((run / "checkpoints").iterdir())[-1]
    assert load_policy(newest / "policies/copter").action_spec.dim == 4
    env = with_instruction(COPTER)
    open_policy(copter, torch.device("cpu")).check(env)
    with pytest.raises(CheckpointError, match=rf"The same run trained a policy that fits: policy={copter}$"):
        open_policy(run, torch.device("cpu")).check(env)
    with pytest.raises(CheckpointError, match="Observation 'state'") as refused:
        open_policy(run, torch.device("cpu")).check(replace(env, action=ActionSpec((-9.0,) * 4, (9.0,) * 4)))
    assert "fits" not in str(refused.value)


def test_every_verb_names_the_policy_that_fits_by_its_own_setting(
    robots: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train.main(config(robots, "both")) == 0
    run = str(robots / "both")
    other = f"{run}/policies/copter"
    fits = "The same run trained a policy that fits: {}=" + f"{re.escape(other)}$"
    env = SimpleNamespace(spec=with_instruction(COPTER), close=lambda: None)
    for module in (start, distill, evaluate):
        monkeypatch.setattr(module, "make_env", lambda *_, **__: env)
    given: dict[str, Any] = {"env": "robot/copter", "out": str(robots / "out")}
    with pytest.raises(CheckpointError, match=fits.format("base")):
        start.load_base(FinetuneVerb(base=run, **given))
    with pytest.raises(CheckpointError, match=fits.format("teacher")):
        distill.main(DistillVerb(teacher=run, **given))
    compared = EvaluateConfig(other, against=run, env="robot/copter", device="cpu")
    with pytest.raises(CheckpointError, match=fits.format("against")):
        evaluate.run_evaluation(compared)
    with pytest.raises(CheckpointError, match=fits.format("policy")):
        evaluate.run_evaluation(replace(compared, policy=run, against=other))
    env.spec = with_instruction(ARM)
    method = MethodConfig(mix=MixConfig(online=0.5, demo=0.5))
    given |= {"env": "robot/arm", "demos": str(robots / "copter"), "method": method}
    with pytest.raises(CheckpointError, match=fits.format("base")):
        start.load_base(FinetuneVerb(base=run, **given))
    assert not (robots / "out").exists()


def test_where_to_act_is_learned_of_the_robots_whose_data_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Robots whose data do not tell it act by predicted points, also when their policy is trained further. If
    the data of no robot tell it, the training is refused.
    """
    shape = VlaConfig(width=16, layers=1, heads=2, kv_heads=1, spatial=1.0, film=True)
    recorded(tmp_path / "arm", ARM)
    recorded(tmp_path / "copter", COPTER)
    wanted = r"arm and \S+copter do not hold \(target\.view\)"
    with pytest.raises(ConfigError, match=wanted):
        train.main(config(tmp_path, "none", policy=shape))
    assert not (tmp_path / "none").exists()
    shown = replace(ARM, obs={**ARM.obs, "target.view": ArraySpec((2,))})
    data = f"[{recorded(tmp_path / 'shown', shown)},{tmp_path / 'copter'}]"
    assert train.main(config(tmp_path, "both", data=data, policy=shape)) == 0
    said = capsys.readouterr().out
    assert said.count("The data do not tell where to act in image.view") == 1
    copter = tmp_path / "both/policies/copter"
    further = config(tmp_path, "more", data=str(tmp_path / "copter"), init=str(copter), action_range="auto")
    assert train.main(replace(further, policy=TrainConfig().policy)) == 0
    assert "The data do not tell where to act in image.view" in capsys.readouterr().out


def test_what_follows_for_each_robot_is_its_own(tmp_path: Path) -> None:
    """Its demonstrations, and runs beside the joint one: not in it, nor in its checkpoints."""
    arm, episodes = recorded(tmp_path / "arm", ARM), recorded(tmp_path / "x/episodes", COPTER)
    assert train.main(config(tmp_path, "both", data=f"[{arm},{episodes}]")) == 0
    run, some = tmp_path / "both", SuccessRate(1, 2)
    tuned = f"out={tmp_path / 'tuned'}"
    assert after_evaluation(run / "policy", some) == f"robo-rl finetune base={run} demos={arm} {tuned}"
    second = run / "policies/episodes"
    assert after_evaluation(second, some) == f"robo-rl finetune base={second} demos={episodes} {tuned}"
    assert {path for path in contents_of(run).files if "episodes" in path} == {
        f"policies/episodes/{path.name}" for path in second.iterdir()
    }
    checkpoint = sorted((run / "checkpoints").iterdir())[-1] / "policies/episodes"
    assert (
        after_evaluation(checkpoint, some) == f"robo-rl finetune base={checkpoint} demos={episodes} {tuned}"
    )
    assert note_path(checkpoint) == run / f"evaluations/{checkpoint.parents[1].name}-episodes.json"


def test_killed_and_resumed_gives_the_same_weights(robots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train.main(config(robots, "whole")) == 0
    with monkeypatch.context() as patched:
        patched.setattr(RunSession, "save", dying(RunSession.save, 2))
        with pytest.raises(Killed):
            train.main(config(robots, "killed"))
    assert train.main(config(robots, "killed", resume=True)) == 0
    for folder in ("policy", "policies/copter"):
        ended, resumed = (load_policy(robots / run / folder).state_dict() for run in ("whole", "killed"))  # type: ignore[attr-defined]
        assert all(torch.equal(resumed[name], value) for name, value in ended.items())


def test_what_needs_one_robot_is_refused(robots: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be trained on together .*policy=vla"):
        train.main(config(robots, "flat", policy=TrainConfig().policy))
    with pytest.raises(ConfigError, match=r"policy\.memory=1 cannot be used with several embodiments"):
        train.main(config(robots, "memory", policy=VlaConfig(memory=1)))
    with pytest.raises(ConfigError, match="batch_size=1 is smaller than the number of embodiments"):
        train.main(config(robots, "small", batch_size=1))
    assert not (robots / "small").exists()
    assert train.main(config(robots, "both", steps=1)) == 0
    with pytest.raises(DataError, match="without init="):
        train.main(config(robots, "further", init=str(robots / "both"), action_range="auto"))


def test_names_of_folders_are_unique(tmp_path: Path) -> None:
    """Two datasets called `data`, of which one is hidden, as its policy must not be (a push leaves hidden
    files out), and two of the same robot, which are one embodiment.
    """
    one, two = recorded(tmp_path / "a/data", ARM), recorded(tmp_path / "b/.data", COPTER)
    third = recorded(tmp_path / "c/more", ARM)
    given = f"[{one},{two},{third}]"
    data = TrainData.select(given, "unfailed", task_as_instruction=True, several=True)
    assert folder_names(data) == ["data", "data-2"]
    assert [len(part.episodes) for part in data.embodiments] == [4, 2]


def test_a_film_names_the_run_or_the_robot() -> None:
    """The policies of further robots are in a folder of the run."""
    assert evaluate.shown_name(Path("runs/base/policy")) == "base"
    assert evaluate.shown_name(Path("runs/joint/policies/drone")) == "drone"
    assert evaluate.shown_name(Path("policy")) == "policy"
