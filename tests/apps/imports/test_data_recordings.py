"""`robo-rl data import` of recordings: from teleoperation to a bundle that fits the robot."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'robo-rl[dds]'")

from hardware import messages as m
from hardware.bus.dds.cdr import ros_types
from hardware.recording.bag_reader import Bag, find_bags
from hardware.recording.recording import IN_PROGRESS
from hardware.recording.salvage import salvage
from robo_rl.apps.cli.main import main
from robo_rl.data.store import EpisodeStore
from tests.hardware.arm_descriptions import NAMES
from tests.hardware.recording.made import Said, commands, every, picture, record, states

ROOT = Path(__file__).resolve().parents[3]
CAMERA = {"width_px": 8, "height_px": 6, "rate_hz": 10}


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three episodes recorded by teleoperation of the simulated arm, through teleop, filter and recorder."""
    folder = tmp_path_factory.mktemp("driven") / "recordings"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        teleop: ModuleType = import_module("teleop")
        assert teleop.drive(folder, episodes=3, seed=0) == 3
    return folder


@pytest.fixture
def robot(tmp_path: Path) -> str:
    """A description with a camera."""
    joint = {"low_rad": -1.0, "high_rad": 1.0, "velocity_rad_s": 2.0, "acceleration_rad_s2": 20.0}
    body = {
        "name": "mine",
        "command_hz": 50,
        "state_hz": 100,
        "joints": [{"name": n, **joint} for n in NAMES],
    }
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(body | {"cameras": {"top": CAMERA}}))
    return str(path)


def said(task: str = "push") -> list[Said]:
    """Two seconds of the arm's state, its camera and its commands."""
    shots: list[Said] = [("camera/top/image_raw", picture(i), at) for i, at in enumerate(every(10.0, 2.0))]
    return [*states(), *commands(), *shots, ("task", m.Text(task), 0)]


def run(*words: str) -> int:
    return main(["data", "import", *words])


def test_imported_episodes_have_the_contract_of_the_task(driven: Path, tmp_path: Path) -> None:
    """Labels, the goal that was published before the recording began, and commands as sent by the filter."""
    out = tmp_path / "data"
    assert run(f"source={driven}", "robot=sim_arm", "env=arm6/reach", f"out={out}", "idle_s=null") == 0
    assert main(["data", "validate", f"path={out}"]) == 0
    store = EpisodeStore(out)
    assert [episode.success for episode in store] == [True] * 3
    assert (store.spec.name, store.spec.max_episode_steps, store.spec.control_hz) == ("arm6/reach", 150, 50.0)
    for episode, path in zip(store, find_bags(driven), strict=True):
        bag = Bag(path, ros_types())
        said_by = [record for _, _, record in bag.messages({"command/safe", "goal"})]
        sent = [record.position_rad[0] for record in said_by if isinstance(record, m.JointTrajectory)]
        (goal_m,) = [record.values for record in said_by if isinstance(record, m.Floats)]
        bag.close()
        assert episode.frames in (len(sent) - 1, len(sent))
        np.testing.assert_allclose(episode.action[: len(sent) - 1], sent[1:], atol=1e-6)
        state = episode.obs("state")
        np.testing.assert_allclose(state[:, 12:], np.broadcast_to(goal_m, (len(state), 3)), atol=1e-6)
        assert episode.reward.tolist() == [0.0] * (episode.frames - 1) + [1.0]
        assert episode.terminated[-1]
        assert not episode.intervention.any()  # nobody but the human drove


