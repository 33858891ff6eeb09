"""What `robo-rl fly` flies, worked out from its settings: craft, task, senses, realism, and how long to learn."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import ShacMethod
from robo_rl.core.spec import EnvSpec
from robo_rl.rl.first_order import FirstOrderConfig
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.flights import Flights
from sim.engines.quad.memory import Senses
from sim.engines.quad.realism import Realism, check_realism, steps_of
from sim.engines.quad.rows import Spread
from sim.engines.quad.vec_env import flight_spec
from sim.tasks.hover import HoverTask
from sim.tasks.protocol import FlightTask
from sim.tasks.race import RaceTask, check_race, craft_radius_m
from sim.tasks.track import load_track
from sim.tasks.tracking import TrackingTask, check_speed, figure_eight
from sim.tasks.waypoints import WaypointTask, check_waypoint_speed

RECIPES = {  # task -> what suits it
    "hover": FirstOrderConfig(),
    "figure8": FirstOrderConfig(),
    "waypoints": FirstOrderConfig(updates=600, horizon=64, lr=1e-2),
    "race": FirstOrderConfig(updates=700, horizon=64, lr=1e-2),
}

SHORT = FirstOrderConfig(updates=900, horizon=24, lr=1e-2, value=True, beyond=True)  # what suits method=shac

LQR_LR = 3e-3  # start=lqr: a faster rate forgets the law before it has improved it

PERFECT = Realism()


@dataclass(frozen=True)
class Setting:
    """What is flown: the craft, the task, what the policy sees, and how real it is."""

    craft: Craft
    training: FlightTask
    task: FlightTask  # that is measured
    senses: Senses
    realism: Realism = PERFECT

    @classmethod
    def of(cls, config: FlyConfig) -> Setting:
        """What the settings ask for. Raises ConfigError for what the craft cannot fly."""
        craft = load_craft(config.craft)
        training, task = _MAKERS[config.task](config, craft)
        changes: dict[str, Any] = {} if config.w_action_rate is None else {"w_action_rate": config.w_action_rate}
        training = replace(training, **changes)
        if config.eval_s is not None:
            changes["max_steps"] = round(config.eval_s / task.dt_s)
        task = replace(task, **changes)
        realism = Realism(
            latency_steps=steps_of("latency_s", config.latency_s, task.dt_s),
            delay_steps=steps_of("sensor_delay_s", config.sensor_delay_s, task.dt_s),
            gust_m_s=config.gust_m_s,
            battery_s=config.battery_s,
        )
        check_realism(realism, craft)
        settles = config.task in ("hover", "figure8")  # elsewhere the goal is never stayed at for long
        return cls(craft, training, task, Senses(config.history, config.integral and settles), realism)

    def spread(self, config: FlyConfig) -> Spread | None:
        """How far crafts differ in training."""
        return Spread(*([config.randomize] * 5)) if config.randomize > 0.0 else None

    def flights(self, num: int, seed: int, config: FlyConfig, *, gradient: bool) -> Flights:
        task = self.training if gradient else self.task
        spread = self.spread(config) if gradient else None
        return Flights(
            self.craft, task, self.senses, num, seed,
            spread=spread, realism=self.realism, gradient=gradient, eager=config.eager,
        )  # fmt: skip

    def spec(self) -> EnvSpec:
        """The contract of the policy."""
        return flight_spec(self.task, self.senses)

    def scale(self) -> Tensor:
        """Brings observations to about one; actions are, and the integral is 0.03 m s."""
        front, behind = self.task.scales
        memory = (1.0,) * (4 * self.senses.history) + (30.0,) * (3 * self.senses.integral)
        return torch.tensor(front + memory + behind)


def recipe(config: FlyConfig) -> FirstOrderConfig:
    """How to learn: what the settings say, and what suits the task where they say nothing."""
    own = SHORT if isinstance(config.method, ShacMethod) else RECIPES[config.task]
    if config.start == "lqr":
        own = replace(own, lr=min(own.lr, LQR_LR))
    given = {item.name: getattr(config, item.name) for item in fields(FirstOrderConfig)}
    for name in ("updates", "horizon", "lr"):
        given[name] = given[name] or getattr(own, name)
    for name in ("value", "beyond"):
        given[name] = getattr(own, name) if given[name] is None else given[name]
    return FirstOrderConfig(**given)


def _hover(config: FlyConfig, craft: Craft) -> tuple[Any, Any]:
    return HoverTask(), HoverTask()


def _figure8(config: FlyConfig, craft: Craft) -> tuple[Any, Any]:
    speed_m_s = 2.0 if config.speed_m_s is None else config.speed_m_s
    check_speed(craft, speed_m_s)
    training = replace(TrackingTask(), most_speed_m_s=1.1 * speed_m_s)
    return training, replace(training, curve=figure_eight(speed_m_s))


def _waypoints(config: FlyConfig, craft: Craft) -> tuple[Any, Any]:
    task = WaypointTask()
    if config.speed_m_s is not None:
        task = replace(task, most_speed_m_s=config.speed_m_s)
    check_waypoint_speed(craft, task.most_speed_m_s, task)
    return replace(task, start_anywhere=True, radius_m=task.train_radius_m), task


def _race(config: FlyConfig, craft: Craft) -> tuple[Any, Any]:
    track = load_track(config.track, config.track_scale)
    size = config.track_scale
    task = RaceTask(track, craft_radius_m(craft), size=size, start_before_m=0.7 * size, start_m=0.1 * size)
    if config.speed_m_s is not None:
        task = replace(task, most_speed_m_s=config.speed_m_s)
    if config.baseline_speed_m_s is not None:
        task = replace(task, baseline_speed_m_s=config.baseline_speed_m_s)
    check_race(task, craft)
    return replace(task, start_anywhere=True, gate_shift_m=config.gate_shift_m), task


_MAKERS = {"hover": _hover, "figure8": _figure8, "waypoints": _waypoints, "race": _race}
