"""The loop of a fine-tuning run: training, evaluations and checkpoints in turn, resumable at any kill."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.checkpoint import load_policy, save_policy
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.compose import TuningSession, build_session, with_interventions
from robo_rl.apps.tuning.report import measure
from robo_rl.apps.tuning.start import env_name, env_options, replanned, training_episode_limit
from robo_rl.apps.tuning.warm_start import start_from
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.files.durable import write_json
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.protocols import VecEnv
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import EpisodeSeeds, derive_seed
from robo_rl.core.spec import EnvSpec
from robo_rl.data.choice import choose
from robo_rl.data.episodes.schema import DATASET_JSON
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.eval.timing import cpu_seconds
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve, TuningResult
from robo_rl.runs.metrics import Metrics
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.signals import StopRequest, stop_between_steps
from sim.registry import has_dense_reward, make_env
from sim.vec.recorded import Recorded


def run_method(config: FinetuneVerb, method: MethodConfig, base: SavedPolicy, run: RunDir) -> TuningResult:
    """Train one method in `run`, from its last checkpoint when there is one."""
    if config.env_steps is not None:
        method = replace(method, env_steps=config.env_steps)
    if method.execute is not None and method.map.kind != "direct":
        base = replanned(base, method.execute)
    demos = None if config.demos is None else EpisodeStore(config.demos, complete_only=True)
    replayed = config.demos is not None and method.mix.demo > 0.0
    if replayed and (said := choose(EpisodeStore(str(config.demos)), "unfailed").sentence()):
        print(said)
    name, options = env_name(config), env_options(config)
    limited = options | {"max_episode_steps": training_episode_limit(config, method, demos)}
    at = run.latest() if config.resume else None
    state = None if at is None else load_state(at[1])
    with (
        closing(make_env(name, config.num_envs, config.num_workers, **limited)) as env,
        closing(make_env(name, min(10, config.final_episodes), 0, **options)) as eval_env,
        progress(method.env_steps, method.name, "step", initial=at[0] if at else 0) as bar,
        _log(run, at, state, bar) as metrics,
    ):
        metrics.shown = ("eval/success" if config.base else "train/return", "critic/q")
        train_env = with_interventions(method, name, env, config.seed)
        if config.record != "none":
            train_env = _recorded(config, train_env, eval_env.spec, demos, run, fresh=state is None)
        session = build_session(
            method, base, train_env, seed=config.seed, demos=demos,
            dense_reward=has_dense_reward(name, config.reward), logger=metrics, say=bar.write,
        )  # fmt: skip
        start_from(session.tuner, config.init)
        loop = _Loop(config, session, train_env, eval_env, run, metrics)
        with stop_between_steps() as stop:
            loop.start(state)
            state = None  # a replay is large: let it go
            loop.run(bar, stop)
        if stop.asked:
            raise KeyboardInterrupt(
                f"saved step {loop.saved_at} in {run.path}; the same command with resume=true goes on"
            )
        if kept := loop.keep_best():
            print(kept)
        save_policy(run.policy, session.policy, train_note(config, method, session, loop.progress))
        write_json(run.path / CURVE_FILE, loop.progress.to_json())
    return TuningResult(load_policy(run.policy), session.noise_scale, loop.progress, session.tuner.env_steps)


def _recorded(
    config: FinetuneVerb, env: VecEnv, spec: EnvSpec, demos: EpisodeStore | None, run: RunDir, *, fresh: bool
) -> Recorded:
    """The environment to train in, its episodes kept in the run: as the demonstrations are, so that both can
    be merged.

    spec: of the environment with the task's own step limit; the shorter one of training is not recorded.
    """
    folder = run.episodes
    if (folder / DATASET_JSON).exists():
        writer = DatasetWriter.open(folder, spec)
    else:
        codec, stamps = ("raw", ()) if demos is None else (demos.meta.image_codec, demos.meta.stamps)
        writer = DatasetWriter.create(
            folder, spec, image_codec=codec, stamps=stamps, info={"commit": commit()}
        )
    if fresh:  # a run that was killed before its first checkpoint begins anew
        writer.rewind(0)
    return Recorded(
        env, writer, keep_all=config.record == "all", info={"by": config.method.name, "seed": config.seed}
    )


def _log(run: RunDir, at: tuple[int, Path] | None, state: dict[str, Any] | None, bar: Any) -> Metrics:
    """The run's log, cut back to the instant of the checkpoint `at`."""
    if at is None or state is None:
        return run.metrics(None, bar=bar)
    # Of its own step the checkpoint may have seen one line (the evaluation) and not the next (offline
    # learning).
    return run.metrics(at[0], resume_lines=state.get("log_lines"), bar=bar)


@dataclass(frozen=True)
class Best:
    """The weights of the best evaluation so far; of two equal ones the later counts."""

    env_steps: int
    score: tuple[float, float]  # success rate, then mean return
    weights: dict[str, Any]

    def to_state(self) -> dict[str, Any]:
        return {"env_steps": self.env_steps, "score": list(self.score), "weights": self.weights}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Best:
        rate, total = state["score"]
        return cls(int(state["env_steps"]), (float(rate), float(total)), state["weights"])


