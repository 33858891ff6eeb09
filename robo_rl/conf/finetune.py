"""Settings of `robo-rl finetune`. A method is a set of values: see robo_rl/conf/method/*.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import REQUIRED, logger_setting, one_of, setting
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.denoising.config import DenoisingConfig
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.rl.on_policy.groups import GroupConfig
from robo_rl.rl.on_policy.ppo import PpoConfig
from sim.vec.intervention import InterventionConfig

ON_POLICY = ("ppo", "denoising")  # algorithms that learn from their own rollouts alone


@dataclass
class MapConfig:
    """Settings of the action map."""

    kind: str = one_of(
        "steering",
        "residual",
        "direct",
        "chain",
        "draws",
        "candidates",
        "head",
        "tokens",
        help="actor's output: initial noise of the base, correction of its action, the action, the base's "
        "denoising chain, its chunk with draws of its training loss, the choice of one of its chunks, a "
        "chunk by a single-step head, or the base's action tokens",
    )
    draws: int = setting(8, "draws: noises and times per chunk at which the loss is taken", at_least=1)
    candidates: int = setting(8, "candidates: draws of the base per decision, its own included", at_least=2)
    edit: float = setting(
        0.0, "candidates: largest edit of a draw, in normalised action units; 0: no edits", at_least=0.0
    )
    magnitude: float = setting(1.5, "steering: largest shift of a noise element, in standard deviations")
    origin: str = one_of(
        "zero", "gaussian", help="steering: noise that is shifted, zero or a Gaussian sample"
    )
    rank: int | None = setting(
        None,
        "steering: number of cosines over the chunk that the shift consists of; none: every element is free",
        at_least=1,
    )
    scale: float = setting(0.2, "residual: largest correction, in normalised action units")
    per_chunk: bool = setting(False, "residual: correct entire executed chunks instead of single steps")


@dataclass
class MethodConfig(FinetuneConfig):
    """One method: its action map, its learner and its phases."""

    name: str = setting("steering", "name of the method in tables")
    algorithm: str = one_of(
        "off_policy",
        "noise_aliased",
        "ppo",
        "denoising",
        help="learner: off-policy (SAC, TD3), noise-aliased critics (DSRL), PPO of an actor, or PPO of the "
        "base's denoising network or decoder of tokens",
    )
    map: MapConfig = field(default_factory=MapConfig)
    ppo: PpoConfig = field(default_factory=PpoConfig)
    denoising: DenoisingConfig = field(default_factory=DenoisingConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    encoder: str = one_of(
        "frozen",
        "learned",
        help="pictures: actor and critics see the base's features, or those of a copy of its encoder that "
        "learns with the critics",
    )
    privileged: bool = setting(
        False,
        "residual: actor and critics see the simulator's true state instead of the base's features, so that "
        "pictures are drawn only when the base plans; the policy then runs in simulation only",
    )
    shift_px: int = setting(
        4, "encoder=learned: largest random shift of a replayed picture [pixels] (DrQ-v2)", at_least=0
    )
    frames: str = one_of(
        "device", "host", help="encoder=learned: memory of the replayed pictures; host: pinned, for a GPU"
    )
    image: ImageEncoderConfig = field(default_factory=ImageEncoderConfig)  # learning from scratch
    reward_source: str = one_of(
        "task",
        "interventions",
        help="reward that is learned from: the task's, or -1 just before each intervention and 0 elsewhere",
    )
    demo_steps: str = one_of(
        "all",
        "human",
        help="steps or chunks of demos= that are replayed: all, or those in which a human acted (column "
        "intervention)",
    )
    needs_demos: bool = setting(
        True,
        "refuse to run without demos= if mix.demo is above 0; false: the other buffers then have its share",
    )
    reward_scale: float = setting(
        1.0, "factor of the reward; learning uses reward_scale * reward + reward_bias at every step"
    )
    reward_bias: float = setting(0.0, "offset added to the scaled reward of every step")
    progress_gripper: int | None = setting(
        None,
        "progress_weight: number of the action that commands the gripper, from 0; none: the one that the "
        "dataset's unit of actions names",
        at_least=0,
    )
    intervene: str = one_of(
        "none",
        "expert",
        help="who may take over during training: nobody, or the environment's scripted expert",
    )
    intervention: InterventionConfig = field(default_factory=InterventionConfig)
    execute: int | None = setting(
        None, "number of actions executed from each chunk; none: the base's own", at_least=1
    )
    base_noise: float = setting(
        1.0,
        "residual, denoising, candidates: scale of the base's initial noise in training; 0: zero noise",
        at_least=0.0,
    )
    episode_limit_factor: float | None = setting(
        None,
        "step limit of training episodes, as a multiple of the median demonstration; none: the environment's",
        at_least=1.0,
    )
    least_weight: float = setting(
        1.0,
        "environments of several tasks: episodes go to tasks in proportion to their recent rate of failures, "
        "or this if it is less; 1: equal shares",
        above=0.0,
        at_most=1.0,
    )
    deploy_noise: float | None = setting(
        None,
        "residual, denoising: scale of the base's initial noise in evaluation and deployment; none: "
        "base_noise",
        at_least=0.0,
    )
    default_envs: int = setting(4, "number of environments if num_envs is 0", at_least=1)
    compare_share: float = setting(
        0.0,
        "largest share of env_steps for a comparison of the last policy with the base at the end, which "
        "replaces evaluations during training; 0: no comparison",
        at_least=0.0,
        at_most=0.5,
    )
    base_is_enough: int = setting(
        0,
        "end after base_steps if the base has succeeded in all of its episodes, at least this many; 0: never",
        at_least=0,
    )


@dataclass
class FinetuneVerb:
    """`robo-rl finetune`."""

    out: str = setting(REQUIRED, "folder of the run")
    base: str | None = setting(
        None, "policy to improve: a policy folder, a run or <run>@<step>; none: learn from scratch"
    )
    env: str | None = setting(None, "environment to learn in; none: the one that the base was trained on")
    demos: str | None = setting(
        None, "dataset of demonstrations, for methods that replay them (mix.demo); none: no demonstrations"
    )
    record: str = one_of(
        "none", "success", "all", help="training episodes that are recorded in `out`/episodes"
    )
    init: str | None = setting(
        None, "earlier run whose actor and critics are loaded at the start; none: new ones"
    )
    # settings of the method; method=<name> chooses one
    method: MethodConfig = field(default_factory=MethodConfig)
    env_steps: int | None = setting(
        None,
        "total environment steps, including a comparison at the end, excluding evaluations every eval_every "
        "steps; none: the method's own number",
        at_least=1,
    )
    max_wall_s: float | None = setting(
        None,
        "training ends after this wall time of the process [s], evaluations included, if env_steps were not "
        "reached; none: no limit",
        at_least=0.0,
    )
    reward: str | None = setting(None, "reward of the environment, sparse or dense; none: its default")
    max_episode_steps: int | None = setting(
        None, "longest episode, in steps; none: the environment's own limit", at_least=1
    )
    seed: int = setting(0, "seed of everything random in the training", at_least=0)
    num_envs: int = setting(
        0,
        "number of environments that are stepped in parallel, with launcher=ray by each actor; 0: as many as "
        "the method needs",
        at_least=0,
    )
    num_workers: int = setting(
        0,
        "number of simulator processes, with launcher=ray of each actor; 0: simulate in this process",
        at_least=0,
    )
    launcher: str = one_of(
        "none", "ray", help="who steps the environments: this process, or actors that Ray runs; needs Ray"
    )
    actors: int = setting(1, "launcher=ray: processes that hold environments", at_least=1)
    ray_address: str | None = setting(
        None, "launcher=ray: cluster, host:port or auto; none: a local one of this run, on loopback only"
    )
    block_steps: int = setting(
        32, "launcher=ray: control steps of an actor's environments between two deliveries", at_least=1
    )
    staleness: int = setting(
        2,
        "launcher=ray: most blocks per actor that the learner uses while an actor acts with the same "
        "weights; 0: actors and learner take turns",
        at_least=0,
    )
    object_store_mb: int = setting(
        256, "launcher=ray: shared memory of a local Ray cluster [MB]", at_least=80
    )
    device: str = setting(
        "auto",
        "device of policies, replay and learning: cpu, cuda or cuda:<number>; auto: the simulator's own",
    )
    graphs: str = one_of(
        "auto", "off", help="updates on a GPU as captured graphs, or operation by operation; same results"
    )
    eval_every: int = setting(
        2000,
        "environment steps between evaluations; the best evaluated policy is kept; 0: first and last only; "
        "not used by auto and by methods with a comparison at the end",
        at_least=0,
    )
    eval_episodes: int = setting(50, "episodes of each evaluation during training", at_least=1)
    final_episodes: int = setting(
        100, "episodes of the final evaluation, the same for the policy and the base", at_least=1
    )
    eval_seed: int = setting(
        0, "seed of the evaluations; the final one uses other episodes than those during training", at_least=0
    )
    checkpoint_every: int = setting(
        2000, "environment steps between checkpoints; before the first step, offline updates", at_least=1
    )
    logger: str = logger_setting()
    resume: bool = setting(False, "continue the run in `out` from its last checkpoint")
    overwrite: bool = setting(False, "replace the run in `out`; it is deleted when the new one is done")
