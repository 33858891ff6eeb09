"""Flights of a policy and of classical controllers in the engine of training and in another one."""

from __future__ import annotations

from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed
from robo_rl.flight.flight_run import FlightRun
from robo_rl.flight.fly.runs import with_progress
from robo_rl.flight.rows import Drop, TransferRow
from robo_rl.runs.progress import progress
from sim.engines.bullet.effects import AirEffects, check_scene
from sim.engines.quad.layout import even_spread
from sim.flight.bullet.flights import bullet_flights
from sim.flight.control.controllers import CONTROLLERS
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, controller_pilot, fly, policy_pilot
from sim.tasks.flight.protocol import FlightTask

HOME = "quad"  # the engine of training
POLICY = "policy"


def scene_of(config: TransferConfig) -> AirEffects:
    """Air effects and floor of the other engine. Raises ConfigError or UnknownNameError for bad values."""
    names = [name.strip() for name in config.effects.split(",") if name.strip()]
    effects = () if names == ["none"] else tuple(names)
    scene = AirEffects(effects, config.height_m, config.above_m, config.rate_hz, config.aero)
    check_scene(scene)
    return scene


def check_floor(config: TransferConfig, task: FlightTask) -> None:
    """Raise ConfigError for a height over the floor in a task whose room has a floor."""
    if task.floor_m is not None and config.height_m != TransferConfig.height_m:
        raise ConfigError(
            f"height_m={config.height_m:g} cannot be used: task={task.name} flies in a room, whose floor is "
            f"at z = {task.floor_m:g} m. Leave it out."
        )


def measure(config: TransferConfig, flown: FlightRun, scene: AirEffects) -> list[TransferRow]:
    """Fly every pilot in both engines, with the same states, disturbances, drones and sensor noise."""
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
                    TransferRow(
                        name, engine, fly(flights, with_progress(_controller(name, flown, config), bar))
                    )
                )
    return rows


def flights_of(config: TransferConfig, flown: FlightRun, scene: AirEffects | None) -> Flights:
    """New flights on the shared starts; in the engine of training if `scene` is None."""
    spread = even_spread(config.randomize, flown.craft)
    given = (flown.craft, flown.task, flown.senses, config.starts, derive_seed("eval", config.seed))
    if scene is not None:
        return bullet_flights(
            *given, scene, spread=spread, realism=flown.realism, level=flown.setting.options.commanded
        )
    return Flights(*given, spread=spread, realism=flown.realism, gradient=False, eager=True,
                   level=flown.setting.options.commanded)  # fmt: skip


def drops_of(rows: list[TransferRow]) -> dict[str, Drop]:
    """Pilot -> effect of the change of engine."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return {home.pilot: Drop.of(home, away) for home, away in pairs}


def _controller(name: str, flown: FlightRun, config: TransferConfig) -> Pilot:
    if name == POLICY:
        return policy_pilot(flown.policy.columns)
    return controller_pilot(name, flown.craft, flown.task.dt_s, config.starts, flown.setting.options.level)
