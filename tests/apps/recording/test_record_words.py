"""Nodes that `robo-rl record` starts, by its settings."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.description import load_description
from policies.remote.address import listen
from robo_rl.apps.cli.main import main
from robo_rl.apps.imports.recordings_layout import described_camera
from robo_rl.apps.record import app_words, check, check_address, report, robot_words, simulated, with_device
from robo_rl.apps.recording.dataset import camera_names, open_dataset, spec_of
from robo_rl.conf.record import RecordConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import EnvSpec
from robo_rl.data.store import DatasetWriter, EpisodeWriter
from sim.registry import make_env
from tests.data.recordings import STATE_ENV, add_frames, interrupt
from tests.hardware.bundles import arm_bundle


@pytest.mark.parametrize("driver", [None, "arm.yaml"])
def test_a_local_device_gets_its_settings(driver: str | None) -> None:
    """For the simulated arm and a real one; the page then shows what drives, and does not drive itself."""
    config = RecordConfig(
        driver=driver,
        device="leader",
        leader="leader.yaml",
        device_settings="pad.yaml",
        record_input="in.jsonl",
    )
    words = robot_words(config)["teleop"]
    assert {"device=leader", "leader=leader.yaml", "settings=pad.yaml", "record_input=in.jsonl"} <= set(words)
    assert len({word.split("=")[0] for word in words}) == len(words)  # nothing is given twice
    assert {"drives=False", "device=leader"} <= {word.replace("false", "False") for word in app_words(config)}


def test_settings_of_a_device_that_is_not_started_are_refused() -> None:
    """Without device=, and with attach=true, they would do nothing."""
    with pytest.raises(ConfigError, match="give device="):
        robot_words(RecordConfig(leader="leader.yaml"))
    with pytest.raises(ConfigError, match="without attach=true"):
        with_device({}, RecordConfig(attach=True, device="leader", leader="leader.yaml"))


@pytest.mark.parametrize(
    ("train", "says"),
    [
        ("stepz=3", "Did you mean 'steps'"),
        ("steps='3", "No closing quotation"),
        ("steps=abc", "steps"),
        ("steps=3 steps=4", "steps is given twice"),
        ("+data=other", r"\+data=other is set by the page's button"),
        ("out=runs/mine", r"out=runs/mine is set by the page's button\. Leave it out; runs= is"),
    ],
)
def test_settings_of_the_training_are_checked_at_the_start(train: str, says: str) -> None:
    """Not when the button is pressed, an hour of episodes later."""
    with pytest.raises(ConfigError, match=says):
        check(RecordConfig(train=train))


def test_good_settings_of_the_training_pass() -> None:
    """Those of docs/recording.md with other numbers."""
    check(RecordConfig(train="steps=500 image.widths=[8,16] batch_size=16 chunk=16 execute=8 threads=1"))


def test_a_policy_that_is_no_bundle_is_refused_before_a_robot_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run instead of its bundle: no node starts, and no empty dataset is left."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    out = tmp_path / "data"
    assert main(["record", f"policy={tmp_path / 'run'}", f"out={out}", "seconds=1", "open=false"]) == 2
    said = capsys.readouterr()
    assert f"{tmp_path / 'run'} is a run, not a bundle" in said.err
    assert "nodes" not in said.out
    assert not out.exists()


def test_a_bundle_of_another_robot_is_refused_before_a_robot_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As by `up` and `contract`, and in one sentence; with attach=true as well."""
    bundle, out = arm_bundle(tmp_path / "bundle").folder, tmp_path / "data"
    for more in ((), ("attach=true",)):
        assert main(["record", f"policy={bundle}", f"out={out}", "seconds=1", "open=false", *more]) == 2
        said = capsys.readouterr()
        assert said.err.count("does not fit the robot 'sim_arm'") == 1
        assert "nodes" not in said.out
        assert not out.exists()


