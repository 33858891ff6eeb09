"""What helps a base policy that has few demonstrations: one change at a time, on simulated tasks.

    python benchmarks/few_demos.py --seeds 3
    python benchmarks/few_demos.py --tasks push --variants plain floor noise --seeds 5

Every variant learns from the same demonstrations with the same seed, and runs the same 100 new episodes
without noise. VARIANTS says which of them are settings of `robo-rl train` and `robo-rl evaluate`; the others
change the windows of training here.

Names: few_demos/<task>/<variant>/success (mean over seeds), few_demos/<variant>/gain (difference to `plain`
in points, mean over tasks and seeds, with Student's interval over them), few_demos/<variant>/cpu_s (of
training). --folder keeps demonstrations and results, in the layout of `finetune.py`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported here and in the workers

import numpy as np
import torch
from common import cpu_seconds, emit, own_folder, parser, verb
from finetune import DEMOS, EXPERT_NOISE, FINAL_SEED, env_of
from torch import Tensor
from tqdm import tqdm

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.training.base import BaseTrainConfig, train_base
from policies.training.batches import ALONE, TensorWindows, batch_indices
from robo_rl.apps.training.train_data import TrainData
from robo_rl.core.process_signals import exit_with_parent
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.data.windows import WindowSpec
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.eval.stats import mean_over_seeds
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.ranks import Ranks
from sim.registry import make_env

TASKS = ("push", "pick-place", "assembly")
EPISODES = 100


@dataclass(frozen=True)
class Variant:
    """One way to train and run a base policy."""

    obs_steps: int = 1
    chunk: int = 8
    execute: int = 8
    updates: int = 3000
    range_floor: float = 0.0  # see `robo_rl.data.normalizer`
    state_noise: float = 0.0  # standard deviation on states, in halves of their range in the data
    between: bool = False  # windows at random times between two frames, interpolated
    smooth: int = 0  # actions are means over this many frames before and after
    ensemble: float | None = None  # temporal ensemble of the executor
    members: int = 1  # policies of different seeds, whose chunks are averaged
    prediction: str = "velocity"  # of the flow's network
    residual: bool = False  # skip connections in the MLP


VARIANTS = {
    "plain": Variant(),
    "floor": Variant(range_floor=0.1),  # train range_floor=0.1
    "noise": Variant(state_noise=0.02),
    "more_noise": Variant(state_noise=0.05),
    "between": Variant(between=True),
    "smooth": Variant(smooth=2),
    "history": Variant(obs_steps=2),  # train obs_steps=2
    "long_chunk": Variant(chunk=16),  # train chunk=16
    "replan": Variant(execute=4),  # train execute=4
    "temporal_ensemble": Variant(ensemble=0.1),  # evaluate ensemble=0.1
    "longer": Variant(updates=6000),  # train steps=6000
    "three_policies": Variant(members=3),
    "preconditioned": Variant(prediction="preconditioned"),  # train process.prediction=preconditioned
    "sample": Variant(prediction="sample"),  # train process.prediction=sample
    "residual": Variant(residual=True),  # train net.residual=true
    "both": Variant(prediction="preconditioned", residual=True),
}


@dataclass(frozen=True)
class Cell:
    """One variant with one seed of one task."""

    task: str
    seed: int
    variant: str
    folder: Path
    episodes: int  # of the measurement
    quick: bool

    @property
    def home(self) -> Path:
        return self.folder / f"{self.task}-{DEMOS[self.task]}" / f"seed{self.seed}"

    @property
    def demonstrations(self) -> Path:
        return self.home / "demonstrations"

    @property
    def file(self) -> Path:
        return self.home / "few_demos" / f"{self.variant}.json"


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--tasks", nargs="+", choices=list(DEMOS), default=list(TASKS), help="tasks")
    options.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    options.add_argument("--folder", type=Path, default=Path("runs/benchmark"), help="kept results")
    options.add_argument("--jobs", type=int, default=2, help="trainings in parallel")
    args = options.parse_args()
    if args.quick:
        args.tasks, args.variants, args.seeds = ["push"], ["plain", "noise"], 1
    variants, folder = dict.fromkeys(["plain", *args.variants]), own_folder(args.folder)
    episodes = 10 if args.quick else EPISODES
    cells = [
        Cell(task, seed, variant, folder, episodes, args.quick)
        for seed in range(args.seeds)
        for task in args.tasks
        for variant in variants
    ]
    for first in cells:
        if first.variant == "plain" and not first.demonstrations.exists():
            collect(first)
    with ProcessPoolExecutor(args.jobs, initializer=exit_with_parent) as pool:
        results = list(tqdm(pool.map(measure, cells), "few_demos", len(cells), unit="policy"))
    summarise(dict(zip(cells, results, strict=True)))


def collect(cell: Cell) -> None:
    """Demonstrations of this task and seed, as `finetune.py` collects them."""
    env, out = f"env={env_of(cell.task)}", f"out={cell.demonstrations}"
    more = (f"episodes={DEMOS[cell.task]}", f"noise={EXPERT_NOISE}", f"seed={cell.seed}")
    verb("collect", env, out, *more)


def measure(cell: Cell) -> dict[str, float]:
    """{"success", "cpu_s"} of a cell; a result that exists is kept."""
    if not cell.file.exists():
        torch.set_num_threads(1)
        variant = VARIANTS[cell.variant]
        data = TrainData.select(str(cell.demonstrations), "unfailed")
        start_s = cpu_seconds()
        seeds = [cell.seed + 1000 * i for i in range(variant.members)]
        updates = 20 if cell.quick else variant.updates
        policies = [trained(replace(variant, updates=updates), data, seed) for seed in seeds]
        cpu_s = cpu_seconds() - start_s
        rate = success(MeanPolicy(policies), data, variant, cell.episodes)
        cell.file.parent.mkdir(parents=True, exist_ok=True)
        cell.file.write_text(json.dumps({"success": rate, "cpu_s": cpu_s} | asdict(variant)))
    kept: dict[str, float] = json.loads(cell.file.read_text())
    return kept


def trained(variant: Variant, data: TrainData, seed: int) -> GenerativePolicy:
    """A flow policy with the defaults of `robo-rl train` and the changes of the variant."""
    windows = data.windows(WindowSpec(variant.obs_steps, variant.chunk), 0)
    assert isinstance(windows, TensorWindows)
    states = data.normalizer(variant.range_floor)
    net, process = MlpDenoiserConfig(residual=variant.residual), FlowConfig(prediction=variant.prediction)
    shape = GenerativeConfig(variant.obs_steps, variant.chunk, variant.execute, net, process)
    torch.manual_seed(derive_seed("init", seed))
    policy = GenerativePolicy.build(data.spec.for_policies(), states, shape)
    if variant.smooth:
        windows = TensorWindows(windows.obs, smooth_chunks(data, variant))
    scales = {key: scale for key, (_, scale) in data.normalizer().statistics().items()}
    source = VariedWindows(windows, successors(data), scales, variant)
    return train_base(policy, source, BaseTrainConfig(steps=variant.updates, seed=seed))


def success(policy: MeanPolicy, data: TrainData, variant: Variant, episodes: int) -> float:
    """Success without noise in episodes that nothing else uses."""
    executor = partial(ChunkExecutor, ensemble=variant.ensemble)
    noise = EpisodeNoise((policy.chunk, policy.action_spec.dim), 0.0)
    with torch.no_grad(), closing(make_env(data.spec.name, 10, 0)) as env:
        return evaluate(env, policy, executor, noise, eval_seeds(FINAL_SEED, episodes)).rate.rate


class MeanPolicy:
    """Mean of the chunks of several policies from the same noise; a `protocols.ChunkPolicy`."""

    def __init__(self, policies: Sequence[GenerativePolicy]) -> None:
        first, self._policies = policies[0], policies
        self.obs_spec, self.action_spec = first.obs_spec, first.action_spec
        self.obs_steps, self.chunk, self.execute = first.obs_steps, first.chunk, first.execute

    def features(self, obs: Obs) -> Tensor:
        return torch.stack([policy.features(obs) for policy in self._policies], 1)  # (b, members, f)

    def sample(self, obs: Obs, noise: Tensor) -> Tensor:
        return self.sample_from(self.features(obs), noise)

    def sample_from(self, features: Tensor, noise: Tensor) -> Tensor:
        each = [policy.sample_from(features[:, i], noise) for i, policy in enumerate(self._policies)]
        return torch.stack(each).mean(0)

    def refine(self, obs: Obs, action: Tensor) -> Tensor:
        return action


@dataclass(frozen=True)
class VariedWindows:
    """`windows` with noise on states, or between two frames. after: index of each window's next one.

    scales: half the range of each state dimension in the data. Numbers are functions of (seed, update).
    """

    windows: TensorWindows
    after: Tensor
    scales: Obs
    variant: Variant

    def __len__(self) -> int:
        return len(self.windows)

    def batches(
        self, batch_size: int, seed: int, start: int, stop: int, device: torch.device, ranks: Ranks = ALONE
    ) -> Iterator[tuple[Obs, Tensor]]:
        here = self.windows
        for step, rows in enumerate(batch_indices(len(self), batch_size, seed, start, stop), start):
            random = generator("varied", seed, step)
            obs, action = {key: value[rows] for key, value in here.obs.items()}, here.action[rows]
            if self.variant.between:
                share, then = torch.rand(batch_size, 1, 1, generator=random), self.after[rows]
                obs = {key: torch.lerp(value, here.obs[key][then], share) for key, value in obs.items()}
                action = torch.lerp(action, here.action[then], share)
            if std := self.variant.state_noise:
                for key, scale in self.scales.items():
                    obs[key] = obs[key] + std * scale * torch.randn(obs[key].shape, generator=random)
            yield obs, action


def successors(data: TrainData) -> Tensor:
    """Index of the next window of the same episode, for every window; the last one's is its own."""
    lengths = torch.tensor([episode.frames for episode in data.episodes])
    after, last = torch.arange(1, int(lengths.sum()) + 1), lengths.cumsum(0) - 1
    after[last] = last
    return after


