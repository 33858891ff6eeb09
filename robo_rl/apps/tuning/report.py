"""Success of a fine-tuned policy and its base on the same episodes, and in each task of a suite."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import Any

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.rewards.progress import progress_note
from robo_rl.apps.tuning.start import env_name, env_options, evaluation_lanes
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb, MethodConfig
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.files.durable import write_json
from robo_rl.core.protocols import VecEnv
from robo_rl.core.provenance import commit
from robo_rl.eval.advice import advice
from robo_rl.eval.protocols import Progress
from robo_rl.eval.rollout import EvalResult, compare_by_report, eval_seeds, evaluate
from robo_rl.eval.stats import PairedTest, ReturnTest, SuccessRate
from robo_rl.eval.tasks import balanced_seeds, rates_by_task
from robo_rl.runs.device import device_of
from robo_rl.runs.learning_curve import TuningResult
from robo_rl.runs.loaded_policy import find_policy, trained_noise
from robo_rl.runs.next_step import after_tuning, winner
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.success_note import conditions, success_note, write_success_note
from sim.registry import make_env, task_in, tasks_in
from sim.vec.on_device import copied_env

USES = {
    "base": "of the base alone",
    "training": "of learning",
    "selection": "to choose a policy",
}


def measure(
    policy: SavedPolicy,
    noise_scale: float,
    env: VecEnv,
    config: FinetuneVerb,
    episodes: int | None = None,
    progress: Progress | None = None,
) -> EvalResult:
    """Evaluate a policy as it will be deployed, on the episodes of `eval_seed`."""
    device = device_of(policy)
    noise = EpisodeNoise((policy.chunk, policy.action_spec.dim), noise_scale, device=device)
    seeds = evaluation_seeds(env_name(config), config.eval_seed, episodes or config.eval_episodes)
    # An evaluation reads its results anyway, so only the lanes that are due are planned.
    executor = partial(ChunkExecutor, device=device, masked=False)
    return evaluate(copied_env(env, device), policy, executor, noise, seeds, progress)


def _final(
    policy: SavedPolicy, noise_scale: float, env: VecEnv, config: FinetuneVerb, label: str
) -> EvalResult:
    """The final evaluation of a policy, which often takes longer than a short training, with its progress."""
    with progress(config.final_episodes, label, "episode") as bar:
        return measure(policy, noise_scale, env, config, config.final_episodes, bar.update)


def _of_base(
    base: SavedPolicy, outcome: TuningResult, after: EvalResult, env: VecEnv, config: FinetuneVerb
) -> EvalResult:
    """Evaluation of the base on the episodes of `after`; where the base itself is kept, that is `after`."""
    noise_scale = trained_noise(find_policy(str(config.base)))
    if outcome.policy is base and outcome.noise_scale == noise_scale:
        return after
    return _final(base, noise_scale, env, config, "base")


def report(config: FinetuneVerb, base: SavedPolicy, outcome: TuningResult, run: RunDir) -> None:
    """Evaluate base and result on the same episodes, and print and save the results."""
    lanes = evaluation_lanes(config, config.final_episodes)
    with closing(make_env(env_name(config), lanes, 0, **env_options(config))) as env:
        after = _final(outcome.policy, outcome.noise_scale, env, config, "evaluate")
        curve = outcome.curve
        cost = f"{steps_in_words(outcome, config.base is not None)}, {curve.train_cpu_s:.0f} s of CPU time"
        before, test = None, None
        print(f"{config.method.name} after {cost}: {after}")
        result = {"policy": after.to_json(), "env_steps": outcome.env_steps, "steps": outcome.steps}
        result |= {"decided_by": list(outcome.sentences), "curve": curve.to_json()}
        result |= conditions(env.spec.name, config.eval_seed, outcome.noise_scale, config.max_episode_steps)
        tasks = {"policy": success_by_task(env_name(config), after)}
        if config.base is not None:
            before = _of_base(base, outcome, after, env, config)
            test = compare_by_report(before, after)
            of = "exact McNemar" if isinstance(test, PairedTest) else "paired permutation"
            print(f"base on the same episodes: {before}; {of} p = {test.p_value:.2g}")
            result |= {"base": before.to_json(), "p_vs_base": test.p_value}
            tasks["base"] = success_by_task(env_name(config), before)
        if tasks["policy"]:
            print_tasks(tasks)
            result["tasks"] = tasks_json(tasks)
    rate = None if before is None else before.rate
    advised = advice(
        after.rate,
        rate,
        outcome.history,
        env_steps=config.env_steps or config.method.env_steps,
        demos=config.demos is not None,
        replays=can_replay_demos(config.method, base),
    )
    result |= {"stages": [stage.to_json() for stage in outcome.stages], "advice": advised}
    result["training_episodes"] = outcome.history.to_json()
    result |= progress_note(run.path)
    write_json(run.path / "results.json", result)
    if config.max_episode_steps is None:  # measured as it will be deployed: `export` states it in the bundle
        note = success_note(after, env.spec.name, config.eval_seed, outcome.noise_scale)
        write_success_note(run.policy, note)
    for stage in outcome.stages:
        print(f"  {stage}")
    print(f"Policy: {run.policy}")
    if advised:
        print(f"{advice_label(test)}: {advised}")
    print(f"Next:   {after_tuning(config, run.path, rate, after.rate, test)}")


def can_replay_demos(method: MethodConfig, base: SavedPolicy) -> bool:
    """Whether critics of this method could learn from demonstrations over this base."""
    return method.algorithm not in ON_POLICY and memory_shape(base) is None


def advice_label(test: PairedTest | ReturnTest | None) -> str:
    """What advice on more success is for. test: of the base to the result.

    The next step uses a result that is clearly better than the base, and the advice is another way then.
    """
    better = test is not None and winner(test) == 1
    return "Instead, for more success" if better else "Advice"


def steps_in_words(outcome: TuningResult, has_base: bool) -> str:
    """Environment steps of a run, and where they went, with the share that chose a policy."""
    names = USES if has_base else USES | {"base": "before learning"}
    shares = {"selection": f": {100 * outcome.steps.get('selection', 0) / max(1, outcome.env_steps):.0f} %"}
    uses = [f"{steps} {names[use]}{shares.get(use, '')}" for use, steps in outcome.steps.items() if steps]
    return f"{outcome.env_steps} steps ({', '.join(uses)})" if len(uses) > 1 else f"{outcome.env_steps} steps"


def print_tasks(tasks: dict[str, dict[str, SuccessRate]]) -> None:
    """A line for each task of a suite: success of the first policy, and of the others there."""
    first, *others = tasks
    for task, rate in tasks[first].items():
        print(f"  {task}: {rate}" + "".join(f", {who} {tasks[who][task]}" for who in others))


def tasks_json(tasks: dict[str, dict[str, SuccessRate]]) -> dict[str, dict[str, Any]]:
    """Success of each policy on each task, for results.json."""
    return {who: {task: rate.to_json() for task, rate in rates.items()} for who, rates in tasks.items()}


def evaluation_seeds(name: str, eval_seed: int, episodes: int, tasks: Sequence[str] = ()) -> list[int]:
    """Seeds of evaluation `eval_seed` in this environment; in a suite, equal shares of `tasks` (none: all).

    A suite with more tasks than episodes has the usual seeds, whose tasks are random.
    """
    known = tasks_in(name)
    chosen = [i for i, task in enumerate(known) if not tasks or task in tasks]
    if not chosen or len(chosen) > episodes:
        return eval_seeds(eval_seed, episodes)
    return balanced_seeds(eval_seed, episodes, chosen, partial(task_in, name))


def success_by_task(name: str, result: EvalResult) -> dict[str, SuccessRate]:
    """Success of each task that was run; empty in an environment of one task."""
    known = tasks_in(name)
    return rates_by_task(result, known, partial(task_in, name)) if known else {}


def shown_success(config: FinetuneVerb, method: MethodConfig, keep_last: bool) -> str:
    """Name of the success in the progress bar."""
    if config.base is None:
        return "train/return"
    return "train/success" if method.compare_share or keep_last else "eval/success"


def train_note(
    config: FinetuneVerb, method: MethodConfig, steps: dict[str, int], noise_scale: float, train_cpu_s: float
) -> dict[str, Any]:
    """Origin of the policy, for policy.json and the bundle's manifest."""
    return {
        "verb": "finetune",
        "method": method.name,
        "base": config.base,
        "env_steps": sum(steps.values()),
        "selection_env_steps": steps["selection"],  # part of env_steps
        "steps": steps,
        "seed": config.seed,
        "noise": noise_scale,
        "train_cpu_s": round(train_cpu_s, 1),
        "commit": commit(),
    }
