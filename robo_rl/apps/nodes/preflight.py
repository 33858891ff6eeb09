"""Checks of a set of nodes before the first of them starts.

`robo-rl up` runs this in a separate process, so that the supervisor's memory stays small, and `ros2 launch`,
so that it runs in the Python of the nodes.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from hardware.checks.arm_contract import check_contract
from hardware.checks.flight_contract import check_flight, check_ground, check_link
from hardware.description import load_description
from hardware.driver import ARMS, QUADS, check_settings
from hardware.quads.link import LINKS, QuadLink, quad_link
from hardware.teleop.registry import check_device
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.apps.nodes.preflight_goal import check_goals, check_words
from robo_rl.apps.nodes.preflight_pictures import check_pictures, check_scene
from robo_rl.apps.nodes.robot_builders import arm_settings, check_device_files, read_settings
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.runs.outputs import check_folder

_DESCRIBED = ("safety_filter", "action_head", "arm_policy")  # whose `robot` is a description, not a simulator


def check(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Raise the RoboRLError with which a node would end: settings, goal, driver's file, folder of
    recordings, device, robot, bundle, their match.

    commands: node -> its words, `{"safety_filter": ["safety_filter", "robot=sim_arm"]}`. Returns remarks for
    the terminal.
    """
    bundles, robots, flown, links = set[str](), set[str](), dict[str, Any](), set[QuadLink]()
    nodes = list[tuple[str, Any]]()
    for node, *words in commands.values():
        given = node_settings(node, words)
        nodes.append((node, given))
        goal: list[float] = getattr(given, "goal", None) or []
        if not all(map(math.isfinite, goal)):
            raise ConfigError(f"goal={goal} cannot be reached: expected finite numbers.")
        if node == "robot_driver" and (driver := given.settings):  # those of teleop are a device's
            if not Path(driver).is_file():
                raise ConfigError(
                    f"The driver's file {driver} is not there; docs/drivers.md shows what one holds."
                )
            name, settings = read_settings(driver)
            _check_kind(name, {node for node, *_ in commands.values()})
            links |= _driver_link(name, settings, given)
        if node == "recorder":
            check_folder("record", given.out)
        if node == "teleop":
            check_device(given.device)
            check_device_files(given)
        bundles |= {given.bundle} if getattr(given, "bundle", None) else set()
        robots |= {given.robot} if node in _DESCRIBED else set()
        flown |= {given.bundle: given} if node == "flight_filter" else {}
    check_scene(nodes)
    _check_bundles(bundles, robots, flown, links)
    return [*check_goals(nodes), *check_words(nodes), *check_pictures(nodes)] if bundles else []


def _check_kind(name: str, nodes: Collection[str]) -> None:
    """Raise ConfigError for a quadcopter's driver beside the filter of an arm, and the reverse."""
    if name in QUADS and "safety_filter" in nodes:
        raise ConfigError(
            f"'{name}' is a quadcopter's driver, but these nodes move an arm. Give the file of an arm's "
            "driver, or fly the quadcopter with robo-rl up quad."
        )
    if name in ARMS and "flight_filter" in nodes:
        raise ConfigError(
            f"'{name}' is an arm's driver, but these nodes fly a quadcopter. Give the file of a "
            "quadcopter's driver, or move the arm with robo-rl up arm or up teleop."
        )


def _driver_link(name: str, settings: Mapping[str, Any], given: Any) -> set[QuadLink]:
    """Check a driver's settings, and those of an arm against its description. Returns the link of a
    quadcopter.
    """
    check_settings(name, settings)
    if name in ARMS and given.robot:
        arm_settings(name, settings, load_description(given.robot))
    return _link(name, settings, given.ground_m)


def _link(name: str, settings: Mapping[str, Any], ground_m: float | None) -> set[QuadLink]:
    """Link of the quadcopter, if the driver is one's.

    Raises ConfigError where the height of the ground is unknown.
    """
    if name not in LINKS:
        return set()
    if ground_m is None:
        raise ConfigError(
            "The height of the ground is not known, but a landing ends there. Give ground=, such as "
            "ground=-0.6 to hover 0.6 m above the point where the autopilot's height is 0."
        )
    return {quad_link(name, settings)}


def _check_bundles(
    bundles: set[str], robots: set[str], flown: Mapping[str, Any], links: Collection[QuadLink]
) -> None:
    """Compare bundles and robots. flown: folders of flight bundles -> settings of the filter."""
    described = [load_description(robot) for robot in sorted(robots)]
    if bundles:
        from policies.deploy.bundle import load_bundle

        for folder in sorted(bundles):
            bundle = load_bundle(Path(folder))
            for robot in described:
                check_contract(bundle, robot)
            if folder in flown:
                check_flight(bundle, flown[folder].level)
                check_ground(bundle, flown[folder].ground_m)
                for link in links:
                    check_link(bundle, link)


def main(argv: Sequence[str]) -> int:
    """Check the set. argv: the commands as JSON; who asks, for the remarks."""
    commands: dict[str, Any] = json.loads(argv[0])
    who = argv[1] if len(argv) > 1 else "up"
    try:
        for sentence in check(commands):
            print(f"{who}: {sentence}", flush=True)
    except RoboRLError as error:
        print(f"robo-rl: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