@pytest.mark.long
def test_bundle_trained_on_recordings_fits_the_robot(
    driven: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a simulated task, the layout suffices for a bundle that contract accepts."""
    data, run_dir, bundle = tmp_path / "data", tmp_path / "run", tmp_path / "bundle"
    assert run(f"source={driven}", "robot=sim_arm", f"out={data}") == 0
    assert EpisodeStore(data).spec.name == "robot/sim_arm"
    assert "'goal' was recorded but is not used" in capsys.readouterr().err
    assert (
        main(["train", f"data={data}", f"out={run_dir}", "steps=2", "chunk=4", "execute=2", "net=mlp"]) == 0
    )
    assert f"robo-rl export policy={run_dir}/policy" in capsys.readouterr().out
    assert main(["export", f"policy={run_dir}/policy", "noise=zero", f"out={bundle}"]) == 0
    assert main(["contract", f"bundle={bundle}", "robot=sim_arm"]) == 0
    assert "fits sim_arm: 6 joints" in capsys.readouterr().out
    assert main(["evaluate", f"policy={run_dir}/policy", "episodes=1"]) == 2
    assert "Try its policies there: robo-rl export" in capsys.readouterr().err


def test_lost_messages_are_reported(robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "recordings"
    record(source, said())
    record(source, said(), "episode_2", losses=7)
    assert run(f"source={source}", f"robot={robot}", f"out={tmp_path / 'data'}") == 0
    assert "messages may be missing in episode_2: the recorder's computer was too" in capsys.readouterr().err


def test_pictures_are_scaled_and_set_the_rate(robot: str, tmp_path: Path) -> None:
    """The camera's description has 10 images per second, so there are 10 frames; 4 pixels wide as
    requested.
    """
    record(tmp_path / "recordings", said())
    out = tmp_path / "data"
    assert run(f"source={tmp_path}/recordings", f"robot={robot}", f"out={out}", "image_width=4") == 0
    (episode,) = EpisodeStore(out)
    images = episode.obs("image.top")
    assert images.shape == (episode.frames + 1, 3, 4, 3)
    assert images[:, 0, 0, 0].tolist() == list(range(episode.frames + 1))
    assert (episode.dataset.env.control_hz, episode.meta.task, episode.success) == (10.0, "push", None)
    assert episode.dataset.env.obs["state"].unit == "rad: a, b, c; rad/s: a, b, c"


def test_slow_camera_is_reported(robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ten images per second were described, five arrived: each appears twice."""
    shots: list[Said] = [("camera/top/image_raw", picture(i), at) for i, at in enumerate(every(5.0, 2.0))]
    record(tmp_path / "recordings", [*states(), *commands(), *shots])
    assert run(f"source={tmp_path}/recordings", f"robot={robot}", f"out={tmp_path}/data") == 0
    assert "image.top came at 5.0 Hz, so of 10 frames a second" in capsys.readouterr().err
    record(tmp_path / "fast", [*said(), ("camera/status", m.Diagnostics(0.0, ()), 0)])
    assert run(f"source={tmp_path}/fast", f"robot={robot}", f"out={tmp_path}/data2") == 0
    heard = capsys.readouterr().err
    assert "came at" not in heard
    assert "no such camera" not in heard  # the status of all cameras is none of them


def test_unusable_recordings_are_named_and_skipped(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of three recordings has no commands, another has pictures of another shape."""
    folder = tmp_path / "recordings"
    record(folder, said(), "episode_1")
    record(folder, [row for row in said() if row[0] != "command/safe"], "episode_2")
    wide: list[Said] = [
        ("camera/top/image_raw", picture(i, 6, 12), at) for i, at in enumerate(every(10.0, 2.0))
    ]
    record(folder, [*states(), *commands(), *wide], "episode_3")
    assert run(f"source={folder}", f"robot={robot}", f"out={tmp_path}/data", "success=true", "task=lift") == 0
    printed = capsys.readouterr()
    assert "Imported 1 of 3 recordings" in printed.out
    assert "left out episode_2: nothing came on 'command/safe'." in printed.err
    assert "left out episode_3: The camera 'top' gives pictures of (6, 12, 3)" in printed.err
    (episode,) = EpisodeStore(tmp_path / "data")
    assert (episode.success, episode.meta.task, episode.meta.info) == (
        True,
        "lift",
        {"recording": "episode_1"},
    )


def test_layout_is_that_of_most_recordings(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Earlier recordings: one ended at once, one of another arm, one without velocities and images."""
    folder = tmp_path / "recordings"
    record(folder, [("task", m.Text("push"), 0)], "episode_1")
    record(folder, [*states(names=("p", "q")), ("camera/top/image_raw", picture(0), 0)], "episode_2")
    blind = [(topic, m.JointState(s.stamp_s, s.names, s.position_rad), at)
             for topic, s, at in states() if isinstance(s, m.JointState)]  # fmt: skip
    record(folder, [*blind, *commands()], "episode_3")
    for number in (4, 5):
        record(folder, said(), f"episode_{number}")
    assert run(f"source={folder}", f"robot={robot}", f"out={tmp_path}/data") == 0
    printed = capsys.readouterr()
    assert "Imported 2 of 5 recordings" in printed.out
    assert "left out episode_1: nothing came on 'joint_states'." in printed.err
    assert (
        "left out episode_2: no message on 'joint_states' has all joints of 'mine', it has p, q."
        in printed.err
    )
    assert "left out episode_3: nothing came on 'camera/top/image_raw'." in printed.err
    spec = EpisodeStore(tmp_path / "data").spec
    assert spec.obs["state"].unit == "rad: a, b, c; rad/s: a, b, c"
    assert "image.top" in spec.obs


def test_topic_of_few_recordings_is_reported(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of three has the camera: it is not used, and the message says how to use it."""
    for number in (1, 2):
        record(tmp_path / "recordings", [*states(), *commands()], f"episode_{number}")
    record(tmp_path / "recordings", said(), "episode_3")
    assert run(f"source={tmp_path}/recordings", f"robot={robot}", f"out={tmp_path}/data") == 0
    assert "1 of 3 recordings have 'top'; to use only these: cameras=top." in capsys.readouterr().err
    assert set(EpisodeStore(tmp_path / "data").spec.obs) == {"state"}


@pytest.mark.parametrize(("labelled", "complete"), [(False, False), (True, True)])
def test_salvaged_recording_without_a_label_is_incomplete(
    robot: str, tmp_path: Path, labelled: bool, complete: bool
) -> None:
    """A salvaged recording without a label is incomplete and not used for training; with a label it is
    complete.
    """
    folder = tmp_path / "recordings"
    rows = [*said(), *([("episode/success", m.Flag(True), 2_000_000_000)] if labelled else [])]
    torn = record(folder, rows)
    torn.rename(folder / IN_PROGRESS / torn.name)
    assert "was cut off" in salvage(folder, ros_types())[0]
    assert run(f"source={folder}", f"robot={robot}", f"out={tmp_path}/data", "image_width=4") == 0
    (episode,) = EpisodeStore(tmp_path / "data")
    assert (episode.meta.complete, episode.success) == (complete, True if labelled else None)


def test_equal_reasons_are_reported_once(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fifty recordings of another arm give one message."""
    for number in (1, 2, 3):
        record(tmp_path / "recordings", said(), f"episode_{number}")
    assert run(f"source={tmp_path}/recordings", "robot=sim_arm", f"out={tmp_path}/data") == 2
    error = capsys.readouterr().err
    assert (
        "episode_1 and 2 more: no message on 'joint_states' has all joints of 'sim_arm', it has a, b, c."
        in error
    )
    assert error.count("no message") == 1


@pytest.mark.parametrize(
    ("prefix", "word", "hint"),
    [("", "namespace=left", "leave namespace= out"), ("/left/", "namespace=", "give namespace=left")],
)
def test_wrong_namespace_is_reported(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str, word: str, hint: str
) -> None:
    """The recorder writes names as its nodes do; ros2 bag writes them with the namespace."""
    record(tmp_path / "recordings", [(prefix + topic, message, at) for topic, message, at in said()])
    assert run(f"source={tmp_path}/recordings", f"robot={robot}", f"out={tmp_path}/data", word) == 2
    assert hint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nowhere", "nowhere does not exist"),
        ("empty", "empty is in no format that is read: expected recordings"),
        ("mine.txt", r"mine.txt is in no format .*zarr replay buffer .*keys=\[state:data/.*DatasetWriter"),
        ("mine.npz", r"numpy file, .*zarr v2 replay buffer, .*keys=\[state:data/.*DatasetWriter"),
    ],
)
def test_robot_setting_without_recordings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, sentence: str
) -> None:
    """The message names the three ways in: recordings, a replay buffer, and DatasetWriter; of a numpy file,
    the latter two.
    """
    (tmp_path / "empty").mkdir()
    for file in ("mine.txt", "mine.npz"):
        (tmp_path / file).touch()
    assert run(f"source={tmp_path}/{name}", "robot=sim_arm", f"out={tmp_path}/data") == 2
    assert re.search(sentence, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give robot="),
        (
            ["robot=sim_arm", "out=OUT"],
            "exists already",
        ),  # said before recordings are read, and found to be of another
        (["robot=ROBOT", "keys=['a:b']"], "keys= does not apply to recordings"),
        (
            ["robot=ROBOT", "action=goal"],
            "No recording in .* can be used. episode_1: nothing came on 'goal'.",
        ),
        (
            ["robot=ROBOT", "cameras=front"],
            "The camera 'front' is not in .* 'mine', which has top: .* or leave it out of cameras=.",
        ),
        (["robot=ROBOT", "goal=x"], "goal=x cannot be read"),
        (["robot=ROBOT", "goal='m: x'"], "no goal was published"),
        (
            ["robot=ROBOT", "rate_hz=30"],
            "has pictures of image.top at 10 Hz, and .* Give at most 10, or leave",
        ),
        (["robot=ROBOT", "image_width=16"], "only scaled down"),
        (["robot=ROBOT", "env=arm6/reach"], "The observations of the recordings are"),
        (["robot=sim_arm"], "has all joints of 'sim_arm'"),
        (["robot=ROBOT", "gap_s=0.002"], "nothing came on '.*' for 0.0. s"),
    ],
)
def test_mistakes_print_one_sentence(
    robot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    record(tmp_path / "recordings", said())
    given = [word.replace("ROBOT", robot).replace("OUT", str(tmp_path)) for word in words]
    if not any(word.startswith("out=") for word in given):
        given.append(f"out={tmp_path}/data")
    assert run(f"source={tmp_path}/recordings", *given) == 2
    error: Any = capsys.readouterr().err
    assert re.search(sentence, error)
    assert "Traceback" not in error
    assert not list(tmp_path.glob("*data*"))