def smooth_chunks(data: TrainData, variant: Variant) -> Tensor:
    """Chunks (n, Tp, a) in [-1, 1] of smoothed actions, repeated after the end of an episode."""
    n, chunks = variant.smooth, []
    for episode in data.episodes:
        padded = np.pad(episode.action, ((n, n), (0, 0)), mode="edge")
        smoothed = np.lib.stride_tricks.sliding_window_view(padded, 2 * n + 1, 0).mean(-1)
        index = np.arange(episode.frames)[:, None] + np.arange(variant.chunk)
        chunks.append(smoothed[index.clip(max=episode.frames - 1)])
    return data.spec.action.normalize(torch.from_numpy(np.concatenate(chunks)).float())


def summarise(results: dict[Cell, dict[str, float]]) -> None:
    """Print the lines of all variants."""
    variants = dict.fromkeys(cell.variant for cell in results)
    tasks, episodes = dict.fromkeys(cell.task for cell in results), next(iter(results)).episodes
    rates = {(cell.variant, cell.task, cell.seed): found["success"] for cell, found in results.items()}
    for variant in variants:
        mine = {key[1:]: rate for key, rate in rates.items() if key[0] == variant}
        for task in tasks:
            per_seed = [rate for (of, _), rate in mine.items() if of == task]
            about: dict[str, Any] = {"per_seed": per_seed, "demos": DEMOS[task], "episodes": episodes}
            emit(f"few_demos/{task}/{variant}/success", fmean(per_seed), "fraction", **about)
        cpu_s = fmean(found["cpu_s"] for cell, found in results.items() if cell.variant == variant)
        emit(f"few_demos/{variant}/cpu_s", cpu_s, "cpu-s")
        gains = [100 * (rate - rates[("plain", *at)]) for at, rate in mine.items()]
        if variant != "plain":
            more: dict[str, Any] = {"pairs": len(gains)}
            if len(gains) > 1:
                estimate = mean_over_seeds(gains)
                more["t95"] = [estimate.low, estimate.high]
            emit(f"few_demos/{variant}/gain", fmean(gains), "points", **more)


if __name__ == "__main__":
    main()
