"""Push-T from the 206 human demonstrations: train a state policy, evaluate it with the published protocol.

    python benchmarks/pusht.py --data ../shared/data/pusht_human.zarr --seeds 3

The protocol of Diffusion Policy (Chi et al. 2023, section V-A): episodes of at most 300 steps at 10 Hz, 2
observations in, 16 actions out, 8 executed; an episode's score is its largest coverage over 0.95, at most 1,
and it succeeds above a coverage of 0.95. Published there for state policies: 0.91 (mean of the last
checkpoints) to 0.95 (best checkpoint). Names: pusht/human/max_coverage and pusht/human/success, the mean over
seeds, each of which trains one policy and evaluates it after its last update on the same episodes.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from common import cpu_seconds, emit, own_folder, parser

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, read_policy_json, save_policy
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from robo_rl.core.errors import DataError, RoboRLError
from robo_rl.data.importers import import_replay_buffer
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.pusht import pusht_keys, pusht_spec
from robo_rl.data.windows import WindowSpec, load_tensors
from robo_rl.eval.rollout import EvalResult, eval_seeds, evaluate
from robo_rl.eval.stats import SuccessRate, mean_over_seeds, rate_over_seeds
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.runs.progress import progress
from robo_rl.runs.resumable import resumable
from robo_rl.runs.run_dir import RunDir
from sim.registry import make_env

DATA = Path("../shared/data/pusht_human.zarr")
NAME = "pusht/keypoints"
SOLVED_COVERAGE = 0.95
PUBLISHED = "0.91-0.95"

# An MLP, not the U-Net: on a CPU it makes 15 updates in the time of one. With the action as output instead of
# the preconditioned velocity, the same 40,000 updates reach 0.77.
POLICY = GenerativeConfig(
    obs_steps=2,
    chunk=16,
    execute=8,
    net=MlpDenoiserConfig(width=256, depth=3, residual=True),
    process=FlowConfig(steps=10, prediction="preconditioned"),
)
FULL = BaseTrainConfig(steps=40_000, batch_size=256, lr=1e-3, warmup_steps=500, checkpoint_every=5_000)
QUICK = BaseTrainConfig(steps=600, batch_size=256, lr=1e-3, warmup_steps=50, checkpoint_every=0)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--data", type=Path, default=DATA, help="the zarr v2 buffer")
    options.add_argument("--episodes", type=int, default=200, help="evaluation episodes")
    options.add_argument("--seed", type=int, default=0, help="first seed of weights and batches")
    options.add_argument("--seeds", type=int, default=1, help="number of seeds")
    options.add_argument(
        "--run", type=Path, help="folder for checkpoints and policies; an interrupted run continues"
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    if not args.data.exists():
        raise DataError(f"{args.data} does not exist. Give the published demonstrations with --data.")
    episodes, scores = 20 if args.quick else args.episodes, list[Score]()
    with run_folder(args.run and own_folder(args.run)) as folder:
        for seed in range(args.seed, args.seed + (1 if args.quick else args.seeds)):
            run = folder / f"seed{seed}"
            policy = trained(
                args.data,
                run,
                folder / "dataset",
                QUICK if args.quick else FULL,
                seed,
                limit=60 if args.quick else None,
            )
            scores.append(Score.of(evaluated(policy, episodes), read_policy_json(run / "policy")["train"]))
    report(scores)


@dataclass(frozen=True, slots=True)
class Score:
    """What one seed's policy reached. coverage: of each episode, over the one that solves it, at most 1."""

    coverage: list[float]
    rate: SuccessRate
    train_cpu_s: float
    eval_cpu_s: float
    updates: int

    @classmethod
    def of(cls, result: EvalResult, note: dict[str, Any]) -> Score:
        assert result.max_coverage is not None
        coverage = [min(1.0, covered / SOLVED_COVERAGE) for covered in result.max_coverage]
        return cls(coverage, result.rate, note["train_cpu_s"], result.cpu_s, note["steps"])

    @property
    def mean(self) -> float:
        return fmean(self.coverage)


