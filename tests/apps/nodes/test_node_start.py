"""Robot nodes start in a new process without torch, hydra or a simulator, and without types that they do not
use.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hardware.description import load_description
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.core.errors import ConfigError
from tests.hardware.bundles import arm_bundle, arm_env, quad_bundle
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ["torch", "hydra", "omegaconf", "mujoco"]
# Classes of all messages of ROS; what computes the description of a type from its fields.
SLOW_ON_DDS = ["rosbags.typesys.stores.ros2_dashing", "cyclonedds.idl._builder"]
PROGRAM = """
import json, os, pty, sys
from hardware.bus.in_process import InProcessWorld
from hardware.description import load_description
from robo_rl.apps import node
from robo_rl.apps.nodes import robot_builders
from robo_rl.apps.nodes.node_table import node_settings

class Arm:
    names = load_description("sim_arm").names
    def connect(self): pass
    def stop(self, why): pass
    def close(self): pass

class Opened:
    driver = Arm()

os.dup2(pty.openpty()[1], 0)  # a terminal for teleop
robot_builders.open_driver = lambda name, settings: Opened()
for words in json.loads(sys.argv[1]):
    bus = None if "bus=dds" in words else InProcessWorld().bus(words[0])
    made, bus = node.start(words[0], node_settings(words[0], words[1:]), bus)
    made.finish()
    bus.close()
print(json.dumps([name for name in json.loads(sys.argv[2]) if name in sys.modules]))
"""


def loaded(*nodes: list[str], names: list[str] = HEAVY, domain: int = 0) -> list[str]:
    """Those of the modules `names` that a new process has imported after it built these nodes."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(nodes), json.dumps(names)],
        env=os.environ | {"PYTHONPATH": str(ROOT), "ROS_DOMAIN_ID": str(domain)},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_nodes_beside_a_robot_start_without_torch(tmp_path: Path) -> None:
    """All nodes without a network, in one new process."""
    quad_bundle(tmp_path / "hover")
    (tmp_path / "robot.yaml").write_text("driver: ur\nhost: 192.0.2.1\n")
    assert loaded(
        ["safety_filter", "robot=sim_arm"],
        ["flight_filter", f"bundle={tmp_path / 'hover'}", "level=motors"],
        ["robot_driver", f"settings={tmp_path / 'robot.yaml'}", "robot=sim_arm"],
        ["teleop", "robot=sim_arm", "device=keyboard"],
        ["camera", "source=pattern"],
        ["recorder", f"out={tmp_path / 'recordings'}"],
        ["task", "goal=[0.3, 0, 0.3]"],
        ["diagnostics"],
        ["action_head", "robot=sim_arm"],
    ) == []  # fmt: skip


def test_nodes_on_dds_start_without_types_that_they_do_not_use(tmp_path: Path) -> None:
    """What these modules do takes half of the CPU time of a start."""
    pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
    quad_bundle(tmp_path / "hover")
    with free_domain() as domain:
        assert loaded(
            ["safety_filter", "robot=sim_arm", "bus=dds"],
            ["flight_filter", f"bundle={tmp_path / 'hover'}", "level=motors", "bus=dds"],
            ["teleop", "robot=sim_arm", "device=keyboard", "bus=dds"],
            ["camera", "source=pattern", "bus=dds"],
            ["recorder", f"out={tmp_path / 'recordings'}", "bus=dds"],
            ["task", "goal=[0.3, 0, 0.3]", "bus=dds"],
            ["diagnostics", "bus=dds"],
            ["action_head", "robot=sim_arm", "bus=dds"],
            names=[*HEAVY, *SLOW_ON_DDS],
            domain=domain,
        ) == []  # fmt: skip


def test_single_step_head_runs_without_torch(tmp_path: Path) -> None:
    """Without noise it needs ONNX Runtime and NumPy only."""
    env = arm_env(load_description("sim_arm").names)
    arm_bundle(tmp_path / "single", 1, 1, env)
    assert loaded(["action_head", "robot=sim_arm", f"bundle={tmp_path / 'single'}"]) == []


def test_settings_are_read_as_their_types() -> None:
    """Numbers, lists, booleans, none and quoted text; other settings keep their defaults."""
    task = node_settings("task", ["goal=[0.3,-1,2e-1]", "words='put it down'", "namespace=left"])
    assert (task.goal, task.words, task.namespace) == ([0.3, -1.0, 0.2], "put it down", "left")
    policy = node_settings(
        "arm_policy", ["bundle=b", "robot=r", "start=TRUE", "threads=2", "picture_age_s=none"]
    )
    assert (policy.start, policy.threads, policy.picture_age_s, policy.seed) == (True, 2, None, 0)
    assert node_settings("teleop", ["robot=r", "axes=[]"]).axes == []


def test_a_renamed_setting_is_refused_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'asks'\. Did you mean 'recorder_buttons'"):
        node_settings("teleop", ["robot=r", "asks=[0]"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["robt=sim_arm"], "has no setting 'robt'. Did you mean 'robot'?"),
        (["sim_arm"], "Found 'sim_arm', expected a setting written key=value."),
        (["--robot=x"], "Found '--robot=x', expected a setting written key=value."),
        (["robot=a", "robot=b"], "robot is given twice, found robot=a and robot=b. Give it once."),
        (["robot=a", "arm=maybe"], "arm=maybe cannot be used, expected: true or false."),
        (["robot=a", "bus=ds"], "expected: auto | rclpy | dds | in_process. Did you mean 'dds'?"),
    ],
)  # fmt: skip
def test_mistyped_settings_print_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        node_settings("safety_filter", words)
    assert sentence in str(error.value)


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "0", "fast"])
def test_rates_out_of_range_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"fps=.* cannot be used, expected: number >= 0.1"):
        node_settings("camera", [f"fps={text}"])
