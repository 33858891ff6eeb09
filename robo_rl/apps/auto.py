"""`robo-rl finetune method=auto`: a probe of the base chooses steering, a residual, or one on top of the other.

Steering is cheap and strong where some draw of the base's own noise already succeeds. Where it does not get all the
way, a residual on top of the better policy so far uses the environment steps that are left.
"""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.noise import EpisodeNoise
from policies.registry import SavedPolicy
from robo_rl.apps.finetune import (
    Outcome,
    Progress,
    env_name,
    env_options,
    load_base,
    measure,
    report,
    run_method,
)
from robo_rl.apps.progress import progress
from robo_rl.apps.run_dir import RunDir
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.files import read_json, write_json
from robo_rl.core.provenance import commit
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.stats import SuccessRate
from robo_rl.rl.mix import MixConfig
from sim.registry import make_env

PROBE_FILE = "probe.json"
CHOICE_SEED = 2  # episodes on which stages are compared; neither training's evaluations nor the final ones
CHOICE_EPISODES = 50
ENOUGH = 0.97  # success at which no further stage is tried
LEAST_STEPS = 1000  # environment steps that a stage is worth starting for


@dataclass(frozen=True)
class Stage:
    """What one stage left: a policy, how its noise is drawn, and its success on the comparison episodes."""

    policy: SavedPolicy
    noise_scale: float
    rate: SuccessRate


def finetune_auto(config: FinetuneVerb) -> int:
    """Probe, train the stages that the probe asks for, and keep the best policy in `out`/policy."""
    base, run = load_base(config), RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite)
    total = config.env_steps or config.method.env_steps
    found = probe_base(config, base, run)
    plan = found.recommend()
    print(f"probe: N(0, I) {found.gaussian}, zero noise {found.zero}; {plan.reason}")
    zero_better = found.zero.rate >= found.gaussian.rate
    best = Stage(base, 0.0 if zero_better else 1.0, found.zero if zero_better else found.gaussian)
    spent, curve = 0, Progress()
    if "steering" in plan.method:
        steps = min(total, stage_method("steering").env_steps)
        best, spent = _stage(config, "steering", best, run, steps, spent, curve)
    if best.rate.rate < ENOUGH and total - spent >= LEAST_STEPS:
        best, spent = _stage(config, "residual", best, run, total - spent, spent, curve)
    note = {
        "verb": "finetune",
        "method": "auto",
        "base": config.base,
        "env_steps": spent,
        "probe_env_steps": found.env_steps,  # evaluations of the base, as those of the stages not part of env_steps
        "seed": config.seed,
        "noise": best.noise_scale,
        "train_cpu_s": round(curve.train_cpu_s, 1),
        "commit": commit(),
    }
    save_policy(run.policy, best.policy, note)
    write_json(run.path / "curve.json", curve.to_json())
    report(config, base, Outcome(load_policy(run.policy), best.noise_scale, curve, spent), run)
    return 0


def probe_base(config: FinetuneVerb, base: SavedPolicy, run: RunDir) -> Probe:
    """The probe; a resumed run reads what the first one found."""
    path = run.path / PROBE_FILE
    if path.exists():
        return Probe.from_json(read_json(path))
    shape = (base.chunk, base.action_spec.dim)
    with (
        closing(make_env(env_name(config), 10, 0, **env_options(config))) as env,
        progress(None, "probe", "episode") as bar,
    ):
        found = probe(
            env, base, ChunkExecutor, lambda scale, stream: EpisodeNoise(shape, scale, stream), eval_seed=CHOICE_SEED,
            episodes=CHOICE_EPISODES, best_of_seeds=CHOICE_EPISODES // 2, progress=bar.update,
        )  # fmt: skip
    write_json(path, found.to_json())
    return found


def stage_method(name: str) -> MethodConfig:
    """The default recipe of a method."""
    from robo_rl.apps.config import load_config

    return load_config("finetune", [f"method={name}", "out=."], FinetuneVerb).method


def _stage(
    config: FinetuneVerb, name: str, best: Stage, run: RunDir, steps: int, spent: int, curve: Progress
) -> tuple[Stage, int]:
    """Train one method from the best policy so far; keep the better of the two. A resumed run goes on inside it."""
    folder = run.path / name
    start = folder / "base"
    if not start.exists():
        save_policy(start, best.policy, {"noise": best.noise_scale})
    inner = copy.deepcopy(config)
    inner.out, inner.base, inner.env, inner.env_steps = str(folder / "run"), str(start), env_name(config), steps
    inner.method = stage_method(name)
    inner.method.base_steps = min(inner.method.base_steps, steps // 3)  # a short stage needs steps to learn in
    if config.demos is None:
        inner.method.mix = MixConfig()
    inner.resume = Path(inner.out, "run.json").exists()
    outcome = run_method(inner, inner.method, best.policy, RunDir.create(inner.out, inner, resume=inner.resume))
    curve.env_steps += [spent + step for step in outcome.progress.env_steps]
    curve.rates += outcome.progress.rates
    curve.returns += outcome.progress.returns
    curve.train_cpu_s += outcome.progress.train_cpu_s
    after = Stage(outcome.policy, outcome.noise_scale, _compare(inner, outcome))
    print(f"{name}: {after.rate} after {outcome.env_steps} steps, {best.rate} before")
    return (after if after.rate.rate >= best.rate.rate else best), spent + outcome.env_steps


def _compare(config: FinetuneVerb, outcome: Outcome) -> SuccessRate:
    chosen: Any = copy.copy(config)
    chosen.eval_seed = CHOICE_SEED
    with closing(make_env(env_name(config), 10, 0, **env_options(config))) as env:
        return measure(outcome.policy, outcome.noise_scale, env, chosen, CHOICE_EPISODES).rate
