"""`robo-rl contract`: compare a bundle with a robot before anything moves."""

from __future__ import annotations

from pathlib import Path

from hardware.checks.arm_contract import check_contract, check_goal, goal_names
from hardware.checks.flight_contract import CRAFTS, check_link, commands_velocity
from hardware.description import RobotDescription, load_description
from hardware.loop.observation import DEPTH, IMAGE
from hardware.quads.link import LINKS, QuadLink, quad_link
from policies.deploy.bundle import Bundle, load_bundle
from robo_rl.apps.nodes.preflight_goal import SIM_GOAL, SIM_TASK
from robo_rl.apps.nodes.preflight_pictures import scene_words
from robo_rl.apps.nodes.robot_builders import read_settings
from robo_rl.conf.schema import ContractConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.commands import command


def main(config: ContractConfig) -> int:
    """Print that the bundle fits, or raise CheckpointError with every mismatch."""
    bundle = load_bundle(Path(config.bundle))
    if bundle.env.name.startswith(CRAFTS):
        return _flight(config, bundle)
    if config.robot in (*LINKS, "sim_quad"):
        raise ConfigError(
            f"robot={config.robot} is a quadcopter, and {bundle.folder} acts for an arm "
            f"({bundle.env.name}). Give robot=<description of the arm>, such as sim_arm."
        )
    robot = load_description(config.robot)
    check_contract(bundle, robot)
    goal = goal_names(bundle)
    if goal and config.robot == "sim_arm":
        check_goal(bundle, SIM_GOAL, SIM_TASK)
    goals = f", has the goal input {', '.join(goal)}" if goal else ""
    print(
        f"{bundle.folder} fits {robot.name}: {len(robot.joints)} joints within their ranges, acts at "
        f"{bundle.env.control_hz:g} Hz (robot {robot.command_hz:g} Hz){camera_words(bundle, robot)}{goals}."
    )
    print(f"Next:   {next_step(config, bundle)}")
    return 0


def camera_words(bundle: Bundle, robot: RobotDescription) -> str:
    """The bundle's cameras, and those of the robot that it does not use."""
    used = [name for name in robot.cameras if any(key.endswith(f".{name}") for key in bundle.env.obs)]
    if used or not robot.cameras:
        return f", uses cameras {', '.join(used)}" if used else ""
    return f", uses no camera (the robot has {', '.join(robot.cameras)})"


def _flight(config: ContractConfig, bundle: Bundle) -> int:
    link = link_of(config)
    check_link(bundle, link)
    action, file = (
        bundle.env.action,
        config.robot if config.robot not in LINKS else "<its driver's YAML file>",
    )
    most = f"thrust and body rates up to {max(action.high[1:]):g} rad/s (driver {link.rate_rad_s:g})"
    more, ground = "", "-0.6"
    if commands_velocity(bundle):
        most = f"velocities up to {max(action.high[:3]):g} m/s by body rates within {link.rate_rad_s:g} rad/s"
        names = [key.removeprefix(IMAGE) for key in bundle.env.obs if key.startswith(IMAGE)]
        camera = f" camera=<its source> camera_name={'+'.join(names)}" if names else ""
        more, ground = f"{camera} instruction='<what to do>'", "0"
    print(
        f"{bundle.folder} fits a {link.name}: {most}, acts at {bundle.env.control_hz:g} Hz (link "
        f"{link.command_hz:g} Hz)."
    )
    print(
        f"Next:   {command('up quad', bundle=config.bundle, driver=file, hover='<its hover thrust>')} "
        f"ground={ground}{more}   (not armed: nothing moves; docs/robot.md)"
    )
    return 0


def link_of(config: ContractConfig) -> QuadLink:
    """Link of a driver's name or settings file. Raises ConfigError for the simulated quadcopter."""
    if config.robot == "sim_quad":
        raise ConfigError(
            "robot=sim_quad takes every flight bundle and needs no contract: "
            f"robo-rl run bundle={config.bundle} robot=sim_quad. Links are robot={', robot='.join(LINKS)}, "
            "or the YAML file of a driver."
        )
    if config.robot.endswith((".yaml", ".yml")):
        return quad_link(*read_settings(config.robot))
    return quad_link(config.robot, {})


def next_step(config: ContractConfig, bundle: Bundle) -> str:
    """Next command: on the simulated arm, or on the real one, not armed."""
    goal = goal_names(bundle)
    if config.robot == "sim_arm":
        if not goal:  # `run` would have no score
            seen = scene_words([key for key in bundle.env.obs if key.startswith((IMAGE, DEPTH))])
            return f"{command('up arm_sim', bundle=config.bundle)} {seen}".rstrip()
        return command("run", bundle=config.bundle, robot="sim_arm", episodes=5)
    fits = command("up arm", bundle=config.bundle, robot=config.robot)
    names = [key.partition(".")[2] for key in bundle.env.obs if key.startswith(IMAGE)]
    known = load_description(config.robot).cameras if names else {}
    told_where = all(name in known and known[name].source for name in names)
    devices = "+".join(f"<{name}'s device>" for name in names)
    camera = "" if told_where else f" camera={devices} camera_name={'+'.join(names)}"
    task = f" goal=[{','.join(goal)}]" if goal else ""
    return f"{fits} driver=<its driver's YAML file>{camera}{task}   (not armed: nothing moves; docs/robot.md)"
