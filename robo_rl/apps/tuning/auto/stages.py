"""`method=auto` in few environments: residuals and imitation in rounds, after steering where that helps.

A residual corrects a base, in rounds. After each round a new base imitates all successes, and the next round
corrects that one. Steering comes first without demonstrations, or where a probe says that some draw of the
base's noise succeeds. Every environment step counts (`StepBudget`): training episodes measure each stage, and
the policy of the last imitation, which has none, races against the best one in a share of the steps.
"""

from __future__ import annotations

import copy
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy, save_policy
from policies.registry import SavedPolicy
from policies.saved_files import POLICY_FILE
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.auto.imitation import imitate
from robo_rl.apps.tuning.auto.plan import StepBudget, make_plan, stage_method, total_steps
from robo_rl.apps.tuning.comparison import ComparedPolicy, choose, player, race_of, selection_seeds
from robo_rl.apps.tuning.diverged import DIVERGED_IN_AUTO
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.report import train_note
from robo_rl.apps.tuning.start import (
    env_name,
    env_options,
    training_episode_limit,
    with_planning_interval,
)
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.settings import free_keys
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.race import Played, scores_of, unreported
from robo_rl.eval.stats import MeanReturn, Measure, SuccessRate, alike, chance_of_less, measure_of, pooled
from robo_rl.eval.training_history import TrainingHistory
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve, StageRecord, TuningResult
from robo_rl.runs.loaded_policy import find_policy, trained_noise
from robo_rl.runs.run_dir import RunDir
from sim.registry import make_env

GOOD_ENOUGH, ENOUGH = 0.97, 32  # success at which no further stage is tried, and its least episodes
WEAK = 0.9  # success below which a residual with a larger scale is trained
CLEAR = 0.1  # p at which an imitating policy is worse than the best one
LEAST_PAIRS = 8  # pairs of episodes below which a race says nothing
START_FILE = "start.json"  # episodes of the base before steering takes its place
LAST_EPISODES = 10  # training episodes in the last third of a stage below which all of them count


@dataclass(frozen=True)
class Stage:
    """Result of one stage: a policy, its noise scale, and its success (or return) in training or comparison
    episodes.
    """

    policy: SavedPolicy
    noise_scale: float
    rate: Measure | None  # None: unknown