def test_a_mistyped_device_is_refused_before_a_robot_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `record` and `up`, with the code of wrong input."""
    for words in (["record", f"out={tmp_path / 'data'}", "open=false"], ["up", "arm_sim"]):
        checked = subprocess.run(
            [sys.executable, "-m", "robo_rl", *words, "device=gamepd", "seconds=1"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert checked.returncode == 2, checked
        assert "Unknown device 'gamepd'. Did you mean 'gamepad'?" in checked.stderr
        assert "odes:" not in checked.stdout  # the list of what is started
    assert not (tmp_path / "data").exists()


def test_a_robot_that_nothing_runs_is_refused_first(tmp_path: Path) -> None:
    """The dataset of another robot is not what is wrong."""
    config = RecordConfig(robot="sim_arm", out=str(tmp_path / "data"))
    spec = spec_of(config, load_description("sim_arm"), simulated=True)
    DatasetWriter.create(tmp_path / "data", spec, min_free_bytes=0).close()
    with pytest.raises(ConfigError, match=r"Nothing runs 'ur5e' yet\. Give driver="):
        check(replace(config, robot="ur5e"))


def test_a_taken_out_is_refused_before_a_robot_moves(tmp_path: Path) -> None:
    """A file, a folder of other content, or episodes of another robot; all stay. A dataset of this robot, one
    without episodes and an empty folder are accepted.
    """
    config = RecordConfig(robot="sim_arm", out=str(tmp_path / "file"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(DataError, match=r"is a file, but a dataset is a folder\. Choose"):
        check(config)
    assert (tmp_path / "file").read_text() == "mine"
    (tmp_path / "other").mkdir()
    check(replace(config, out=str(tmp_path / "other")))
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match=r"not a dataset\. It was not changed\. Choose"):
        check(replace(config, out=str(tmp_path / "other")))
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]
    spec = spec_of(config, load_description("sim_arm"), simulated=True)
    record_frame(tmp_path / "data", spec)
    check(replace(config, out=str(tmp_path / "data")))
    DatasetWriter.create(tmp_path / "empty", spec, min_free_bytes=0).close()
    check(replace(config, robot="sim_arm_gripper", out=str(tmp_path / "empty")))
    with pytest.raises(DataError, match="another contract than robot/sim_arm_gripper: found in the dataset"):
        check(replace(config, robot="sim_arm_gripper", out=str(tmp_path / "data")))


def test_an_out_that_cannot_be_written_is_refused_before_a_robot_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path below a file, and a folder of another user; root may write into that, so the test denies it."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ConfigError, match=r"out=.*/file/data cannot be written: .* is a file, expected"):
        check(RecordConfig(robot="sim_arm", out=str(tmp_path / "file" / "data")))
    with pytest.raises(ConfigError, match=r"runs=.*/file/runs cannot be written: .* is a file, expected"):
        check(RecordConfig(robot="sim_arm", runs=str(tmp_path / "file" / "runs")))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ConfigError, match=r"out=.* cannot be written: .* is not writable"):
        check(RecordConfig(robot="sim_arm", out=str(tmp_path / "data")))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({}, "arm6/peg"),
        ({"velocities": True, "image_width": 64}, "arm6/peg:image_size=64,velocities=true"),
        ({"cameras": "wrist", "rate_hz": 10.0}, "arm6/peg:cameras=wrist,control_hz=10"),
        ({"cameras": ""}, "arm6/peg:cameras=none,control_hz=50"),
        ({"attach": True}, "robot/sim_arm"),
        ({"driver": "arm.yaml"}, "robot/sim_arm"),
        ({"robot": "sim_arm_gripper"}, "robot/sim_arm_gripper"),
    ],
)
def test_recordings_of_the_simulated_arm_name_its_environment(given: dict[str, Any], name: str) -> None:
    """The environment of the name has the contract of the recordings, to the joints' limits and units."""
    pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
    config = RecordConfig(**given)
    spec = spec_of(config, load_description(config.robot), simulated=simulated(config))
    assert spec.name == name
    if not name.startswith("robot/"):
        with closing(make_env(name, 1)) as env:
            made = env.spec.for_datasets()
            assert replace(made, max_episode_steps=spec.max_episode_steps) == spec


def test_an_arm_of_ones_own_by_the_same_name_is_a_robot() -> None:
    """Its limits are not the simulator's."""
    pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
    robot = load_description("sim_arm")
    slower = replace(robot, joints=tuple(replace(each, low_rad=-1.0) for each in robot.joints))
    assert spec_of(RecordConfig(), slower, simulated=True).name == "robot/sim_arm"


def test_recordings_with_the_former_name_go_on(tmp_path: Path) -> None:
    """Those made before the environment had a name."""
    config, robot = RecordConfig(out=str(tmp_path / "data"), min_free_gb=0.0), load_description("sim_arm")
    record_frame(tmp_path / "data", spec_of(config, robot, simulated=False))
    opened = open_dataset(config, spec_of(config, robot, simulated=True))
    assert opened.writer.spec.name == "robot/sim_arm"
    opened.writer.close()


def test_a_dataset_without_episodes_takes_other_settings(tmp_path: Path) -> None:
    """It is left by an app that was stopped before the first episode. An interrupted episode counts: it is
    salvaged, and keeps the dataset's contract.
    """
    config, robot = RecordConfig(out=str(tmp_path / "data"), min_free_gb=0.0), load_description("sim_arm")
    spec = spec_of(config, robot, simulated=False)
    open_dataset(config, spec).writer.close()
    other = spec_of(replace(config, velocities=True, rate_hz=10.0), robot, simulated=False)
    opened = open_dataset(config, other)
    assert opened.writer.spec == other
    with suppress(KeyboardInterrupt), opened.writer.episode() as episode:
        add_frame(episode, other)
        raise KeyboardInterrupt
    opened.writer.close()
    del episode
    with pytest.raises(DataError, match="holds episodes of another contract than robot/sim_arm"):
        open_dataset(config, spec)
    opened = open_dataset(config, other)
    assert opened.tally.episodes == 1
    opened.writer.close()


