"""`robo-rl distill`: distil a policy into a head that needs a single network call per decision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import torch

from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.privileged import check_measurable
from policies.tuned.single_step import SingleStepPolicy
from policies.vocabulary import unread_sentence
from robo_rl.apps.tuning.distill_rounds import DistillationResult, Rounds, check_head
from robo_rl.apps.tuning.inputs import check_there, keep_inputs, policy_fingerprint
from robo_rl.apps.tuning.report import evaluation_seeds, print_tasks, success_by_task, tasks_json
from robo_rl.conf.distill import DistillVerb
from robo_rl.core.files.durable import write_json
from robo_rl.core.protocols import VecEnv
from robo_rl.core.provenance import commit
from robo_rl.core.settings import free_keys
from robo_rl.eval.rollout import compare_by_report, evaluate
from robo_rl.eval.stats import PairedTest
from robo_rl.runs.loaded_policy import (
    check_fits,
    find_policy,
    trained_env_spec,
    trained_noise,
    unread_in,
)
from robo_rl.runs.next_step import after_distillation, winner
from robo_rl.runs.progress import counting
from robo_rl.runs.resumable import RunSession, check_weights, how_to_continue, resumable
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.success_note import conditions, success_note, write_success_note
from sim.env_names import same_env
from sim.registry import make_env


def main(config: DistillVerb) -> int:
    """Distil, save the head in `out`/policy and compare it with its teacher on the same episodes."""
    torch.set_num_threads(1)
    check_there(config.out, {"teacher": config.teacher}, resume=config.resume)
    folder = find_policy(config.teacher)
    teacher, noise_scale = load_policy(folder), trained_noise(folder)
    check_measurable(teacher, "A single-step head")
    check_head(config, teacher)
    name = config.env or trained_env_spec(folder).name
    if sentence := unread_sentence(folder, unread_in(folder, name)):
        print(sentence)
    with closing(make_env(name, config.num_envs, 0, max_episode_steps=config.max_episode_steps)) as env:
        check_fits(teacher, folder, env.spec, "teacher")
        free = free_keys("distill")
        with RunDir.create(
            config.out, config, resume=config.resume, overwrite=config.overwrite, free=free
        ) as run:
            taught = {"teacher": policy_fingerprint(folder)}
            keep_inputs(run, taught, {"teacher": config.teacher}, resume=config.resume)
            try:
                result = distill_policy(config, teacher, noise_scale, env, run)
                save_policy(run.policy, result.head, train_note(config, result))
                report(config, teacher, result, env, run, folder)
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(how_to_continue(run)) from stop
    return 0


def distill_policy(
    config: DistillVerb, teacher: SavedPolicy, noise_scale: float, env: VecEnv, run: RunDir
) -> DistillationResult:
    """Run every round; a resumed `run` continues from its last saved state."""
    rounds = Rounds(config, teacher, noise_scale, env)
    print(rounds.plan())
    total = config.steps * (config.rounds + 1)
    with resumable(
        run, total=total, label="distill", resume=config.resume, shown=("distill/same_noise",)
    ) as session:
        if (state := session.take_state()) is not None:
            rounds.load_state_dict(state)
        session.run(
            _Training(rounds, session),
            checkpoint_every=config.checkpoint_every,
            due=lambda: rounds.between_rounds,
            savable=lambda: rounds.distiller is not None,
            extra=lambda _: check_weights(rounds.weights(), run, f"Lower lr={config.lr:g}."),
        )
    return rounds.result()


class _Training:
    """Rounds in the form of the training loop: one update, or one collection of states, per step."""

    def __init__(self, rounds: Rounds, session: RunSession) -> None:
        self._rounds, self._session = rounds, session

    @property
    def done(self) -> bool:
        return self._rounds.done

    @property
    def step(self) -> int:
        return self._rounds.updates

    def advance(self) -> None:
        if self._rounds.learns:
            self._rounds.update(self._session.metrics)
        else:
            total = self._rounds.next_steps
            with counting(self._session.bar, "collecting states", total, "steps") as add:
                self._rounds.collect(partial(self._collected, add))

    def state_dict(self) -> dict[str, Any]:
        return self._rounds.state_dict()

    def _collected(self, add: Callable[[int], None], _: int) -> None:
        """Count a step of all environments."""
        add(self._rounds.config.num_envs)
        self._session.raise_if_stopped()  # an interrupted collection is repeated from its start


def report(
    config: DistillVerb,
    teacher: SavedPolicy,
    result: DistillationResult,
    env: VecEnv,
    run: RunDir,
    folder: Path,
) -> None:
    """Evaluate head and teacher on the same episodes, and print and save the results.

    folder: policy folder of the teacher.
    """
    seeds = evaluation_seeds(env.spec.name, config.eval_seed, config.eval_episodes)
    shape, noise = (teacher.chunk, teacher.action_spec.dim), result.noise_scale
    after = evaluate(env, result.head, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    before = evaluate(env, teacher, ChunkExecutor, EpisodeNoise(shape, noise), seeds)
    test = compare_by_report(before, after)
    print(
        f"head, from {result.states} states in {result.env_steps} steps, {result.cpu_s:.0f} s of CPU time: "
        f"{after if not after.reports_success else after.rate}"
    )
    if isinstance(test, PairedTest):
        print(f"teacher on the same episodes: {before.rate}; exact McNemar p = {test.p_value:.2g}")
    else:
        print(f"teacher on the same episodes: {before}; paired permutation p = {test.p_value:.2g}")
    results: dict[str, Any] = {"head": after.to_json(), "teacher": before.to_json()}
    results |= conditions(env.spec.name, config.eval_seed, noise, config.max_episode_steps)
    if by_task := success_by_task(env.spec.name, after):
        tasks = {"head": by_task, "teacher": success_by_task(env.spec.name, before)}
        print_tasks(tasks)
        results["tasks"] = tasks_json(tasks)
    own = config.env is None or same_env(env.spec.name, trained_env_spec(folder).name)
    if own and config.max_episode_steps is None:  # measured as it will be deployed
        write_success_note(run.policy, success_note(after, env.spec.name, config.eval_seed, noise))
    write_json(run.path / "results.json", results)
    print(f"Policy: {run.policy}")
    widens = isinstance(result.head, SingleStepPolicy)
    if winner(test) == 0:
        net = ", or a wider network (net.width=)" if widens else ""
        print(
            f"Advice: Give more updates and rounds (steps=, rounds=){net}, because the head is significantly "
            "worse than its teacher."
        )
    print(f"Next:   {after_distillation(config, run.path, folder, test, widens=widens)}")


def train_note(config: DistillVerb, result: DistillationResult) -> dict[str, Any]:
    """Note on the origin of the head."""
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
