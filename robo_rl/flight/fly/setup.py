"""Aircraft, task, senses and realism of `robo-rl fly`, from its settings."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import PpoMethod, RewardMethod
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import EnvSpec
from robo_rl.flight.fly.recipe import latency_s, recipe
from robo_rl.rl.differentiable.first_order import check_value_settings
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.layout import Spread, even_spread
from sim.flight.command import Command, level_physics, make_command
from sim.flight.flights import Flights
from sim.flight.masked_flights import MaskedFlights
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
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.obstacles import ObstacleTask, check_obstacles
from sim.tasks.flight.protocol import FlightTask
from sim.tasks.flight.race import RaceTask
from sim.tasks.flight.tracking import TrackingTask
from sim.tasks.flight.waypoints import WaypointTask

PERFECT = Realism()
_UNREAD = {  # settings of first-order learning -> what methods that learn from rewards have instead
    "horizon": "method.learner.n_step",
    "lr": "method.learner.lr_actor and method.learner.lr_critic",
    "final_lr": None,
    "grad_clip": "method.learner.grad_clip",
    "value": None,
    "bootstrap_terminated": None,
    "gamma": "method.learner.gamma",
    "flights": "method.lanes",
}


@dataclass(frozen=True)
class FlightSetup:
    """Aircraft, task in training and in measurement, senses of the policy, and realism."""

    craft: Craft
    training: FlightTask
    task: FlightTask  # the measured one
    senses: FlightSenses
    realism: Realism = PERFECT
    options: FlightOptions = DEFAULT
    spread: Spread | None = None  # variation between aircraft in training
    eager: bool = False  # do not compile the simulator

    @classmethod
    def of(cls, config: FlyConfig) -> FlightSetup:
        """Setup from settings. Raises ConfigError for a task that the aircraft cannot fly."""
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
        realism = realism_of(config, task.dt_s)
        check_realism(realism, craft)
        spread, senses = even_spread(config.randomize, craft), senses_of(config.task, options)
        return cls(craft, training, task, senses, realism, options, spread, config.eager)

    def flights(
        self,
        task: FlightTask,
        num: int,
        seed: int,
        *,
        spread: Spread | None = None,
        gradient: bool = False,
    ) -> Flights:
        """New flights in the engine of the options."""
        physics, step = other_step(self.options, self.craft, task, num, self.realism) or (None, None)
        return Flights(
            self.craft, task, self.senses, num, seed, physics=physics, spread=spread, realism=self.realism,
            gradient=gradient, eager=self.eager, step=step, level=self.options.commanded,
        )  # fmt: skip

    def masked_flights(
        self, task: FlightTask, num: int, seed: int, *, steps: int, device: torch.device
    ) -> MaskedFlights:
        """New training flights on a device, in windows of `steps` steps. Raises ConfigError for another
        engine, which runs on the CPU.
        """
        if other_step(self.options, self.craft, task, 1, self.realism) is not None:
            raise ConfigError(
                f"engine={self.options.engine} simulates on the CPU: use device=cpu, or leave engine out."
            )
        return MaskedFlights(
            self.craft, task, self.senses, num, seed, steps=steps, device=device, spread=self.spread,
            realism=self.realism, level=self.options.commanded, eager=self.eager,
        )  # fmt: skip

    def spec(self) -> EnvSpec:
        """The contract of the policy."""
        return flight_spec(self.task, self.senses, self.options, self.command().spec)

    def command(self) -> Command:
        """Meaning of an action."""
        physics = level_physics(self.options.commanded, self.task.dt_s)
        return make_command(self.options.commanded, self.craft, physics.dt_s / physics.substeps)

    def scale(self) -> Tensor:
        """Factors that scale observations to about one. Actions need none; the integral is about 0.03 m s."""
        front, behind = self.task.scales
        memory = (1.0,) * (4 * self.senses.history) + (30.0,) * (3 * self.senses.integral)
        return torch.tensor(front + memory + behind)


def realism_of(config: FlyConfig, dt_s: float) -> Realism:
    """Latency, delays, bias, gusts and battery. Raises ConfigError for times that are not multiples of a
    step.
    """
    return Realism(
        latency_steps=steps_of("latency_s", latency_s(config), dt_s),
        delay_steps=steps_of("sensor_delay_s", config.sensor_delay_s, dt_s),
        flow_steps=steps_of("flow_delay_s", config.flow_delay_s, dt_s),
        gyro_bias_rad_s=config.gyro_bias_rad_s,
        gust_m_s=config.gust_m_s,
        battery_s=config.battery_s,
    )


def options_of(config: FlyConfig) -> FlightOptions:
    """Environment options of the measured task: those settings that the task has."""
    unused = unused_options(config.task)
    given = {
        item.name: getattr(config, item.name) for item in fields(FlightOptions) if item.name not in unused
    }
    return FlightOptions(**given)


def check_own(config: FlyConfig) -> None:
    """Raise ConfigError for a setting that only another task or another method has."""
    given = {item.name: getattr(config, item.name) for item in fields(FlightOptions)}
    check_options(config.task, FlightOptions(**given))
    for name, task in {"gate_shift_m": "race", "train_density": "obstacles"}.items():
        if config.task != task and getattr(config, name) != getattr(FlyConfig, name):
            raise ConfigError(f"Task {config.task} has no {name}: leave it out, or fly task={task}.")
    if isinstance(config.method, RewardMethod):
        _check_read(config, config.method)
    else:
        check_value_settings(config, bool(recipe(config).value))


def _check_read(config: FlyConfig, method: RewardMethod) -> None:
    """Raise ConfigError for a setting that a method which learns from rewards does not read."""
    unread = _UNREAD | ({"horizon": "method.ppo.rollout"} if isinstance(method, PpoMethod) else {})
    if method.reward == "l2f":
        unread["w_action_rate"] = "method.reward=task with it"
    for name, instead in unread.items():
        if (value := getattr(config, name)) != getattr(FlyConfig, name):
            raise ConfigError(
                f"{name}={value} has no effect with method={config.method.name}"
                f"{' method.reward=l2f' if name == 'w_action_rate' else ''}: "
                + (f"use {instead}." if instead else "leave it out.")
            )


def training_task(task: MeasuredTask, craft: Craft, config: FlyConfig) -> MeasuredTask:
    """Training version of the measured task: random curves, random starts on a course or in a field."""
    if isinstance(task, TrackingTask):
        return replace(task, curve=None)
    if isinstance(task, WaypointTask):
        return replace(task, start_anywhere=True, radius_m=task.train_radius_m)
    if isinstance(task, ObstacleTask):
        world = replace(task.world, density=max(config.density, config.train_density))
        field = replace(task, world=world, path="none", anywhere=True, least_density=0.0)
        check_obstacles(field, craft)
        return field
    if isinstance(task, RaceTask):
        return replace(task, start_anywhere=True, gate_shift_m=config.gate_shift_m)
    return task
