"""Several processes on one machine: training of a base policy with torchrun, fine-tuning with Ray.

    python benchmarks/scale.py                              # both, with 1, 2 and 4 processes or actors
    python benchmarks/scale.py --quick                      # 1 and 2, fewer updates and steps
    python benchmarks/scale.py --part ray --seeds 3         # one part; seeds of scale/ray/success

Names: scale/torchrun/<n>_processes/windows_per_s, for a batch of 256 windows (2 observations of 20 values, 16
actions of 7) that the processes share; `update_ms` is the median update. Every process has one thread.

scale/ray/<n>_actors/env_steps_per_s: steering of peg-insert-side, collecting and learning with one update per
step, without evaluations; actors_waited and learner_waited are the shares of their time that they waited for
each other. scale/ray/success: after training with 2 actors and 2 environments each, on the episodes on which
scale/ray/success_without, the same training in one process with 4 environments, is measured.

With more processes than cores, the figures show the cost of sharing a core, not a gain.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, own_folder, parser, verb

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from robo_rl.core.files.durable import read_json
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.eval.stats import SuccessRate
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig
from robo_rl.rl.scale.process_group import is_rank, process_group, rank_device
from robo_rl.rl.scale.torchrun import launch

TASK = "metaworld/peg-insert-side-v3"
BATCH, WINDOWS, OBS, ACTION, CHUNK, WARM = 256, 4096, 20, 7, 16, 5
NETS: dict[str, NetConfig] = {"unet1d": Unet1dConfig(), "transformer": TransformerConfig()}
ENV = EnvSpec(
    "benchmark/scale",
    {"state": ArraySpec((OBS,))},
    ActionSpec((-1.0,) * ACTION, (1.0,) * ACTION),
    max_episode_steps=100,
    control_hz=20.0,
)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--part", choices=("all", "torchrun", "ray"), default="all")
    options.add_argument("--net", choices=tuple(NETS), default="unet1d")
    options.add_argument("--updates", type=int, help="timed updates; 40, with --quick 10")
    options.add_argument("--seeds", type=int, default=3, help="trainings of scale/ray/success")
    options.add_argument("--env-steps", type=int, default=8000, help="environment steps of each of them")
    options.add_argument("--only-speed", action="store_true", help="no scale/ray/success")
    options.add_argument("--speed-steps", type=int, default=2000, help="environment steps of each speed")
    options.add_argument("--device", default="cpu", help="of the learner with Ray: cpu or cuda")
    options.add_argument(
        "--folder", type=Path, default=Path("runs/scale"), help="folder of the runs with Ray"
    )
    args = options.parse_args()
    counts = (1, 2) if args.quick else (1, 2, 4)
    if args.part != "ray":
        updates = args.updates or (10 if args.quick else 40)
        with tempfile.TemporaryDirectory() as folder:
            for count in counts:
                file = Path(folder) / f"{count}.json"
                launch([__file__, "--net", args.net, "--updates", str(updates), "--out", str(file)], count, 1)
                report(count, args.net, json.loads(file.read_text()))
    if args.part != "torchrun":
        if find_spec("ray") is None:
            print(
                "left out: scale/ray, because Ray is not installed: pip install 'robo-rl[ray]'",
                file=sys.stderr,
            )
            return
        folder = own_folder(args.folder)
        base = make_base(folder, quick=args.quick)
        for count in counts:
            speed_steps = 600 if args.quick else args.speed_steps
            throughput(base, folder / f"{count}_actors", count, speed_steps, args.device)
        if not (args.quick or args.only_speed):
            success(base, folder, range(args.seeds), args.env_steps)


def make_base(folder: Path, *, quick: bool) -> Path:
    """Base policy of peg-insert-side from 20 demonstrations; an existing one is used again."""
    base, demos = folder / "base", folder / "demos"
    if not (base / "policy").exists():
        episodes, steps = (4, 100) if quick else (20, 2000)
        verb("collect", f"env={TASK}", f"out={demos}", f"episodes={episodes}", "noise=0.1")
        verb("train", f"data={demos}", f"out={base}", f"steps={steps}", "overwrite=true")
    return base


def throughput(base: Path, out: Path, actors: int, steps: int, device: str) -> None:
    """Environment steps per second of collecting and learning with this many actors of 4 environments."""
    settings: dict[str, object] = {"launcher": "ray", "actors": actors, "num_envs": 4, "device": device}
    finetune(base, out, steps, final_episodes=1, eval_episodes=1, **settings)
    did = read_json(out / "actors.json")
    emit(
        f"scale/ray/{actors}_actors/env_steps_per_s",
        read_json(out / "results.json")["env_steps"] / did["learner_s"],
        "steps/s",
        actors_waited=did["actors_waited_share"],
        learner_waited=did["learner_waited_share"],
        block_bytes=did["size_bytes"] / did["blocks"],
        bytes_per_env_step=did["size_bytes"] / did["env_steps"],
        mean_behind=did["mean_behind"],
        most_behind=did["most_behind"],
        actor_cpu_ms_per_step=1e3 * did["actors_cpu_s"] / did["env_steps"],
        env_steps=steps,
        device=device,
        cores=os.cpu_count(),
        load=os.getloadavg()[0],
    )


def success(base: Path, folder: Path, seeds: range, steps: int) -> None:
    """Success after training with and without actors, on the same episodes."""
    kinds: dict[str, dict[str, object]] = {
        "success": {"launcher": "ray", "actors": 2, "num_envs": 2},
        "success_without": {"num_envs": 4},
    }
    for name, settings in kinds.items():
        found, wall_s = [], []
        for seed in seeds:
            out = folder / f"{name}-{seed}"
            if not (out / "results.json").exists():
                began_s = time.perf_counter()
                finetune(base, out, steps, seed=seed, eval_every=2000, **settings)
                wall_s.append(time.perf_counter() - began_s)
            found.append(read_json(out / "results.json"))
        rates = [result["policy"]["rate"] for result in found]
        total = SuccessRate(sum(rate["k"] for rate in rates), sum(rate["n"] for rate in rates))
        emit(
            f"scale/ray/{name}",
            total.rate,
            "fraction",
            per_seed=[rate["k"] / rate["n"] for rate in rates],
            k=total.k,
            n=total.n,
            wilson95=list(total.wilson()),
            base=[result["base"]["rate"]["k"] / result["base"]["rate"]["n"] for result in found],
            env_steps=steps,
            seeds=len(found),
            wall_s=wall_s,
        )


def finetune(base: Path, out: Path, steps: int, **settings: object) -> None:
    """Steering of the base in the benchmark's task."""
    given = {"eval_every": 0, "eval_episodes": 20, "final_episodes": 100} | settings
    verb(
        "finetune",
        f"base={base}",
        f"out={out}",
        "method=steering",
        f"env_steps={steps}",
        f"method.base_steps={steps // 4}",
        "overwrite=true",
        **given,
    )


