"""`robo-rl train init=`: a trained policy learns from further data."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.checkpoint import load_policy, save_policy
from policies.vla.policy import VlaPolicy
from robo_rl.apps import train
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.training.base_run import further_words
from robo_rl.apps.training.initial_policy import misfits
from robo_rl.apps.training.train_data import TrainData
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec, target_of
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes
from robo_rl.data.store import DatasetWriter
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.unet1d import Unet1dConfig
from robo_rl.runs.resumable import RunSession
from tests.apps.conftest import train_config
from tests.apps.training.test_learn_from import dataset
from tests.apps.tuning.dying import Killed, dying
from tests.data.recordings import STATE_ENV
from tests.policies.small_vla import CAMERAS, SIDES, SPEC, small_vla

ROBOT = replace(STATE_ENV, name="robot/arm")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return dataset(tmp_path_factory.mktemp("data") / "first", (True, True))


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose policy has another shape than the settings' defaults."""
    out = tmp_path_factory.mktemp("runs") / "base"
    assert train.main(train_config(data, out, chunk=4, execute=2, obs_steps=2)) == 0
    return out


def further(data: Path, base: Path, out: Path, **changes: Any) -> TrainConfig:
    """Settings of a training that names no shape."""
    return train_config(data, out, **{"init": str(base), "net": TrainConfig().net} | changes)


def weights(run: Path) -> dict[str, torch.Tensor]:
    policy = load_policy(run / "policy")
    assert isinstance(policy, torch.nn.Module)
    return policy.state_dict()


def test_it_starts_from_the_weights_and_keeps_shape_and_normaliser(base: Path, tmp_path: Path) -> None:
    """At a learning rate of almost 0 nothing changes; the statistics stay at any rate, whatever the data."""
    other = dataset(tmp_path / "other", (True, True, True, True))
    still, moved = tmp_path / "still", tmp_path / "moved"
    assert train.main(further(other, base, still, lr=1e-12, weight_decay=0.0)) == 0
    assert train.main(further(other, base, moved)) == 0
    before, unmoved, after = (weights(run) for run in (base, still, moved))
    assert before.keys() == unmoved.keys() == after.keys()
    for name, value in before.items():
        torch.testing.assert_close(unmoved[name], value, atol=1e-6, rtol=0.0)
        if "normalizer" in name:
            torch.testing.assert_close(after[name], value, atol=0.0, rtol=0.0)
    assert any(not torch.equal(after[name], value) for name, value in before.items())
    policy = load_policy(moved / "policy")
    assert (policy.chunk, policy.execute, policy.obs_steps) == (4, 2, 2)
    assert "chunk: 4\n" in (moved / "config.yaml").read_text()
    assert json.loads((moved / "policy/policy.json").read_text())["train"]["init"] == str(base)


