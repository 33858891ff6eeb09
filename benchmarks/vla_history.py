"""Memory of a vision-language-action policy: a task that no policy without one solves, and what it costs.

    python benchmarks/vla_history.py --folder runs/vla_history

In recall/buttons a lamp shows which of two buttons to push, goes out, and the hand is released later. One
dataset of demonstrations; for each of --seeds a policy with --memory decisions and one without, trained alike
and evaluated on the same episodes, all by the verbs. --folder keeps everything: the same command continues
where it was stopped. With --set policy.moment_steps=100, or other settings of training, which need a folder
of their own, the first two names end in these: /moment_steps=100. Lines:

    vla/history/with_memory    success over all seeds, with a 95 % Wilson interval and the rate of each seed;
                               `wrong_button` counts episodes that ended at the other button, the rest of the
                               failures touched none
    vla/history/without        of policies without a memory
    vla/history/latency_ratio  CPU time of a decision with a memory over that without, of policies of standard
                               size with two cameras and ten transitions of the process, in turns; one thread
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from common import emit, own_folder, parser, verb
from vla_head import CHUNK, ENV, EXECUTE, STATE, WORDS, observation

from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from robo_rl.core.conditioning import empty_memory
from robo_rl.data.normalizer import Normalizer
from robo_rl.eval.stats import SuccessRate
from robo_rl.eval.timing import decision_latencies
from sim.tasks.recall.lane import RecallLanes

TASK = "recall/buttons"
LONGEST = RecallLanes("buttons").max_episode_steps
RECIPE = {
    "policy": "vla",
    "policy.width": 64,
    "policy.layers": 2,
    "policy.crop": 1.0,
    "policy.word_dropout": 0.0,  # there is one task
    "policy.word_insertions": 0,
    "policy.draws": 6,  # for each prefix, of which a window has many
    "lr": 1e-3,
    "ema_max": 0.99,
}
WINDOWS = {"chunk": 8, "execute": 4, "batch_size": 24, "threads": 1, "checkpoint_every": 100}


class Outcome(NamedTuple):
    """End of an episode."""

    success: bool
    wrong_button: bool


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--memory", type=int, default=5, help="remembered decisions")
    options.add_argument("--demos", type=int, default=200, help="demonstrations")
    options.add_argument("--steps", type=int, default=900, help="updates of each policy")
    options.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="seeds of training")
    options.add_argument("--episodes", type=int, default=100, help="evaluation episodes of each policy")
    options.add_argument("--decisions", type=int, default=500, help="timed decisions")
    options.add_argument("--set", nargs="*", default=[], help="more settings of training, key=value")
    options.add_argument("--folder", type=Path, default=Path("runs/vla_history"), help="data and runs")
    args = options.parse_args()
    if args.quick:
        args.demos, args.steps, args.seeds, args.episodes, args.decisions = 6, 2, [0], 4, 20
    torch.set_num_threads(1)
    folder = own_folder(args.folder)
    verb(
        "collect", suite=TASK, out=folder / "data", episodes=args.demos, noise=0.2, num_envs=8, num_workers=0
    )
    for name, memory in (("with_memory", args.memory), ("without", 0)):
        say(name, [outcomes(args, folder, memory, seed) for seed in args.seeds], args, memory)
    cpu_ms = latencies_ms(args.memory, args.decisions)
    emit(
        "vla/history/latency_ratio",
        cpu_ms[1] / cpu_ms[0],
        "ratio",
        without_ms=cpu_ms[0],
        with_memory_ms=cpu_ms[1],
        memory=args.memory,
        decisions=args.decisions,
        threads=1,
    )


def outcomes(args: Any, folder: Path, memory: int, seed: int) -> list[Outcome]:
    """Outcomes of a policy with this memory, trained and evaluated unless that is done."""
    run = folder / f"memory{memory}_seed{seed}"
    if not (run / "policy" / "policy.json").exists():
        given = {"policy.memory": memory, "seed": seed, "steps": args.steps, "data": folder / "data"}
        more = dict(each.split("=", 1) for each in args.set)
        if not memory:
            more.pop("policy.moment_steps", None)  # of tokens that this policy does not have
        verb("train", out=run, resume=(run / "run.json").exists(), **{**RECIPE, **WINDOWS, **given, **more})
    file = run / "success.json"
    if not file.exists():
        lanes = min(20, args.episodes)
        verb("evaluate", policy=run, out=file, episodes=args.episodes, num_envs=lanes, num_workers=0)
    found = json.loads(file.read_text())["policy"]
    return [
        Outcome(success, not success and steps < LONGEST)
        for success, steps in zip(found["success"], found["length"], strict=True)
    ]


def say(name: str, seeds: list[list[Outcome]], args: Any, memory: int) -> None:
    every = [each for of_seed in seeds for each in of_seed]
    rate = SuccessRate.of([each.success for each in every])
    more = {"k": rate.k, "n": rate.n, "wilson95": list(rate.wilson()), "memory": memory}
    more |= {"seeds": [SuccessRate.of([each.success for each in of_seed]).rate for of_seed in seeds]}
    more |= {"wrong_button": sum(each.wrong_button for each in every), "demos": args.demos}
    end = "".join(f"/{word.removeprefix('policy.')}" for word in args.set)
    emit(f"vla/history/{name}{end}", rate.rate, "fraction", **more, updates=args.steps)


def latencies_ms(memory: int, decisions: int) -> tuple[float, float]:
    """Median CPU times of a decision without and with a memory."""
    rng, pairs = torch.Generator().manual_seed(0), []
    for each in (0, memory):
        torch.manual_seed(0)
        config = VlaConfig(memory=each)
        policy = VlaPolicy(ENV, Normalizer({"state": STATE.shape}), config, CHUNK, EXECUTE, WORDS).eval()
        pairs.append((policy, observation(rng) | empty_memory(policy, 1)))
    without, with_memory = decision_latencies(pairs, n=decisions)
    assert without.cpu_ms is not None
    assert with_memory.cpu_ms is not None
    return without.cpu_ms, with_memory.cpu_ms


if __name__ == "__main__":
    main()
