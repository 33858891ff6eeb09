"""Builders of the nodes for a real robot: driver and teleoperation."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hardware.arms.ros2_control import Ros2ControlDriver
from hardware.bus.protocol import Bus
from hardware.description import RobotDescription, load_description
from hardware.driver import ARMS, DRIVERS, IN_PROCESS, PERIODS, WATCHDOG_S, check_settings, open_driver
from hardware.nodes.controller_driver import ControllerDriverNode
from hardware.nodes.controller_driver import print_line as print_controller_line
from hardware.nodes.robot_driver import ArmDriverNode, QuadDriverNode
from hardware.nodes.shared.protocol import Node
from hardware.nodes.teleop import TeleopNode, print_line
from hardware.quads.link import LINK_HZ, LINKS, quad_link
from hardware.teleop.device import Teleoperator
from hardware.teleop.hand_motion import ToolLimits
from hardware.teleop.input_file import InputRecorder, read_inputs
from hardware.teleop.leader import Leader
from hardware.teleop.registry import DEVICES, LEADER, RECORDING, check_maker_settings, make_teleoperator
from hardware.teleop.servo_chain import KINDS, ServoChain
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
    if name in LINKS:
        quad_link(name, settings)  # refuses limits without effect before anything connects
    if name in ARMS:
        robot = load_description(config.robot)
        arm = open_driver(name, arm_settings(name, settings, robot)).driver
        return ArmDriverNode(bus, arm, config.state_hz or robot.state_hz, robot)
    driver = open_driver(name, settings).driver
    return QuadDriverNode(bus, driver, config.state_hz or LINK_HZ, config.level, config.ground_m or 0.0)


def arm_settings(name: str, settings: Mapping[str, Any], robot: RobotDescription) -> dict[str, Any]:
    """Settings of an arm's driver, whose `rate_hz` is by default the description's command_hz.

    Raises ConfigError for settings that the driver does not take, for another rate than the description's,
    which would change the speed of the arm, and for one at which the driver's watchdog would fire between
    two commands.
    """
    check_settings(name, settings)
    rate_hz = settings.get("rate_hz", robot.command_hz)
    if rate_hz != robot.command_hz:
        raise ConfigError(
            f"rate_hz={rate_hz:g} of the driver '{name}' differs from command_hz={robot.command_hz:g} of the "
            f"description '{robot.name}', at which commands come. Leave rate_hz out, or set both to the same."
        )
    whole = {**settings, "rate_hz": rate_hz}
    try:
        check_settings(name, whole)
    except ConfigError as error:
        raise ConfigError(
            f"command_hz={robot.command_hz:g} of the description '{robot.name}' does not fit its driver: "
            f"{error}"
        ) from error
    return whole


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
        say=print_controller_line,
    )
    return ControllerDriverNode(bus, driver)


def teleop(config: TeleopNodeConfig, bus: Bus) -> Node:
    robot = load_description(config.robot)
    joints = [name for name in config.joints.split("+") if name]
    if unknown := [name for name in joints if name not in robot.names]:
        raise ConfigError(
            f"joints={config.joints}: '{unknown[0]}' is no joint of '{robot.name}', which has "
            f"{', '.join(robot.names)}. Join names by +."
        )
    device = _device(config, robot)
    if config.record_input:
        device = InputRecorder(device, config.record_input, config.device)
    device.connect()
    print_line(device.help())
    if sys.stderr.isatty():  # the terminal of this node alone, in which the recorder does not print
        EPISODE.subscribe(bus, lambda status, _: print_line(f"recorder: {status.text}"))
    limits = ToolLimits(config.linear_m_s, config.angular_rad_s, config.scale)
    return TeleopNode(bus, device, robot, limits=limits, joints=joints)


def _device(config: TeleopNodeConfig, robot: RobotDescription) -> Teleoperator:
    """Teleoperation device, not yet connected."""
    settings = read_keys(config.settings) if config.settings else {}
    pad = {
        "path": config.path,
        "axes": config.axes,
        "dead_man": config.dead_man,
        "recorder_buttons": config.recorder_buttons,
        "mode": config.mode,
    }
    if config.device == "gamepad":
        return make_teleoperator("gamepad", pad | settings, robot)
    if config.device == "keyboard":
        return make_teleoperator("keyboard", {"mode": config.mode} | settings, robot)
    if config.device != LEADER:
        return make_teleoperator(config.device, settings, robot)
    if not config.leader:
        raise ConfigError(
            "device=leader needs leader=<YAML file of the leader arm's driver or servos>; see "
            "docs/teleoperation.md."
        )
    return _leader(config.leader, make_teleoperator("gamepad", pad | settings, robot))


def check_device_files(config: TeleopNodeConfig) -> None:
    """Raise the RoboRLError with which `teleop` would end for its device's files. Nothing is connected.

    An installed device and the driver of a leader arm are not imported; the node checks their settings.
    """
    if config.device in DEVICES or (config.device == LEADER and not config.leader):
        _device(config, load_description(config.robot))
        return
    for file in filter(None, (config.settings, config.leader if config.device == LEADER else "")):
        read_keys(file)
    if config.device.startswith(RECORDING):
        read_inputs(Path(config.device.removeprefix(RECORDING)))


def _leader(file: str, dead_man: Teleoperator) -> Teleoperator:
    """A leader arm by its driver's settings, or by those of its servos."""
    settings = read_keys(file)
    signs, offsets_rad = settings.pop("signs", None), settings.pop("offsets_rad", None)
    if (name := settings.get("driver")) in KINDS:
        del settings["driver"]
        check_maker_settings(f"leader ({name})", ServoChain, settings)
        chain = ServoChain(name, **settings)
        return Leader(chain, dead_man, signs, offsets_rad, lambda: chain.opening)
    name, settings = read_settings(file)
    if name not in ARMS:
        raise ConfigError(f"{file} names the driver '{name}', which is no arm's.")
    settings = {key: value for key, value in settings.items() if key not in ("signs", "offsets_rad")}
    return Leader(open_driver(name, settings).driver, dead_man, signs, offsets_rad)


def read_keys(file: str) -> dict[str, Any]:
    """The keys of a YAML file. Raises ConfigError."""
    if not Path(file).is_file():
        raise ConfigError(f"{not_a(Path(file), 'a file')} Give the YAML file with the settings.")
    try:
        data = yaml.safe_load(Path(file).read_text())
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{file} is not valid YAML, {yaml_words(error)}. Expected: 'key: value' lines."
        ) from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold 'key: value' lines, found {type(data).__name__}.")
    return {str(key): value for key, value in data.items()}


def read_settings(file: str) -> tuple[str, dict[str, Any]]:
    """(driver, its settings) of a YAML file.

    Raises ConfigError, or UnknownNameError for an unknown driver.
    """
    data = read_keys(file)
    if not isinstance(data.get("driver"), str):
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
    return name, data
