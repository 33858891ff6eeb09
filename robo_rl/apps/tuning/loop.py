"""Fine-tuning of one method in a run's folder: training, evaluations and checkpoints in turn."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from policies.checkpoint import load_policy, save_policy
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.comparison import (
    Choice,
    ComparedPolicy,
    Successor,
    Trained,
    TrainingEpisodes,
    base_phase,
    compared,
)
from robo_rl.apps.tuning.compose import TuningSession
from robo_rl.apps.tuning.diverged import DIVERGED, best_if_diverged
from robo_rl.apps.tuning.evaluations import Best, Evaluate, evaluations, score_of, too_costly
from robo_rl.apps.tuning.remote import OpenFleet, remote_session, write_actors
from robo_rl.apps.tuning.report import shown_success, train_note
from robo_rl.apps.tuning.start import (
    demonstrations_for,
    env_name,
    env_options,
    evaluation_lanes,
    in_training,
    training_episode_limit,
    with_planning_interval,
)
from robo_rl.apps.tuning.training_lanes import RemoteLanes, TrainingLanes, local_session, training_env
from robo_rl.apps.tuning.warm_start import start_from
from robo_rl.apps.tuning.watch import TrainingWatch
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.files.durable import write_json
from robo_rl.data.selection import select_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.eval.timing import cpu_seconds
from robo_rl.rl.running import CollectedEpisode
from robo_rl.rl.scale.remote_collector import RemoteCollector
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve, StageRecord, TuningResult
from robo_rl.runs.metrics import Metrics
from robo_rl.runs.resumable import RunSession, check_weights, crossed, resumable
from robo_rl.runs.run_dir import RunDir
from sim.registry import has_dense_reward, make_env


def run_method(
    config: FinetuneVerb,
    method: MethodConfig,
    base: SavedPolicy,
    run: RunDir,
    actors: OpenFleet | None = None,
    keep_last: bool = False,
    successor: Successor | None = None,
    diverged: str = DIVERGED,
) -> TuningResult:
    """Train one method in `run`; a resumed run continues from its last checkpoint.

    actors: starts actors that hold the environments; None: they are in this process. keep_last: keep the last
    policy, without evaluations and without a comparison. successor: see `compared`. diverged: advice on NaN.
    """
    total = config.env_steps or method.env_steps
    method = in_training(config, method)
    if method.execute is not None and method.map.kind != "direct":
        base = with_planning_interval(base, method.execute)
    demos = None if config.demos is None else demonstrations_for(base, config.demos)
    if sentence := _left_out(config, method):
        print(sentence)
    name, limit = env_name(config), training_episode_limit(config, method, demos)
    one = method.compare_share > 0.0 or keep_last
    measuring = 1 if one else evaluation_lanes(config, config.eval_episodes)
    with (
        training_env(config, limit, actors) as env,
        closing(make_env(name, measuring, 0, **env_options(config))) as eval_env,
        resumable(
            run,
            total=method.env_steps,
            label=method.name,
            unit="step",
            resume=config.resume,
            shown=(shown_success(config, method, keep_last), "critic/q"),
        ) as session,
    ):
        state, spec, say = session.take_state(), eval_env.spec, session.bar.write
        dense = has_dense_reward(name, config.reward)
        shared: Any = {"demos": demos, "dense_reward": dense, "logger": session.metrics, "say": say}
        lanes: TrainingLanes = RemoteLanes()
        if env is None:
            assert actors is not None
            tuning = remote_session(config, method, base, spec, actors, limit, run=run.path, **shared)
        else:
            base, tuning, lanes = local_session(
                config, method, base, env, spec, run, fresh=state is None, **shared
            )
        start_from(tuning.tuner, config.init)
        session.raise_if_stopped()  # nothing was done since the last checkpoint
        watch = TrainingWatch(
            has_base=config.base is not None,
            demos=config.demos is not None,
            sparse=not dense,
            can_be_dense=has_dense_reward(name, "dense"),
            limit_steps=None if method.episode_limit_factor else spec.max_episode_steps,
            say=say,
        )
        evaluate = evaluations(config, eval_env, session.bar)
        training = _Training(config, tuning, lanes, evaluate, session.metrics, watch, say, method, keep_last)
        training.begin(state)
        del state  # a replay is large
        training.run(session, run, diverged)
    collector = tuning.tuner.collector
    if isinstance(collector, RemoteCollector):
        print(write_actors(collector, run))
        if config.ray_address is not None:  # no children of this process, unlike those of a local cluster
            training.curve.train_cpu_s += collector.waiting.actors_cpu_s
    training.pause()
    return _saved_result(training, run, _choice(training, base, total, limit, successor))


def _left_out(config: FinetuneVerb, method: MethodConfig) -> str:
    """Sentence on demonstrations that the method leaves out of its replay; empty if there are none."""
    if config.demos is None or method.mix.demo == 0.0:
        return ""
    rule = "all" if method.reward_source == "interventions" else "unfailed"
    return select_episodes(EpisodeStore(config.demos), rule).sentence()


class _Training:
    """Tuner and evaluations in the form of the training loop (`resumable`)."""

    def __init__(
        self,
        config: FinetuneVerb,
        tuning: TuningSession,
        lanes: TrainingLanes,
        evaluate: Evaluate,
        metrics: Metrics,
        watch: TrainingWatch,
        say: Callable[[str], None],
        method: MethodConfig,
        keep_last: bool = False,
    ) -> None:
        self.config, self.tuning, self.lanes, self._measure = config, tuning, lanes, evaluate
        self.method, self.keep_last = method, keep_last
        self.episodes, self.watch = TrainingEpisodes(), watch
        self.metrics, self.tuner, self._say = metrics, tuning.tuner, say
        self.curve = LearningCurve()
        self.best: Best | None = None  # None before the first evaluation
        # CPU and wall time at which training continued; None in evaluations and checkpoints
        self._since_s: tuple[float, float] | None = None
        self._wall_s = 0.0  # of training so far, without evaluations and checkpoints
        self._without_steps = 0  # updates of offline learning and burn-in before the last `advance`
        limit_s = config.max_wall_s
        self._deadline_s = math.inf if limit_s is None else time.monotonic() + limit_s
        self._out_of_time = False

    def begin(self, state: dict[str, Any] | None) -> None:
        """Start the first episodes, or restore the instant of a checkpoint."""
        if state is not None:
            self.curve = LearningCurve.from_json(state["progress"])
            self.best = None if state["best"] is None else Best.from_state(state["best"])
            self.episodes = TrainingEpisodes.from_state(state.get("episodes", {}))
            if "watch" in state:  # older checkpoints have none
                self.watch.load_state_dict(state["watch"])
            self._wall_s = float(state.get("wall_s", 0.0))
            self.lanes.restore(state)
            self.tuner.load_state_dict(state["tuner"])
        self.lanes.start(self.tuner, fresh=state is None)

    @property
    def done(self) -> bool:
        return self.tuner.done or self._out_of_time or self.base_suffices

    @property
    def evaluates(self) -> bool:
        """True if evaluations choose the policy, and not a comparison at the end or the caller."""
        return self.method.compare_share == 0.0 and not self.keep_last

    @property
    def base_suffices(self) -> bool:
        """True if the base's own episodes leave nothing to learn."""
        least = self.method.base_is_enough
        return self.step >= self.method.base_steps and self.episodes.perfect_base(least)

    @property
    def step(self) -> int:
        return self.tuner.env_steps

    def savable(self) -> bool:
        """False before the first evaluation."""
        return self.best is not None or not self.evaluates

    def learned_without_steps(self) -> bool:
        """True if a checkpoint is due in offline learning or the burn-in: after as many updates as there are
        steps between two checkpoints, and after the last update.
        """
        before, now, every = self._without_steps, self._updates_without_steps, self.config.checkpoint_every
        ended = self.tuner.phase not in ("offline", "burn_in")
        return now > before and (crossed(before, now, every) or ended)

    @property
    def _updates_without_steps(self) -> int:
        return self.tuner.offline + self.tuner.burned_in

    def advance(self) -> None:
        """Evaluate the initial policy first; later, do one step of the tuner, and an evaluation when due."""
        if self.best is None and self.evaluates:
            self._evaluate()
            return
        if self._since_s is None:
            self._since_s = cpu_seconds(), time.monotonic()
        before, self._without_steps = self.step, self._updates_without_steps
        phase = self.tuner.phase
        self._count(self.tuner.advance(), phase)
        self._out_of_time = time.monotonic() > self._deadline_s
        if self._out_of_time and not self.tuner.done:
            self._say(f"max_wall_s: training ends after {self.step} of {self.tuner.config.env_steps} steps")
        if self.evaluates and self._evaluation_due(before):
            self._evaluate()

    def _count(self, ended: list[CollectedEpisode], phase: str) -> None:
        """Count the episodes that ended in a phase of training."""
        if ended:
            self.episodes.add(ended, phase, *base_phase(self.tuner.collector, self.method.base_steps))
        self.lanes.learn(ended)
        share = self.step / max(1, self.tuner.config.env_steps)
        self.watch.add(
            ended, of_base=phase == "base", base_done=self.step >= self.method.base_steps, progress=share
        )

    def _evaluation_due(self, before: int) -> bool:
        if self.done:
            return self.curve.env_steps[-1] < self.step
        return crossed(before, self.step, self.config.eval_every)

    @property
    def spent(self) -> dict[str, int]:
        """Environment steps so far, of the base and of learning."""
        lanes = self.tuner.collector.num_lanes
        of_base = min(self.step, lanes * math.ceil(self.method.base_steps / lanes))
        return {"base": of_base, "training": self.step - of_base}

    @property
    def steps(self) -> dict[str, int]:
        """Environment steps so far by use: `spent`, and those that chose a policy."""
        return self.spent | {"selection": self.curve.selection_steps}

    def note(self, noise_scale: float) -> dict[str, Any]:
        """Origin of a policy of this training, see `train_note`."""
        return train_note(self.config, self.method, self.steps, noise_scale, self.curve.train_cpu_s)

    def run(self, session: RunSession, run: RunDir, diverged: str) -> None:
        """Train until done or stopped. Raises DivergedError with the advice `diverged` if weights are NaN."""
        learner = self.tuner.learner
        with best_if_diverged(run, learner, lambda: self.best, self.save_policy, diverged):
            session.run(
                self,
                checkpoint_every=self.config.checkpoint_every,
                due=self.learned_without_steps,
                savable=self.savable,
                extra=lambda folder: self.save_current(folder, run, diverged),
            )

    def save_current(self, checkpoint: Path, run: RunDir, diverged: str) -> None:
        """Save the policy of this step in a checkpoint of `run`. Raises DivergedError if weights are NaN."""
        check_weights(self.tuner.learner.weights(), run, diverged)
        self.save_policy(checkpoint)

    def save_policy(self, checkpoint: Path) -> None:
        """Save the policy that the learner holds in a checkpoint."""
        save_policy(RunDir(checkpoint).policy, self.tuning.policy, self.note(self.tuning.noise_scale))

    def keep_best(self) -> str:
        """Load the weights of the best evaluation into the learner; returns a message for the user."""
        assert self.best is not None  # there is one at step 0
        self.tuner.learner.load_weights(self.best.weights)
        if self.best.env_steps == self.step:
            return ""
        rate = f"{self.curve.rates[-1]}, " if any(each.k for each in self.curve.rates) else ""
        last = f"{rate}mean return {self.curve.returns[-1]:.4g}"
        return (
            f"kept the policy of step {self.best.env_steps}, whose evaluation was the best; "
            f"the last one's was {last}"
        )

    def record(self) -> StageRecord:
        """What the training brought, by its evaluations or its own episodes."""
        if self.evaluates:
            first, best = self.curve.first_and_best()
            return StageRecord(self.method.name, self.step, first, best, "evaluations")
        found = self.episodes.measures()
        return StageRecord(self.method.name, self.step, found.get("base"), found.get("policy"))

    def pause(self) -> None:
        """Add the time since training continued.

        Reading the workers' CPU time takes as long as a small update, so this is not done at every step.
        """
        if self._since_s is not None:
            self.curve.train_cpu_s += cpu_seconds() - self._since_s[0]
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # the GPU works behind the host
            self._wall_s += time.monotonic() - self._since_s[1]
            self._since_s = None

    def _evaluate(self) -> None:
        self.pause()
        result = self._measure(self.tuning.policy, self.tuning.noise_scale)
        if self.best is None and (
            sentence := too_costly(self.config, self.tuner.config.env_steps, result.env_steps)
        ):
            self._say(sentence)
        self.curve.add(self.step, self._wall_s, result)
        success = {"eval/success": result.rate.rate} if result.reports_success else {}
        self.metrics.log(self.step, success | {"eval/return": result.mean_return})
        score = score_of(result)
        if self.best is None or score >= self.best.score:
            self.best = Best(self.step, score, self.tuner.learner.weights())

    def state_dict(self) -> dict[str, Any]:
        """Everything that changes: tuner, environments, evaluations."""
        self.pause()
        return {
            "tuner": self.tuner.state_dict(),
            "best": None if self.best is None else self.best.to_state(),
            "episodes": self.episodes.state_dict(),
            "watch": self.watch.state_dict(),
            "progress": self.curve.to_json(),
            "wall_s": self._wall_s,
        } | self.lanes.state_dict()


