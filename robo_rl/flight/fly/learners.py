"""Learner of `robo-rl fly method=...`, and the copy of its weights into a flight policy."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import nn

from policies.flight.policy import FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import PpoMethod, RewardMethod
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.flight.fly.recipe import flights as flights_of
from robo_rl.flight.fly.recipe import recipe, total_updates
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.flight.seeds import SeedTraining
from robo_rl.nets.optim.graphs import CudaGraph, GraphCache
from robo_rl.rl.differentiable.first_order import FirstOrder
from robo_rl.rl.differentiable.windowed import WindowedFirstOrder
from robo_rl.rl.off_policy.replay_trainer import ReplayConfig, ReplayTrainer
from robo_rl.rl.on_policy.ppo_trainer import PpoTrainer, PpoTrainerConfig
from robo_rl.runs.device import copied_to, pick_device
from sim.flight.control.linear_law import linear_law
from sim.flight.tensor_env import FlightTensorEnv
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.hover_reward import HoverReward


def make_training(config: FlyConfig, setting: FlightSetup, seed: int) -> SeedTraining:
    """New policy and its learner. Raises ConfigError if the task does not support the method or start."""
    policy = new_policy(config, setting, seed)
    method, device = config.method, pick_device(config.device)
    if device.type != "cpu":
        return device_training(config, setting, seed, policy, device)
    if not isinstance(method, RewardMethod):
        flights = setting.flights(
            setting.training,
            flights_of(config),
            derive_seed("flights", seed),
            spread=setting.spread,
            gradient=True,
        )
        return SeedTraining(policy, FirstOrder(policy, flights, recipe(config)), flights.compile_s)
    _check_actor(method)
    env = reward_flights(method, setting, config.task, seed)
    learner = replace(cast("Any", method).learner, hidden=list(config.hidden))
    given = {"learner": learner, "rounds": total_updates(config)}
    hover, rng = torch.tensor(setting.command().hover), generator("learner", seed)
    trainer: PpoTrainer | ReplayTrainer = (
        PpoTrainer(env, _only(PpoTrainerConfig, method, **given), hover, rng)
        if isinstance(method, PpoMethod)
        else ReplayTrainer(env, _only(ReplayConfig, method, **given), hover, rng)
    )
    return SeedTraining(policy, trainer, env.flights.compile_s, after=partial(copy_actor, trainer, policy))


def device_training(
    config: FlyConfig, setting: FlightSetup, seed: int, policy: FlightPolicy, device: torch.device
) -> SeedTraining:
    """First-order learning whose updates stay on the device, on a GPU as one CUDA graph each. The trained
    weights are copied into `policy` at the end and for each checkpoint.

    Raises ConfigError for methods that learn on the CPU only.
    """
    if isinstance(config.method, RewardMethod):
        raise ConfigError(
            f"method={cast('Any', config.method).name} learns on the CPU: use device=cpu, or "
            "method=first_order."
        )
    own, moved = recipe(config), cast("FlightPolicy", copied_to(policy, device))
    flights = setting.masked_flights(
        setting.training, flights_of(config), derive_seed("flights", seed), steps=own.horizon, device=device
    )
    graph = partial(CudaGraph, instead="Use device=cpu.")
    graphs = GraphCache(graph if device.type == "cuda" else None)
    trainer = WindowedFirstOrder(moved, flights, own, graphs)
    after = partial(copy_weights, moved, policy)
    return SeedTraining(policy, trainer, flights.compile_s, after=after)


def new_policy(config: FlyConfig, setting: FlightSetup, seed: int) -> FlightPolicy:
    """Policy before its first update. Raises ConfigError if it cannot start from a linear law."""
    torch.manual_seed(derive_seed("init", seed))
    hover, lqr = setting.command().hover, config.start == "lqr"
    policy = FlightPolicy(setting.spec(), tuple(config.hidden), setting.scale(), hover, law=lqr)
    if not lqr:
        return policy
    if config.task != "hover" or config.level != "motors" or isinstance(config.method, RewardMethod):
        raise ConfigError(
            "start=lqr begins with a linear law around hover for first-order learning: it needs task=hover, "
            f"level=motors and method=first_order or shac, found task={config.task}, level={config.level} "
            f"and method={config.method.name}."
        )
    law = linear_law(setting.craft, setting.task.dt_s, setting.senses)
    policy.set_law(torch.from_numpy(law.weight), torch.from_numpy(law.bias))
    return policy


def reward_flights(method: RewardMethod, setting: FlightSetup, task_name: str, seed: int) -> FlightTensorEnv:
    """Training flights that end at the bounds of the measured ones, so that the reward favours staying
    inside.
    """
    if task_name != "hover" or not isinstance(setting.training, HoverTask):
        raise ConfigError(
            f"method={cast('Any', method).name} learns task=hover only, found task={task_name}. "
            "Use method=first_order."
        )
    task = replace(setting.training, train_box_m=setting.training.box_m)
    flights = setting.flights(task, method.lanes, derive_seed("flights", seed), spread=setting.spread)
    reward = HoverReward(task, method.reward, method.reward_size, method.positive)
    return FlightTensorEnv(flights, reward, setting.scale(), method.asymmetric)


def copy_weights(trained: FlightPolicy, policy: FlightPolicy) -> None:
    """Copy all weights, to the device of `policy`."""
    policy.load_state_dict(trained.state_dict())


def copy_actor(trainer: PpoTrainer | ReplayTrainer, policy: FlightPolicy) -> None:
    """Copy the weights of an actor into the flight policy."""
    layers = [layer for layer in cast("Any", trainer.actor).net if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for (weight, bias), layer in zip(policy.weights(), layers, strict=True):
            weight.copy_(layer.weight[: len(weight)])  # only the mean of a Gaussian actor
            bias.copy_(layer.bias[: len(bias)])


def _check_actor(method: RewardMethod) -> None:
    """Raise ConfigError for an actor whose weights would compute a different function in a flight policy."""
    learner = cast("Any", method).learner
    norm = learner.layer_norm if learner.actor_norm is None else learner.actor_norm
    found = {
        "method.learner.activation=relu": learner.activation != "tanh",
        f"method.learner.{'layer' if learner.actor_norm is None else 'actor'}_norm=true": norm,
        "method.ppo.squash=false": isinstance(method, PpoMethod) and not method.ppo.squash,
    }
    for setting, there in found.items():
        if there:
            raise ConfigError(
                f"{setting} cannot be used: a flight policy has tanh after every layer and no norms, so it "
                "would differ from the trained actor. Leave it out."
            )


def _only(kind: type[Any], method: Any, **changes: Any) -> Any:
    """Settings of the learner, taken from those of the method."""
    return kind(**{name: getattr(method, name) for name in kind.__dataclass_fields__} | changes)
