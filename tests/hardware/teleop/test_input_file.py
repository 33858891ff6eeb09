"""Recorded input, the table of devices, and the check of what a device gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.description import load_description
from hardware.teleop.device import NOTHING, Feedback, HandPose, OperatorInput, Teleoperator
from hardware.teleop.input_check import checked
from hardware.teleop.input_file import InputRecorder, RecordedInput, input_line, parse_line
from hardware.teleop.registry import make_teleoperator
from robo_rl.core.errors import ConfigError, DataError, UnknownNameError

ROBOT = load_description("sim_arm")
HAND = HandPose(np.array([0.1, 0.2, 0.3]), np.array([1.0, 0.0, 0.0, 0.0]))
NUMBERS = st.floats(-1e6, 1e6)


class Scripted:
    """A device that gives one input after the other."""

    def __init__(self, inputs: list[OperatorInput]) -> None:
        self.inputs, self.feedback, self.closed = iter(inputs), list[Feedback](), 0

    def connect(self) -> None:
        """Nothing to open."""

    def get_action(self, now_s: float) -> OperatorInput:
        return next(self.inputs, NOTHING)

    def send_feedback(self, feedback: Feedback) -> None:
        self.feedback.append(feedback)

    def help(self) -> str:
        return "scripted"

    def close(self) -> None:
        self.closed += 1


def same(a: OperatorInput, b: OperatorInput) -> bool:
    return input_line(0.0, a) == input_line(0.0, b)


@st.composite
def operators(draw: Any) -> OperatorInput:
    """Any input that a device may give."""
    kind = draw(st.sampled_from(["rates", "position_rad", "twist", "pose", "none"]))
    six = np.array(draw(st.lists(NUMBERS, min_size=6, max_size=6)))
    values: dict[str, Any] = {kind: six} if kind in ("rates", "position_rad", "twist") else {}
    if kind == "pose":
        values = {"pose": HandPose(six[:3], np.array([0.6, 0.8, 0.0, 0.0]))}
    return OperatorInput(
        draw(st.booleans()),
        gripper=draw(st.none() | st.floats(0.0, 1.0)),
        gripper_toggle=draw(st.booleans()),
        recorder_request=draw(st.sampled_from(["", "start", "discard"])),
        **values,
    )


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.floats(0.0, 1e5), operators())
def test_lines_round_trip(t_s: float, operator: OperatorInput) -> None:
    read_s, found = parse_line(input_line(t_s, operator), "line")
    assert read_s == pytest.approx(t_s, abs=1e-6)
    assert same(found, operator)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "session" / "input.jsonl"


def test_a_recorded_session_replays_as_it_was(file: Path) -> None:
    """Same inputs at the same ticks; each press of a button once; released after the end."""
    given_inputs = [
        NOTHING,
        OperatorInput(True, twist=np.full(6, 0.5)),
        OperatorInput(True, twist=np.full(6, 0.25), gripper_toggle=True),
        OperatorInput(True, pose=HAND, gripper=0.3),
        OperatorInput(False, recorder_request="success"),
    ]
    device = Scripted(given_inputs)
    recorder = InputRecorder(device, str(file), "scripted")
    assert isinstance(recorder, Teleoperator)
    recorder.connect()
    assert all(
        same(recorder.get_action(5.0 + 0.02 * tick), operator) for tick, operator in enumerate(given_inputs)
    )
    recorder.send_feedback(Feedback(True))
    assert (device.feedback, recorder.help()) == ([Feedback(True)], "scripted")
    for _ in range(2):
        recorder.close()
    assert device.closed == 2
    with pytest.raises(ConfigError, match="cannot be written"):
        InputRecorder(Scripted([]), str(file), "scripted").connect()
    replay = make_teleoperator(f"recording:{file}", {}, ROBOT)
    replay.connect()
    assert all(
        same(replay.get_action(70.0 + 0.02 * tick), operator) for tick, operator in enumerate(given_inputs)
    )
    assert [replay.get_action(70.1).held, replay.get_action(71.0).held] == [False, False]
    assert replay.get_action(71.0).recorder_request == ""


def test_a_slow_replay_loses_no_press(file: Path) -> None:
    """Asked every 50 ms for input of every 10 ms: two presses of the gripper's button are none."""
    lines = [input_line(0.01 * i, OperatorInput(True, gripper_toggle=i in (2, 3, 7))) for i in range(20)]
    write(file, ['{"robo_rl_teleop_input": 1}', *lines])
    replay = RecordedInput(str(file))
    replay.connect()
    assert [replay.get_action(0.05 * i).gripper_toggle for i in range(4)] == [False, False, True, False]


def write(file: Path, lines: list[str], end: str = "\n") -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(lines) + end)


HEADER = '{"robo_rl_teleop_input": 1}'


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{}"], "is no recorded input: its first line must be"),
        (["held"], "is no recorded input"),
        ([HEADER], "holds no input"),
        ([HEADER, "{"], "line 2, is not JSON"),
        ([HEADER, '{"t_s": 0}'], 'line 2, needs "held"'),
        ([HEADER, '{"t_s": -1, "held": true}'], 'needs "t_s"'),
        ([HEADER, '{"t_s": 0, "held": true, "speed": 1}'], "unknown keys speed"),
        ([HEADER, '{"t_s": 0, "held": true, "twist": ["a"]}'], "something other than numbers"),
        ([HEADER, '{"t_s": 0, "held": true, "pose": {"position_m": [0, 0, 0]}}'], "something other"),
        ([HEADER, '{"t_s": 1, "held": true}', '{"t_s": 0, "held": true}'], "goes back in time"),
    ],
)
def test_files_of_another_kind_are_refused(file: Path, lines: list[str], says: str) -> None:
    write(file, lines)
    with pytest.raises(DataError, match=says):
        RecordedInput(str(file)).connect()


