"""`robo-rl transfer` for arm policies: the same task and starts in other engines."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from policies.base.noise import EpisodeNoise
from policies.deploy.bundle import MANIFEST
from policies.executor import ChunkExecutor
from policies.remote.address import is_remote
from policies.vocabulary import unread_sentence
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.text.commands import command
from robo_rl.eval import text
from robo_rl.eval.rollout import EvalResult, compare, eval_seeds, evaluate
from robo_rl.eval.stats import SIGNIFICANT, PairedTest, SuccessRate
from robo_rl.eval.video import record_episodes
from robo_rl.flight.fly.report import USABLE, halved
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import LoadedPolicy, open_policy, unread_in
from robo_rl.runs.next_step import NEVER, after_evaluation, places_of
from robo_rl.runs.outputs import free_path
from robo_rl.runs.progress import progress
from sim.engines.table import ENGINES
from sim.registry import make_env, option_of, with_option
from sim.tasks.table import SUITES

EPISODES = 100
_LANES = 32
_TO_ROBOTS = ("robo-rl run ", "robo-rl export ")  # what follows for a policy that is ready for a robot


@dataclass(frozen=True)
class EngineResult:
    """Result of the policy in one engine. test: comparison with the first engine, paired by start."""

    engine: str
    result: EvalResult
    test: PairedTest | None


def is_for_arms(config: TransferConfig) -> bool:
    """True for a policy of a task in a scene; False without a policy, which the caller reports."""
    given = config.run or config.bundle
    return given is not None and open_policy(given, pick_device("cpu")).env.split("/")[0] in SUITES


def main(config: TransferConfig) -> int:
    """Evaluate in every engine, print the table, film each, and write results.json into `out`."""
    if config.run is not None and config.bundle is not None:
        raise ConfigError("Give either run=<folder> or bundle=<folder>, and not both.")
    if config.episodes is None:
        config = replace(config, episodes=EPISODES)
    actor = open_policy(config.run or config.bundle or "", pick_device("cpu"))
    if config.env is not None:
        actor = replace(actor, env=config.env)
    if sentence := unread_sentence(actor.folder, unread_in(actor.folder, actor.env)):
        print(sentence)
    results = measure(config, actor, engines_of(config, actor.env))
    try:
        write_results(Path(config.out) / "results.json", config, actor, results)
        for each in results if config.video else ():
            print(f"filming {each.engine} ...", flush=True)
            film(config, actor, each.engine)
    finally:  # also where the files cannot be written
        print_table(config, actor, results)
    names = ["results.json", *(f"{each.engine}.mp4" for each in results if config.video)]
    print(f"written to {config.out}: {', '.join(names)}")
    if following := next_step(config, actor, results):
        print(f"Next:   {following}")
    return 0


def next_step(config: TransferConfig, actor: LoadedPolicy, results: list[EngineResult]) -> str:
    """Fine-tuning in the engine with the largest loss; without one, what follows the policy's evaluation,
    which is no robot while it seldom succeeds. Empty for a policy on a server, whose files these verbs need.

    A loss is significant, or one of more than half of a usable success.
    """
    if is_remote(config.run):
        return ""
    home, others = results[0].result.rate, results[1:]
    lost = [each for each in others if _lost(each, home)]
    worst = min(lost, key=lambda each: each.result.rate.rate, default=results[0])
    why = f"it loses success in {worst.engine}" if lost else "it seldom succeeds"
    if not lost:
        following = after_evaluation(actor.folder, home)
        if home.rate >= USABLE or not following.startswith(_TO_ROBOTS):
            return following
        if not home.k:
            return NEVER
    policy, beside, _ = places_of(actor.folder)
    base = "<the run of the bundle>" if (actor.folder / MANIFEST).is_file() else policy
    out = free_path(beside / f"tuned-{worst.engine}")
    env = with_option(actor.env, "engine", worst.engine) if lost else actor.env
    return f"{command('finetune', base=base, env=env, out=out)}   ({why})"


def _lost(each: EngineResult, home: SuccessRate) -> bool:
    """True for a loss of success in this engine: a significant one, or one of more than half where it was
    usable.
    """
    rate = each.result.rate.rate
    significant = each.test is not None and each.test.p_value < SIGNIFICANT
    return rate < home.rate and (significant or halved(home.rate, rate))


def engines_of(config: TransferConfig, env: str) -> list[str]:
    """The engine of training first, then the others. Raises ConfigError for a task that runs in one engine
    only.
    """
    home = option_of(env, "engine")
    if home is None:
        raise ConfigError(f"{env} runs in one engine only; it cannot be transferred to another.")
    wanted = [name.strip() for name in (config.engines or config.engine).split(",") if name.strip()]
    for engine in wanted:
        if engine not in ENGINES:
            raise UnknownNameError("engine", engine, ENGINES)
    return list(dict.fromkeys([str(home), *wanted]))


def measure(config: TransferConfig, actor: LoadedPolicy, engines: list[str]) -> list[EngineResult]:
    """Evaluate the same seeds in every engine. An engine that cannot run here raises before the first
    episode.
    """
    for engine in engines:
        make_env(with_option(actor.env, "engine", engine), 1).close()
    results: list[EngineResult] = []
    seeds = eval_seeds(config.seed, config.starts)
    with progress(config.starts * len(engines), "transfer", "episode") as bar:
        for engine in engines:
            lanes = min(_LANES, config.starts)
            with closing(make_env(with_option(actor.env, "engine", engine), lanes)) as env:
                actor.check(env.spec, "bundle" if config.run is None else "run")
                noise = EpisodeNoise((actor.policy.chunk, actor.policy.action_spec.dim), actor.noise)
                found = evaluate(env, actor.policy, ChunkExecutor, noise, seeds, bar.update)
            results.append(
                EngineResult(engine, found, compare(results[0].result, found) if results else None)
            )
    return results


def film(config: TransferConfig, actor: LoadedPolicy, engine: str) -> None:
    """Film the first starts in this engine."""
    with closing(make_env(with_option(actor.env, "engine", engine), 1)) as env:
        noise = EpisodeNoise((actor.policy.chunk, actor.policy.action_spec.dim), actor.noise)
        seeds = eval_seeds(config.seed, min(3, config.starts))
        record_episodes(
            env, actor.policy, ChunkExecutor, noise, seeds, Path(config.out) / f"{engine}.mp4", name=engine
        )


def write_results(
    path: Path, config: TransferConfig, actor: LoadedPolicy, results: list[EngineResult]
) -> None:
    """Write every figure of the table, and what is needed to reproduce it."""
    home = results[0].result.rate.rate
    rows = [
        {
            "engine": each.engine,
            **each.result.rate.to_json(),
            "kept": each.result.rate.rate / home if home > 0.0 else None,
            "mcnemar_p": None if each.test is None else each.test.p_value,
        }
        for each in results
    ]
    head = {
        "commit": commit(),
        "machine": machine(),
        "policy": str(actor.folder),
        "env": actor.env,
        "seed": config.seed,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {**head, "episodes": config.starts, "rows": rows})


def print_table(config: TransferConfig, actor: LoadedPolicy, results: list[EngineResult]) -> None:
    """Print one row per engine; red where success is significantly lower."""
    table = Table(header_style="dim", box=None, pad_edge=False)
    table.add_column("engine", no_wrap=True)
    for column in ("k/n", "success", "95 %", "kept", "p"):
        table.add_column(column, justify="right", no_wrap=True)
    home = results[0].result.rate.rate
    for each in results:
        rate, worse = each.result.rate, each.test is not None and each.test.p_value < SIGNIFICANT
        colour = "bold red" if worse and rate.rate < home else "bold green"
        kept = text.NONE if each.test is None or home == 0.0 else f"[{colour}]{rate.rate / home:.0%}[/]"
        p_value = text.NONE if each.test is None else text.p_value(each.test.p_value)
        table.add_row(
            each.engine, f"{rate.k}/{rate.n}", text.percent(rate), text.interval(rate), kept, p_value
        )
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(f"{actor.env}: {config.starts} starts, the same in every engine", style="bold")
    console.print(table)
    console.print(
        f"{results[0].engine}: the engine of training. 95 %: Wilson interval in per cent. kept: success "
        "relative to it. p: exact McNemar test.",
        style="dim",
    )