def report(count: int, net: str, times_s: list[float]) -> None:
    """Print the figures of one number of processes."""
    median_s = statistics.median(times_s)
    emit(
        f"scale/torchrun/{count}_processes/windows_per_s",
        BATCH / median_s,
        "windows/s",
        net=net,
        batch=BATCH,
        update_ms=1e3 * median_s,
        updates=len(times_s),
        cores=os.cpu_count(),
        load=os.getloadavg()[0],  # other programs included
    )


def rank() -> None:
    """Time updates as one of the processes; rank 0 writes their seconds to `--out`."""
    options = parser("one process")
    options.add_argument("--net")
    options.add_argument("--updates", type=int)
    args = options.parse_args()
    torch.set_num_threads(1)
    with process_group(rank_device("cpu")) as ranks:
        config = BaseTrainConfig(steps=WARM + args.updates, batch_size=BATCH, log_every=10**9)
        trainer = BaseTrainer(policy(NETS[args.net]), windows(), config, ranks=ranks)
        trainer.share()
        times_s = []
        while not trainer.done:
            start_s = time.perf_counter()
            trainer.advance()
            times_s.append(time.perf_counter() - start_s)
    if ranks.leads:
        args.out.write_text(json.dumps(times_s[WARM:]))


def policy(net: NetConfig) -> GenerativePolicy:
    torch.manual_seed(0)
    shape = GenerativeConfig(obs_steps=2, chunk=CHUNK, execute=8, net=net, process=FlowConfig())
    return GenerativePolicy.build(ENV, Normalizer.fit({"state": torch.randn(100, OBS)}), shape)


def windows() -> TensorWindows:
    rng = torch.Generator().manual_seed(0)
    action = torch.rand(WINDOWS, CHUNK, ACTION, generator=rng) * 2.0 - 1.0
    return TensorWindows({"state": torch.randn(WINDOWS, 2, OBS, generator=rng)}, action)


if __name__ == "__main__":
    rank() if is_rank() else main()
