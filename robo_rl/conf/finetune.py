"""Settings of `robo-rl finetune`. A method is a set of values: see robo_rl/conf/method/*.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import REQUIRED, logger_setting, one_of, setting
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from sim.vec.intervention import InterventionConfig


@dataclass
class MapConfig:
    """What the actor's output means."""

    kind: str = one_of(
        "steering", "residual", "direct", help="initial noise, correction of the base's action, the action"
    )
    magnitude: float = setting(1.5, "steering: largest shift of a noise element")
    origin: str = one_of("zero", "gaussian", help="steering: shift zero noise, or the base's own draw")
    rank: int | None = setting(
        None, "steering: cosines over the chunk that may shift; none: every element", at_least=1
    )
    scale: float = setting(0.2, "residual: largest correction, in normalised action units")
    per_chunk: bool = setting(False, "residual: correct whole executed chunks instead of single steps")


@dataclass
class MethodConfig(FinetuneConfig):
    """One method: its action map, its learner and its phases."""

    name: str = setting("steering", "as shown in tables")
    algorithm: str = one_of("off_policy", "noise_aliased", "ppo", help="which learner")
    map: MapConfig = field(default_factory=MapConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    reward_source: str = one_of(
        "task", "interventions", help="interventions: -1 just before each, 0 elsewhere"
    )
    reward_scale: float = setting(
        1.0, "what is learned is reward_scale * task reward + reward_bias, every step"
    )
    reward_bias: float = setting(0.0, "see reward_scale")
    intervene: str = one_of(
        "none", "expert", help="who may take over while training: the environment's scripted expert"
    )
    intervention: InterventionConfig = field(default_factory=InterventionConfig)
    execute: int | None = setting(
        None, "actions of a chunk that are executed; none: as the base has it", at_least=1
    )
    base_noise: float = setting(
        1.0, "residual: scale of the base's own noise in training; 0: none", at_least=0.0
    )
    episode_limit_factor: float | None = setting(
        None, "training's episodes end after so many median demonstrations", at_least=1.0
    )
    deploy_noise: float | None = setting(
        None, "the same when evaluated and deployed; none: as in training", at_least=0.0
    )


@dataclass
class FinetuneVerb:
    """`robo-rl finetune`."""

    out: str = setting(REQUIRED, "folder of the run")
    base: str | None = setting(
        None, "policy to improve: a policy folder, a run or <run>@<step>; none: learn from nothing"
    )
    env: str | None = setting(None, "none: the one that the base was trained on")
    demos: str | None = setting(None, "dataset of demonstrations for the methods that replay them")
    record: str = one_of(
        "none", "success", "all", help="training's episodes that are kept, in `out`/episodes"
    )
    init: str | None = setting(None, "earlier run whose actor and critics are the start; none: fresh ones")
    method: MethodConfig = field(default_factory=MethodConfig)  # the recipe; method=<name> chooses one
    env_steps: int | None = setting(None, "environment steps in all; none: the method's own", at_least=1)
    reward: str | None = setting(None, "sparse or dense; none: what the environment gives by itself")
    max_episode_steps: int | None = setting(None, "none: the environment's own", at_least=1)
    seed: int = setting(0, "of everything that is drawn", at_least=0)
    num_envs: int = setting(4, "lanes that learn together", at_least=1)
    num_workers: int = setting(0, "simulator processes; 0: this one", at_least=0)
    eval_every: int = setting(
        2000, "steps between evaluations, the best of which is kept; 0: first and last", at_least=0
    )
    eval_episodes: int = setting(50, "of each evaluation on the way", at_least=1)
    final_episodes: int = setting(100, "of the last one, the base on the same episodes beside it", at_least=1)
    eval_seed: int = setting(0, "which episodes; those on the way are others than the final ones", at_least=0)
    checkpoint_every: int = setting(
        2000, "steps between checkpoints; before the first step, offline updates", at_least=1
    )
    logger: str = logger_setting()
    resume: bool = setting(False, "go on with the run in `out` after its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`")
