"""Aircraft, worlds, senses and engine of `robo-rl swarm`, from its settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import torch

from policies.flight.swarm import SwarmPolicy
from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.rl.differentiable.first_order import check_value_settings
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.effects import AirEffects
from sim.engines.quad.craft import Craft, load_craft
from sim.engines.quad.downwash import check_downwash
from sim.flight.bullet.swarm import BulletSwarm
from sim.flight.swarm.swarm import Swarm, TrainingRules
from sim.tasks.swarm.scenarios import check_room, check_scenarios
from sim.tasks.swarm.terms import CYLINDER_SIZE, GOAL_M, NEIGHBOUR_SIZE, SwarmSenses
from sim.tasks.swarm.world import SwarmWorld, arm_m, check_world


@dataclass(frozen=True)
class SwarmSetting:
    """Aircraft, measured worlds, senses of a drone, and engine."""

    craft: Craft
    world: SwarmWorld
    others: tuple[SwarmWorld, ...]  # additional kinds of world to measure in
    senses: SwarmSenses
    scenarios: tuple[str, ...]
    engine: str = "quad"
    scene: AirEffects | None = None  # air effects of engine=pybullet; None: all of them

    @classmethod
    def of(cls, config: SwarmConfig) -> SwarmSetting:
        """Setting from a config. Raises ConfigError for an impossible world, with the bound."""
        check_value_settings(config, bool(config.value))
        craft = load_craft(config.craft)
        for name in ("ramp", "replay", "train_density"):
            if not 0.0 <= getattr(config, name) <= 1.0:
                raise ConfigError(f"{name}={getattr(config, name):g} cannot be used, expected: from 0 to 1.")
        world = SwarmWorld(
            drones=config.drones, density=config.density, arm_m=arm_m(craft), low_m=config.low_m,
            high_m=config.high_m, seconds=config.eval_s,
        )  # fmt: skip
        others = tuple(replace(world, drones=num, density=share) for num, share in map(_size, config.also))
        for item in (world, *others, replace(world, density=max(config.density, config.train_density))):
            check_world(item)
        scenarios = check_scenarios(config.scenarios)
        for item in (world, *others):
            check_room(item, scenarios)
        check_air(config, craft)
        if config.engine == "pybullet":
            load_pybullet()  # fail now rather than after the training
        senses = SwarmSenses(config.neighbours, config.cylinders, config.history)
        return cls(craft, world, others, senses, scenarios, config.engine)

    def training_swarm(self, config: SwarmConfig, seed: int, crowding: float = 1.0) -> Swarm:
        """Worlds for training: all densities, shorter, and some that start shortly before a collision.

        crowding: scales the densities of the first ones.
        """
        world = replace(self.world, density=max(config.density, config.train_density))
        return Swarm(
            self.craft,
            world,
            self.senses,
            config.worlds,
            seed,
            scenarios=self.scenarios,
            training=TrainingRules(0.0, config.train_s, config.replay),
            with_downwash=config.downwash,
            eager=config.eager,
            other_engine=self.other_engine(world, config.worlds, pure=True),
            crowding=crowding,
        )

    def swarm(self, config: SwarmConfig, world: SwarmWorld, seed: int, batch: int = 0) -> Swarm:
        """Worlds for measurement, with the total number of drones of training, so that compiled kernels are
        reused.
        """
        worlds = max(1, config.worlds * config.drones // world.drones)
        return Swarm(
            self.craft,
            world,
            self.senses,
            worlds,
            seed,
            scenarios=self.scenarios,
            with_downwash=config.downwash,
            gradient=False,
            eager=config.eager,
            first_scenario=batch * worlds,
            other_engine=self.other_engine(world, worlds),
        )

    def other_engine(self, world: SwarmWorld, worlds: int, *, pure: bool = False) -> BulletSwarm | None:
        """Engine that replaces `quad`; None for engine=quad."""
        return (
            None if self.engine == "quad" else BulletSwarm(self.craft, world, worlds, self.scene, pure=pure)
        )

    def spec(self) -> EnvSpec:
        """The contract of the policy."""
        senses = self.senses
        unit = (
            f"to goal m (bent towards {GOAL_M:g} m), rotation 1, velocity m/s, rates rad/s, goal velocity "
            f"m/s, last {senses.history} actions 1, {senses.neighbours} drones (bearing 1, relative velocity "
            f"m/s, nearness 1), {senses.cylinders} cylinders (bearing 1, nearness 1); of drones and of "
            "cylinders row after row of all"
        )
        action = ActionSpec((-1.0,) * 4, (1.0,) * 4, "motor command: -1 stopped, 1 full speed")
        state = ArraySpec((senses.obs_size,), unit=unit)
        where = "" if self.engine == "quad" else f":engine={self.engine}"
        return EnvSpec(
            f"quad/swarm{where}", {"state": state}, action, self.world.steps, 1.0 / self.world.dt_s
        )

    def policy(self, config: SwarmConfig) -> SwarmPolicy:
        senses = self.senses
        kinds = ((senses.neighbours, NEIGHBOUR_SIZE), (senses.cylinders, CYLINDER_SIZE))
        scale = torch.tensor([1.0] * 15 + [0.5] * 3 + [1.0] * (3 + 4 * senses.history))
        hover = 2.0 * self.craft.hover_speed - 1.0
        return SwarmPolicy(self.spec(), kinds, config.width, config.token, config.heads, scale, hover)


def check_air(config: SwarmConfig, craft: Craft) -> None:
    """Raise ConfigError for downwash without coefficients, or with an engine that always simulates it."""
    if config.downwash and config.engine == "pybullet":
        raise ConfigError(
            "downwash=true is for engine=quad; engine=pybullet always simulates the downwash. "
            "Leave downwash= out."
        )
    if config.downwash:
        check_downwash(craft)


def _size(text: str) -> tuple[int, float]:
    """(drones, density): "32x80" is 32 drones at density 0.8."""
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise ConfigError(f"also='{text}' cannot be used: write drones x density in per cent, e.g. 32x80.")
    return int(match[1]), int(match[2]) / 100.0