def _choice(
    training: _Training, base: SavedPolicy, total: int, limit: int | None, successor: Successor | None
) -> Choice:
    """The policy that is kept: by a comparison within the `total` steps of the run, by the evaluations, or
    the last one. limit: steps of the training episodes; None: the task's own. successor: see `compared`.
    """
    tuning, method = training.tuning, training.method
    if method.compare_share:
        ended = Trained(
            tuning.policy,
            tuning.noise_scale,
            training.episodes,
            training.base_suffices,
            training.step,
            total,
            limit,
        )
        return compared(training.config, method, base, ended, successor)
    note = "" if training.keep_last else training.keep_best()
    trained = ComparedPolicy("the trained policy", tuning.policy, tuning.noise_scale)
    return Choice(trained, 0, (note,) if note else ())


def _saved_result(training: _Training, run: RunDir, choice: Choice) -> TuningResult:
    """Result of a run, whose policy and learning curve are saved here."""
    for sentence in choice.sentences:
        print(sentence)
    kept, curve = choice.kept, training.curve
    curve.selection_steps += choice.env_steps
    curve.train_cpu_s += choice.cpu_s
    steps, note = training.steps, training.note(kept.noise_scale)
    save_policy(run.policy, kept.policy, note)
    write_json(run.path / CURVE_FILE, curve.to_json())
    policy, stages = load_policy(run.policy), (training.record(), *choice.stages)
    history = training.watch.history
    return TuningResult(policy, kept.noise_scale, curve, steps, choice.sentences, history, stages)
