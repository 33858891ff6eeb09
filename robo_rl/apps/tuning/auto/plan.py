"""Steps of a run in stages, and the methods that it trains in turn."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.start import BASES, env_name, env_options, with_planning_interval
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.conditioning import memory_shape
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.stats import SuccessRate
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import RunDir
from sim.registry import make_env

PROBE_FILE = "probe.json"
CHOICE_SHARE = 0.15  # of the steps: the largest part that probes or compares policies
CHOICE_SEED = 2  # seed of the episodes of the probe; see `choice_seed`
PROBE_FROM = 50_000  # steps of a run below which there is no probe: they would be too few to decide
PROBE_SHARE = 0.5  # of the steps that choose: the largest part of a probe
PROBE_EPISODES, LEAST_PROBE, DRAWS = 50, 10, 8  # most and fewest episodes of a probe, and draws of the noise
LEAST_STEPS = 500  # least environment steps of a stage
ROUND_STEPS = 10_000  # least steps of a residual before its successes are imitated, if as many are left


@dataclass
class StepBudget:
    """Environment steps of a run by use. Together they never exceed `total`."""

    total: int
    lanes: int  # environments, which are stepped together
    base: int = 0
    training: int = 0
    selection: int = 0

    @property
    def to_choose(self) -> int:
        """Steps that may still probe or compare policies."""
        return int(CHOICE_SHARE * self.total) - self.selection

    @property
    def to_train(self) -> int:
        """Steps that are left for training, in whole steps of all environments."""
        left = self.total - int(CHOICE_SHARE * self.total) - self.base - self.training
        return left - left % self.lanes

    @property
    def rounds(self) -> int:
        """Number of residuals that `to_train` is for."""
        return 0 if self.to_train < LEAST_STEPS else max(1, self.to_train // ROUND_STEPS)

    @property
    def round_steps(self) -> int:
        """Steps of the next residual; 0 if too few are left."""
        steps = self.to_train // max(1, self.rounds) if self.rounds else 0
        return steps - steps % self.lanes

    def add(self, used: dict[str, int]) -> None:
        """Count the steps of a stage."""
        self.base += used["base"]
        self.training += used["training"]
        self.selection += used["selection"]

    def used(self) -> dict[str, int]:
        """Steps so far, by use."""
        return {"base": self.base, "training": self.training, "selection": self.selection}


@dataclass(frozen=True)
class StagePlan:
    """Methods in turn, and what is known of the base: the scale of its noise, with its success at its own
    planning interval.
    """

    steering: bool  # whether steering comes before the residuals
    reason: str
    noise_scale: float = 0.0
    rate: SuccessRate | None = None  # None: unknown


def make_plan(config: FinetuneVerb, base: SavedPolicy, run: RunDir, steps: StepBudget) -> StagePlan:
    """Plan by a probe, if the steps suffice for one; else residuals where there are demonstrations, and
    steering first where there are none.
    """
    if not can_be_steered(base):
        return StagePlan(False, "this base cannot be steered, so residuals correct it")
    if (found := probe_base(config, base, run, steps)) is not None and found.reports_success:
        plan = found.recommend()
        noise, rate = max(((0.0, found.zero), (1.0, found.gaussian)), key=lambda each: each[1].rate)
        reason = f"probe: N(0, I) {found.gaussian}, zero noise {found.zero}; {plan.reason}"
        measured = base.execute == probed_as(base).execute
        return StagePlan("steering" in plan.method, reason, noise, rate if measured else None)
    if config.demos is None:
        return StagePlan(True, "no demonstrations: steering first, then residuals")
    return StagePlan(False, "residuals, whose successes are imitated")


def can_be_steered(base: SavedPolicy) -> bool:
    """True if the policy can plan as often as steering does."""
    return isinstance(base, BASES) and memory_shape(base) is None


def probed_as(base: SavedPolicy) -> SavedPolicy:
    """The base as a probe runs it: it plans as often as steering does."""
    return with_planning_interval(base, stage_method("steering").execute or base.execute)


def probe_base(config: FinetuneVerb, base: SavedPolicy, run: RunDir, steps: StepBudget) -> Probe | None:
    """Probe of the base, which plans as often as steering; None if the steps do not suffice for one.

    A resumed run reads the stored result.
    """
    path = run.path / PROBE_FILE
    if not path.exists():
        with closing(make_env(env_name(config), 10, 0, **env_options(config))) as env:
            episodes = probe_episodes(steps, env.spec.max_episode_steps)
            if not episodes:
                return None
            shape = (base.chunk, base.action_spec.dim)
            with progress(None, "probe", "episode") as bar:
                found = probe(
                    env,
                    probed_as(base),
                    ChunkExecutor,
                    lambda scale, stream: EpisodeNoise(shape, scale, stream),
                    eval_seed=choice_seed(config),
                    episodes=episodes,
                    best_of_seeds=episodes // 2,
                    draws=DRAWS,
                    progress=bar.update,
                )
        write_json(path, found.to_json())
    found = Probe.from_json(read_json(path))
    steps.selection += found.env_steps
    return found


def probe_episodes(steps: StepBudget, longest: int) -> int:
    """Episodes of the probe; 0 if it would have too few. longest: steps of the longest episode."""
    if steps.total < PROBE_FROM:
        return 0
    each = (2 + (DRAWS - 1) / 2) * longest  # at most: two policies, and all draws in half of the episodes
    episodes = min(PROBE_EPISODES, int(PROBE_SHARE * steps.to_choose / each))
    return episodes if episodes >= LEAST_PROBE else 0


def total_steps(config: FinetuneVerb) -> int:
    """Total environment steps of the run."""
    return config.env_steps or config.method.env_steps


def choice_seed(config: FinetuneVerb) -> int:
    """Seed of the probe's episodes, which differ from those of training and of the final evaluation: a choice
    on the final ones would bias their result.
    """
    return CHOICE_SEED if config.eval_seed != CHOICE_SEED else CHOICE_SEED + 1


def stage_method(name: str) -> MethodConfig:
    """Default settings of a method."""
    from robo_rl.apps.cli.config import load_config

    return load_config("finetune", [f"method={name}", "out=."], FinetuneVerb).method
