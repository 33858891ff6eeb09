"""An arm's driver takes commands at the rate of the robot's description, and at no other."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.description import FOLDER, load_description
from hardware.messages import JointTrajectory
from hardware.nodes import sim_robot
from hardware.nodes.sim_robot import SimArmNode
from hardware.topics import SAFE
from robo_rl.apps.nodes import robot_builders
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.nodes.robot_builders import arm_settings, robot_driver
from robo_rl.conf.node import RobotDriverNodeConfig
from robo_rl.core.errors import ConfigError
from sim.arms.arm6.body import SimulatedArm

HOST = {"host": "192.0.2.1"}


def at(command_hz: float) -> Any:
    return dataclasses.replace(load_description("ur5e"), command_hz=command_hz)


@pytest.mark.parametrize("command_hz", [20.0, 50.0, 200.0])
@pytest.mark.parametrize("name", ["ur", "xarm"])
def test_rate_of_the_description_is_the_default(name: str, command_hz: float) -> None:
    for settings in (HOST, HOST | {"rate_hz": command_hz}, HOST | {"rate_hz": int(command_hz)}):
        assert arm_settings(name, settings, at(command_hz)) == HOST | {"rate_hz": command_hz}


@pytest.mark.parametrize("robot", [path.stem for path in FOLDER.glob("*.yaml")])
def test_included_descriptions_fit_a_driver(robot: str) -> None:
    assert arm_settings("ur", HOST, load_description(robot))["rate_hz"] == 50.0


@pytest.mark.parametrize(
    ("command_hz", "settings", "said"),
    [
        (50.0, {"rate_hz": 200}, r"rate_hz=200 .* differs from command_hz=50 .* 'ur5e'.*Leave rate_hz out"),
        (50.0, {"rate_hz": 100.0}, "rate_hz=100 .* differs from command_hz=50"),
        (50.0, {"rate_hz": "50"}, "expected a finite number"),
        (
            10.0,
            {},
            r"^command_hz=10 .* does not fit its driver: .* at least 18\.75 Hz, or a longer watchdog_s",
        ),
        (10.0, {"rate_hz": 10, "watchdog_s": 0.1}, "at least 15 Hz"),
    ],
)
def test_other_rates_are_refused(command_hz: float, settings: dict[str, Any], said: str) -> None:
    """A command moves a joint for two periods of rate_hz at most: at 4 times the rate, half as fast."""
    with pytest.raises(ConfigError, match=said):
        arm_settings("ur", HOST | settings, at(command_hz))


def test_slow_description_needs_a_longer_watchdog() -> None:
    assert arm_settings("ur", HOST | {"watchdog_s": 0.2}, at(10.0))["rate_hz"] == 10.0


def test_node_and_preflight_refuse_before_anything_connects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "ur.yaml").write_text("driver: ur\nhost: 192.0.2.1\nrate_hz: 200\n")
    monkeypatch.setattr(robot_builders, "open_driver", lambda *_: pytest.fail("it would connect"))
    with pytest.raises(ConfigError, match="differs from command_hz=50"):
        robot_driver(RobotDriverNodeConfig(settings=str(file), robot="ur5e"), InProcessWorld().bus("driver"))
    words = load_set("teleop").commands({"robot": "ur5e", "driver": str(file)})
    with pytest.raises(ConfigError, match="differs from command_hz=50"):
        check(words)
    file.write_text("driver: ur\nhost: 192.0.2.1\n")
    check(words)


@pytest.mark.parametrize("command_hz", [10.0, 20.0, 50.0])
def test_simulated_arm_waits_for_the_next_command_of_its_rate(command_hz: float) -> None:
    """Commands in time never trip its watchdog; 1.5 periods of silence, or 80 ms, do."""
    world = InProcessWorld()
    robot = dataclasses.replace(load_description("sim_arm"), command_hz=command_hz)
    node = SimArmNode(world.bus("sim_robot"), SimulatedArm(), 100.0, robot)
    other, numbers = world.bus("other"), iter(range(1, 1_000))
    send, talks, target = SAFE.publisher(other), [True], node._arm.read()[0]

    def tell() -> None:
        if talks[0]:
            stamp_s = float(next(numbers))
            send(JointTrajectory(stamp_s, robot.names, target[None], np.array([1.0 / command_hz])))

    other.timer(1.0 / command_hz, tell)
    other.spin(lambda: world.now() >= 2.0)
    assert (node.holds, node._status[0]) == (0, 0)
    talks[0] = False
    other.spin(lambda: world.now() >= 2.0 + max(sim_robot.WATCHDOG_S, 1.5 / command_hz) + 0.02)
    assert node.holds == 1