def record_frame(path: Path, spec: EnvSpec) -> None:
    """A dataset of one episode of one frame."""
    writer = DatasetWriter.create(path, spec, min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        add_frame(episode, spec)
        episode.commit(success=True)
    writer.close()


def add_frame(episode: EpisodeWriter, spec: EnvSpec) -> None:
    """A frame of zeros."""
    episode.add(
        {key: np.zeros(array.shape, array.dtype) for key, array in spec.obs.items()},
        np.zeros(spec.action.dim),
    )


def test_speeds_are_those_of_the_description() -> None:
    """The environment limits commands as the safety filter does."""
    pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
    from sim.arms.arm6.peg import SPEED_RAD_S

    assert tuple(load_description("sim_arm").column("velocity_rad_s")) == SPEED_RAD_S


def test_a_token_in_no_folder_is_refused_before_a_robot_moves(tmp_path: Path) -> None:
    """The page would be served last, when the nodes of the arm run already."""
    config = RecordConfig(out=str(tmp_path / "data"), host="0.0.0.0", token=str(tmp_path / "no" / "token"))
    with pytest.raises(ConfigError, match=r"token cannot be made: the folder \S+no does not exist. Make it"):
        check(config)
    check(replace(config, token=str(tmp_path / "token")))
    assert list(tmp_path.iterdir()) == []  # checks make nothing


def test_a_page_that_cannot_be_served_is_refused_before_a_robot_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a token it would be open to everyone; a port may be in use."""
    pytest.importorskip("uvicorn", reason="the page needs the extra app: pip install '.[app]'")
    monkeypatch.delenv("ROBO_RL_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"host=0\.0\.0\.0 is open to other machines"):
        check_address(RecordConfig(host="0.0.0.0", port=0))
    check_address(RecordConfig(host="0.0.0.0", port=0, token=str(tmp_path / "token")))
    (tmp_path / "token").write_text("short")
    with pytest.raises(ConfigError, match=r"holds no token: 16 to 512 .* robo-rl record make one"):
        check_address(RecordConfig(port=0, token=str(tmp_path / "token")))
    with pytest.raises(ConfigError, match="Give the file that robo-rl serve or robo-rl record has made"):
        check_address(RecordConfig(port=0, token=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"certificate=no\.pem does not exist"):
        check_address(RecordConfig(port=0, certificate="no.pem"))
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port={port} .*Give another port"):
            check_address(RecordConfig(port=port))


def test_the_simulated_block_is_placed_by_the_seed() -> None:
    """Ten more episodes of the next day have other places of the block; seed= repeats a day."""
    chosen = robot_words(RecordConfig(seed=7))["sim_robot"]
    assert "seed=7" in chosen
    drawn = [next(w for w in robot_words(RecordConfig())["sim_robot"] if w.startswith("seed=")) for _ in "12"]
    assert drawn[0] != drawn[1]


def test_the_end_names_the_dataset_and_the_next_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing without a dataset, its counts alone without episodes."""
    config = RecordConfig(robot="sim_arm", out=str(tmp_path / "set"))
    report(config)
    assert capsys.readouterr().out == ""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    report(config)
    assert capsys.readouterr().out == f"record: {config.out} holds 0 episodes, 0 successes.\n"
    for success in (True, False):
        with writer.episode() as episode:
            add_frames(episode, 0, 1, STATE_ENV)
            episode.commit(success=success)
    report(config)
    assert capsys.readouterr().out == (
        f"record: {config.out} holds 2 episodes, 1 success.\nNext:   robo-rl data list path={config.out}\n"
    )
    with writer.episode() as episode:
        add_frames(episode, 0, 1, STATE_ENV)
        episode.commit(success=True)
    report(config)
    quoted = config.train.replace("image.widths=[16,32]", "'image.widths=[16,32]'")  # else a pattern in zsh
    trains = f"        robo-rl train data={config.out} out=runs/set {quoted}\n"
    assert capsys.readouterr().out.endswith(f"path={config.out}\n{trains}")


def test_the_end_tells_what_was_interrupted_and_names_no_training_that_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two successes, one of them interrupted, are too few; what is in staging/ is told as by `data list`."""
    config = RecordConfig(robot="sim_arm", out=str(tmp_path / "set"))
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, min_free_bytes=0, durable=False)
    for complete in (True, False):
        with writer.episode() as episode:
            add_frames(episode, 0, 1, STATE_ENV)
            episode.commit(success=True, complete=complete)
    interrupt(writer, 0, 1, STATE_ENV)
    writer.close()
    report(config)
    assert capsys.readouterr().out == (
        f"record: {config.out} holds 2 episodes, 1 success, 1 interrupted.\n"
        f"record: staging/: 1 episode, interrupted. Recover: robo-rl data validate path={config.out} "
        f"recover=true\nNext:   robo-rl data list path={config.out}\n"
    )


def test_an_unknown_camera_is_refused_in_the_words_of_an_import() -> None:
    """The two sentences used to differ in their advice."""
    robot = load_description("sim_arm")
    with pytest.raises(ConfigError) as here:
        camera_names("wrist+sde", robot)
    with pytest.raises(ConfigError) as there:
        described_camera(robot, "image.sde", "leave it out of cameras=")
    assert str(here.value) == str(there.value)
    assert "add it there, with width_px, height_px and rate_hz, or leave it out of cameras=" in str(
        here.value
    )
