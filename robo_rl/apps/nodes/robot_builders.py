"""Builders of the nodes for a real robot: driver and teleoperation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.bus.protocol import Bus
from hardware.description import load_description
from hardware.driver import ARMS, DRIVERS, IN_PROCESS, PERIODS, WATCHDOG_S, open_driver
from hardware.nodes.controller_driver import ControllerDriverNode
from hardware.nodes.controller_driver import complain as complain_of_control
from hardware.nodes.robot_driver import ArmDriverNode, QuadDriverNode
from hardware.nodes.shared.protocol import Node
from hardware.nodes.teleop import TeleopNode, complain
from hardware.teleop.device import Device
from hardware.teleop.joystick import Joystick
from hardware.teleop.keyboard import Keyboard
from hardware.teleop.leader import Leader
from hardware.topics import EPISODE
from robo_rl.conf.node import ControllerDriverNodeConfig, RobotDriverNodeConfig, TeleopNodeConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.files.describe_path import not_a
from robo_rl.core.files.yaml_error import yaml_words


def robot_driver(config: RobotDriverNodeConfig, bus: Bus) -> Node:
    name, settings = read_settings(config.settings)
    if name in ARMS and not config.robot:
        raise ConfigError(
            f"The driver '{name}' of an arm needs robot=<name or YAML file>: the description whose ranges "
            "and speeds bound every command."
        )
    driver = open_driver(name, settings).driver
    if name in ARMS:
        return ArmDriverNode(bus, driver, config.state_hz, load_description(config.robot))
    return QuadDriverNode(bus, driver, config.state_hz, config.level, config.ground_m or 0.0)


def controller_driver(config: ControllerDriverNodeConfig, bus: Bus) -> Node:
    robot = load_description(config.robot)
    limits = {key: robot.column(key).tolist() for key in ("low_rad", "high_rad", "velocity_rad_s")}
    driver = Ros2ControlDriver(
        bus,
        robot.names,
        **limits,
        controller=config.controller,
        output=config.output,
        rate_hz=robot.command_hz,
        watchdog_s=max(WATCHDOG_S, PERIODS / robot.command_hz),
        say=complain_of_control,
    )
    return ControllerDriverNode(bus, driver)


def teleop(config: TeleopNodeConfig, bus: Bus) -> Node:
    robot = load_description(config.robot)
    device, usage = _device(config, robot.names)
    complain(usage)
    if sys.stderr.isatty():  # the terminal of this node alone, in which the recorder does not print
        EPISODE.subscribe(bus, lambda status, _: complain(f"recorder: {status.text}"))
    return TeleopNode(bus, device, robot)


def _device(config: TeleopNodeConfig, names: Sequence[str]) -> tuple[Device, str]:
    """Teleoperation device, and the text on its keys or buttons."""
    if config.device == "keyboard":
        keyboard = Keyboard(len(names))
        return keyboard, keyboard.help(names)
    gamepad = Joystick(config.path, config.axes, config.dead_man, config.recorder_buttons)
    if config.device == "gamepad":
        return gamepad, gamepad.help()
    if not config.leader:
        raise ConfigError(
            "device=leader needs leader=<YAML file of the leader arm's driver>; see docs/drivers.md."
        )
    name, settings = read_settings(config.leader)
    if name not in ARMS:
        raise ConfigError(f"{config.leader} names the driver '{name}', which is no arm's.")
    signs, offsets_rad = settings.pop("signs", None), settings.pop("offsets_rad", None)
    arm = open_driver(name, settings).driver
    arm.connect()
    return Leader(arm, gamepad, signs, offsets_rad), gamepad.help("the arm follows its leader")


def read_settings(file: str) -> tuple[str, dict[str, Any]]:
    """(driver, its settings) of a YAML file.

    Raises ConfigError, or UnknownNameError for an unknown driver.
    """
    if not Path(file).is_file():
        raise ConfigError(f"{not_a(Path(file), 'a file')} Give the YAML file with the driver's settings.")
    try:
        data = yaml.safe_load(Path(file).read_text())
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} is not valid YAML, {yaml_words(error)}. Expected: the settings of a driver."
        ) from error
    if not isinstance(data, dict) or not isinstance(data.get("driver"), str):
        raise ConfigError(
            f"{file} must hold 'driver: <name>' and that driver's settings, such as 'host: 192.168.0.10'."
        )
    name = str(data.pop("driver"))
    if name not in DRIVERS:
        raise UnknownNameError("driver", name, DRIVERS)
    if name in IN_PROCESS:
        raise ConfigError(
            f"The driver '{name}' has a node of its own: controller_driver (controller=<its name> of a set) "
            "for an arm of ros2_control, sim_robot for a simulated arm."
        )
    return name, {str(key): value for key, value in data.items()}
