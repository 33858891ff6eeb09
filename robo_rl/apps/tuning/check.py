"""Checks of a fine-tuning run that need no network and no simulator, made before anything is created."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from policies.registry import SavedPolicy
from policies.vocabulary import unread_sentence
from robo_rl.apps.tuning.auto.verb import check_auto
from robo_rl.apps.tuning.compose import check_interventions
from robo_rl.apps.tuning.encoders.pictures import (
    check_memory,
    check_method,
    check_picture_settings,
    learned_pictures,
    memory_of,
)
from robo_rl.apps.tuning.encoders.true_state import check_privileged
from robo_rl.apps.tuning.maps import build_map
from robo_rl.apps.tuning.remote import check_launcher
from robo_rl.apps.tuning.rewards.progress import check_progress, check_taught
from robo_rl.apps.tuning.start import demonstrations_for, env_name, in_training, with_planning_interval
from robo_rl.apps.tuning.stores import check_demos, size_of, store_widths
from robo_rl.apps.tuning.training_lanes import check_curriculum
from robo_rl.apps.tuning.warm_start import check_start, finetune_run
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import has_state
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.schema import DatasetMeta
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.demos import chosen_episodes
from robo_rl.rl.loop import check_steps_left
from robo_rl.rl.mix import used_fractions
from robo_rl.runs.device import pick_device, run_device
from robo_rl.runs.loaded_policy import find_policy, trained_env_spec, unread_in
from robo_rl.runs.run_dir import PROGRESS, RunDir
from sim.registry import same_task

MANY_LANES, OFTEN = 256, 10  # environments, and steps of all of them between evaluations; see `too_often`


def check_config(config: FinetuneVerb) -> None:
    """Raise ConfigError, DataError or CheckpointError for settings that cannot work together, and for paths
    that do not exist.
    """
    method = config.method
    if config.device != "auto":
        pick_device(config.device)
    check_launcher(config)
    RunDir.check_new(config.out, resume=config.resume, overwrite=config.overwrite)
    if config.base is not None:
        find_policy(config.base)
    elif method.map.kind != "direct":
        env = "" if config.env else "env=<environment> and "
        name = "method=auto (the default)" if method.name == "auto" else f"method={method.name}"
        raise ConfigError(
            f"{name} improves a policy: give base=<policy folder>, or learn from scratch by "
            f"{env}method=sac (or td3)."
        )
    elif config.env is None:
        raise ConfigError("Learning from scratch needs env=<environment>; all names: robo-rl info")
    check_curriculum(config)
    if config.demos is not None:
        DatasetMeta.load(Path(config.demos))
    check_start(method.warmup, method.algorithm in ON_POLICY, config.init)
    if config.init is not None:
        finetune_run(config.init)
    if method.name == "auto":  # its stages leave out what they have no data for
        check_auto(config)
        return
    check_interventions(method, env_name(config))
    if config.base is None and (method.compare_share > 0.0 or method.base_is_enough):
        raise ConfigError(
            "Without base= there is no base to compare with: set method.compare_share=0 and "
            "method.base_is_enough=0."
        )
    check_method(method)
    check_picture_settings(method, from_scratch=config.base is None)
    check_progress(method, config.demos is not None)
    check_privileged(method, config.demos)
    if method.algorithm not in ON_POLICY:
        check_demos(method, config.demos is not None)
        used_fractions(vars(method.mix))


def check_steps(config: FinetuneVerb) -> None:
    """Raise ConfigError if no environment steps are left for learning. After `load_base`: the steps of a
    wrong base or environment are not what is wrong.
    """
    method, first = config.method, "the base alone executes"
    if method.map.kind == "direct":
        first = "random actions fill" if method.warmup == "base" else "the policy of init= executes"
    check_steps_left(in_training(config, method), first)


def other_task(config: FinetuneVerb) -> str:
    """Sentence on demonstrations that were recorded in another environment than the run's; empty if not, and
    where their observations or actions have other shapes, which is refused.

    Other options of the same task, such as an engine, are no other task.
    """
    if config.demos is None or (config.env is None and config.base is None):
        return ""
    recorded, ours = DatasetMeta.load(Path(config.demos)).env, env_name(config)
    base = None if config.base is None else trained_env_spec(find_policy(config.base))
    if same_task(recorded.name, ours) or (base is not None and _other_shapes(recorded, base)):
        return ""
    return (
        f"The demonstrations of {config.demos} were recorded in {recorded.name}, but this run learns {ours}. "
        f"Demonstrations of another task mislead the training: give some of {ours}, or leave demos= out."
    )


def unread_by_base(config: FinetuneVerb) -> str:
    """Sentence on words of the environment's instruction that the base does not know; empty if there are
    none. Raises ConfigError if it knows no word of it.
    """
    if config.base is None:
        return ""
    folder = find_policy(config.base)
    return unread_sentence(folder, unread_in(folder, env_name(config)))


def _other_shapes(recorded: EnvSpec, base: EnvSpec) -> bool:
    """True if a policy of `base` cannot read what was recorded."""
    shared = recorded.obs.keys() & base.obs.keys()
    return (
        recorded.action.dim != base.action.dim
        or not shared
        or any(recorded.obs[key].shape != base.obs[key].shape for key in shared)
    )


def too_often(config: FinetuneVerb) -> str:
    """Sentence on evaluations and checkpoints that would take most of the time with many environments; empty
    if there are few environments.
    """
    lanes = config.num_envs * (config.actors if config.launcher == "ray" else 1)
    least = OFTEN * lanes
    names = [name for name in ("eval_every", "checkpoint_every") if 0 < getattr(config, name) < least]
    if lanes < MANY_LANES or not names:
        return ""
    each = " and ".join(f"{name}={getattr(config, name)}" for name in names)
    advice = " ".join(f"{name}={50 * least}" for name in names)
    return (
        f"{each} are fewer environment steps than {OFTEN} steps of {lanes} environments: most of the time "
        f"will be spent on that. Better: {advice}"
    )


def check_progress_fits(config: FinetuneVerb, base: SavedPolicy) -> None:
    """Raise ConfigError or CheckpointError if the run learns progress and its demonstrations teach none:
    before anything is created. A resumed run whose model is kept needs none.
    """
    if config.method.progress_weight == 0.0 or (config.resume and has_state(Path(config.out) / PROGRESS)):
        return
    check_taught(config.method, base, demonstrations_for(base, str(config.demos)))


def check_pictures_fit(config: FinetuneVerb, base: SavedPolicy) -> None:
    """Raise ConfigError if the run learns from pictures and cannot: before anything is created."""
    method = config.method if config.env_steps is None else replace(config.method, env_steps=config.env_steps)
    if method.execute is not None and method.map.kind != "direct":
        base = with_planning_interval(base, method.execute)
    pictures = learned_pictures(method, base, run_device(config.device, torch.device("cpu")))
    if pictures is None:
        return
    action_map = build_map(method.map, base)
    widths = store_widths(base, pictures.states_dim, action_map)
    demos = config.demos if method.mix.demo > 0.0 else None
    shown = [] if demos is None else chosen_episodes(EpisodeStore(demos, complete_only=True))
    check_memory(
        memory_of(size_of(method, base, action_map, config.num_envs), pictures, widths, shown), pictures
    )
