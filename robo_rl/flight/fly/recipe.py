"""Defaults of `robo-rl fly` that depend on task, method, level and start."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import PpoMethod, RewardMethod, SacMethod, ShacMethod, Td3Method
from robo_rl.rl.differentiable.first_order import FirstOrderConfig
from sim.tasks.flight.protocol import FlightTask

RECIPES = {  # task -> settings of first-order learning
    "hover": FirstOrderConfig(updates=700),
    "figure8": FirstOrderConfig(),
    "waypoints": FirstOrderConfig(updates=600, horizon=64, lr=1e-2),
    "race": FirstOrderConfig(updates=700, horizon=64, lr=1e-2),
    "obstacles": FirstOrderConfig(updates=1000, horizon=48, lr=1e-2),
}
SHORT = FirstOrderConfig(
    updates=900, horizon=24, lr=1e-2, value=True, bootstrap_terminated=True
)  # method=shac
LQR_LR = 3e-3  # start=lqr: a higher rate destroys the law before it improves it
LINKED_UPDATES = 900  # level=rates: delay slows learning
LINK_S = 0.02  # level=rates: delay of a radio plus one period of the autopilot's controller

FLIGHTS, GPU_FLIGHTS = 128, 1024  # parallel flights in training


def flights(config: FlyConfig) -> int:
    """Parallel flights in training: the setting, or the default of the device."""
    return config.flights or (FLIGHTS if config.device == "cpu" else GPU_FLIGHTS)


def latency_s(config: FlyConfig) -> float:
    """Delay of commands [s]: the setting, or that of a radio link at level=rates."""
    if config.latency_s is not None:
        return config.latency_s
    return LINK_S if config.level == "rates" else 0.0


def recipe(config: FlyConfig) -> FirstOrderConfig:
    """Settings of first-order learning, with the task's defaults where the user gave none."""
    own = SHORT if isinstance(config.method, ShacMethod) else RECIPES[config.task]
    if config.level == "rates" and config.task == "hover":
        own = replace(own, updates=LINKED_UPDATES)
    if config.start == "lqr":
        own = replace(own, lr=min(own.lr, LQR_LR))
    given = {item.name: getattr(config, item.name) for item in fields(FirstOrderConfig)}
    for name in ("updates", "horizon", "lr"):
        given[name] = given[name] or getattr(own, name)
    for name in ("value", "bootstrap_terminated"):
        given[name] = getattr(own, name) if given[name] is None else given[name]
    return FirstOrderConfig(**given)


def total_updates(config: FlyConfig) -> int:
    """Updates of one training as its learner counts them: policy updates, or rounds of steps and updates."""
    if isinstance(config.method, Td3Method | SacMethod | PpoMethod):
        return config.updates or config.method.rounds
    return recipe(config).updates


def resolved(config: FlyConfig, task: FlightTask) -> FlyConfig:
    """Settings with all dependent defaults filled in, as run and bundle record them.

    task: the measured one. Speeds stay None if they are the task's own, because they would change the
    environment's name. Settings that a reward-based method does not read keep their default.
    """
    known: dict[str, Any] = {
        "updates": total_updates(config),
        "latency_s": latency_s(config),
        "eval_s": task.max_steps * task.dt_s,
    }
    if not isinstance(config.method, RewardMethod) or config.method.reward == "task":
        known["w_action_rate"] = task.w_action_rate
    if not isinstance(config.method, RewardMethod):
        own = recipe(config)
        known["flights"] = flights(config)
        known |= {item.name: getattr(own, item.name) for item in fields(FirstOrderConfig)}
        known |= {
            "value": bool(own.value),
            "bootstrap_terminated": bool(own.value and own.bootstrap_terminated),
        }
    return replace(config, **known)
