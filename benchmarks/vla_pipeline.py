"""RL on a vision-language-action policy: environment steps per second, in turn and overlapped.

    python benchmarks/vla_pipeline.py
    python benchmarks/vla_pipeline.py --workers 1 2 4 --actors 1 2 --lanes 24

In turn, one process simulates, draws pictures, runs prefix and action expert, and updates. There are two ways
to overlap. Worker processes (num_workers=) simulate and draw into shared memory while the first process runs
the updates of the last step. Actors (launcher=ray) run the policy too, so that only updates are left to the
learner. Method: `residual_lanes` that corrects chunks of 4 actions, on a policy of random weights, which do
not affect the speed, in six MetaWorld tasks with two cameras. Lines:

    vla/pipeline/speedup             wall time per environment step in turn, divided by that of the best of
                                     the overlapped ways
    vla/pipeline/<n>_workers/env_steps_per_s  steps of all environments; 0 workers: in turn
    vla/pipeline/<n>_workers/<part>_ms  wall time of the first process per step of all environments:
                                     simulation (with pictures; overlapped: waiting for it), prefix, expert,
                                     update, rest
    vla/pipeline/<n>_actors/env_steps_per_s  steps of a run of `robo-rl finetune`; 0 actors: in turn, without
                                     Ray. Each actor has its share of the environments

Blocks and runs of all ways alternate, because the load of a machine changes; each keeps its fastest. Both
figures of `speedup` come from the same kind of measurement: blocks of `advance`, or runs of the verb.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser, verb
from device_world import first_seeds
from vla_features import policy_of

from policies.checkpoint import save_policy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.files.durable import read_json
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.update_runner import UpdateRunner
from sim.registry import make_env

SUITE = "metaworld/mt6"
EXECUTE = 4  # actions of a corrected chunk, and control steps between two plans
SETTINGS = [
    "method=residual_lanes", "method.map.per_chunk=true", f"method.execute={EXECUTE}", "method.mix.demo=0",
    "method.mix.online=1", "method.learner.explore_correlation=0", "method.learner.explore_min_scale=1",
    "method.burn_in=0", "method.least_weight=1",
]  # fmt: skip
PARTS = ("simulation", "prefix", "expert", "update")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="simulator processes")
    options.add_argument("--lanes", type=int, default=12, help="environments")
    options.add_argument("--steps", type=int, default=40, help="steps of all environments in a block")
    options.add_argument("--blocks", type=int, default=5, help="blocks of each number of workers")
    options.add_argument("--actors", type=int, nargs="*", default=[1], help="processes with launcher=ray")
    options.add_argument("--runs", type=int, default=3, help="runs of each number of actors")
    args = options.parse_args()
    if args.quick:
        args.workers, args.actors, args.lanes, args.steps, args.blocks = [1], [], 6, 4, 1
    torch.set_num_threads(1)
    by_workers, by_actors = of_workers(args), of_actors(args)
    facts = {"lanes": args.lanes, "steps": args.steps, "cores": os.cpu_count()}
    speedups = {f"{n} workers": rate / by_workers[0] for n, rate in by_workers.items() if n}
    speedups |= {f"{n} actors": rate / by_actors[0] for n, rate in by_actors.items() if n}
    fastest = max(speedups, key=lambda way: speedups[way])
    emit("vla/pipeline/speedup", speedups[fastest], "ratio", by=fastest, of_all=speedups, **facts)


def of_workers(args: Any) -> dict[int, float]:
    """Environment steps per second with each number of simulator processes; 0: in turn."""
    with ExitStack() as stack:
        runs = {workers: stack.enter_context(running(workers, args.lanes)) for workers in (0, *args.workers)}
        times = {workers: list[dict[str, float]]() for workers in runs}
        for _ in range(args.blocks):
            for workers, (session, env) in runs.items():
                times[workers].append(timed(session, env, args.steps))
    best = {workers: min(blocks, key=lambda block: block["all"]) for workers, blocks in times.items()}
    facts = {"lanes": args.lanes, "steps": args.steps, "blocks": args.blocks, "cores": os.cpu_count()}
    rates = {workers: args.lanes * args.steps / block["all"] for workers, block in best.items()}
    for workers, block in best.items():
        name = f"vla/pipeline/{workers}_workers"
        emit(f"{name}/env_steps_per_s", round(rates[workers], 1), "steps/s", **facts)
        rest = block["all"] - sum(block[part] for part in PARTS)
        for part, taken_s in ({part: block[part] for part in PARTS} | {"rest": rest}).items():
            each_ms = round(1e3 * taken_s / args.steps, 2)
            emit(f"{name}/{part}_ms", each_ms, "ms", **facts)
    return rates


def of_actors(args: Any) -> dict[int, float]:
    """Environment steps per second of `robo-rl finetune` with each number of Ray's actors; 0: without Ray."""
    counts = [0, *args.actors] if args.actors else []
    rates: dict[int, list[float]] = {count: [] for count in counts}
    with TemporaryDirectory(prefix="robo-rl-pipeline-") as folder, closing(make_env(SUITE, 1)) as env:
        policy = policy_of(None, env.spec)
        policy.normalizer.clip = 5.0  # the infinite one cannot be saved
        save_policy(Path(folder) / "base", policy)
        for _ in range(args.runs):
            for count in counts:
                rates[count].append(rate_of_verb(Path(folder), count, args.lanes, args.steps))
    for count, of in rates.items():
        name = f"vla/pipeline/{count}_actors/env_steps_per_s"
        emit(name, round(max(of), 1), "steps/s", lanes=args.lanes, runs=args.runs, cores=os.cpu_count())
    return {count: max(of) for count, of in rates.items()}


