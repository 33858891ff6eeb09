"""`robo-rl evaluate`: success rate with its interval, and comparison of two policies on the same episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from policies.base.noise import EpisodeNoise
from policies.checkpoint import other_rate
from policies.executor import ChunkExecutor
from policies.instructed_policy import InstructedPolicy
from policies.saved_files import POLICY_FILE
from policies.vocabulary import unread_sentence
from robo_rl.apps.tuning.report import evaluation_seeds, success_by_task
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_json
from robo_rl.core.protocols import ChunkPolicy, Executor, VecEnv
from robo_rl.core.spec import ROBOT_SUITE
from robo_rl.eval.protocols import ExecutorFactory
from robo_rl.eval.rollout import EvalResult, compare_by_report, evaluate
from robo_rl.eval.stats import SIGNIFICANT, PairedTest, ReturnTest, SuccessRate
from robo_rl.eval.text import p_equals
from robo_rl.eval.timing import Latency, latencies_on
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import (
    LoadedPolicy,
    open_policy,
    trained_env_spec,
    unread_in,
    worker_count,
)
from robo_rl.runs.next_step import after_evaluation, winner
from robo_rl.runs.outputs import check_file, check_report
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import POLICIES
from robo_rl.runs.success_note import success_note, write_success_note
from sim.adapters.function_policy import FunctionExecutor, FunctionPolicy
from sim.adapters.own_function import Function, name_of
from sim.env_names import same_env
from sim.registry import make_env, numbers_of, same_task

FILMED = 3  # episodes in a film, unless video_episodes= is given
_OF_POLICIES = ("noise", "execute", "ensemble", "instruction")  # settings that a function has no use for


@dataclass(frozen=True)
class Evaluation:
    """Success of a policy, and of a second one on the same episodes."""

    env: str
    policy: EvalResult
    against: EvalResult | None
    decisions: tuple[Latency, ...]  # time of one decision of each policy, measured in turns
    runtimes: tuple[str, ...]  # what ran each policy, e.g. "torch on cpu"
    places: tuple[Path, ...]  # of the policies: folders, or addresses
    by_task: dict[str, SuccessRate] = field(default_factory=dict)  # of the policy, in a suite of tasks
    trained_in: str = ""  # environment in which the policy was trained; empty: unknown
    other_rate: tuple[float, float] | None = None  # [Hz] of training and environment, where they differ
    unread: dict[Path, list[str]] = field(
        default_factory=dict
    )  # words of the instruction unknown to a policy

    @property
    def rate(self) -> SuccessRate | None:
        """Success of the policy, with its 95 % interval; None where the environment reports none, see
        `policy.mean_return`.
        """
        return self.policy.known_rate

    @property
    def difference(self) -> PairedTest | ReturnTest | None:
        """Exact McNemar test of the two policies, or a paired test of their returns where the environment
        reports no success; None without a second one.
        """
        return None if self.against is None else compare_by_report(self.policy, self.against)

    @property
    def same_task(self) -> bool:
        """False if the policy was trained in another simulated task. Recordings of a robot have no simulation
        of their own, so their policies are tried in that of a similar one.
        """
        suite = self.trained_in.partition("/")[0]
        return suite in ("", ROBOT_SUITE) or same_task(self.trained_in, self.env)

    def __str__(self) -> str:
        """Success with its interval, of each task of a suite, and time per decision; then the second policy
        and the test of both.
        """
        lines = [f"{self.places[0]} on {self.env}: {self.policy}"]
        lines += [f"  {task}: success {rate}" for task, rate in self.by_task.items()]
        lines.append(f"decision: {self.decisions[0]}, batch of 1, {self.runtimes[0]}")
        if self.against is not None:
            lines.append(f"{self.places[1]}: {self.against}")
            lines.append(f"decision: {self.decisions[1]}, {self.runtimes[1]}, measured in turns")
            lines.append(verdict(self.policy, self.against))
        if self.other_rate is not None:
            trained_hz, env_hz = self.other_rate
            lines.append(
                f"The policy was trained at {trained_hz:g} Hz, and {self.env} runs at {env_hz:g} Hz: an "
                f"action lasts {trained_hz / env_hz:.3g} times as long as in training."
            )
        lines += [unread_sentence(place, words) for place, words in self.unread.items()]
        return "\n".join(lines)


def main(config: EvaluateConfig) -> int:
    """Evaluate, and print the results."""
    done = run_evaluation(config, show=partial(print, flush=True))
    if config.video:
        print(f"video:   {config.video}")
    if not done.same_task:
        print(f"This policy was trained in {done.trained_in}, not in {done.env}.")
    elif following := next_step(done):
        print(f"Next:   {following}")
    return 0


def next_step(done: Evaluation) -> str:
    """What follows for the policy, or for the second one if that is significantly better; empty for a policy
    without a folder.
    """
    place, rate = done.places[0], done.rate
    better = done.difference is not None and winner(done.difference) == 1
    if better and done.against is not None:
        place, rate = done.places[1], done.against.known_rate
    if not place.is_dir():  # remote, or a checkpoint that a training has deleted since
        return ""
    return after_evaluation(place, rate, done.env) + ("   (of the better policy)" if better else "")


def run_evaluation(
    config: EvaluateConfig,
    functions: Mapping[str, Function] | None = None,
    show: Callable[[Evaluation], None] | None = None,
) -> Evaluation:
    """Evaluate, write the files that `config` names, and save the success note of the policy.

    functions: a user's own ones instead of the saved policies `policy` and `against`. show: gets the result
    before anything is written, so that a full disk or an interrupted film costs no measurement.
    """
    check_outputs(config)
    device, own = pick_device(config.device), functions or {}

    def opened(label: str, path: str, name: str | None) -> LoadedPolicy:
        if label in own:
            return own_policy(label, own[label], config, name)
        return instructed(config, open_policy(path, device))

    first = opened("policy", config.policy, config.env)
    name = config.env or first.env
    second = opened("against", config.against, name) if config.against else None
    policies = [actor for actor in (first, second) if actor is not None]
    unread = {
        actor.folder: words
        for actor in policies
        if (words := unread_in(actor.folder, name, config.instruction))
    }
    check_tasks(config, name)
    lanes = min(config.num_envs, config.episodes)
    workers = worker_count(config.num_workers, lanes)
    with closing(make_env(name, lanes, workers, **env_options(config))) as env:
        for label, actor in zip(("policy", "against"), policies, strict=False):
            actor.check(env.spec, label)
        results = {
            label: measure(config, actor, env, shown, name)
            for actor, label, shown in zip(
                policies, ("policy", "against"), ("evaluate", "against"), strict=False
            )
        }
        latencies = latencies_on([actor.policy for actor in policies], env)
        saved = (first.folder / POLICY_FILE).is_file()
        rates = other_rate(trained_env_spec(first.folder), env.spec) if saved else None
    runtimes = tuple(actor.runtime for actor in policies)
    by_task = success_by_task(name, results["policy"])
    places = tuple(actor.folder for actor in policies)
    against = results.get("against")
    done = Evaluation(
        name,
        results["policy"],
        against,
        tuple(latencies),
        runtimes,
        places,
        by_task,
        first.env,
        rates,
        unread,
    )
    if show is not None:
        show(done)
    report = summary(config, name, first, results, latencies[0])
    if config.out:
        write_json(Path(config.out), report | {key: result.to_json() for key, result in results.items()})
    if (first.folder / POLICY_FILE).is_file() and plain(config, first.env):
        keep_note(first.folder, report | {"env": first.env})
    if config.video:
        film(config, first, name)
    return done


def own_policy(label: str, function: Function, config: EvaluateConfig, env: str | None) -> LoadedPolicy:
    """The function as a policy in this environment. Raises ConfigError without one, and for settings of saved
    policies, unless they are for that which it is compared with.
    """
    if env is None:
        raise ConfigError("A function has no environment of its own: give env=, the one to measure it in.")
    for name in _OF_POLICIES if label == "policy" else ():
        if (value := getattr(config, name)) is not None:
            raise ConfigError(f"{name}={value} is for saved policies, not for a function. Leave it out.")
    with closing(make_env(env, 1, max_episode_steps=config.max_episode_steps)) as lane:
        policy: Any = FunctionPolicy(function, lane.spec)
    return LoadedPolicy(Path(name_of(function)), policy, env, 0.0, "Python")


def env_options(config: EvaluateConfig) -> dict[str, Any]:
    """Options of the environment that is measured and filmed."""
    return {"max_episode_steps": config.max_episode_steps, "wordings": config.wordings}


def instructed(config: EvaluateConfig, actor: LoadedPolicy) -> LoadedPolicy:
    """The policy, told `instruction` if that is given."""
    if config.instruction is None:
        return actor
    return replace(actor, policy=InstructedPolicy(actor.policy, config.instruction))


def check_tasks(config: EvaluateConfig, name: str) -> None:
    """Raise an error for tasks or wordings that the environment has not, or more tasks than episodes."""
    count = len(numbers_of(name, config.tasks))
    if not count and config.wordings:
        raise ConfigError(
            f"{name} is one task, without wordings: wordings= needs a suite, such as suite=metaworld/mt6. "
            "Leave it out."
        )
    if count > config.episodes:
        raise ConfigError(
            f"episodes={config.episodes} are fewer than the {count} tasks of {name}. Give more."
        )


def seeds_of(config: EvaluateConfig, name: str) -> list[int]:
    """Seeds of the episodes, with equal shares of the tasks in a suite."""
    return evaluation_seeds(name, config.seed, config.episodes, config.tasks)


def check_outputs(config: EvaluateConfig) -> None:
    """Raise ConfigError for result and video paths that could not be written after the evaluation."""
    check_report("out", config.out, "eval_seed")
    check_video(config.video)
    if config.video and config.video_episodes is not None and config.video_episodes > config.episodes:
        raise ConfigError(f"video_episodes={config.video_episodes} cannot exceed episodes={config.episodes}.")


def check_video(path: str | None) -> None:
    """Raise ConfigError for a film that could not be written: it is an MP4 file, and its name says so."""
    check_file("video", path)
    if path is not None and Path(path).suffix.lower() != ".mp4":
        raise ConfigError(
            f"video={path} cannot be used, expected: a file that ends in .mp4, for example video=film.mp4."
        )


def measure(config: EvaluateConfig, actor: LoadedPolicy, env: VecEnv, label: str, name: str) -> EvalResult:
    """Run every episode of the evaluation once."""
    with progress(config.episodes, label, "episode") as bar:
        factory, noise = executor_factory(config), noise_of(config, actor)
        return evaluate(env, actor.policy, factory, noise, seeds_of(config, name), bar.update)


def executor_factory(config: EvaluateConfig) -> ExecutorFactory:
    """Factory of the executor of training and robot, with the settings of this evaluation."""

    def executor(policy: ChunkPolicy, lanes: int) -> Executor:
        if isinstance(policy, FunctionPolicy):
            return FunctionExecutor(policy, lanes)
        return ChunkExecutor(policy, lanes, execute=config.execute, ensemble=config.ensemble)

    return executor


def noise_of(config: EvaluateConfig, actor: LoadedPolicy) -> EpisodeNoise:
    """Noise of every episode, keyed by its seed."""
    return EpisodeNoise((actor.policy.chunk, actor.policy.action_spec.dim), noise_scale(config, actor))


def noise_scale(config: EvaluateConfig, actor: LoadedPolicy) -> float:
    return actor.noise if config.noise is None else config.noise


def verdict(first: EvalResult, second: EvalResult) -> str:
    """Comparison of two policies on the same episodes."""
    test = compare_by_report(first, second)
    if isinstance(test, ReturnTest):
        if not math.isfinite(test.mean_difference):
            return f"same {len(first.seeds)} episodes: a return is not finite, so there is no test"
        better = "higher" if test.mean_difference >= 0 else "lower"
        found = f"the first policy's mean return is {better} by {abs(test.mean_difference):.4g}"
        name = "paired permutation test"
    else:
        found = f"only the first policy solves {test.only_first}, only the second {test.only_second}"
        name = "exact McNemar"
    word = "no significant difference" if test.p_value >= SIGNIFICANT else "a significant difference"
    return f"same {len(first.seeds)} episodes: {found}; {name} {p_equals(test.p_value)}: {word}"


def summary(
    config: EvaluateConfig, env: str, actor: LoadedPolicy, results: dict[str, EvalResult], latency: Latency
) -> dict[str, Any]:
    """Success or mean return of the first policy, with the settings that reproduce it."""
    return success_note(results["policy"], env, config.seed, noise_scale(config, actor)) | {
        "decision_ms_p50": latency.p50_ms,
        "decision_ms_p99": latency.p99_ms,
        "decision_ms_cpu": latency.cpu_ms,
        "torch": torch.__version__,
    }


def keep_note(folder: Path, note: dict[str, Any]) -> None:
    """Save the success note of the policy; print a line if its folder cannot be written."""
    try:
        write_success_note(folder, note)
    except OSError as error:
        print(
            f"success not saved in {folder} ({error.strerror}): a bundle exported from it will not state it."
        )


def plain(config: EvaluateConfig, trained: str) -> bool:
    """True if the policy was run as it will be deployed; only then its success note is saved.

    trained: environment that it was trained in.
    """
    return (
        (config.env is None or same_env(config.env, trained))
        and config.execute is None
        and config.ensemble is None
        and config.max_episode_steps is None
        and config.instruction is None
        and config.wordings is None
        and not config.tasks
    )


def film(config: EvaluateConfig, actor: LoadedPolicy, name: str) -> None:
    """Film the first episodes of the evaluation as MP4."""
    from robo_rl.eval.video import record_episodes

    with closing(make_env(name, 1, **env_options(config))) as env:
        seeds = seeds_of(config, name)[: config.video_episodes or FILMED]
        factory, noise = executor_factory(config), noise_of(config, actor)
        path, instruction = Path(str(config.video)), config.instruction
        record_episodes(
            env,
            actor.policy,
            factory,
            noise,
            seeds,
            path,
            name=shown_name(actor.folder),
            instruction=instruction,
        )


def shown_name(policy: Path) -> str:
    """Name of a policy folder in a film: that of its run, of a joint network that of the robot."""
    run = policy.parent.name
    return policy.name if run in ("", POLICIES) else run
