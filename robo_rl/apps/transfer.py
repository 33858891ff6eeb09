"""`robo-rl transfer`: a policy from one physics engine flown, unchanged, in another, on the same starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from robo_rl.apps.flight import transfer_arm, transfer_swarm
from robo_rl.apps.flight.flight_run import FlightRun, load_flight_run
from robo_rl.apps.flight.transfer_film import check_size
from robo_rl.apps.flight.transfer_report import finish
from robo_rl.apps.fly import counted
from robo_rl.apps.runs.outputs import check_folder
from robo_rl.apps.runs.progress import progress
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.stats import PairedTest, SuccessRate, paired_test
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.effects import AirEffects, check_scene
from sim.engines.bullet.step import bullet_flights
from sim.engines.quad.rows import even_spread
from sim.flight.control.controllers import CONTROLLERS
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, Trial, controller_pilot, fly, policy_pilot

HOME = "quad"  # the engine of the training
POLICY = "policy"
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


@dataclass(frozen=True)
class TransferRow:
    """One pilot in one engine, on the shared starts."""

    pilot: str
    engine: str
    trial: Trial

    @property
    def held(self) -> SuccessRate:
        return SuccessRate(int(self.trial.held.sum()), len(self.trial.held))

    @property
    def error_m(self) -> float | None:
        """Of those that stayed; None when nobody did."""
        return float(self.trial.error_m.mean()) if len(self.trial.error_m) else None

    @property
    def left_fraction(self) -> float:
        return float(self.trial.left.float().mean())

    def to_json(self) -> dict[str, Any]:
        return {
            "pilot": self.pilot,
            "engine": self.engine,
            "held": self.held.to_json(),
            "terminated_fraction": self.left_fraction,
            "position_error_m": self.error_m,
        }


@dataclass(frozen=True)
class Drop:
    """What the change of engine costs, start by start."""

    points: float  # of success, in per cent; positive: fewer held in the other engine
    test: PairedTest

    @classmethod
    def of(cls, home: TransferRow, away: TransferRow) -> Drop:
        first, second = (row.trial.held.tolist() for row in (home, away))
        return cls(100.0 * (home.held.rate - away.held.rate), paired_test(first, second))

    def to_json(self) -> dict[str, Any]:
        return {
            "drop_points": self.points,
            "only_home": self.test.only_first,
            "only_away": self.test.only_second,
            "mcnemar_p": self.test.p_value,
        }


def main(config: TransferConfig) -> int:
    """Fly in both engines, print one table, and leave results.json and pictures in `out`."""
    torch.set_num_threads(1)
    check_folder("out", config.out)
    check_size(config.size)
    if config.run is None and config.bundle is None:
        raise ConfigError(
            "Give run=<folder of a run> or bundle=<folder>: the policy that is to act in other engines."
        )
    if transfer_arm.is_for_arms(config):
        refuse(config, FLIGHTS_ONLY, "flights", "a task in a scene, whose conditions are options in env=")
        return transfer_arm.main(config)
    refuse(config, SCENES_ONLY, "policies of tasks in scenes", "a flight")
    load_pybullet()  # before the work, not after it
    scene = scene_of(config)
    if transfer_swarm.is_swarm(config):
        refuse(config, NOT_SWARMS, "single drones", "a swarm")
        return transfer_swarm.main(config, scene)
    flown = load_flight_run(config)
    rows = measure(config, flown, scene)
    return finish(config, flown, scene, rows, drops_of(rows))


def refuse(config: TransferConfig, keys: tuple[str, ...], meant_for: str, not_for: str) -> None:
    """Raise ConfigError for settings that would change nothing here."""
    plain = TransferConfig()
    if given := [
        f"{key}={getattr(config, key)}" for key in keys if getattr(config, key) != getattr(plain, key)
    ]:
        raise ConfigError(
            f"{', '.join(given)} cannot be used: for {meant_for}, not for {not_for}. Leave it out."
        )


def scene_of(config: TransferConfig) -> AirEffects:
    """The other engine's surroundings. Raises ConfigError or UnknownNameError for what cannot be."""
    names = [name.strip() for name in config.effects.split(",") if name.strip()]
    effects = () if names == ["none"] else tuple(names)
    scene = AirEffects(effects, config.height_m, config.above_m, config.rate_hz, config.aero)
    check_scene(scene)
    return scene


def measure(config: TransferConfig, flown: FlightRun, scene: AirEffects) -> list[TransferRow]:
    """Every pilot in both engines: the same states, disturbances, drones and sensor noise."""
    rows = []
    pilots = [POLICY, *config.controllers]
    for name in config.controllers:
        if name not in CONTROLLERS:
            raise ConfigError(
                f"controllers={name} cannot be used, expected some of: {', '.join(CONTROLLERS)}."
            )
    with progress(2 * len(pilots) * flown.task.max_steps, "transfer", "step") as bar:
        for name in pilots:
            for engine in (HOME, config.engine):
                flights = flights_of(config, flown, None if engine == HOME else scene)
                rows.append(
                    TransferRow(name, engine, fly(flights, counted(_pilot(name, flown, config), bar)))
                )
    return rows


def flights_of(config: TransferConfig, flown: FlightRun, scene: AirEffects | None) -> Flights:
    """Fresh flights on the shared starts; in the dynamics of the training where no scene is given."""
    spread = even_spread(config.randomize, flown.craft)
    given = (flown.craft, flown.task, flown.senses, config.starts, derive_seed("eval", config.seed))
    if scene is not None:
        return bullet_flights(
            *given, scene, spread=spread, realism=flown.realism, level=flown.setting.options.commanded
        )
    return Flights(*given, spread=spread, realism=flown.realism, gradient=False, eager=True,
                   level=flown.setting.options.commanded)  # fmt: skip


def drops_of(rows: list[TransferRow]) -> dict[str, Drop]:
    """Pilot -> what it loses."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return {home.pilot: Drop.of(home, away) for home, away in pairs}


def _pilot(name: str, flown: FlightRun, config: TransferConfig) -> Pilot:
    if name == POLICY:
        return policy_pilot(flown.policy.columns)
    return controller_pilot(name, flown.craft, flown.task.dt_s, config.starts, flown.setting.options.level)