def train_in_stages(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> TuningResult:
    """Train stages within the steps of the run, and save the best policy."""
    steps = StepBudget(total_steps(config), max(1, config.num_envs))
    plan = make_plan(config, base, run, steps)
    print(plan.reason)
    course = _AutoRun(config, base, run, Stage(base, plan.noise_scale, plan.rate), steps)
    if plan.steering:
        course.steer()
    while course.goes_on() and steps.round_steps:
        course.correct()
        if course.goes_on():
            course.imitate()
    best, sentences = course.decide()
    for sentence in sentences:
        print(sentence)
    curve, used = course.curve, steps.used()
    curve.selection_steps = used["selection"]
    note = train_note(config, config.method, used, best.noise_scale, curve.train_cpu_s)
    save_policy(run.policy, best.policy, note)
    write_json(run.path / CURVE_FILE, curve.to_json())
    policy = load_policy(run.policy)
    return TuningResult(
        policy, best.noise_scale, curve, used, sentences, course.history, tuple(course.stages)
    )


class _AutoRun:
    """State of one run: results and costs of its stages so far."""

    def __init__(
        self, config: FinetuneVerb, base: SavedPolicy, run: RunDir, start: Stage, steps: StepBudget
    ) -> None:
        self.config, self.base, self.run, self.steps = config, base, run, steps
        self.best, self.next = start, start  # the best policy so far; the base of the next residual
        self.curve = LearningCurve()
        self.recorded: list[Path] = []  # datasets of the successes of all stages
        self.demos = config.demos  # demonstrations, with those successes after an imitation
        self.history, self.stages = TrainingHistory(), list[StageRecord]()  # history: of the last stage
        self._counts: dict[str, int] = {}
        self._start_s = time.monotonic()
        with closing(make_env(env_name(config), 1, 0, **env_options(config))) as env:
            self.longest = env.spec.max_episode_steps  # steps of the longest episode
        race = steps.to_choose // 2
        self.race_steps = race if race >= 2 * LEAST_PAIRS * self.longest else 0  # of the race at the end

    def goes_on(self) -> bool:
        """False if the best policy is good enough, or the time is up."""
        enough = is_known_as(self.best.rate, GOOD_ENOUGH)
        return not enough and (self._left_s() is None or self._left_s() != 0.0)

    def steer(self) -> None:
        """Train noise steering of the base.

        Its result is the best policy, and the next base, if its training episodes succeed more often than
        those of the base with N(0, I), in which steering begins, and than `next` in episodes of its own.
        """
        steps = min(3 * self.steps.to_train // 4, stage_method("steering").env_steps)
        if (steps := steps - steps % self.steps.lanes) <= 0:
            return
        began = (self.run.path / "residual").exists()
        found, drawn = self._train("steering", steps)
        self._add_record("steering", steps, drawn, found.rate)
        if not is_better(found.rate, drawn):
            return
        start = self.next
        if start.rate is None:
            if began and not (self.run.path / START_FILE).exists():  # earlier versions measured nothing else
                rate = drawn
            else:
                rate = self._measure(start, steps // 3)
                print(f"the base with noise {start.noise_scale:g}: {in_words(rate)} in its own episodes")
            start = replace(start, rate=rate)
        better = start.rate is not None and is_better(found.rate, start.rate)
        self.best = self.next = found if better else start

    def correct(self) -> None:
        """Train a residual on `next`. Its result is the next base if its training episodes succeed more
        often than those of its own base, and the best policy if also more often than the best one before.
        """
        name = "residual" if is_known_as(self.next.rate, WEAK) else "residual_far"
        steps = self.steps.round_steps
        found, before = self._train(name, steps)
        start = replace(self.next, rate=pooled(self.next.rate, before))
        self._add_record(name, steps, start.rate, found.rate)
        unmeasured = self.next.rate is None
        if self.best is self.next or (unmeasured and not is_clearly_worse(start.rate, self.best.rate)):
            self.best = start
        self.next = start
        if is_better(found.rate, start.rate):
            self.next = found
            if self.best is start or is_better(found.rate, self.best.rate):
                self.best = found

    def imitate(self) -> None:
        """Train a new base on all successes. Before another round it is the next base, which training
        episodes measure; the last one races against the best policy, and wins on a tie.
        """
        if not isinstance(self.base, GenerativePolicy | VlaPolicy):
            return
        share, limit = self.steps.to_choose - self.race_steps, self.episode_limit()
        if not self.steps.rounds and share < 2 * LEAST_PAIRS * limit:
            return
        folder = self._folder("imitation")
        made = imitate(self.base, self.config.demos, self.recorded, folder, self.config.seed)
        if made is None:
            return
        policy, cpu_s = made
        self.curve.train_cpu_s += cpu_s
        self.demos = str(folder / "data")
        found = Stage(with_planning_interval(policy, self.base.execute), 0.0, None)
        if self.steps.rounds:
            self.next = found
            return
        compared = [ComparedPolicy("", each.policy, each.noise_scale) for each in (found, self.best)]
        raced = race_of(compared[0], compared[1], self.config, share, limit)
        self.steps.selection += raced.env_steps
        after, before = raced.measures() or (None, None)
        self.stages.append(StageRecord("imitation", raced.env_steps, before, after, "comparison"))
        print(f"imitation: {in_words(after)}, the best before {in_words(before)} on the same episodes")
        if raced.lead >= 0:
            self.best = replace(found, rate=after)

    def episode_limit(self) -> int:
        """Step limit of a residual's training episodes, at which policies are also compared."""
        demos = None if self.demos is None else EpisodeStore(self.demos, complete_only=True)
        return training_episode_limit(self.config, stage_method("residual_far"), demos) or self.longest

    def decide(self) -> tuple[Stage, tuple[str, ...]]:
        """The policy that is kept: the best one, unless the base as it is deployed solves more episodes.

        They race if there are steps for enough pairs; if not, training episodes have decided.
        """
        own = trained_noise(find_policy(str(self.config.base)))
        deployed, best = Stage(self.base, own, None), self.best
        untuned = best.policy is self.base
        if untuned and best.noise_scale == own:
            return best, ("No stage was better than the base: the base is kept.",)
        if self.steps.to_choose < 2 * LEAST_PAIRS * self.longest:
            if untuned:
                return deployed, ("No stage was better than the base: the base is kept.",)
            return best, (
                f"The best policy of the stages is kept, by its training episodes: {in_words(best.rate)}.",
            )
        name = "the base without noise" if untuned and best.noise_scale == 0.0 else "the best policy"
        first = ComparedPolicy(name, best.policy, best.noise_scale)
        of_base = ComparedPolicy("the base", self.base, own)
        choice = choose(first, [of_base], not untuned, self.config, self.steps.to_choose, not untuned)
        self.steps.selection += choice.env_steps
        return (best if choice.kept is first else deployed), choice.sentences

    def _train(self, name: str, steps: int) -> tuple[Stage, Measure | None]:
        """(result, success of the training episodes of its base) of one method that is trained on `next`, in
        whole steps of all environments. A resumed run continues it.
        """
        config, start, folder = self.config, self.next, self._folder(name.removesuffix("_far"))
        saved = folder / "base"
        if start.policy is self.base:
            saved = Path(str(config.base))  # a large base is not copied into every stage
        elif not (saved / POLICY_FILE).is_file():  # this file is written last
            save_policy(saved, start.policy, {"noise": start.noise_scale})
        inner = copy.deepcopy(config)
        inner.out, inner.base, inner.env = str(folder / "run"), str(saved), env_name(config)
        inner.env_steps, inner.max_wall_s = steps, self._left_s()
        inner.demos, inner.record = self.demos, "success" if config.record == "none" else config.record
        inner.method = stage_method(name)
        # a short stage needs steps for learning
        inner.method.base_steps = min(inner.method.base_steps, steps // 3)
        inner.method.base_is_enough = ENOUGH
        if name != "steering":
            inner.method.base_noise = start.noise_scale
        if self.demos is None or memory_shape(start.policy) is not None:  # datasets hold no memory
            inner.method.mix = MixConfig()
        inner.resume = Path(inner.out, "run.json").exists()
        # base and demos may be inside the run, which may have been moved
        free = free_keys("finetune") | {"base", "demos"}
        run = RunDir.create(inner.out, inner, resume=inner.resume, free=free)
        outcome = run_method(
            inner, inner.method, start.policy, run, keep_last=True, diverged=DIVERGED_IN_AUTO
        )
        self.curve.train_cpu_s += outcome.curve.train_cpu_s
        self.steps.add(outcome.steps)
        self.recorded.append(run.episodes)
        self.history = outcome.history
        (record,) = outcome.stages
        rate = record.after if isinstance(record.after, MeanReturn) else last_success(outcome.history)
        return Stage(outcome.policy, outcome.noise_scale, rate), record.before

    def _add_record(self, name: str, steps: int, before: Measure | None, after: Measure | None) -> None:
        self.stages.append(StageRecord(name, steps, before, after))
        print(f"{name}: {in_words(before)} before, {in_words(after)} at the end (training episodes)")

    def _measure(self, stage: Stage, most_steps: int) -> Measure | None:
        """Success of a policy in at most `ENOUGH` episodes, within `most_steps`; None: too few for one. A
        resumed run reads the stored result.
        """
        path = self.run.path / START_FILE
        if not path.exists():
            played = self._episodes(stage, most_steps)
            write_json(path, {"episodes": [asdict(each) for each in played]})
        played = [Played(**each) for each in read_json(path)["episodes"]]
        self.steps.base += sum(each.env_steps for each in played)
        by_return = unreported(played)
        return measure_of(scores_of(played, by_return=by_return), by_return=by_return) if played else None

    def _episodes(self, stage: Stage, most_steps: int) -> list[Played]:
        """Episodes of a policy without exploration. Each may take the full length within `most_steps`."""
        played: list[Played] = []
        with closing(make_env(env_name(self.config), 1, 0, **env_options(self.config))) as env:
            play = player(ComparedPolicy("", stage.policy, stage.noise_scale), env, self.config)
            for seed in selection_seeds(self.config)[:ENOUGH]:
                if sum(each.env_steps for each in played) + self.longest > most_steps:
                    break
                played.append(play(seed))
        return played

    def _left_s(self) -> float | None:
        """Wall time that is left [s]; None without a limit."""
        limit_s = self.config.max_wall_s
        return None if limit_s is None else max(0.0, limit_s - (time.monotonic() - self._start_s))

    def _folder(self, name: str) -> Path:
        """Folder of the next stage of this name: residual, residual2, residual3, ..."""
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return self.run.path / (name if count == 1 else f"{name}{count}")


def is_known_as(measure: Measure | None, least: float) -> bool:
    """True if the success is at least this high in enough episodes; never for returns, which have no top."""
    return isinstance(measure, SuccessRate) and measure.n >= ENOUGH and measure.rate >= least


def is_better(measure: Measure | None, than: Measure | None) -> bool:
    """True if the first is known and higher; any success or return is higher than an unknown one."""
    if measure is None or than is None:
        return measure is not None and (isinstance(measure, MeanReturn) or measure.rate > 0.0)
    measure, than = alike(measure, than)
    return measure.value > than.value


def is_clearly_worse(measure: Measure | None, than: Measure | None) -> bool:
    """True if the first is unknown, or so low compared with the second only by a rare chance."""
    return measure is None or (than is not None and chance_of_less(measure, than) < CLEAR)


def last_success(history: TrainingHistory) -> SuccessRate | None:
    """Success of training episodes in the last third of the steps; of all if these are few."""
    last = history.thirds()[2]
    return last.rate if last.episodes >= LAST_EPISODES else history.learning.rate


def in_words(rate: Measure | None) -> str:
    return "unknown" if rate is None else str(rate)
