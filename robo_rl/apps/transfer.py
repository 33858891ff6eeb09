"""`robo-rl transfer`: run a policy, unchanged, in another physics engine on the same starts."""

from __future__ import annotations

import torch

from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError
from robo_rl.flight.flight_run import load_flight_run
from robo_rl.flight.transfer import arm as transfer_arm
from robo_rl.flight.transfer import swarm as transfer_swarm
from robo_rl.flight.transfer.film import check_size
from robo_rl.flight.transfer.flights import check_floor, drops_of, measure, scene_of
from robo_rl.flight.transfer.report import finish
from robo_rl.runs.outputs import check_folder
from sim.engines.bullet.client import load_pybullet

FLIGHTS_ONLY = (
    "effects",
    "height_m",
    "above_m",
    "rate_hz",
    "aero",
    "randomize",
    "controllers",
    "craft",
    "speed_m_s",
    "eval_s",
    "pretty",
    "size",
)
SCENES_ONLY = ("engines", "env")
NOT_SWARMS = ("height_m", "above_m", "randomize", "controllers", "speed_m_s", "pretty", "size")


def main(config: TransferConfig) -> int:
    """Fly in both engines, print the table, and write results.json and plots into `out`."""
    torch.set_num_threads(1)
    check_folder("out", config.out)
    check_size(config.size)
    if config.run is None and config.bundle is None:
        raise ConfigError(
            "Give run=<folder of a run> or bundle=<folder>: the policy to run in other engines."
        )
    if transfer_arm.is_for_arms(config):
        refuse(config, FLIGHTS_ONLY, "flights", "a task in a scene, whose conditions are options in env=")
        return transfer_arm.main(config)
    refuse(config, SCENES_ONLY, "policies of tasks in scenes", "a flight")
    load_pybullet()  # a missing package stops the run before the work
    scene = scene_of(config)
    if transfer_swarm.is_swarm(config):
        refuse(config, NOT_SWARMS, "single drones", "a swarm")
        return transfer_swarm.main(config, scene)
    flown = load_flight_run(config)
    check_floor(config, flown.task)
    rows = measure(config, flown, scene)
    return finish(config, flown, scene, rows, drops_of(rows))


def refuse(config: TransferConfig, keys: tuple[str, ...], meant_for: str, not_for: str) -> None:
    """Raise ConfigError for settings that have no effect here."""
    plain = TransferConfig()
    if given := [
        f"{key}={getattr(config, key)}" for key in keys if getattr(config, key) != getattr(plain, key)
    ]:
        raise ConfigError(
            f"{', '.join(given)} cannot be used: it is for {meant_for}, not for {not_for}. Leave it out."
        )
