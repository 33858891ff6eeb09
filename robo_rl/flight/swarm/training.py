"""Training of a swarm policy: the learner, and the curriculum of density and collision cost."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from robo_rl.conf.swarm import SwarmConfig
from robo_rl.core.seeding import derive_seed
from robo_rl.flight.seeds import SeedTraining
from robo_rl.flight.swarm.setting import SwarmSetting
from robo_rl.rl.differentiable.first_order import FirstOrder, FirstOrderConfig


def make_training(config: SwarmConfig, setting: SwarmSetting, seed: int) -> SeedTraining:
    """New policy and its learner."""
    torch.manual_seed(derive_seed("init", seed))
    policy = setting.policy(config)
    first = curriculum_progress(0, config)
    swarm = setting.training_swarm(config, derive_seed("swarm", seed), first)
    swarm.caution = first
    recipe = FirstOrderConfig(**{item.name: getattr(config, item.name) for item in fields(FirstOrderConfig)})
    trainer = FirstOrder(policy, swarm, recipe)

    def before() -> None:
        swarm.caution = swarm.crowding = curriculum_progress(trainer.updates, config)

    def scalars() -> dict[str, Tensor]:
        return {"train/touching": swarm.touching.float().mean()}

    return SeedTraining(policy, trainer, swarm.compile_s, before=before, scalars=scalars)


def curriculum_progress(updates: int, config: SwarmConfig) -> float:
    """Progress of the curriculum: 0 at the start, 1 after the fraction `ramp` of the training."""
    return 1.0 if config.ramp == 0.0 else min(1.0, updates / (config.ramp * config.updates))
