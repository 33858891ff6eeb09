"""`method=auto` in few environments: a probe of the base chooses steering, residuals, or residuals on top of
steering.

Steering is cheap and effective if some draw of the base's noise succeeds. If steering is not enough,
residuals use the remaining environment steps, in rounds. After each round a new base imitates all successes,
and the next round trains a residual on it. The probe plans as often as steering would: re-planning changes
the success of a base.
"""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from policies.base.generative import GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.saved_files import POLICY_FILE
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.auto.imitation import imitate
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.remote import LAUNCHER_KEYS
from robo_rl.apps.tuning.report import measure, train_note
from robo_rl.apps.tuning.start import BASES, env_name, env_options, with_planning_interval
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.training_history import TrainingHistory
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve, StageRecord, TuningResult
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import FREE_KEYS, RunDir
from sim.registry import make_env

PROBE_FILE, START_FILE = "probe.json", "start.json"
CHOICE_SEED = 2  # seed of the episodes on which stages are compared; see `choice_seed`
CHOICE_EPISODES = 50  # episodes of a comparison, for FULL_STEPS or more of training
LEAST_EPISODES = 10  # episodes of a comparison for any length of training
DRAWS = 8  # draws of the noise in the probe
FULL_STEPS = 50_000
GOOD_ENOUGH = 0.97  # success at which no further stage is tried
CONFIRMATION_FACTOR = 4  # factor on the episodes of a comparison that must confirm it
LEAST_STEPS = 1000  # least environment steps of a stage
WEAK = 0.9  # success below which a residual with a larger scale is trained
ROUND_STEPS = 12_000  # least steps of a residual before its successes are imitated, if as many are left
CLOSE = 0.1  # an imitating policy at most this far below the best is the base of the next residual


@dataclass(frozen=True)
class Stage:
    """Result of one stage: a policy, its noise scale, and its success on the comparison episodes."""

    policy: SavedPolicy
    noise_scale: float
    rate: SuccessRate


