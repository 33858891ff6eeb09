"""Settings of `robo-rl finetune`. A method is a set of values: see robo_rl/conf/method/*.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import REQUIRED, at_least, one_of
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from sim.vec.intervention import InterventionConfig


@dataclass
class MapConfig:
    """What the actor's output means."""

    kind: str = one_of(
        "steering", "residual", "direct"
    )  # initial noise, correction of the base's action, the action
    magnitude: float = 1.5  # steering: largest shift of a noise element
    origin: str = one_of("zero", "gaussian")  # steering: shift zero noise, or the base's own draw
    rank: int | None = at_least(
        1, None
    )  # steering: cosines over the chunk that may shift; none: every element
    scale: float = 0.2  # residual: largest correction, in normalised action units
    per_chunk: bool = False  # residual: correct whole executed chunks instead of single steps


@dataclass
class MethodConfig(FinetuneConfig):
    """One method: its action map, its learner and its phases."""

    name: str = "steering"  # as shown in tables
    algorithm: str = one_of("off_policy", "noise_aliased", "ppo")  # which learner
    map: MapConfig = field(default_factory=MapConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    reward_source: str = one_of("task", "interventions")  # interventions: -1 just before each, 0 elsewhere
    reward_scale: float = 1.0  # what is learned is reward_scale * task reward + reward_bias, every step
    reward_bias: float = 0.0  # see reward_scale
    intervene: str = one_of(
        "none", "expert"
    )  # who may take over while training: the environment's scripted expert
    intervention: InterventionConfig = field(default_factory=InterventionConfig)
    execute: int | None = at_least(1, None)  # actions of a chunk that are executed; none: as the base has it
    base_noise: float = at_least(0.0, 1.0)  # residual: scale of the base's own noise in training; 0: none
    patience: float | None = at_least(
        1.0, None
    )  # training's episodes end after so many median demonstrations
    deploy_noise: float | None = at_least(
        0.0, None
    )  # the same when evaluated and deployed; none: as in training


@dataclass
class FinetuneVerb:
    """`robo-rl finetune`."""

    out: str = REQUIRED  # folder of the run
    base: str | None = None  # policy to improve: a policy folder or a run; none: learn from nothing
    env: str | None = None  # none: the one that the base was trained on
    demos: str | None = None  # dataset of demonstrations for the methods that replay them
    record: str = one_of("none", "success", "all")  # training's episodes that are kept, in `out`/episodes
    init: str | None = None  # earlier run whose actor and critics are the start; none: fresh ones
    method: MethodConfig = field(default_factory=MethodConfig)  # the recipe; method=<name> chooses one
    env_steps: int | None = at_least(1, None)  # environment steps in all; none: the method's own
    reward: str | None = None  # sparse or dense; none: what the environment gives by itself
    max_episode_steps: int | None = at_least(1, None)  # none: the environment's own
    seed: int = at_least(0, 0)  # of everything that is drawn
    num_envs: int = at_least(1, 4)  # lanes that learn together
    num_workers: int = at_least(0, 0)  # simulator processes; 0: this one
    eval_every: int = at_least(
        0, 2000
    )  # steps between evaluations, the best of which is kept; 0: first and last
    eval_episodes: int = at_least(1, 50)  # of each evaluation on the way
    final_episodes: int = at_least(1, 100)  # of the last one, the base on the same episodes beside it
    eval_seed: int = at_least(0, 0)  # which episodes; those on the way are others than the final ones
    checkpoint_every: int = at_least(
        1, 2000
    )  # steps between checkpoints; before the first step, offline updates
    resume: bool = False  # go on with the run in `out` after its last checkpoint
    overwrite: bool = False  # replace the run in `out`
