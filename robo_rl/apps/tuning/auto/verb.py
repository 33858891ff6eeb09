"""`robo-rl finetune method=auto`: the best recipe for the base, the demonstrations and the environments.

With demonstrations and 16 to 64 environments it trains `residual_lanes`, unless the base's own episodes leave
nothing to learn, and imitates the successes. With fewer environments, as on a robot, it trains in stages
(`stages.py`).
"""

from __future__ import annotations

from dataclasses import asdict, replace

from policies.base.generative import GenerativePolicy
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.auto.imitation import imitate
from robo_rl.apps.tuning.auto.plan import stage_method, total_steps
from robo_rl.apps.tuning.auto.stages import train_in_stages
from robo_rl.apps.tuning.diverged import DIVERGED_IN_AUTO
from robo_rl.apps.tuning.inputs import keep_tuning_inputs
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.report import report
from robo_rl.apps.tuning.start import load_base, with_planning_interval
from robo_rl.apps.tuning.stores import check_replayed
from robo_rl.conf.dotted import flat
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.settings import free_keys
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.learning_curve import TuningResult
from robo_rl.runs.loaded_policy import find_policy, trained_env_spec
from robo_rl.runs.resumable import how_to_continue
from robo_rl.runs.run_dir import RunDir

FEWEST_LANES, MOST_LANES = 16, 64  # environments of `residual_lanes`, which was measured with 16 and 32
ENOUGH = 100  # episodes of the base without a failure after which nothing is trained: success is above 97 %


def environments(config: FinetuneVerb) -> int:
    """Number of environments of the run: `num_envs`, or what the method needs.

    `auto` takes as many as `residual_lanes` if there are demonstrations and no pictures to render.
    """
    if config.num_envs:
        return config.num_envs
    if config.method.name == "auto" and config.demos is not None and not _sees_pictures(config):
        return stage_method("residual_lanes").default_envs
    return config.method.default_envs


def _sees_pictures(config: FinetuneVerb) -> bool:
    """True if the base sees pictures; also without a base, which another check refuses."""
    try:
        spec = trained_env_spec(find_policy(str(config.base)))
    except CheckpointError:
        return True
    return any(name.startswith("image.") for name in spec.obs)


def check_auto(config: FinetuneVerb) -> None:
    """Raise ConfigError for settings that `method=auto` does not use."""
    if config.init is not None:
        raise ConfigError(
            f"init={config.init} continues the networks of one method, but method=auto (the default) chooses "
            "its methods itself. Add method=<that run's method>, or leave out init=."
        )
    default = stage_method("auto")
    ours, usual = (dict(flat(asdict(method))) for method in (config.method, default))
    if keys := [key for key in ours if ours[key] != usual.get(key) and key != "env_steps"]:
        given = " ".join(f"method.{key}={ours[key]}" for key in keys)
        raise ConfigError(
            f"{given} cannot be used: method=auto (the default) runs methods with their own settings. Choose "
            "the method that this is for, e.g. method=residual or method=steering (docs/methods.md)."
        )


def finetune_auto(config: FinetuneVerb) -> int:
    """Train by the recipe that suits the environments, and save the best policy in `out`/policy."""
    base = load_base(config)
    if memory_shape(base) is None:  # a base with a memory replays none
        check_replayed(stage_method("residual"), base, config, without="leave out demos=")
    free = free_keys("finetune")
    with RunDir.create(
        config.out, config, resume=config.resume, overwrite=config.overwrite, free=free
    ) as run:
        keep_tuning_inputs(run, config)
        in_lanes = config.demos is not None and FEWEST_LANES <= config.num_envs <= MOST_LANES
        train = train_in_lanes if in_lanes else train_in_stages
        try:
            report(config, base, train(config, base, run), run)
        except KeyboardInterrupt as stop:  # of a stage, which knows nothing of those before it
            raise KeyboardInterrupt(how_to_continue(run, "step")) from stop
    return 0


def train_in_lanes(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> TuningResult:
    """Train `residual_lanes`, and a new base on its successes; the better policy is kept. A base without a
    failure in its first episodes is kept as it is.
    """
    method, steps = stage_method("residual_lanes"), total_steps(config)
    method.base_is_enough = ENOUGH
    method.base_steps = min(method.base_steps, steps // 3)  # a short run needs steps for learning
    if memory_shape(base) is not None:  # datasets hold no memory
        method.mix = MixConfig()
    if not isinstance(base, GenerativePolicy) or _sees_pictures(config):  # records would draw every picture
        return run_method(config, method, base, run, diverged=DIVERGED_IN_AUTO)
    recording = replace(config, record="success" if config.record == "none" else config.record)

    def successor() -> tuple[SavedPolicy, float] | None:
        made = imitate(base, config.demos, [run.episodes], run.path / "imitation", config.seed)
        return None if made is None else (with_planning_interval(made[0], base.execute), made[1])

    return run_method(recording, method, base, run, successor=successor, diverged=DIVERGED_IN_AUTO)