def train_in_stages(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> TuningResult:
    """Probe, train the stages that the probe recommends, and save the best policy."""
    total = total_steps(config)
    finer = with_steering_interval(base)
    found = probe_base(config, finer, run)
    plan = found.recommend()
    print(f"probe: N(0, I) {found.gaussian}, zero noise {found.zero}; {plan.reason}")
    curve = LearningCurve(selection_steps=found.env_steps)
    best = best_start(config, base, finer, found, run, curve)
    print(f"start: planning every {best.policy.execute} steps, noise scale {best.noise_scale:g}, {best.rate}")
    course = _AutoRun(config, base, run, best, curve)
    if "steering" in plan.method:
        course.steer(min(total, stage_method("steering").env_steps))
    while not course.is_good_enough() and (steps := round_steps(total - course.spent)):
        course.correct(steps)
        if not course.is_good_enough():
            course.imitate()
    best = course.best
    used = {"training": course.spent, "selection": curve.selection_steps}
    note = train_note(config, config.method, used, best.noise_scale, curve.train_cpu_s)
    save_policy(run.policy, best.policy, note)
    write_json(run.path / CURVE_FILE, curve.to_json())
    return TuningResult(
        load_policy(run.policy), best.noise_scale, curve, used, (), course.history, tuple(course.stages)
    )


def round_steps(left: int) -> int:
    """Environment steps of the next residual, of `left` for it and later ones; 0 if these are too few."""
    return 0 if left < LEAST_STEPS else left // max(1, left // ROUND_STEPS)


def with_steering_interval(base: SavedPolicy) -> SavedPolicy:
    """The base with the planning interval of steering; a fine-tuned policy keeps its own."""
    execute = stage_method("steering").execute
    if execute is None or base.chunk < execute or not isinstance(base, BASES):
        return base
    return with_planning_interval(base, execute)


def best_start(
    config: FinetuneVerb,
    base: SavedPolicy,
    finer: SavedPolicy,
    found: Probe,
    run: RunDir,
    curve: LearningCurve,
) -> Stage:
    """The best way to run the base: with its own or steering's planning interval, with or without noise.

    On a tie the first one wins: the own interval plans less often, and zero noise is repeatable.
    """
    candidates = [Stage(finer, 0.0, found.zero), Stage(finer, 1.0, found.gaussian)]
    if base.execute != finer.execute:
        still, noisy = own_rates(config, base, run.path / START_FILE, curve)
        candidates = [Stage(base, 0.0, still), Stage(base, 1.0, noisy), *candidates]
    return max(candidates, key=lambda stage: stage.rate.rate)


def own_rates(config: FinetuneVerb, base: SavedPolicy, path: Path, curve: LearningCurve) -> list[SuccessRate]:
    """Success with the base's own planning interval, without and with noise. A resumed run reads the stored
    results.
    """
    if not path.exists():
        used = LearningCurve()
        rates = [rate_of(config, base, scale, used) for scale in (0.0, 1.0)]
        found = {"zero": [rates[0].k, rates[0].n], "gaussian": [rates[1].k, rates[1].n]}
        write_json(path, found | {"env_steps": used.selection_steps})
    found = read_json(path)
    curve.selection_steps += int(found.get("env_steps", 0))  # older files have none
    return [SuccessRate(*found[name]) for name in ("zero", "gaussian")]


def probe_base(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> Probe:
    """Probe of the base. A resumed run reads the stored result."""
    path = run.path / PROBE_FILE
    if path.exists():
        return Probe.from_json(read_json(path))
    shape = (base.chunk, base.action_spec.dim)
    episodes, draws = comparison_size(total_steps(config))
    with (
        closing(make_env(env_name(config), 10, 0, **env_options(config))) as env,
        progress(None, "probe", "episode") as bar,
    ):
        found = probe(
            env,
            base,
            ChunkExecutor,
            lambda scale, stream: EpisodeNoise(shape, scale, stream),
            eval_seed=choice_seed(config),
            episodes=episodes,
            best_of_seeds=max(1, episodes // 2),
            draws=draws,
            progress=bar.update,
        )
    write_json(path, found.to_json())
    return found


def total_steps(config: FinetuneVerb) -> int:
    """Total environment steps of all stages."""
    return config.env_steps or config.method.env_steps


def comparison_size(total: int) -> tuple[int, int]:
    """(episodes of a comparison, draws of the probe) for `total` steps of training.

    The probe's steps are not part of `total`, but the probe should not exceed the training. Below FULL_STEPS
    it shrinks with the training to LEAST_EPISODES, and below that to half the draws.
    """
    share = min(1.0, total / FULL_STEPS)
    episodes = min(CHOICE_EPISODES, max(LEAST_EPISODES, round(share * CHOICE_EPISODES)))
    return episodes, DRAWS if share * CHOICE_EPISODES >= LEAST_EPISODES else DRAWS // 2


def choice_seed(config: FinetuneVerb) -> int:
    """Seed of the comparison episodes, which differ from those of training and of the final evaluation: a
    choice on the final ones would bias their result.
    """
    return CHOICE_SEED if config.eval_seed != CHOICE_SEED else CHOICE_SEED + 1


def stage_method(name: str) -> MethodConfig:
    """Default settings of a method."""
    from robo_rl.apps.cli.config import load_config

    return load_config("finetune", [f"method={name}", "out=."], FinetuneVerb).method


class _AutoRun:
    """State of one run: results and costs of its stages so far."""

    def __init__(
        self, config: FinetuneVerb, base: SavedPolicy, run: RunDir, start: Stage, curve: LearningCurve
    ) -> None:
        self.config, self.base, self.run = config, base, run
        self.best, self.next = start, start  # the best policy so far; the base of the next residual
        self.untuned = base, start.policy  # the base, with its own and with the start's planning interval
        self.confirmed = False  # whether more episodes have confirmed `best`
        self.execute = start.policy.execute  # planning interval of the base
        self.spent, self.curve = 0, curve
        self.recorded: list[Path] = []  # datasets of the successes of all stages
        self.demos = config.demos  # demonstrations, with those successes after an imitation
        self.history, self.stages = TrainingHistory(), list[StageRecord]()  # history: of the last stage
        self._counts: dict[str, int] = {}

    def is_good_enough(self) -> bool:
        """True if the best policy is good enough on more episodes: the best of several results is biased
        upwards.
        """
        if self.best.rate.rate >= GOOD_ENOUGH and not self.confirmed:
            self.best = replace(
                self.best,
                rate=self._rate(self.best.policy, self.best.noise_scale, CONFIRMATION_FACTOR),
            )
            self.confirmed = True
            print(f"on more episodes: {self.best.rate}")
        return self.best.rate.rate >= GOOD_ENOUGH

    def steer(self, steps: int) -> None:
        """Train noise steering of the base, with its own planning interval."""
        self._train("steering", self.base, steps)

    def correct(self, steps: int) -> None:
        """Train a residual on `next`."""
        recipe = "residual_far" if self.next.rate.rate < WEAK else "residual"
        self._train(recipe, self.next.policy, steps)

    def imitate(self) -> None:
        """Train a new base on all successes. It becomes `next` if it is about as good as the best."""
        if not isinstance(self.base, GenerativePolicy | VlaPolicy):
            return
        folder = self._folder("imitation")
        made = imitate(self.base, self.config.demos, self.recorded, folder, self.config.seed)
        if made is None:
            return
        policy, cpu_s = made
        self.curve.train_cpu_s += cpu_s
        self.demos = str(folder / "data")
        policy = with_planning_interval(policy, self.execute)
        tried = [Stage(policy, scale, self._rate(policy, scale)) for scale in (0.0, 1.0)]
        found = max(tried, key=lambda stage: stage.rate.rate)
        self.stages.append(StageRecord("imitation", 0, self.best.rate, found.rate, "comparison"))
        print(
            f"imitation: {found.rate} with noise scale {found.noise_scale:g}, best before: {self.best.rate}"
        )
        if found.rate.rate >= self.best.rate.rate - CLOSE:
            self.next = found
        if found.rate.rate >= self.best.rate.rate:
            self.best, self.confirmed = found, False

    def _train(self, name: str, start: SavedPolicy, steps: int) -> None:
        """Train one method from `start` and keep its result if it is the best. A resumed run continues it."""
        config, folder = self.config, self._folder(name.removesuffix("_far"))
        saved = folder / "base"
        if any(start is untuned for untuned in self.untuned):
            saved = Path(str(config.base))  # a large base is not copied into every stage
        elif not (saved / POLICY_FILE).is_file():  # this file is written last
            save_policy(saved, start, {"noise": self.next.noise_scale})
        inner = copy.deepcopy(config)
        inner.out, inner.base, inner.env, inner.env_steps = (
            str(folder / "run"),
            str(saved),
            env_name(config),
            steps,
        )
        inner.demos, inner.record = self.demos, "success" if config.record == "none" else config.record
        inner.method = stage_method(name)
        inner.method.base_steps = min(
            inner.method.base_steps, steps // 3
        )  # a short stage needs steps for learning
        if name != "steering":
            inner.method.base_noise = self.next.noise_scale
        if self.demos is None:
            inner.method.mix = MixConfig()
        inner.resume = Path(inner.out, "run.json").exists()
        # base and demos may be inside the run, which may have been moved
        free = FREE_KEYS | LAUNCHER_KEYS | {"base", "demos"}
        run = RunDir.create(inner.out, inner, resume=inner.resume, free=free)
        outcome = run_method(inner, inner.method, start, run)
        self.curve.env_steps += [self.spent + step for step in outcome.curve.env_steps]
        self.curve.rates += outcome.curve.rates
        self.curve.returns += outcome.curve.returns
        before_s = self.curve.wall_s[-1] if self.curve.wall_s else 0.0
        self.curve.wall_s += [before_s + each_s for each_s in outcome.curve.wall_s]
        self.curve.train_cpu_s += outcome.curve.train_cpu_s
        self.curve.selection_steps += outcome.curve.selection_steps
        self.spent += outcome.env_steps - outcome.steps["selection"]
        self.recorded.append(run.episodes)
        after = Stage(outcome.policy, outcome.noise_scale, self._rate(outcome.policy, outcome.noise_scale))
        self.history = outcome.history
        self.stages.append(StageRecord(name, outcome.env_steps, self.best.rate, after.rate, "comparison"))
        print(f"{name}: {after.rate} after {outcome.env_steps} steps, best before: {self.best.rate}")
        if after.rate.rate >= self.best.rate.rate:
            self.best, self.next, self.confirmed = after, after, False

    def _rate(self, policy: SavedPolicy, noise_scale: float, times: int = 1) -> SuccessRate:
        return rate_of(self.config, policy, noise_scale, self.curve, times)

    def _folder(self, name: str) -> Path:
        """Folder of the next stage of this name: residual, residual2, residual3, ..."""
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return self.run.path / (name if count == 1 else f"{name}{count}")


def rate_of(
    config: FinetuneVerb, policy: SavedPolicy, noise_scale: float, curve: LearningCurve, times: int = 1
) -> SuccessRate:
    """Success on the first comparison episodes, `times` as many as usual; `curve` counts their steps."""
    chosen, episodes = replace(config, eval_seed=choice_seed(config)), comparison_size(total_steps(config))[0]
    with closing(make_env(env_name(config), 10, 0, **env_options(config))) as env:
        found = measure(policy, noise_scale, env, chosen, times * episodes)
    curve.selection_steps += found.env_steps
    return found.rate