def rate_of_verb(folder: Path, actors: int, lanes: int, steps: int) -> float:
    """Environment steps per second between two evaluations, without these."""
    total = 8 * steps * lanes
    way = {"launcher": "ray", "actors": actors} if actors else {}
    verb(
        "finetune",
        *SETTINGS,
        f"method.env_steps={total}",
        f"method.base_steps={total // 4}",
        "method.compare_share=0",
        base=folder / "base",
        out=folder / "run",
        overwrite=True,
        num_envs=lanes // max(1, actors),
        eval_every=total // 2,
        eval_episodes=1,
        final_episodes=1,
        checkpoint_every=10 * total,
        max_episode_steps=50,
        **way,
    )
    curve = read_json(folder / "run" / "curve.json")
    steps_of, wall_s = curve["env_steps"], curve["wall_s"]
    return float((steps_of[-1] - steps_of[-2]) / (wall_s[-1] - wall_s[-2]))


@contextmanager
def running(workers: int, lanes: int) -> Iterator[tuple[TuningSession, VecEnv]]:
    """A training whose updates have begun, and its environments."""
    given = [*SETTINGS, f"method.base_steps={4 * EXECUTE * lanes}", "method.env_steps=10000000", "out=."]
    method = load_config("finetune", given, FinetuneVerb).method
    with closing(make_env(SUITE, lanes, workers)) as env:
        session = build_session(
            method, policy_of(None, env.spec), env, seed=0, demos=None, say=lambda _: None
        )
        root = session.seed_root
        session.tuner.collector.reset(env.reset(EpisodeSeeds(root)), first_seeds(root, lanes))
        while session.tuner.phase != "online":
            session.tuner.advance()
        yield session, env


def timed(session: TuningSession, env: VecEnv, steps: int) -> dict[str, float]:
    """Seconds of so many steps of all environments, of each part and in all."""
    taken = dict.fromkeys(PARTS, 0.0)
    with ExitStack() as stack:
        for part, owner, name in (
            ("simulation", env, "step_async"),
            ("simulation", env, "step_wait"),
            ("prefix", VlaPolicy, "encode"),
            ("expert", VlaPolicy, "sample_from"),
            ("update", UpdateRunner, "update"),
        ):
            stack.enter_context(patch.object(owner, name, adding(taken, part, getattr(owner, name))))
        start_s = time.perf_counter()
        for _ in range(steps):
            session.tuner.advance()
        return taken | {"all": time.perf_counter() - start_s}


def adding(taken: dict[str, float], part: str, work: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which adds its wall time [s] to a part."""

    def measured(*args: Any, **kwargs: Any) -> Any:
        start_s = time.perf_counter()
        out = work(*args, **kwargs)
        taken[part] += time.perf_counter() - start_s
        return out

    return measured


if __name__ == "__main__":
    main()
