"""What `robo-rl fly` flies, worked out from its settings: craft, task, senses, realism, and how long to
learn.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import ShacMethod
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.rl.differentiable.first_order import FirstOrderConfig
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.rows import Spread, even_spread
from sim.flight.command import Command, level_physics, make_command
from sim.flight.flights import Flights
from sim.flight.memory import FlightSenses
from sim.flight.realism import Realism, check_realism, steps_of
from sim.flight.setting import (
    DEFAULT,
    FlightOptions,
    MeasuredTask,
    check_options,
    measured_task,
    other_step,
    senses_of,
    unused_options,
)
from sim.flight.vec_env import flight_spec
from sim.tasks.flight.obstacles import ObstacleTask, check_obstacles
from sim.tasks.flight.protocol import FlightTask
from sim.tasks.flight.race import RaceTask
from sim.tasks.flight.tracking import TrackingTask
from sim.tasks.flight.waypoints import WaypointTask

RECIPES = {  # task -> what suits it
    "hover": FirstOrderConfig(updates=700),
    "figure8": FirstOrderConfig(),
    "waypoints": FirstOrderConfig(updates=600, horizon=64, lr=1e-2),
    "race": FirstOrderConfig(updates=700, horizon=64, lr=1e-2),
    "obstacles": FirstOrderConfig(updates=1000, horizon=48, lr=1e-2),
}

SHORT = FirstOrderConfig(updates=900, horizon=24, lr=1e-2, value=True, beyond=True)  # what suits method=shac

LQR_LR = 3e-3  # start=lqr: a faster rate forgets the law before it has improved it

LINKED_UPDATES = 900  # level=rates: a late craft is learned more slowly

LINK_S = (
    0.02  # level=rates: from a decision to the autopilot that follows it, a radio and a period of the loop
)

PERFECT = Realism()


@dataclass(frozen=True)
class FlightSetup:
    """What is flown: the craft, the task, what the policy sees, and how real it is."""

    craft: Craft
    training: FlightTask
    task: FlightTask  # that is measured
    senses: FlightSenses
    realism: Realism = PERFECT
    options: FlightOptions = DEFAULT

    @classmethod
    def of(cls, config: FlyConfig) -> FlightSetup:
        """What the settings ask for. Raises ConfigError for what the craft cannot fly."""
        craft = load_craft(config.craft)
        options = options_of(config)
        task: Any = measured_task(config.task, craft, options)
        training: Any = training_task(task, craft, config)
        changes: dict[str, Any] = (
            {} if config.w_action_rate is None else {"w_action_rate": config.w_action_rate}
        )
        training = replace(training, **changes)
        if config.eval_s is not None:
            changes["max_steps"] = round(config.eval_s / task.dt_s)
        task = replace(task, **changes)
        realism = Realism(
            latency_steps=steps_of("latency_s", latency_s(config), task.dt_s),
            delay_steps=steps_of("sensor_delay_s", config.sensor_delay_s, task.dt_s),
            flow_steps=steps_of("flow_delay_s", config.flow_delay_s, task.dt_s),
            gyro_bias_rad_s=config.gyro_bias_rad_s,
            gust_m_s=config.gust_m_s,
            battery_s=config.battery_s,
        )
        check_realism(realism, craft)
        even_spread(config.randomize, craft)
        return cls(craft, training, task, senses_of(config.task, options), realism, options)

    def spread(self, config: FlyConfig) -> Spread | None:
        """How far crafts differ in training."""
        return even_spread(config.randomize, self.craft)

    def flights(self, num: int, seed: int, config: FlyConfig, *, gradient: bool) -> Flights:
        task = self.training if gradient else self.task
        return self.flown(
            task, num, seed, config, self.spread(config) if gradient else None, gradient=gradient
        )

    def flown(
        self,
        task: FlightTask,
        num: int,
        seed: int,
        config: FlyConfig,
        spread: Spread | None,
        *,
        gradient: bool,
    ) -> Flights:
        """Flights in the engine that was asked for."""
        physics, step = other_step(self.options, self.craft, task, num, self.realism) or (None, None)
        return Flights(
            self.craft, task, self.senses, num, seed, physics=physics, spread=spread, realism=self.realism,
            gradient=gradient, eager=config.eager, step=step, level=self.options.commanded,
        )  # fmt: skip

    def spec(self) -> EnvSpec:
        """The contract of the policy."""
        return flight_spec(self.task, self.senses, self.options, self.command().spec)

    def command(self) -> Command:
        """What an action means."""
        physics = level_physics(self.options.commanded, self.task.dt_s)
        return make_command(self.options.commanded, self.craft, physics.dt_s / physics.substeps)

    def scale(self) -> Tensor:
        """Brings observations to about one; actions are, and the integral is 0.03 m s."""
        front, behind = self.task.scales
        memory = (1.0,) * (4 * self.senses.history) + (30.0,) * (3 * self.senses.integral)
        return torch.tensor(front + memory + behind)


def latency_s(config: FlyConfig) -> float:
    """What the settings say, and what a link costs where they say nothing."""
    if config.latency_s is not None:
        return config.latency_s
    return LINK_S if config.level == "rates" else 0.0


def recipe(config: FlyConfig) -> FirstOrderConfig:
    """How to learn: what the settings say, and what suits the task where they say nothing."""
    own = SHORT if isinstance(config.method, ShacMethod) else RECIPES[config.task]
    if config.level == "rates" and config.task == "hover":
        own = replace(own, updates=LINKED_UPDATES)
    if config.start == "lqr":
        own = replace(own, lr=min(own.lr, LQR_LR))
    given = {item.name: getattr(config, item.name) for item in fields(FirstOrderConfig)}
    for name in ("updates", "horizon", "lr"):
        given[name] = given[name] or getattr(own, name)
    for name in ("value", "beyond"):
        given[name] = getattr(own, name) if given[name] is None else given[name]
    return FirstOrderConfig(**given)


def options_of(config: FlyConfig) -> FlightOptions:
    """What an environment by name has to be told to be the one that is measured. Of speeds and tracks only
    those that the task has.
    """
    unused = unused_options(config.task)
    given = {
        item.name: getattr(config, item.name) for item in fields(FlightOptions) if item.name not in unused
    }
    return FlightOptions(**given)


def check_own(config: FlyConfig) -> None:
    """Raises ConfigError for a setting of another task: it would be thought to matter."""
    given = {item.name: getattr(config, item.name) for item in fields(FlightOptions)}
    check_options(config.task, FlightOptions(**given))
    for name, task in {"gate_shift_m": "race", "train_density": "obstacles"}.items():
        if config.task != task and getattr(config, name) != getattr(FlyConfig, name):
            raise ConfigError(f"Task {config.task} has no {name}: leave it out, or fly task={task}.")


def training_task(task: MeasuredTask, craft: Craft, config: FlyConfig) -> MeasuredTask:
    """The measured task as it is trained: on random curves, from anywhere on a course or in a field."""
    if isinstance(task, TrackingTask):
        return replace(task, curve=None)
    if isinstance(task, WaypointTask):
        return replace(task, start_anywhere=True, radius_m=task.train_radius_m)
    if isinstance(task, ObstacleTask):
        world = replace(task.world, density=max(config.density, config.train_density))
        field = replace(task, world=world, path="none", anywhere=True, least_density=0.0)
        check_obstacles(field, craft)
        return field
    return (
        replace(task, start_anywhere=True, gate_shift_m=config.gate_shift_m)
        if isinstance(task, RaceTask)
        else task
    )