def test_a_file_that_was_cut_off_is_replayed_to_its_last_whole_line(file: Path) -> None:
    write(file, [HEADER, '{"t_s": 0.0, "held": true}', '{"t_s": 0.02, "he'], end="")
    replay = RecordedInput(str(file))
    replay.connect()
    assert replay.get_action(0.0).held
    with pytest.raises(ConfigError, match="does not exist"):
        RecordedInput(str(file) + "2").connect()


@pytest.mark.parametrize(
    ("operator", "fault"),
    [
        (OperatorInput(True, rates=np.array([np.nan])), "its list of rates holds a value that is not finite"),
        (OperatorInput(True, twist=np.zeros(5)), "its twist has the shape [5], expected 6 numbers"),
        (OperatorInput(True, position_rad=np.zeros((2, 3))), "expected 6 numbers"),
        (OperatorInput(True, position_rad=np.full(6, 1e308)), "one beyond 100 rad"),
        (OperatorInput(True, rates=["a"]), "something other than numbers"),  # type: ignore[arg-type]
        (OperatorInput(True, rates=np.ones(6), twist=np.ones(6)), "two of rates, positions, a twist"),
        (OperatorInput(True, pose=HandPose(np.zeros(3), np.zeros(4))), "has not the length 1"),
        (OperatorInput(True, pose=HandPose(np.full(3, 1e9), HAND.quat_wxyz)), "100 m away"),
        (OperatorInput(True, gripper=np.inf), "opening of the gripper is not a finite number"),
        (OperatorInput(True, gripper="open"), "not a finite number"),  # type: ignore[arg-type]
    ],
)
def test_input_that_makes_no_sense_counts_as_released(operator: OperatorInput, fault: str) -> None:
    found, said = checked(operator, ROBOT)
    assert found == NOTHING
    assert fault in said


def test_huge_input_is_clipped() -> None:
    found, fault = checked(OperatorInput(True, rates=np.array([1e300, -3.0]), gripper=-7.0), ROBOT)
    assert (fault, found.gripper) == ("", 0.0)
    assert found.rates is not None
    assert found.rates.tolist() == [1.0, -1.0]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package of somebody else with three devices, as pip installs it."""
    (tmp_path / "acme_pedal.py").write_text(
        "from hardware.teleop.device import NOTHING\n"
        "class Pedal:\n"
        "    def __init__(self, robot, port, gain=1.0):\n        self.joints = len(robot.names)\n"
        "    def connect(self): pass\n    def get_action(self, now_s): return NOTHING\n"
        "    def send_feedback(self, feedback): pass\n    def help(self): return 'pedal'\n"
        "    def close(self): pass\n"
    )
    info = tmp_path / "acme_pedal-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-pedal\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[robo_rl.teleoperators]\npedal = acme_pedal:Pedal\nbroken = acme_missing:Pedal\n"
        "unfinished = builtins:object\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("installed")
def test_devices_of_other_packages_are_found() -> None:
    """By entry point, with their settings checked against the maker's parameters."""
    pedal = make_teleoperator("pedal", {"port": "/dev/ttyUSB0"}, ROBOT)
    assert vars(pedal) == {"joints": 6}
    for given_settings, says in (
        ({}, "device=pedal needs the setting port"),
        ({"port": "", "speed": 1}, "device=pedal has no setting speed. It takes: port, gain."),
    ):
        with pytest.raises(ConfigError, match=says):
            make_teleoperator("pedal", given_settings, ROBOT)
    with pytest.raises(ConfigError, match=r"\(acme_missing:Pedal\) cannot be imported"):
        make_teleoperator("broken", {}, ROBOT)
    with pytest.raises(
        UnknownNameError, match=r"Did you mean 'pedal'\? Known: .*gamepad.*pedal, .*recording"
    ):
        make_teleoperator("pedla", {}, ROBOT)
    with pytest.raises(ConfigError, match="takes no settings"):
        make_teleoperator("recording:x", {"speed": 2}, ROBOT)


@pytest.mark.parametrize(
    ("device", "key", "value", "expected"),
    [
        ("gamepad", "dead_man", "4", "a whole number, without quotes"),
        ("gamepad", "dead_man", True, "a whole number, without quotes"),
        ("gamepad", "axes", 3, "a list, and in it a whole number"),
        ("gamepad", "axes", [0, "1"], "in its list a whole number"),
        ("spacemouse", "signs", [1, 1, 1, 1, 1, float("nan")], "in its list a finite number"),
        ("pose_stream", "yaw_rad", "0.5", "a finite number, without quotes"),
    ],
)
def test_settings_of_another_type_are_refused(device: str, key: str, value: Any, expected: str) -> None:
    """With the setting and what it takes: a button "4" would never be pressed."""
    with pytest.raises(ConfigError, match=rf"^{key}=.* of device={device}: expected {expected}"):
        make_teleoperator(device, {key: value}, ROBOT)


def test_the_line_is_json() -> None:
    """So that any program can write one."""
    line = json.loads(input_line(1.5, OperatorInput(True, pose=HAND)))
    assert line["pose"] == {"position_m": [0.1, 0.2, 0.3], "quat_wxyz": [1.0, 0.0, 0.0, 0.0]}
