"""Training of a base policy in several processes on one machine: windows per second.

    python benchmarks/scale.py            # 1, 2 and 4 processes
    python benchmarks/scale.py --quick    # 1 and 2 processes, fewer updates

Names: scale/torchrun/<n>_processes/windows_per_s, for a batch of 256 windows (2 observations of 20 values, 16
actions of 7) that the processes share; `update_ms` is the median update. Every process has one thread. With
more processes than cores, the figure shows the cost of sharing a core, not a gain.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import emit, parser

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.registry import NetConfig
from robo_rl.nets.transformer import TransformerConfig
from robo_rl.nets.unet1d import Unet1dConfig
from robo_rl.rl.scale.process_group import is_rank, process_group, rank_device
from robo_rl.rl.scale.torchrun import launch

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
    options.add_argument("--net", choices=tuple(NETS), default="unet1d")
    options.add_argument("--updates", type=int, help="timed updates; 40, with --quick 10")
    args = options.parse_args()
    updates = args.updates or (10 if args.quick else 40)
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 2) if args.quick else (1, 2, 4):
            file = Path(folder) / f"{count}.json"
            launch([__file__, "--net", args.net, "--updates", str(updates), "--out", str(file)], count, 1)
            report(count, args.net, json.loads(file.read_text()))


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
