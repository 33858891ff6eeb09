"""Options of flight tasks, shared by `robo-rl fly` and by environments by name.

The name of an environment contains the options that are not the default, so that a policy's manifest
identifies the environment that it was trained in: `quad/race:craft=cf21,track=splits`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.engines.quad.craft import Craft
from sim.engines.quad.dynamics import QuadPhysics, Step
from sim.flight.bullet.flights import bullet_step
from sim.flight.command import CommandLevel
from sim.flight.realism import Realism
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.names import TASKS
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.obstacles import ObstacleTask, check_obstacles
from sim.tasks.flight.protocol import FlightTask
from sim.tasks.flight.race import RaceTask, check_race, craft_radius_m
from sim.tasks.flight.track import load_track
from sim.tasks.flight.tracking import TrackingTask, check_speed, tracking_task
from sim.tasks.flight.waypoints import WaypointTask, check_waypoint_speed
from sim.tasks.swarm.world import SwarmWorld, arm_m

MeasuredTask = HoverTask | TrackingTask | WaypointTask | RaceTask | ObstacleTask
ENGINES = ("quad", "pybullet")
_OWN = {  # option -> tasks that have it; every task has all other options
    "speed_m_s": ("figure8", "waypoints", "race", "obstacles"),
    **dict.fromkeys(("track", "track_scale", "baseline_speed_m_s"), ("race",)),
    "integral": ("hover", "figure8"),
    **dict.fromkeys(("density", "cylinders", "planner"), ("obstacles",)),
}


@dataclass(frozen=True, slots=True)
class FlightOptions:
    """Options of a flight task. None: the task's own value."""

    craft: str = "cf2x_l2f"
    engine: str = "quad"  # physics: quad; pybullet, with contacts, ground effect and rotor drag
    speed_m_s: float | None = (
        None  # figure8: speed (2); waypoints (2), race (3.5), obstacles (1.5): the largest
    )
    track: str = "ring"  # race: name or YAML file
    track_scale: float = 1.0  # race: factor of all lengths of the track
    baseline_speed_m_s: float | None = None  # race: speed of the reference of classical controllers (1.5)
    density: float = 0.2  # obstacles: share of the 64 cells with a cylinder
    cylinders: int = 4  # obstacles: number of observed cylinders, the nearest ones
    planner: bool = False  # obstacles: the reference of classical controllers leads around the cylinders
    history: int = 8  # number of observed last actions
    integral: bool = True  # hover, figure8: the integral of the position error is observed
    level: str = "motors"  # command level: motors; rates, thrust and body rates for an autopilot
    rate_rad_s: float = 6.0  # level=rates: largest rate of roll and pitch; half of it for yaw

    @property
    def commanded(self) -> CommandLevel:
        """The command level."""
        return CommandLevel(self.level, self.rate_rad_s)

    @property
    def name_suffix(self) -> str:
        """Options that differ from the default, as in an environment's name: `:craft=cf21,track=splits`."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        other = [
            f"{name}={value}" for name, value in sorted(given.items()) if value != getattr(DEFAULT, name)
        ]
        return ":" + ",".join(other) if other else ""


DEFAULT = FlightOptions()


@dataclass(frozen=True, slots=True)
class QuadEnvOptions(FlightOptions):
    """Options of `make_env("quad/<task>", ...)`."""

    max_episode_steps: int | None = None  # none: the task's own length
    compiled: bool | None = None  # none: from 64 lanes on


def measured_task(name: str, craft: Craft, options: FlightOptions) -> MeasuredTask:
    """The task as measured. Raises UnknownNameError, ConfigError for options that the craft cannot fly."""
    if name not in TASKS:
        raise UnknownNameError("flight task", name, TASKS)
    if name == "hover":
        return HoverTask()
    if name == "figure8":
        speed_m_s = 2.0 if options.speed_m_s is None else options.speed_m_s
        check_speed(craft, speed_m_s)
        return tracking_task(speed_m_s)
    if name == "waypoints":
        task = WaypointTask() if options.speed_m_s is None else WaypointTask(most_speed_m_s=options.speed_m_s)
        check_waypoint_speed(craft, task.most_speed_m_s, task)
        return task
    return _obstacles(craft, options) if name == "obstacles" else _race(craft, options)


def _obstacles(craft: Craft, options: FlightOptions) -> ObstacleTask:
    world = SwarmWorld(drones=1, density=options.density, arm_m=arm_m(craft))
    task = ObstacleTask(world, cylinders=options.cylinders, path="planned" if options.planner else "straight")
    if options.speed_m_s is not None:
        guidance = replace(task.weights.guidance, most_m_s=options.speed_m_s)
        task = replace(task, weights=replace(task.weights, guidance=guidance))
    check_obstacles(task, craft)
    return task


def _race(craft: Craft, options: FlightOptions) -> RaceTask:
    track, size = load_track(options.track, options.track_scale), options.track_scale
    task = RaceTask(track, craft_radius_m(craft), size=size, start_before_m=0.7 * size, start_m=0.1 * size)
    if options.speed_m_s is not None:
        task = replace(task, most_speed_m_s=options.speed_m_s)
    if options.baseline_speed_m_s is not None:
        task = replace(task, baseline_speed_m_s=options.baseline_speed_m_s)
    check_race(task, craft)
    return task


def senses_of(name: str, options: FlightOptions) -> FlightSenses:
    """Senses of a policy in a task; the integral only in tasks that hold a goal."""
    return FlightSenses(options.history, options.integral and name in ("hover", "figure8"))


def other_step(
    options: FlightOptions, craft: Craft, task: FlightTask, num: int, realism: Realism | None = None
) -> tuple[QuadPhysics, Step] | None:
    """(physics of its steps, step) of another engine, as `bullet_step` makes them; None for engine=quad."""
    if options.engine == "quad":
        return None
    return bullet_step(craft, task, num, None, realism, options.commanded, pure=True)


def unused_options(name: str) -> tuple[str, ...]:
    """Options that this task does not have."""
    return tuple(option for option, tasks in _OWN.items() if name not in tasks)


def check_options(name: str, options: FlightOptions) -> None:
    """Raise ConfigError for options of other tasks, UnknownNameError for an unknown engine."""
    if options.engine not in ENGINES:
        raise UnknownNameError("engine", options.engine, ENGINES)
    for option in unused_options(name):
        if getattr(options, option) != getattr(DEFAULT, option):
            owners = ", ".join(_OWN[option])
            raise ConfigError(
                f"Task {name} has no {option}: leave it out, or choose a task that has: {owners}."
            )
    if options.level == "motors" and options.rate_rad_s != DEFAULT.rate_rad_s:
        raise ConfigError(
            "rate_rad_s limits the commands of level=rates; level=motors has no rates: leave it out."
        )
