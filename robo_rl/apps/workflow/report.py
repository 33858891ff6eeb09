"""Second half of the demo: probe, distil, export, run, measure every policy on the same episodes, report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.conf.demo import DemoConfig
from robo_rl.core.files.durable import read_json
from robo_rl.eval.plots import Curve, write_learning_curves
from robo_rl.eval.probe import Probe, probe
from robo_rl.eval.report import Media, Report, write_report
from robo_rl.eval.results import LABELS, ResultRow, write_results
from robo_rl.eval.rollout import EvalResult, compare, eval_seeds, evaluate
from robo_rl.eval.stats import SuccessRate, paired_test
from robo_rl.eval.table import print_results
from robo_rl.eval.timing import Latency, latencies_on
from robo_rl.eval.video import record_episodes
from robo_rl.runs.learning_curve import CURVE_FILE, LearningCurve
from robo_rl.runs.loaded_policy import LoadedPolicy, open_policy, worker_count
from robo_rl.runs.progress import progress
from sim.registry import make_env

if TYPE_CHECKING:
    from robo_rl.apps.workflow.stages import Stages

EVAL_SEED = (
    1  # seed of the table; evaluations during training use 0, so nothing was selected on these episodes
)
LANES = 10
VIDEO_FPS = 40.0  # half speed: MetaWorld runs at 80 Hz


@dataclass(frozen=True)
class TableEntry:
    """One row of the table before it is measured."""

    name: str
    actor: LoadedPolicy
    noise: float
    env_steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0


def finish(config: DemoConfig, out: Path, stages: Stages) -> int:
    """Run all stages after fine-tuning."""
    from robo_rl.apps.workflow.stages import again, verb

    torch.set_num_threads(1)
    stages.run(
        "probe", "Probe the base: N(0, I) noise, zero noise, best of 8 draws", lambda: run_probe(config, out)
    )
    better = choose(out)
    stages.run("distill", f"Distil the better one ({better}) into a single-step head", lambda: verb(
        "distill", f"teacher={out / better}", f"out={out / 'head'}", f"steps={config.distill_updates}",
        f"seed={config.seed}", again(out / "head")))  # fmt: skip
    stages.run("export", "Export the head as a bundle", lambda: verb(
        "export", f"policy={out / 'head'}", f"out={out / 'bundle'}", "name=demo"))  # fmt: skip
    stages.run("run", "Run the bundle in closed loop at its rate", lambda: verb(
        "run", f"bundle={out / 'bundle'}", "episodes=3", f"out={out / 'closed_loop.json'}"))  # fmt: skip
    title = f"Measure every policy on the same {config.episodes} episodes"
    entries = table_entries(out, stages)
    stages.run("measure", title, lambda: {"rows": measure_all(config, entries)})
    measured = stages.done["measure"]["rows"]
    rows = [as_row(data, entries, success_of("base_zero_noise", measured)) for data in measured]
    filmed = stages.run("film", "Film them", lambda: film(config, out, entries)).get("success", {})
    videos = [
        Media(out / "videos" / f"{c.name}.mp4", film_caption(c.name, filmed.get(c.name)))
        for c in entries
        if config.video_episodes
    ]
    write_results(out / "results.json", rows, stages.wall_s)
    write_page(config, out, stages, rows, videos)
    print_results(rows, f"{config.env}: {config.demos} demonstrations")
    print(f"Report: {out / 'report.html'}   Bundle: {out / 'bundle'}   {stages.wall_s / 60:.1f} minutes")
    return 0


def run_probe(config: DemoConfig, out: Path) -> dict[str, Any]:
    """Probe of the base, as JSON."""
    base = open_policy(out / "base", torch.device("cpu")).policy
    shape = (base.chunk, base.action_spec.dim)
    with (
        closing(make_env(config.env, LANES, worker_count(None, LANES))) as env,
        progress(None, "probe", "episode") as bar,
    ):
        result = probe(
            env,
            base,
            ChunkExecutor,
            lambda scale, stream: EpisodeNoise(shape, scale, stream),
            progress=bar.update,
        )
    print(f"N(0, I) {result.gaussian}; zero {result.zero}; best of {result.draws} {result.best_of}")
    print(result.recommend().reason)
    return {"probe": result.to_json()}


def choose(out: Path) -> str:
    """Method with the better last evaluations in training; on a tie steering, which needs fewer steps."""
    curves = {
        name: LearningCurve.from_json(read_json(out / name / CURVE_FILE)) for name in ("steering", "residual")
    }
    late = {
        name: sum(r.k for r in c.rates[-2:]) / sum(r.n for r in c.rates[-2:]) for name, c in curves.items()
    }
    return "steering" if late["steering"] >= late["residual"] else "residual"


def table_entries(out: Path, stages: Stages) -> list[TableEntry]:
    """Rows of the table: policy, noise and training cost."""
    cpu = torch.device("cpu")
    base, head = open_policy(out / "base", cpu), open_policy(out / "bundle", cpu)
    trained = stages.done["train"]
    rows = [
        TableEntry("base", base, 1.0, 0, trained["wall_s"], trained["cpu_s"]),
        TableEntry("base_zero_noise", base, 0.0, 0, trained["wall_s"], trained["cpu_s"]),
    ]
    for name, method in (("steered", "steering"), ("residual", "residual")):
        actor, done = (
            open_policy(out / method, cpu),
            LearningCurve.from_json(read_json(out / method / CURVE_FILE)),
        )
        tuned = stages.done["finetune"]
        wall_s = tuned["wall_s_by_method"][method] + tuned.get("stopped_s", 0.0)
        steps = int(actor_note(actor)["env_steps"])
        rows.append(TableEntry(name, actor, actor.noise, steps, wall_s, done.train_cpu_s))
    return [*rows, head_row(head, actor_note(open_policy(out / "head", cpu)), stages.done["distill"])]


def head_row(head: LoadedPolicy, note: dict[str, Any], stage: dict[str, Any]) -> TableEntry:
    """Row of the head with the cost of its training, without the comparison with its teacher in the same
    stage.

    The stage's cost is used if the head's note has none.
    """
    cost = float(note.get("train_wall_s", stage["wall_s"])), float(note.get("train_cpu_s", stage["cpu_s"]))
    return TableEntry("head", head, head.noise, int(note["env_steps"]), *cost)


def actor_note(actor: LoadedPolicy) -> dict[str, Any]:
    """Training note in policy.json."""
    return dict(read_json(actor.folder / "policy.json")["train"])


def measure_all(config: DemoConfig, entries: list[TableEntry]) -> list[dict[str, Any]]:
    """Success of every row on the same resets and noise; decision times in turns."""
    rows: list[dict[str, Any]] = []
    base: EvalResult | None = None
    seeds = eval_seeds(EVAL_SEED, config.episodes)
    with (
        closing(make_env(config.env, LANES, worker_count(None, LANES))) as env,
        progress(len(entries) * config.episodes, "measure", "episode") as bar,
    ):
        for each in entries:
            result = evaluate(env, each.actor.policy, ChunkExecutor, noise_for(each), seeds, bar.update)
            p = None if base is None else compare(base, result).p_value
            base = base or result
            rows.append({"name": each.name, "success": list(result.success), "p_vs_base": p})
        for row, latency in zip(
            rows, latencies_on([each.actor.policy for each in entries], env), strict=True
        ):
            row |= {
                "p50_ms": latency.p50_ms, "p99_ms": latency.p99_ms, "cpu_ms": latency.cpu_ms,
                "decisions": latency.n, "threads": latency.threads,
            }  # fmt: skip
    return rows


def noise_for(entry: TableEntry) -> EpisodeNoise:
    policy = entry.actor.policy
    return EpisodeNoise((policy.chunk, policy.action_spec.dim), entry.noise)


def success_of(name: str, measured: Sequence[dict[str, Any]]) -> list[bool]:
    """Outcome of every episode of a measured row."""
    return next(list(data["success"]) for data in measured if data["name"] == name)


def film_caption(name: str, success: Sequence[bool] | None) -> str:
    """Name of the policy and its filmed successes; the name alone for a film of an earlier version."""
    return LABELS[name] if success is None else f"{LABELS[name]}: {sum(success)} of {len(success)} succeed"


def as_row(data: dict[str, Any], entries: list[TableEntry], zero_noise: Sequence[bool]) -> ResultRow:
    """Row of the table, with its test against the base with zero noise, whose outcomes are given."""
    own = data["name"] not in ("base", "base_zero_noise")
    who = next(c for c in entries if c.name == data["name"])
    return ResultRow(
        name=who.name,
        rate=SuccessRate.of(data["success"]),
        p_vs_base=data["p_vs_base"],
        latency=Latency(
            data["p50_ms"], data["p99_ms"], data["decisions"], data["threads"], data.get("cpu_ms")
        ),
        env_steps=who.env_steps,
        train_wall_s=who.wall_s,
        train_cpu_s=who.cpu_s,
        p_vs_zero_noise=paired_test(zero_noise, data["success"]).p_value if own else None,
    )


def film(config: DemoConfig, out: Path, entries: list[TableEntry]) -> dict[str, Any]:
    """Film one MP4 per row, all of the same episodes; returns the outcomes by row."""
    success: dict[str, list[bool]] = {}
    if not config.video_episodes:
        return {}
    seeds = eval_seeds(EVAL_SEED, config.video_episodes)
    with closing(make_env(config.env, 1)) as env, progress(len(entries), "film", "video") as bar:
        for each in entries:
            path = out / "videos" / f"{each.name}.mp4"
            result = record_episodes(
                env, each.actor.policy, ChunkExecutor, noise_for(each), seeds, path, name=LABELS[each.name],
                fps=VIDEO_FPS, sheet=path.with_suffix(".png"),
            )  # fmt: skip
            success[each.name] = list(result.success)
            bar.update(1)
    return {"success": success}


def write_page(
    config: DemoConfig, out: Path, stages: Stages, rows: list[ResultRow], videos: list[Media]
) -> None:
    """Write report.html and its figure."""
    curves = []
    for method, label in (("steering", LABELS["steered"]), ("residual", LABELS["residual"])):
        done = LearningCurve.from_json(read_json(out / method / CURVE_FILE))
        curves.append(Curve.from_rates(label, done.env_steps, done.rates))
    found = Probe.from_json(stages.done["probe"]["probe"])
    levels = {"Base": found.gaussian.rate, "Base, zero noise": found.zero.rate}
    svg, _ = write_learning_curves(out / "curves", curves, levels, "Success while fine-tuning")
    points = LearningCurve.from_json(read_json(out / "steering" / CURVE_FILE)).rates[-1].n
    caption = (
        f"Success of the deterministic policy, with 95 % Wilson intervals: {points} episodes, the same at "
        f"every point. Dashed: the base on the {found.zero.n} episodes of the probe. The table above is of "
        f"{config.episodes} other episodes, which nothing was selected on."
    )
    loop = read_json(out / "closed_loop.json")
    write_report(
        out / "report.html",
        Report(
            title="From demonstrations to a single-step policy",
            subtitle=f"{config.env}, {config.demos} scripted demonstrations, sparse success reward",
            rows=rows,
            wall_s=stages.wall_s,
            facts={
                "Demonstrations": str(config.demos),
                "Seed": str(config.seed),
                "Episodes per row": f"{config.episodes}, the same for all",
                "Closed loop": f"{loop['rate_hz']:g} Hz, {loop['missed']} of {loop['ticks']} deadlines "
                "missed",
            },
            figures=[Media(svg, caption)],
            videos=videos,
            probe=found,
            recommendation=found.recommend(),
            commands=["make demo", f"robo-rl run bundle={out / 'bundle'}", f"tensorboard --logdir {out}"],
        ),
    )
