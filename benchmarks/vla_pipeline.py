"""RL on a vision-language-action policy: environment steps per second, in turn and overlapped.

    python benchmarks/vla_pipeline.py
    python benchmarks/vla_pipeline.py --workers 1 2 4 --lanes 24

In turn, one process simulates, draws pictures, runs prefix and action expert, and updates. Overlapped, worker
processes simulate and draw into shared memory while this process runs the updates of the last step. Method:
`residual_lanes` that corrects chunks of 4 actions, on a policy of random weights, which do not affect the
speed, in six MetaWorld tasks with two cameras. Lines:

    vla/pipeline/speedup             wall time per environment step in turn, divided by that with the best
                                     number of workers
    vla/pipeline/<n>_workers/env_steps_per_s  steps of all environments; 0 workers: in turn
    vla/pipeline/<n>_workers/<part>_ms  wall time of the first process per step of all environments:
                                     simulation (with pictures; overlapped: waiting for it), prefix, expert,
                                     update, rest

Blocks of all numbers of workers alternate, because the load of a machine changes; each keeps its fastest.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser
from device_world import first_seeds
from vla_features import policy_of

from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.update_runner import UpdateRunner
from sim.registry import make_env

SUITE = "metaworld/mt6"
EXECUTE = 4  # actions of a corrected chunk, and control steps between two plans
SETTINGS = [
    "method=residual_lanes", "method.map.per_chunk=true", f"method.execute={EXECUTE}", "method.mix.demo=0",
    "method.mix.online=1", "method.learner.explore_correlation=0", "method.learner.explore_min_scale=1",
    "method.env_steps=10000000", "method.burn_in=0", "method.least_weight=1", "out=.",
]  # fmt: skip
PARTS = ("simulation", "prefix", "expert", "update")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--workers", type=int, nargs="+", default=[1, 2], help="simulator processes")
    options.add_argument("--lanes", type=int, default=12, help="environments")
    options.add_argument("--steps", type=int, default=40, help="steps of all environments in a block")
    options.add_argument("--blocks", type=int, default=5, help="blocks of each number of workers")
    args = options.parse_args()
    if args.quick:
        args.workers, args.lanes, args.steps, args.blocks = [1], 6, 4, 1
    torch.set_num_threads(1)
    with ExitStack() as stack:
        runs = {workers: stack.enter_context(running(workers, args.lanes)) for workers in (0, *args.workers)}
        times = {workers: list[dict[str, float]]() for workers in runs}
        for _ in range(args.blocks):
            for workers, (session, env) in runs.items():
                times[workers].append(timed(session, env, args.steps))
    best = {workers: min(blocks, key=lambda block: block["all"]) for workers, blocks in times.items()}
    facts = {"lanes": args.lanes, "steps": args.steps, "blocks": args.blocks, "cores": os.cpu_count()}
    fastest = min(args.workers, key=lambda workers: best[workers]["all"])
    emit("vla/pipeline/speedup", best[0]["all"] / best[fastest]["all"], "ratio", workers=fastest, **facts)
    for workers, block in best.items():
        rate = args.lanes * args.steps / block["all"]
        name = f"vla/pipeline/{workers}_workers"
        emit(f"{name}/env_steps_per_s", round(rate, 1), "steps/s", **facts)
        rest = block["all"] - sum(block[part] for part in PARTS)
        for part, taken_s in ({part: block[part] for part in PARTS} | {"rest": rest}).items():
            each_ms = round(1e3 * taken_s / args.steps, 2)
            emit(f"{name}/{part}_ms", each_ms, "ms", **facts)


@contextmanager
def running(workers: int, lanes: int) -> Iterator[tuple[TuningSession, VecEnv]]:
    """A training whose updates have begun, and its environments."""
    given = [*SETTINGS, f"method.base_steps={4 * EXECUTE * lanes}"]
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
