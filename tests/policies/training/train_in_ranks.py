"""Trains a small policy as one of the ranks of `test_data_parallel.py`: `<this file> <folder> <part>`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import torch

from policies.base.generative import GenerativePolicy
from policies.training import sharded
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.sharded import ShardedTrainer
from robo_rl.core.errors import DataError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.nets.ranks import Ranks, StopVote
from robo_rl.rl.scale.process_group import process_group, rank_device, reported
from tests.policies.worlds import CAMERA_ENV, ENV, policy_of, windows_of

WINDOWS = 60  # 2.5 batches: an epoch ends inside a batch


def config(steps: int = 12) -> BaseTrainConfig:
    return BaseTrainConfig(steps=steps, batch_size=24, warmup_steps=2, lr=1e-2, log_every=1)


class Losses:
    """Logger that keeps the losses."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def log(self, step: int, values: Mapping[str, float | torch.Tensor]) -> None:
        self.values.append(float(values["base/loss"]))


def train(folder: Path) -> None:
    """12 updates, saved after the 5th: each rank's weights and losses, and rank 0's checkpoint."""
    losses = Losses()
    with process_group(rank_device("cpu")) as ranks:
        trainer = BaseTrainer(policy_of(), windows_of(ENV, WINDOWS), config(), losses, ranks)
        trainer.share()
        vote = StopVote(ranks)
        votes = []
        while not trainer.done:
            votes.append(vote(trainer.step == 9 and ranks.rank == 1))
            trainer.advance()
            if trainer.step == 5 and ranks.leads:
                save_state(folder / "at5", trainer.state_dict())
        vote.finish()
        state = trainer.state_dict() | {"losses": losses.values, "stop_at": votes.index(True)}
        save_state(folder / f"rank{ranks.rank}", state)


def resume(folder: Path) -> None:
    """Continue from the 5th update; the other ranks begin with weights of another seed."""
    with process_group(rank_device("cpu")) as ranks:
        trainer = BaseTrainer(policy_of(seed=ranks.rank), windows_of(ENV, WINDOWS), config(), ranks=ranks)
        if ranks.leads:
            trainer.load_state_dict(load_state(folder / "at5"))
        trainer.share()
        while not trainer.done:
            trainer.advance()
        save_state(folder / f"resumed{ranks.rank}", trainer.state_dict())


SHARDED = {"mlp": ENV, "unet1d": ENV, "transformer": ENV, "pictures": CAMERA_ENV}


def sharded_trainer(
    name: str, ranks: Ranks, losses: Losses | None = None, seed: int = 0
) -> ShardedTrainer[GenerativePolicy]:
    env, sharded.LAYER = SHARDED[name], 1 if name == "transformer" else 1_000_000
    policy = policy_of(net="mlp" if name == "pictures" else name, env=env, seed=seed)
    return ShardedTrainer(policy, windows_of(env, WINDOWS), config(), losses, ranks)


def shards(folder: Path) -> None:
    """12 updates of every network in shards, gathered after the 5th and the last; resumed from the 5th."""
    with process_group(rank_device("cpu")) as ranks:
        for name in SHARDED:
            losses = Losses()
            trainer = sharded_trainer(name, ranks, losses, seed=ranks.rank)  # rank 0's weights count
            trainer.share()
            while not trainer.done:
                trainer.advance()
                if trainer.step in (5, 12):
                    trainer.gather()
                    if ranks.leads:
                        state = trainer.state_dict() | {"losses": losses.values}
                        save_state(folder / f"{name}-{trainer.step}", state)
            again = sharded_trainer(name, ranks, seed=7)
            if ranks.leads:
                again.load_state_dict(load_state(folder / f"{name}-5"))
            again.share()
            while not again.done:
                again.advance()
            again.gather()
            if ranks.leads:
                save_state(folder / f"{name}-resumed", again.state_dict())
            held = sum(part.to_local().numel() for part in trainer.policy.parameters())
            save_state(folder / f"{name}-held-{ranks.rank}", {"numbers": held})


def fail(folder: Path) -> None:
    """Rank 1 raises; rank 0 waits for it."""
    with reported(), process_group(rank_device("cpu")) as ranks:
        if ranks.rank == 1:
            raise DataError("Rank 1 found a fault: in its data.")
        ranks.mean(torch.zeros(1))


if __name__ == "__main__":
    torch.set_num_threads(1)
    {"train": train, "resume": resume, "shards": shards, "fail": fail}[sys.argv[2]](Path(sys.argv[1]))
