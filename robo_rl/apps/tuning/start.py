"""Inputs of a fine-tuning run: base policy, planning interval and environment."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from contextlib import closing
from dataclasses import replace
from statistics import median
from typing import Any

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy
from policies.registry import SavedPolicy
from policies.tuned.single_step import SingleStepPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.warm_start import empty_policy
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.text.instruction import INSTRUCTION, TASK_NOTE
from robo_rl.data.store import EpisodeStore
from robo_rl.runs.loaded_policy import check_fits, find_policy, trained_env_spec
from sim.engines.table import takes_option
from sim.registry import make_env, option_of

BASES = (GenerativePolicy, SingleStepPolicy, VlaPolicy)  # without an actor, which a planning interval suits


def load_base(config: FinetuneVerb) -> SavedPolicy:
    """Policy to start from; for learning from scratch, one that acts at random.

    `check_config` has checked that there is a base, or an environment to learn in from scratch.
    """
    if config.base is not None:
        folder = find_policy(config.base)
        policy = load_policy(folder)
        env = config.env or trained_env_spec(folder).name
        with closing(make_env(env, 1, **env_options(config))) as probe:
            check_fits(policy, folder, probe.spec, "base")
        if config.demos is not None and (config.method.mix.demo > 0.0 or config.method.name == "auto"):
            demos = demonstrations_for(policy, config.demos)
            check_fits(policy, folder, demos.spec, "base", config.demos)
            if not len(demos):
                raise DataError(
                    f"{config.demos} holds no complete episode. Record some first, or leave out demos=."
                )
        return policy
    assert config.env is not None
    with closing(make_env(config.env, 1, **env_options(config))) as probe:
        image = config.method.image if config.method.encoder == "learned" else None
        return empty_policy(probe.spec, config.init, config.demos, image, config.seed)


def demonstrations_for(policy: SavedPolicy, path: str) -> EpisodeStore:
    """Complete episodes of a dataset, with the task as the instruction where `policy` reads one."""
    return EpisodeStore(path, complete_only=True, task_as_instruction=INSTRUCTION in policy.obs_spec)


def with_planning_interval(policy: SavedPolicy, execute: int) -> SavedPolicy:
    """The policy with a new plan every `execute` steps.

    Raises ConfigError if an actor or a memory was trained with another interval, or if `execute` exceeds the
    chunk.
    """
    if policy.execute == execute or policy.chunk == 1:
        return policy
    if not isinstance(policy, BASES):
        raise ConfigError(
            f"method.execute={execute} changes how often a base plans, but this policy of kind "
            f"'{policy.kind}' has an actor trained with its base's planning interval. Set "
            "method.execute=null, or start from the base itself."
        )
    if memory_shape(policy) is not None:
        raise ConfigError(
            f"method.execute={execute} cannot be used: the base remembers decisions that are "
            f"{policy.execute} steps apart. Set method.execute=null."
        )
    if not 1 <= execute <= policy.chunk:
        raise ConfigError(
            f"method.execute={execute} does not fit the base's chunks of {policy.chunk} actions. Set it to 1 "
            f"... {policy.chunk}, or to null for the base's own value."
        )
    again = copy.copy(policy)  # the weights are shared
    again.execute = execute
    return again


def env_name(config: FinetuneVerb) -> str:
    """Name of the run's environment."""
    if config.env is not None:
        return config.env
    return trained_env_spec(find_policy(str(config.base))).name


def env_options(config: FinetuneVerb) -> dict[str, Any]:
    """Options of the run's environments that are not in their name."""
    options = {"reward": config.reward, "max_episode_steps": config.max_episode_steps}
    return options | engine_device(env_name(config), config.device)


def engine_device(name: str, device: str) -> dict[str, str]:
    """The run's GPU for an engine that can choose one, if the environment's name does not choose another."""
    if not device.startswith("cuda"):
        return {}
    chooses = takes_option(option_of(name, "engine"), "device") and option_of(name, "device") is None
    return {"device": device} if chooses else {}


def in_training(config: FinetuneVerb, method: MethodConfig) -> MethodConfig:
    """The method with the environment steps of training: without those of the final comparison."""
    total = config.env_steps or method.env_steps
    return replace(method, env_steps=total - int(method.compare_share * total))


def evaluation_lanes(config: FinetuneVerb, episodes: int) -> int:
    """Parallel environments of an evaluation: one for each episode, because idle ones count their steps, too.
    At most 10, on a GPU 60: there more cost the same, and from 64 on they compile kernels.
    """
    return min(60 if config.device.startswith("cuda") else 10, episodes)


def training_episode_limit(
    config: FinetuneVerb, method: MethodConfig, demos: EpisodeStore | None
) -> int | None:
    """Step limit of training episodes; None: the environment's own. Evaluations keep the task's limit.

    Attempts much longer than a demonstration have failed; a new attempt uses the steps better. Of several
    tasks, the one with the longest demonstrations counts.
    """
    own = config.max_episode_steps
    lengths = defaultdict[Any, list[int]](list)
    for episode in () if demos is None else demos:
        if episode.success is not False:
            lengths[episode.meta.info.get(TASK_NOTE)].append(episode.frames)
    if method.episode_limit_factor is None or not lengths:
        return own
    limit = math.ceil(method.episode_limit_factor * max(median(each) for each in lengths.values()))
    with closing(make_env(env_name(config), 1, **env_options(config))) as env:
        return min(limit, env.spec.max_episode_steps)