class _Loop:
    """Training, evaluations and checkpoints in turn."""

    def __init__(
        self,
        config: FinetuneVerb,
        session: TuningSession,
        env: VecEnv,
        eval_env: VecEnv,
        run: RunDir,
        metrics: Metrics,
    ) -> None:
        self.config, self.session, self.env, self.eval_env, self.run_dir = config, session, env, eval_env, run
        self.metrics = metrics
        self.tuner = session.tuner
        self.progress = LearningCurve()
        self.best: Best | None = None
        self.saved_at, self._saved_offline = (
            -1,
            -1,
        )  # environment steps and offline updates of the last checkpoint
        self._since_cpu_s = 0.0  # when training went on
        self._seeds = EpisodeSeeds(session.seed_root)
        # The best of many evaluations looks better than it is: the final one must meet other episodes.
        self._selection = replace(config, eval_seed=derive_seed("selection", config.eval_seed))

    def start(self, state: dict[str, Any] | None) -> None:
        """A fresh start, or the instant of a checkpoint."""
        if state is None:
            obs, first = self.env.reset(self._seeds), EpisodeSeeds(self._seeds.root)
            self.tuner.collector.reset(obs, [next(first) for _ in range(self.env.num_envs)])
            self._since_cpu_s = cpu_seconds()
            self._evaluate()
            return
        self.progress, self.best = LearningCurve.from_json(state["progress"]), Best.from_state(state["best"])
        self._seeds = EpisodeSeeds(self._seeds.root, int(state["seeds"]))
        self.env.restore(state["env"], self._seeds)  # type: ignore[call-arg]
        self.tuner.load_state_dict(state["tuner"])
        self.saved_at, self._saved_offline = self.tuner.env_steps, self.tuner.offline

    def run(self, bar: Any, stop: StopRequest) -> None:
        """Train to the end, or to the next whole state after a stop was asked for."""
        self._since_cpu_s = cpu_seconds()
        while not self.tuner.done and not (stop.asked and self.tuner.phase != "burn_in"):
            before, offline = self.tuner.env_steps, self.tuner.offline
            self.tuner.advance()
            bar.update(self.tuner.env_steps - before)
            if self._crossed(before, self.config.eval_every) and not self.tuner.done:
                self._evaluate()
            if self._crossed(before, self.config.checkpoint_every) or self._learned_offline(offline):
                self.checkpoint()
        self._book()
        if self.tuner.done and self.progress.env_steps[-1] < self.tuner.env_steps:
            self._evaluate()
        self.checkpoint()

    def keep_best(self) -> str:
        """Give the learner the weights of the best evaluation; returns what to tell the user."""
        assert self.best is not None  # there is one at step 0
        self.tuner.learner.load_weights(self.best.weights)
        if self.best.env_steps == self.tuner.env_steps:
            return ""
        last = f"{self.progress.rates[-1]}, mean return {self.progress.returns[-1]:.4g}"
        return (
            f"kept the policy of step {self.best.env_steps}, whose evaluation was the best; "
            f"the last one's was {last}"
        )

    def _crossed(self, before: int, every: int) -> bool:
        return every > 0 and self.tuner.env_steps // every > before // every

    def _learned_offline(self, before: int) -> bool:
        """Is a checkpoint due before the first step: after as many updates as there are steps between two,
        and last?
        """
        every, now = self.config.checkpoint_every, self.tuner.offline
        return now > before and (now // every > before // every or self.tuner.phase != "offline")

    def _book(self) -> None:
        """Count the CPU time since training went on. Asking what the workers used takes as long as a small
        update.
        """
        now_s = cpu_seconds()
        self.progress.train_cpu_s += now_s - self._since_cpu_s
        self._since_cpu_s = now_s

    def _evaluate(self) -> None:
        self._book()
        result = measure(self.session.policy, self.session.noise_scale, self.eval_env, self._selection)
        self.progress.env_steps.append(self.tuner.env_steps)
        self.progress.rates.append(result.rate)
        self.progress.returns.append(result.mean_return)
        self.metrics.log(
            self.tuner.env_steps, {"eval/success": result.rate.rate, "eval/return": result.mean_return}
        )
        score = (result.rate.rate, result.mean_return)
        if self.best is None or score >= self.best.score:
            self.best = Best(self.tuner.env_steps, score, self.tuner.learner.weights())
        self._since_cpu_s = cpu_seconds()

    def checkpoint(self) -> None:
        """Save everything; in the middle of the burn-in the last checkpoint stays the newest."""
        phase = self.tuner.phase
        if phase == "burn_in" or (self.saved_at, self._saved_offline) == (
            self.tuner.env_steps,
            self.tuner.offline,
        ):
            return
        self._book()
        self.metrics.sync()
        assert self.best is not None  # there is one at step 0
        state = {
            "tuner": self.tuner.state_dict(),
            "best": self.best.to_state(),
            "env": self.env.snapshot(),
            "seeds": self._seeds.count,
            "progress": self.progress.to_json(),
            "log_lines": self.metrics.lines,
        }
        with self.run_dir.new_checkpoint(self.tuner.env_steps, keep=1) as folder:
            save_state(folder, state)
        self.saved_at, self._saved_offline = self.tuner.env_steps, self.tuner.offline
        self._since_cpu_s = cpu_seconds()


def train_note(
    config: FinetuneVerb, method: MethodConfig, session: TuningSession, done: LearningCurve
) -> dict[str, Any]:
    """Where the policy came from, for policy.json and the bundle's manifest."""
    return {
        "verb": "finetune",
        "method": method.name,
        "base": config.base,
        "env_steps": session.tuner.env_steps,
        "seed": config.seed,
        "noise": session.noise_scale,
        "train_cpu_s": round(done.train_cpu_s, 1),
        "commit": commit(),
    }