def trained(
    data: Path, run: Path, dataset: Path, config: BaseTrainConfig, seed: int, limit: int | None
) -> SavedPolicy:
    """The policy of `run` if it is finished, else a new or resumed one. dataset: folder of the imported data,
    which all seeds share.

    Raises DataError for a policy of another training length, whose score is not the requested one.
    """
    if (run / "policy" / "policy.json").exists():
        steps = read_policy_json(run / "policy")["train"]["steps"]
        if steps != config.steps:
            raise DataError(
                f"{run} holds a policy of {steps} updates, not of {config.steps}. Give another --run."
            )
        return load_policy(run / "policy")
    config.seed = seed
    env = pusht_spec(NAME)
    if not dataset.exists():
        import_replay_buffer(data, dataset, env, pusht_keys(NAME), limit=limit)
    windows = load_tensors(dataset, WindowSpec(POLICY.obs_steps, POLICY.chunk))
    source = TensorWindows.from_physical(windows, env.action)
    torch.manual_seed(seed)
    policy = GenerativePolicy.build(env, Normalizer.fit({"state": windows["state"][:, -1]}), POLICY)
    start_s = cpu_seconds()
    folder, total = RunDir.create(run, config, resume=(run / "run.json").exists()), config.steps
    with resumable(folder, total=total, label="train", resume=True, keep=2) as session:
        trainer = BaseTrainer(policy, source, config, session.metrics)
        if (state := session.take_state()) is not None:
            trainer.load_state_dict(state)
        session.run(trainer, checkpoint_every=config.checkpoint_every)
    average = trainer.result()
    note = {
        "data": data.name,
        "steps": config.steps,
        "seed": seed,
        "train_cpu_s": round(cpu_seconds() - start_s, 1),
    }
    save_policy(run / "policy", average, note)
    return average


def evaluated(policy: SavedPolicy, episodes: int) -> EvalResult:
    env = make_env(NAME, min(50, episodes))
    noise = EpisodeNoise((policy.chunk, policy.action_spec.dim))
    with progress(episodes, "evaluate", "episode") as bar:
        result = evaluate(env, policy, ChunkExecutor, noise, eval_seeds(0, episodes), bar.update)
    env.close()
    return result


def report(scores: list[Score]) -> None:
    means, rates = [score.mean for score in scores], [score.rate for score in scores]
    episodes = [covered for score in scores for covered in score.coverage]
    if len(scores) > 1:
        found, successes = mean_over_seeds(means), rate_over_seeds(rates)
        spread: dict[str, Any] = {"t95": [round(found.low, 4), round(found.high, 4)]}
        of_rate: dict[str, Any] = {"t95": [round(successes.low, 4), round(successes.high, 4)]}
    else:
        spread = {"standard_error": round(stdev(episodes) / math.sqrt(len(episodes)), 4)}
        of_rate = {"wilson95": rates[0].to_json()["wilson95"]}
    emit(
        "pusht/human/max_coverage",
        round(fmean(means), 4),
        "fraction",
        seeds=len(scores),
        per_seed=[round(mean, 4) for mean in means],
        **spread,
        n=len(episodes),
        published=PUBLISHED,
        updates=scores[0].updates,
        train_cpu_s=round(fmean(score.train_cpu_s for score in scores), 1),
        eval_cpu_s=round(fmean(score.eval_cpu_s for score in scores), 1),
    )
    k, n, per_seed = sum(rate.k for rate in rates), len(episodes), [rate.rate for rate in rates]
    emit("pusht/human/success", round(k / n, 4), "fraction", k=k, n=n, per_seed=per_seed, **of_rate)


@contextmanager
def run_folder(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield chosen
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


if __name__ == "__main__":
    try:
        main()
    except RoboRLError as error:
        raise SystemExit(str(error)) from error
