"""`robo-rl train` in several processes: starting and checking them, and the loop of ranks 1, 2, ..."""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from policies.training.base import BaseTrainer
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.settings import FREE_KEYS
from robo_rl.core.text.counts import counted
from robo_rl.nets.ranks import Ranks, StopVote
from robo_rl.rl.scale.process_group import RankError
from robo_rl.runs.progress import is_hidden
from robo_rl.runs.resumable import crossed, how_to_continue
from robo_rl.runs.run_dir import RunDir
from robo_rl.runs.signals import stop_between_steps

# Settings that may differ between ranks, which may be on other machines; the data is compared by content.
_LOCAL = FREE_KEYS | {"threads", "launcher", "processes", "logger", "data"}


def launch_training(config: TrainConfig) -> RunDir:
    """Train in `processes` processes on this machine; returns the finished run.

    Raises what a rank has raised, or RankError for a rank that died.
    """
    from robo_rl.rl.scale.torchrun import launch

    count = config.processes or max(1, torch.cuda.device_count())
    if count == 1:
        check_processes(replace(config, processes=1))
    if config.batch_size % count:
        raise ConfigError(
            f"batch_size={config.batch_size} cannot be divided equally between {count} processes. Set it to "
            f"a multiple of {count}, or processes to a divisor of it."
        )
    RunDir.check_new(config.out, resume=config.resume, overwrite=config.overwrite)
    run = RunDir(Path(config.out))
    threads = config.threads or max(1, (os.cpu_count() or 1) // count)
    with tempfile.TemporaryDirectory(prefix="robo-rl-") as folder:
        settings = Path(folder) / "settings.yaml"
        settings.write_text(yaml.safe_dump(asdict(config), sort_keys=False))
        try:
            words = ["-m", "robo_rl", "train", f"config={settings}"]
            launch(words, count, threads, progress=not is_hidden())
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(how_to_continue(run)) from stop
        except RankError as error:
            if error.own:
                raise
            raise RankError(f"{error}: {how_to_continue(run)}.", error.exit_code) from error
    return RunDir.open(config.out)


def check_processes(config: TrainConfig) -> None:
    """Raise ConfigError if one process is to do what takes several."""
    if config.shard:
        raise ConfigError(
            "shard=true divides a policy between several processes, and this run has one. Add "
            "launcher=torchrun processes=<number>, or leave out shard."
        )
    if config.processes > 1:
        raise ConfigError(
            f"processes={config.processes} needs launcher=torchrun, which starts them. Add it, or leave out "
            "processes."
        )


def check_equal(config: TrainConfig, data: Mapping[str, int], ranks: Ranks) -> None:
    """Raise ConfigError or DataError, on every rank, if a rank has other settings or data than rank 0."""
    settings = {key: value for key, value in asdict(config).items() if key not in _LOCAL}
    mine = [zlib.crc32(json.dumps(settings, sort_keys=True).encode()), *data.values()]
    first, *others = (each.tolist() for each in ranks.gather(torch.tensor(mine)))
    for rank, other in enumerate(others, start=1):
        if other[0] != first[0]:
            raise ConfigError(
                f"Rank {rank} was started with other settings than rank 0. Give all ranks the same settings."
            )
        if other != first:
            raise DataError(
                f"Rank {rank} has {counted(other[1], 'episode')} with {other[2]} frames in "
                f"data={config.data}, rank 0 has {first[1]} with {first[2]}. Copy one dataset to both."
            )


def follow(trainer: BaseTrainer[Any], checkpoint_every: int, ranks: Ranks) -> None:
    """Train as a rank that writes nothing, and gives its part where rank 0 saves.

    Raises KeyboardInterrupt after a stop request to any rank.
    """
    vote = StopVote(ranks)
    with stop_between_steps(say=False) as stop:
        trainer.share()
        while not trainer.done:
            if vote(stop.requested):
                trainer.gather()
                raise KeyboardInterrupt
            trainer.advance()
            if crossed(trainer.step - 1, trainer.step, checkpoint_every):
                trainer.gather()
    trainer.gather()
    vote.finish()
