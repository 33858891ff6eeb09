"""An arm of one's own in the tasks: what its MJCF and its YAML file must hold, and what is scored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import ConfigError, RoboRLError
from sim.arms.robot import PANDA
from sim.registry import make_env
from sim.scenes.task_env import make_task_env
from sim.tasks.table import MANIPULATION, TaskOptions, make_task

MODEL = PANDA.path.read_text()
FINGERS = "fingers: [finger_left, finger_right]\nopen_m: 0.04\n"
GRIPPING = [name for name in MANIPULATION if getattr(make_task(name, TaskOptions()), "grips", False)]
Write = Callable[..., str]


@pytest.fixture
def arm(tmp_path: Path) -> Write:
    """Write an arm with this MJCF and these last lines in its YAML file. Returns the file's path."""

    def write(model: str = MODEL, fingers: str = FINGERS) -> str:
        (tmp_path / "own.xml").write_text(model)
        path = tmp_path / "own.yaml"
        path.write_text(
            f"name: own\nasset: own.xml\njoints: [{', '.join(PANDA.joints)}]\n"
            f"home_rad: {list(PANDA.home_rad)}\nspeed_rad_s: {list(PANDA.speed_rad_s)}\n{fingers}"
        )
        return str(path)

    return write


@pytest.mark.parametrize("task", GRIPPING)
def test_a_task_that_grips_needs_a_touch_sensor_on_each_finger(task: str, arm: Write) -> None:
    """Without any, `all fingers touch` was true in every state: stacks counted while the cube was held."""
    none = re.sub(r"<touch [^>]*/>", "", MODEL)
    with pytest.raises(ConfigError, match="0 touch sensors of own lie on its finger 'finger_left'"):
        make_task_env(task, 1, robot=arm(none))


def test_a_second_sensor_on_a_finger_is_refused(arm: Write) -> None:
    two = MODEL.replace("<sensor>", '<sensor><touch name="more" site="tip_right"/>')
    with pytest.raises(ConfigError, match="2 touch sensors of own lie on its finger 'finger_right'"):
        make_task_env("lift", 1, robot=arm(two))


def test_only_the_sensors_of_the_fingers_count(arm: Write) -> None:
    """A sensor at the palm is no finger: both fingers touch the cube, the palm nothing."""
    palm = MODEL.replace("<sensor>", '<sensor><touch name="palm" site="tool"/>')
    env = make_task_env("lift", 1, robot=arm(palm), reward="dense")
    env.reset(iter(range(1, 9)))
    physics = env.view.physics
    assert physics.touch_n.shape == (1, 3)
    felt = {"palm": 0.0, "tip_left": 5.0, "tip_right": 6.0}
    physics.touch_n[:] = torch.tensor([felt[name] for name in env._engine.scene.touch])
    view = env._drive.view(physics, env._goal)
    assert view.finger_touch_n.tolist() == [[5.0, 6.0]]
    assert float(env.task.terms(view)["pinched"]) == 1.0


@pytest.mark.parametrize("task", GRIPPING)
def test_a_task_that_grips_needs_fingers(task: str, arm: Write) -> None:
    """An opening without fingers is not a number: every episode ended as a diverged one."""
    with pytest.raises(ConfigError, match="own has no fingers, and this task grips"):
        make_task_env(task, 1, robot=arm(fingers=""))


def test_an_arm_without_fingers_reaches(arm: Write) -> None:
    env = make_task_env("reach", 1, robot=arm(fingers=""))
    assert torch.isfinite(env.reset(iter([1, 2]))["state"]).all()


@pytest.mark.parametrize(
    "opening", ["", "open_m: 0.0\n", "open_m: -0.04\n", "open_m: .nan\n", "open_m: .inf\n"]
)
def test_fingers_need_an_opening(opening: str, arm: Write) -> None:
    """Without one the gripper never opened."""
    with pytest.raises(ConfigError, match=r"open_m is .*expected the distance of an open finger"):
        make_task_env("lift", 1, robot=arm(fingers=f"fingers: [finger_left, finger_right]\n{opening}"))


def test_a_urdf_is_told_where_to_get_its_servos(tmp_path: Path, arm: Write) -> None:
    path = Path(arm())
    (tmp_path / "own.urdf").write_text('<robot name="own"><link name="base"/></robot>')
    path.write_text(path.read_text().replace("own.xml", "own.urdf"))
    with pytest.raises(
        ConfigError, match=r"own\.urdf is a URDF, which has no servos .*own-robot-task-engine"
    ):
        make_task_env("reach", 1, robot=str(path))


@pytest.mark.parametrize("control", ["cartesian", "joint_position"])
def test_a_joint_without_limits_turns_two_turns(control: str, arm: Write) -> None:
    """A range of 0 was read from it, and the message blamed the start box."""
    free, count = re.subn(r'(<joint name="joint[17]"[^>]*?) range="[^"]*"', r"\1", MODEL)
    assert count == 2
    env = make_task_env("lift", 1, robot=arm(free), control=control)
    assert env._drive.wiring.chain.low_rad[[0, 6]].tolist() == [-2 * math.pi] * 2
    assert env._drive.wiring.chain.high_rad[[0, 6]].tolist() == [2 * math.pi] * 2
    assert env._drive.wiring.chain.high_rad[1] == pytest.approx(1.7628)
    assert torch.isfinite(env.reset(iter([1, 2]))["state"]).all()


@pytest.mark.parametrize("servo", ["joint1", "finger_left"])
def test_an_actuator_that_is_no_servo_is_refused(servo: str, arm: Write) -> None:
    """A motor takes a target position as a torque: the arm fell, and every episode failed."""
    motor, count = re.subn(
        rf'<position name="{servo}" joint="{servo}" [^>]*/>',
        f'<motor name="{servo}" joint="{servo}"/>',
        MODEL,
    )
    assert count == 1
    with pytest.raises(
        ConfigError, match=f"The actuator '{servo}' is no position servo .*own is commanded by"
    ):
        make_task_env("reach", 1, robot=arm(motor))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("tool: nowhere", "Unknown site 'nowhere'. Known: tip_left, tip_right, tool."),
        ("joints: [a, b, c, d, e, f, g]", "Unknown joint 'a'."),
        ("joints: [1, 2, 3, 4, 5, 6, 7]", "Unknown joint '1'."),
        ("fingers: finger_left", "found the word 'finger_left'. Expected lists: joints and fingers of names"),
        ("fingers: []", "own has no fingers, and this task grips"),
        ("home_rad: [0, 0, 0, 0, 0, 0, .nan]", "home_rad is [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, nan]; expected"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_of_the_file(key: str, said: str, arm: Write) -> None:
    """Without it a reader of `Unknown site` looks for the fault in the model, or in another robot's file."""
    path = arm()
    rest = [line for line in Path(path).read_text().splitlines() if line.split(":")[0] != key.split(":")[0]]
    Path(path).write_text("\n".join((*rest, key)))
    with pytest.raises(RoboRLError, match=re.escape(f"{path}: {said}")):
        make_task_env("lift", 1, robot=path)


def test_a_wrong_gripper_is_refused_with_the_name_of_the_file(arm: Write) -> None:
    path = arm(fingers=f"{FINGERS}gripper: nowhere\n")
    with pytest.raises(ConfigError, match=re.escape(f"{path}: own has no body 'nowhere'")):
        make_env(f"arm_hand/pick:robot={path}", 1)
