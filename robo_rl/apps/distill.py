"""`robo-rl distill`: any policy into a head that decides in a single network call."""

from __future__ import annotations

import copy
import time
from contextlib import closing
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn

from policies.checkpoint import check_compatible, load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.generative import GenerativePolicy
from policies.noise import EpisodeNoise
from policies.registry import SavedPolicy
from policies.residual import ResidualPolicy
from policies.single_step import SingleStepPolicy
from policies.steered import SteeredPolicy
from robo_rl.apps.acting import find_policy, trained_env_spec, trained_noise
from robo_rl.apps.compose import ignores_noise
from robo_rl.apps.progress import progress
from robo_rl.apps.run_dir import RunDir
from robo_rl.apps.success_note import success_note, write_success_note
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import ConfigError
from robo_rl.core.files import write_json
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.eval.rollout import compare, eval_seeds, evaluate
from robo_rl.rl.distill import DistillConfig, DistillData, Walk, distill
from robo_rl.rl.gather import Gatherer, corrects_steps
from sim.registry import make_env


@dataclass(frozen=True)
class Distilled:
    """The head and what it cost."""

    head: SingleStepPolicy
    noise_scale: float
    env_steps: int
    states: int
    wall_s: float
    cpu_s: float


def main(config: DistillVerb) -> int:
    """Distil, leave the head in `out`/policy and compare it with its teacher on the same episodes."""
    torch.set_num_threads(1)
    folder = find_policy(config.teacher)
    teacher, noise_scale = load_policy(folder), trained_noise(folder)
    generative_base(teacher)
    if config.consistency > 0.0 and walk_of(teacher) is None:
        raise ConfigError(
            "consistency > 0 needs a teacher that walks from noise to action, and a residual has no walk. "
            "Set consistency=0, or distil the policy below it."
        )
    name = config.env or trained_env_spec(folder).name
    with closing(make_env(name, config.num_envs, 0, max_episode_steps=config.max_episode_steps)) as env:
        check_compatible(teacher, env.spec)
        run = RunDir.create(config.out, config, overwrite=config.overwrite)
        with (
            progress(config.steps * (config.rounds + 1), "distill", "update") as bar,
            run.metrics(bar=bar) as metrics,
        ):
            metrics.shown = ("distill/same_noise",)
            result = distill_policy(config, teacher, noise_scale, env, metrics, bar)
        save_policy(run.policy, result.head, train_note(config, result))
        report(config, teacher, result, env, run)
    return 0


def distill_policy(
    config: DistillVerb, teacher: SavedPolicy, noise_scale: float, env: VecEnv, logger: Logger | None, bar: Any
) -> Distilled:
    """Visit states with the teacher, train, then let the student drive part of the time and train again."""
    start_s, start_cpu_s = time.monotonic(), time.process_time()
    # A teacher that never looks at its noise has one answer per state: its head is trained and run at zero noise.
    scale = 0.0 if ignores_noise(teacher) else noise_scale
    noise = EpisodeNoise((teacher.chunk, teacher.action_spec.dim), scale)
    gatherer = Gatherer(env, teacher, ChunkExecutor, noise, corrects_steps(teacher), config.seed)
    # A teacher that corrects steps answers once per executed chunk; one that does not, in every state.
    more = max(1, teacher.execute // 2) if corrects_steps(teacher) else 1
    gathered = gatherer.gather(config.rollout_steps * more)
    data, steps = gathered.data, gathered.env_steps
    head = new_head(teacher, config)
    recipe = DistillConfig(**{item.name: getattr(config, item.name) for item in fields(DistillConfig)})
    student = train(head, data, recipe, teacher, logger, bar)
    for _ in range(config.rounds):
        gathered = gatherer.gather(config.round_steps * more, student, config.student_share)
        data, steps = data + gathered.data, steps + gathered.env_steps
        student = train(head, data, recipe, teacher, logger, bar)
    spent = time.monotonic() - start_s, time.process_time() - start_cpu_s
    return Distilled(student, scale, steps, len(data), *spent)


def train(
    head: SingleStepPolicy,
    data: DistillData,
    recipe: DistillConfig,
    teacher: SavedPolicy,
    logger: Logger | None,
    bar: Any,
) -> SingleStepPolicy:
    done = bar.n
    student = distill(
        head, data, recipe, path=walk_of(teacher), logger=_Offset(logger, done), on_step=lambda _: bar.update(1)
    )
    assert isinstance(student, SingleStepPolicy)
    return student


def walk_of(teacher: SavedPolicy) -> Walk | None:
    """The teacher's walk from noise to action; None for a residual, and for steering over one."""
    if isinstance(teacher, SteeredPolicy):
        return None if walk_of(teacher.base) is None else teacher.path
    return teacher.path if isinstance(teacher, GenerativePolicy) else None


class _Offset:
    """Rounds follow each other in one curve."""

    def __init__(self, logger: Logger | None, offset: int) -> None:
        self.logger, self.offset = logger, offset

    def log(self, step: int, values: Any) -> None:
        if self.logger is not None:
            self.logger.log(self.offset + step, values)


def new_head(teacher: SavedPolicy, config: DistillVerb) -> SingleStepPolicy:
    """A head that sees exactly what the teacher's base sees; its weights follow from the seed."""
    base = generative_base(teacher)
    torch.manual_seed(derive_seed("head", config.seed))
    encoder = copy.deepcopy(base.encoder).requires_grad_(False)
    return SingleStepPolicy(base.env, encoder, config.net, teacher.obs_steps, teacher.chunk, teacher.execute)


def generative_base(policy: nn.Module | SavedPolicy) -> GenerativePolicy:
    """The generative policy at the bottom of a stack. Raises ConfigError for policies that have none."""
    while isinstance(policy, SteeredPolicy | ResidualPolicy):
        policy = policy.base
    if not isinstance(policy, GenerativePolicy):
        raise ConfigError(f"A policy of kind '{getattr(policy, 'kind', '?')}' already decides in a single step.")
    return policy


def report(config: DistillVerb, teacher: SavedPolicy, result: Distilled, env: VecEnv, run: RunDir) -> None:
    """Head and teacher on the same episodes."""
    seeds = eval_seeds(config.eval_seed, config.eval_episodes)
    shape, noise = (teacher.chunk, teacher.action_spec.dim), result.noise_scale
    after = evaluate(env, result.head, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    before = evaluate(env, teacher, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    test = compare(before, after)
    print(f"head, from {result.states} states in {result.env_steps} steps, {result.cpu_s:.0f} CPU-s: {after.rate}")
    print(f"teacher on the same episodes: {before.rate}; exact McNemar p = {test.p_value:.2g}")
    if config.env is None and config.max_episode_steps is None:  # measured as it will be deployed
        write_success_note(run.policy, success_note(after.rate, env.spec.name, config.eval_seed, noise))
    write_json(run.path / "results.json", {"head": after.to_json(), "teacher": before.to_json()})
    print(f"Policy: {run.policy}\nNext:   robo-rl export policy={run.path} out={run.path}/bundle")


def train_note(config: DistillVerb, result: Distilled) -> dict[str, Any]:
    """Where the head came from."""
    return {
        "verb": "distill",
        "teacher": config.teacher,
        "states": result.states,
        "env_steps": result.env_steps,
        "noise": result.noise_scale,
        "seed": config.seed,
        "train_wall_s": round(result.wall_s, 2),
        "train_cpu_s": round(result.cpu_s, 2),
        "commit": commit(),
    }
