"""`robo-rl contract`: does a bundle fit a robot?"""

from __future__ import annotations

from pathlib import Path

from hardware.contract import check_contract
from hardware.description import load_description
from policies.bundle import load_bundle
from robo_rl.conf.schema import ContractConfig
from robo_rl.core.errors import ConfigError


def main(config: ContractConfig) -> int:
    """Say that it fits, or raise CheckpointError with every mismatch, ConfigError for a bundle that flies."""
    bundle = load_bundle(Path(config.bundle))
    if bundle.env.name.startswith("quad/"):
        raise ConfigError(
            f"'{bundle.name}' flies, and contract compares joints. Flight bundles are checked when they start: "
            f"robo-rl run bundle={config.bundle} robot=sim_quad, and before any node does, by robo-rl up."
        )
    robot = load_description(config.robot)
    check_contract(bundle, robot)
    cameras = f", cameras {', '.join(robot.cameras)}" if robot.cameras else ""
    print(
        f"{bundle.name} fits {robot.name}: {len(robot.joints)} joints within their ranges, acts at "
        f"{bundle.env.control_hz:g} Hz (robot {robot.command_hz:g} Hz){cameras}."
    )
    print(f"Next:   {next_step(config)}")
    return 0


def next_step(config: ContractConfig) -> str:
    """The simulated arm, or the real one beside which nothing is armed yet."""
    if config.robot == "sim_arm":
        return f"robo-rl run bundle={config.bundle} robot=sim_arm episodes=5"
    fits = f"robo-rl up arm bundle={config.bundle} robot={config.robot}"
    return f"{fits} driver=<its driver's YAML file>   (not armed: nothing moves; docs/robot.md)"
