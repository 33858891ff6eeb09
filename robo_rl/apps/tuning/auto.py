"""`robo-rl finetune method=auto`: a probe of the base chooses steering, residuals, or those on top of the
other.

Steering is cheap and strong where some draw of the base's own noise already succeeds. Where it does not get
all the way, residuals use the environment steps that are left, in rounds. After each round a new base
imitates all that was succeeded in, and the next round corrects that one. The probe runs the base at the
rhythm at which it would be steered: planning anew more often changes what a base can do.
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
from policies.tuned.single_step import SingleStepPolicy
from robo_rl.apps.tuning.imitation import imitate
from robo_rl.apps.tuning.loop import run_method
from robo_rl.apps.tuning.report import measure, report
from robo_rl.apps.tuning.start import env_name, env_options, load_base, replanned
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.provenance import commit
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.stats import SuccessRate
from robo_rl.rl.mix import MixConfig
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve, TuningResult
from robo_rl.runs.progress import progress
from robo_rl.runs.run_dir import FREE_KEYS, RunDir
from sim.registry import make_env

PROBE_FILE, START_FILE = "probe.json", "start.json"
CHOICE_SEED = 2  # of the episodes on which stages are compared; see `choice_seed`
CHOICE_EPISODES = 50  # of a comparison, with FULL_STEPS or more to train in
LEAST_EPISODES = 10  # ... however short training is: fewer tell nothing apart
DRAWS = 8  # of the noise, in the probe
FULL_STEPS = 50_000
ENOUGH = 0.97  # success at which no further stage is tried
SURE = 4  # times as many episodes as a comparison has must show it
LEAST_STEPS = 1000  # environment steps that a stage is worth starting for
WEAK = 0.9  # a start that succeeds less often than this gets a residual of longer reach
ROUND_STEPS = (
    12_000  # the least that a residual gets before its successes are imitated, while there is so much
)
CLOSE = (
    0.1  # a policy that imitates, and succeeds no less than this below the best, is the next residual's base
)


@dataclass(frozen=True)
class Stage:
    """What one stage left: a policy, how its noise is drawn, and its success on the comparison episodes."""

    policy: SavedPolicy
    noise_scale: float
    rate: SuccessRate


def finetune_auto(config: FinetuneVerb) -> int:
    """Probe, train the stages that the probe asks for, and keep the best policy in `out`/policy."""
    default = stage_method("auto")
    if replace(config.method, env_steps=default.env_steps) != default:
        raise ConfigError(
            "method=auto runs the recipes of steering and residual as they are; only env_steps= can be set. "
            "To change a recipe, run method=steering or method=residual with it."
        )
    base = load_base(config)
    with RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite) as run:
        _run_stages(config, base, run)
    return 0


def _run_stages(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> None:
    total = total_steps(config)
    finer = steerable(base)
    found = probe_base(config, finer, run)
    plan = found.recommend()
    print(f"probe: N(0, I) {found.gaussian}, zero noise {found.zero}; {plan.reason}")
    best = start_of(config, base, finer, found, run)
    print(f"start: planning every {best.policy.execute} steps, noise scale {best.noise_scale:g}, {best.rate}")
    course = _Course(config, base, run, best)
    if "steering" in plan.method:
        course.steer(min(total, stage_method("steering").env_steps))
    while not course.arrived() and (steps := round_steps(total - course.spent)):
        course.correct(steps)
        if not course.arrived():
            course.imitate()
    best, spent, curve = course.best, course.spent, course.curve
    note = {
        "verb": "finetune",
        "method": "auto",
        "base": config.base,
        "env_steps": spent,
        # evaluations of the base, as those of the stages not part of env_steps
        "probe_env_steps": found.env_steps,
        "seed": config.seed,
        "noise": best.noise_scale,
        "train_cpu_s": round(curve.train_cpu_s, 1),
        "commit": commit(),
    }
    save_policy(run.policy, best.policy, note)
    write_json(run.path / CURVE_FILE, curve.to_json())
    report(config, base, TuningResult(load_policy(run.policy), best.noise_scale, curve, spent), run)


def round_steps(left: int) -> int:
    """Environment steps of the next residual, where `left` are left for it and those after it; 0 for too
    few.
    """
    return 0 if left < LEAST_STEPS else left // max(1, left // ROUND_STEPS)


def steerable(base: SavedPolicy) -> SavedPolicy:
    """The base at the rhythm of steering; a policy that was fine-tuned before keeps its own."""
    execute = stage_method("steering").execute
    if execute is None or base.chunk < execute or not isinstance(base, GenerativePolicy | SingleStepPolicy):
        return base
    return replanned(base, execute)


def start_of(config: FinetuneVerb, base: SavedPolicy, finer: SavedPolicy, found: Probe, run: RunDir) -> Stage:
    """The best way to run the base as it is: at its own rhythm or at steering's, without its noise or with
    it.

    Of equal ones the first named counts: its own rhythm plans less often, and zero noise is repeatable.
    """
    candidates = [Stage(finer, 0.0, found.zero), Stage(finer, 1.0, found.gaussian)]
    if base.execute != finer.execute:
        still, noisy = own_rates(config, base, run.path / START_FILE)
        candidates = [Stage(base, 0.0, still), Stage(base, 1.0, noisy), *candidates]
    return max(candidates, key=lambda stage: stage.rate.rate)


def own_rates(config: FinetuneVerb, base: SavedPolicy, path: Path) -> list[SuccessRate]:
    """Success at the base's own rhythm, without and with noise; a resumed run reads what the first one
    found.
    """
    if not path.exists():
        rates = [rate_of(config, base, scale) for scale in (0.0, 1.0)]
        write_json(path, {"zero": [rates[0].k, rates[0].n], "gaussian": [rates[1].k, rates[1].n]})
    found = read_json(path)
    return [SuccessRate(*found[name]) for name in ("zero", "gaussian")]


def probe_base(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> Probe:
    """The probe; a resumed run reads what the first one found."""
    path = run.path / PROBE_FILE
    if path.exists():
        return Probe.from_json(read_json(path))
    shape = (base.chunk, base.action_spec.dim)
    episodes, draws = effort(total_steps(config))
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
    """Environment steps of all stages together."""
    return config.env_steps or config.method.env_steps


def effort(total: int) -> tuple[int, int]:
    """(episodes of a comparison, draws of the probe) for `total` steps of training.

    The probe's steps are not part of `total`, but a probe of many times the training is not what a short run
    asks for: below FULL_STEPS it shrinks with it, to a floor of LEAST_EPISODES, from where on half the draws
    have to do.
    """
    share = min(1.0, total / FULL_STEPS)
    episodes = min(CHOICE_EPISODES, max(LEAST_EPISODES, round(share * CHOICE_EPISODES)))
    return episodes, DRAWS if share * CHOICE_EPISODES >= LEAST_EPISODES else DRAWS // 2


def choice_seed(config: FinetuneVerb) -> int:
    """Episodes to choose by: neither training's evaluations nor the final ones, on which a choice would look
    good.
    """
    return CHOICE_SEED if config.eval_seed != CHOICE_SEED else CHOICE_SEED + 1


def stage_method(name: str) -> MethodConfig:
    """The default recipe of a method."""
    from robo_rl.apps.cli.config import load_config

    return load_config("finetune", [f"method={name}", "out=."], FinetuneVerb).method


class _Course:
    """The stages of one run: what they have left so far, and what they have cost."""

    def __init__(self, config: FinetuneVerb, base: SavedPolicy, run: RunDir, start: Stage) -> None:
        self.config, self.base, self.run = config, base, run
        self.best, self.next = start, start  # what is left in the end; what the next residual corrects
        self.sure = False  # was the best one met by more episodes?
        self.execute = start.policy.execute  # the rhythm that suits the base
        self.spent, self.curve = 0, LearningCurve()
        self.recorded: list[Path] = []  # datasets of the successes of all stages
        self.demos = config.demos  # with those successes, once there was an imitation
        self._counts: dict[str, int] = {}

    def arrived(self) -> bool:
        """Is the best policy good enough? Said only after more episodes: the best of many looks better than
        it is.
        """
        if self.best.rate.rate >= ENOUGH and not self.sure:
            self.best = replace(
                self.best, rate=rate_of(self.config, self.best.policy, self.best.noise_scale, SURE)
            )
            self.sure = True
            print(f"on more episodes: {self.best.rate}")
        return self.best.rate.rate >= ENOUGH

    def steer(self, steps: int) -> None:
        """Noise steering of the base, at its own rhythm."""
        self._train("steering", self.base, steps)

    def correct(self, steps: int) -> None:
        """A residual on the policy that is next."""
        recipe = "residual_far" if self.next.rate.rate < WEAK else "residual"
        self._train(recipe, self.next.policy, steps)

    def imitate(self) -> None:
        """A new base from all that was succeeded in: the next to be corrected, if it is about as good as the
        best.
        """
        if not isinstance(self.base, GenerativePolicy):
            return
        folder = self._folder("imitation")
        made = imitate(self.base, self.config.demos, self.recorded, folder, self.config.seed)
        if made is None:
            return
        policy, cpu_s = made
        self.curve.train_cpu_s += cpu_s
        self.demos = str(folder / "data")
        policy = replanned(policy, self.execute)
        tried = [Stage(policy, scale, rate_of(self.config, policy, scale)) for scale in (0.0, 1.0)]
        found = max(tried, key=lambda stage: stage.rate.rate)
        print(
            f"imitation: {found.rate} with noise scale {found.noise_scale:g}, {self.best.rate} the best "
            "before"
        )
        if found.rate.rate >= self.best.rate.rate - CLOSE:
            self.next = found
        if found.rate.rate >= self.best.rate.rate:
            self.best, self.sure = found, False

    def _train(self, name: str, start: SavedPolicy, steps: int) -> None:
        """Train one method from `start` and keep its result if it is the best. A resumed run goes on inside
        it.
        """
        config, folder = self.config, self._folder(name.removesuffix("_far"))
        saved = folder / "base"
        if not (saved / POLICY_FILE).is_file():  # written last
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
        )  # a short stage needs steps to learn in
        if name != "steering":
            inner.method.base_noise = self.next.noise_scale
        if self.demos is None:
            inner.method.mix = MixConfig()
        inner.resume = Path(inner.out, "run.json").exists()
        free = FREE_KEYS | {"base", "demos"}  # they may lie in the run itself, which may have been moved
        run = RunDir.create(inner.out, inner, resume=inner.resume, free=free)
        outcome = run_method(inner, inner.method, start, run)
        self.curve.env_steps += [self.spent + step for step in outcome.curve.env_steps]
        self.curve.rates += outcome.curve.rates
        self.curve.returns += outcome.curve.returns
        self.curve.train_cpu_s += outcome.curve.train_cpu_s
        self.spent += outcome.env_steps
        self.recorded.append(run.episodes)
        after = Stage(
            outcome.policy, outcome.noise_scale, rate_of(config, outcome.policy, outcome.noise_scale)
        )
        print(f"{name}: {after.rate} after {outcome.env_steps} steps, {self.best.rate} the best before")
        if after.rate.rate >= self.best.rate.rate:
            self.best, self.next, self.sure = after, after, False

    def _folder(self, name: str) -> Path:
        """Folder of the next stage of this name: residual, residual2, residual3, ..."""
        self._counts[name] = count = self._counts.get(name, 0) + 1
        return self.run.path / (name if count == 1 else f"{name}{count}")


def rate_of(config: FinetuneVerb, policy: SavedPolicy, noise_scale: float, times: int = 1) -> SuccessRate:
    """Success on the episodes that stages are compared on; on so many times as many, with those at the
    beginning.
    """
    chosen = replace(config, eval_seed=choice_seed(config))
    with closing(make_env(env_name(config), 10, 0, **env_options(config))) as env:
        return measure(policy, noise_scale, env, chosen, times * effort(total_steps(config))[0]).rate