@pytest.mark.parametrize("since", ["kept", "deleted", "trained anew"])
def test_killed_and_resumed_gives_the_same_weights(
    since: str, data: Path, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the policy that it was started from is gone or has another shape since: the checkpoint holds
    all that it gave.
    """
    base = Path(shutil.copytree(base, tmp_path / "base"))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert train.main(further(data, base, whole)) == 0
    with monkeypatch.context() as patched:
        patched.setattr(RunSession, "save", dying(RunSession.save, 2))
        with pytest.raises(Killed):
            train.main(further(data, base, killed))
    if since == "deleted":
        shutil.rmtree(base)
    elif since == "trained anew":
        assert train.main(train_config(data, base, chunk=6, execute=2, overwrite=True)) == 0
    assert train.main(further(data, base, killed, resume=True)) == 0
    ended, resumed = weights(whole), weights(killed)
    assert all(torch.equal(resumed[name], value) for name, value in ended.items())


def test_a_shape_may_be_repeated_and_not_changed(
    data: Path, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    same = further(data, base, tmp_path / "same", chunk=4, net=MlpDenoiserConfig(width=16, depth=1), steps=1)
    assert train.main(same) == 0
    assert "is trained further, with its obs_steps=2, chunk=4, execute=2." in capsys.readouterr().out
    longer = tmp_path / "same-longer"
    with pytest.raises(ConfigError, match=rf"train it further by init={tmp_path / 'same'} out={longer}\.$"):
        train.main(replace(same, steps=2, resume=True))
    for changes, said in (
        ({"chunk": 16}, r"chunk=16 cannot be used with init=.*has chunk=4"),
        ({"net": Unet1dConfig()}, r"net=unet1d cannot be used .*net=mlp"),
        ({"range_floor": 0.1}, r"range_floor=0\.1 cannot be used"),
        ({"action_range": "limits"}, r"action_range=limits cannot be used .* keeps the range of actions"),
        ({"net": MlpDenoiserConfig(width=64)}, r"net.width=64 cannot be used .*has net.width=16, and"),
    ):
        with pytest.raises(ConfigError, match=said):
            train.main(further(data, base, tmp_path / "other", **changes))
    words = [f"data={data}", f"out={tmp_path / 'other'}", f"init={base}", "policy=vla"]
    vla = load_config("train", words, TrainConfig)
    with pytest.raises(ConfigError, match=r"policy=vla cannot be used .*policy=generative"):
        train.main(vla)
    assert not (tmp_path / "other").exists()


def test_other_observations_and_actions_are_refused(base: Path, tmp_path: Path) -> None:
    wide = replace(STATE_ENV, action=ActionSpec((-1.0, -3.0), (1.0, 3.0), "rad/s"))
    degrees = replace(STATE_ENV.action, unit="deg/s")
    words = told(tmp_path / "words", "right")
    for data, said in (
        (words, "is in 'm', but .* on 'rad'"),
        (dataset(tmp_path / "wide", (True,), wide), "have limits"),
        (dataset(tmp_path / "fast", (True,), replace(STATE_ENV, control_hz=50.0)), "at 50 Hz, .* at 20 Hz"),
        (dataset(tmp_path / "deg", (True,), replace(STATE_ENV, action=degrees)), "are in 'deg/s', .*'rad/s'"),
    ):
        with pytest.raises(CheckpointError, match=said):
            train.main(further(data, base, tmp_path / "out"))
    with pytest.raises(CheckpointError, match="nowhere"):
        train.main(further(words, tmp_path / "nowhere", tmp_path / "out"))


def test_recordings_are_learned_in_the_action_range_of_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their own range would be another scale of the same numbers. What lies outside is reported."""
    slow, fast = (recording(tmp_path / name, size) for name, size in (("slow", 0.1), ("fast", 0.9)))
    assert train.main(train_config(slow, tmp_path / "base")) == 0
    assert train.main(further(fast, tmp_path / "base", tmp_path / "next")) == 0
    said = capsys.readouterr().out
    limits = [load_policy(tmp_path / run / "policy").action_spec for run in ("base", "next")]
    assert limits[0] == limits[1]
    assert limits[0].high[0] < 0.2
    assert "100.0% of the numbers in the actions lie outside the range" in said
    assert "of the numbers in the states are so far outside" in said


def test_words_that_a_vla_does_not_know_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_policy(tmp_path / "vla", small_vla())
    known, unknown = (told(tmp_path / text[:4], text) for text in (*list(SIDES)[:1], "lift it to the left"))
    for data, out in ((known, "a"), (unknown, "b")):
        words = [f"data={data}", f"out={tmp_path / out}", f"init={tmp_path / 'vla'}", "steps=1", "policy=vla"]
        assert train.main(load_config("train", [*words, "batch_size=2", "device=cpu"], TrainConfig)) == 0
        said = capsys.readouterr().out
        assert ("2 words of the instructions, such as 'it', are not in" in said) == (out == "b")
    policy = load_policy(tmp_path / "b" / "policy")
    assert isinstance(policy, VlaPolicy)
    assert policy.vocabulary == small_vla().vocabulary


@pytest.mark.parametrize("given", ["net=unet1d", "process.steps=4", "image.crop=0.5", "obs_steps=2"])
def test_a_vla_refuses_settings_of_generative_policies(given: str, tmp_path: Path) -> None:
    """Also where only its file says of which kind it is: they would be without effect."""
    save_policy(tmp_path / "vla", small_vla())
    seen = told(tmp_path / "data", "lift the left one")
    config = [f"data={seen}", f"out={tmp_path / 'run'}", f"init={tmp_path / 'vla'}", "steps=1", given]
    name = given.partition("=")[0].partition(".")[0]
    with pytest.raises(ConfigError, match=rf"{name}\S* .*(cannot be used|is a)"):
        train.main(load_config("train", config, TrainConfig))
    assert not (tmp_path / "run").exists()


def test_a_vla_that_knows_where_to_act_needs_targets(tmp_path: Path) -> None:
    save_policy(tmp_path / "vla", small_vla(spatial=1.0))
    seen = told(tmp_path / "data", "lift the left one")
    config = [f"data={seen}", f"out={tmp_path / 'run'}", f"init={tmp_path / 'vla'}", "steps=1", "device=cpu"]
    with pytest.raises(ConfigError, match=r"does not hold .* or use a policy that was trained with"):
        train.main(load_config("train", config, TrainConfig))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("spatial", [0.0, 1.0])
def test_targets_are_read_in_training_alone(spatial: float, tmp_path: Path) -> None:
    """By a policy that learns where to act; its own observations have none."""
    points = {target_of(key): ArraySpec((2,)) for key in CAMERAS}
    spec = replace(SPEC, obs=SPEC.obs | points | {"extra": ArraySpec((1,))})
    path = str(told(tmp_path / "data", "right", spec))
    data = TrainData.select(path, "unfailed", "limits", None, task_as_instruction=True, several=False)
    unread = "extra" if spatial else "extra, target.top, target.wrist"
    said = misfits(small_vla(spatial=spatial), data)
    assert f"The policy does not read {unread} of the data." in said


def recording(path: Path, size: float) -> Path:
    """One episode of a robot whose numbers have this size."""
    writer = DatasetWriter.create(path, ROBOT, min_free_bytes=0, durable=False)
    with writer.episode(seed=0) as episode:
        for frame in range(20):
            share = size * (1.0 + 0.1 * np.sin(frame))
            episode.add(
                {"state": np.full(3, share, np.float32)},
                np.full(2, share, np.float32),
                reward=0.0,
                terminated=False,
            )
        episode.commit(success=True)
    return path


def told(path: Path, instruction: str, spec: EnvSpec = SPEC) -> Path:
    """One episode with this instruction, black pictures, and zeros in all further observations."""
    writer = DatasetWriter.create(path, spec, min_free_bytes=0, durable=False)
    black = {key: np.zeros(array.shape, array.dtype) for key, array in spec.obs.items()}
    with writer.episode(seed=0) as episode:
        for frame in range(6):
            seen = black | {"state": np.full(3, frame, np.float32), INSTRUCTION: to_bytes(instruction)}
            episode.add(seen, np.zeros(2, np.float32), reward=0.0, terminated=False)
        episode.commit(success=True)
    return path


def test_the_working_folder_can_be_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words for training further name a folder beside it, quoted for a shell; none before the policy."""
    run = tmp_path / "my run"
    run.mkdir()
    monkeypatch.chdir(run)
    assert further_words(Path()) == ""
    (run / "policy").mkdir()
    assert further_words(Path()) == f"train it further by init=. 'out={run}-longer'"
