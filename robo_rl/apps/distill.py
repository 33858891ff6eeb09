"""`robo-rl distill`: any policy into a head that decides in a single network call."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import torch

from policies.base.noise import EpisodeNoise
from policies.checkpoint import check_compatible, load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from robo_rl.apps.runs.loaded_policy import find_policy, trained_env_spec, trained_noise
from robo_rl.apps.runs.metrics import Metrics
from robo_rl.apps.runs.progress import progress
from robo_rl.apps.runs.run_dir import FREE_KEYS, RunDir
from robo_rl.apps.runs.signals import stop_between_steps
from robo_rl.apps.runs.success_note import success_note, write_success_note
from robo_rl.apps.tuning.distill_rounds import Distilled, Rounds, generative_base, walk_of
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_json
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.protocols import VecEnv
from robo_rl.core.provenance import commit
from robo_rl.eval.rollout import compare, eval_seeds, evaluate
from sim.registry import make_env


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
        free = FREE_KEYS | {"checkpoint_every"}
        run = RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite, free=free)
        try:
            result = distill_policy(config, teacher, noise_scale, env, run)
            save_policy(run.policy, result.head, train_note(config, result))
            report(config, teacher, result, env, run)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(how_to_go_on(run)) from stop
    return 0


def distill_policy(
    config: DistillVerb, teacher: SavedPolicy, noise_scale: float, env: VecEnv, run: RunDir
) -> Distilled:
    """Every round, from the last saved state of `run` where it is resumed. Ctrl-C and SIGTERM save and end
    it.
    """
    rounds, at = Rounds(config, teacher, noise_scale, env), run.latest() if config.resume else None
    if at is not None:
        rounds.load_state_dict(load_state(at[1]))
    with (
        progress(config.steps * (config.rounds + 1), "distill", "update", initial=rounds.updates) as bar,
        run.metrics(None if at is None else at[0], bar=bar) as metrics,
        stop_between_steps() as stop,
    ):
        metrics.shown = ("distill/same_noise",)

        def gathered(env_steps: int) -> None:
            bar.set_postfix_str(f"gathers states, {env_steps} steps", refresh=False)
            bar.update(0)
            if stop.asked:
                raise KeyboardInterrupt

        while not rounds.done:
            if rounds.learns:
                rounds.update(metrics)
                bar.update(1)
            else:
                rounds.gather(gathered)
            if stop.asked or _due(rounds, config):
                checkpoint(run, rounds, metrics)
            if stop.asked:
                raise KeyboardInterrupt
    return rounds.result()


def _due(rounds: Rounds, config: DistillVerb) -> bool:
    """Every `checkpoint_every` updates of all rounds, and before and after every gathering."""
    assert rounds.distiller is not None
    return rounds.distiller.step == 0 or not rounds.learns or rounds.updates % config.checkpoint_every == 0


def checkpoint(run: RunDir, rounds: Rounds, metrics: Metrics) -> None:
    metrics.sync()
    with run.new_checkpoint(rounds.updates, keep=1) as folder:
        save_state(folder, rounds.state_dict())


def how_to_go_on(run: RunDir) -> str:
    """What Ctrl-C has left behind, for the user."""
    if (at := run.latest()) is None:
        return f"nothing was learned yet in {run.path}; the same command starts it again"
    return f"saved update {at[0]} in {run.path}; the same command with resume=true goes on"


def report(config: DistillVerb, teacher: SavedPolicy, result: Distilled, env: VecEnv, run: RunDir) -> None:
    """Head and teacher on the same episodes."""
    seeds = eval_seeds(config.eval_seed, config.eval_episodes)
    shape, noise = (teacher.chunk, teacher.action_spec.dim), result.noise_scale
    after = evaluate(env, result.head, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    before = evaluate(env, teacher, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    test = compare(before, after)
    print(
        f"head, from {result.states} states in {result.env_steps} steps, {result.cpu_s:.0f} CPU-s: "
        f"{after.rate}"
    )
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
