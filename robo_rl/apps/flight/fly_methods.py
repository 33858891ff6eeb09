"""Which learner `robo-rl fly method=...` trains with, and how its weights become a flight policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from policies.flight.policy import FlightPolicy
from robo_rl.apps.flight.fly_setting import FlightSetup, recipe
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.fly_method import PpoMethod, RewardMethod, SacMethod, Td3Method
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.rl.differentiable.first_order import FirstOrder
from robo_rl.rl.off_policy.replay_rows import ReplayConfig, ReplayRows
from robo_rl.rl.on_policy.ppo_rows import PpoRows, PpoRowsConfig
from sim.flight.control.linear_law import linear_law
from sim.flight.flight_rows import FlightRows
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.hover_reward import HoverReward


@runtime_checkable
class Trainer(Protocol):
    """What the verb needs of a learner."""

    @property
    def done(self) -> bool: ...

    @property
    def updates(self) -> int: ...

    @property
    def env_steps(self) -> int: ...

    def update(self) -> dict[str, Tensor]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def total_updates(config: FlyConfig) -> int:
    """Of one training, in what its learner counts: updates of the policy, or rounds of steps and updates."""
    if isinstance(config.method, Td3Method | SacMethod | PpoMethod):
        return config.updates or config.method.rounds
    return recipe(config).updates


def new_policy(config: FlyConfig, setting: FlightSetup, seed: int) -> FlightPolicy:
    """The policy before its first update. Raises ConfigError where it cannot start as a linear law."""
    torch.manual_seed(derive_seed("init", seed))
    hover, lqr = setting.command().hover, config.start == "lqr"
    policy = FlightPolicy(setting.spec(), tuple(config.hidden), setting.scale(), hover, law=lqr)
    if not lqr:
        return policy
    if config.task != "hover" or config.level != "motors" or isinstance(config.method, RewardMethod):
        raise ConfigError(
            "start=lqr is a law about hover that first-order learning improves: it goes with task=hover, "
            f"level=motors and method=first_order or shac, found task={config.task}, level={config.level} "
            f"and method={config.method.name}."
        )
    law = linear_law(setting.craft, setting.task.dt_s, setting.senses)
    policy.set_law(torch.from_numpy(law.weight), torch.from_numpy(law.bias))
    return policy


def make_trainer(
    config: FlyConfig, setting: FlightSetup, policy: FlightPolicy, seed: int
) -> tuple[Trainer, float]:
    """The learner, and the CPU seconds that compiling its simulator took. Raises ConfigError for what cannot
    be.
    """
    method = config.method
    if not isinstance(method, RewardMethod):
        flights = setting.flights(config.flights, derive_seed("flights", seed), config, gradient=True)
        return FirstOrder(policy, flights, recipe(config)), flights.compile_s
    _check_actor(method)
    env = reward_flights(config, setting, method, seed)
    given = {"rounds": total_updates(config)}
    learner = replace(cast("Any", method).learner, hidden=list(config.hidden))
    start = torch.tensor(setting.command().hover)
    rng = generator("learner", seed)
    if isinstance(method, PpoMethod):
        return PpoRows(
            env, _only(PpoRowsConfig, method, learner=learner, **given), start, rng
        ), env.flights.compile_s
    return ReplayRows(
        env, _only(ReplayConfig, method, learner=learner, **given), start, rng
    ), env.flights.compile_s


def reward_flights(config: FlyConfig, setting: FlightSetup, method: RewardMethod, seed: int) -> FlightRows:
    """Training flights that end where measured ones do: nothing is earned behind that, so staying pays."""
    if config.task != "hover" or not isinstance(setting.training, HoverTask):
        raise ConfigError(
            f"method={cast('Any', method).name} learns task=hover only, found task={config.task}. "
            "Use method=first_order."
        )
    task = replace(setting.training, train_box_m=setting.training.box_m)
    seeded = derive_seed("flights", seed)
    flights = setting.flown(task, method.lanes, seeded, config, setting.spread(config), gradient=False)
    reward = HoverReward(task, method.reward, method.reward_size, method.positive)
    return FlightRows(flights, reward, setting.scale(), method.asymmetric)


def _check_actor(method: RewardMethod) -> None:
    """Raises ConfigError for an actor whose weights do not make the same function as a flight policy."""
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
                f"{setting} cannot be used: a flight policy is tanh after every layer and nothing else, so "
                "what is learned would not be what is flown. Leave it out."
            )


def hand_over(trainer: Trainer, policy: FlightPolicy) -> None:
    """Copy an actor's weights into the policy that is flown; first-order learning trains that policy
    itself.
    """
    if isinstance(trainer, FirstOrder):
        return
    actor = cast("Any", trainer).actor
    layers = [layer for layer in actor.net if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        for (weight, bias), layer in zip(policy.weights(), layers, strict=True):
            weight.copy_(layer.weight[: len(weight)])  # of a Gaussian actor the mean, not the spread
            bias.copy_(layer.bias[: len(bias)])


def _only(kind: type[Any], method: Any, **changes: Any) -> Any:
    """The learner's own settings out of the method's."""
    return kind(**{name: getattr(method, name) for name in kind.__dataclass_fields__} | changes)
