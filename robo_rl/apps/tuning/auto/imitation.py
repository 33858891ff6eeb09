"""New base policy from the demonstrations and all later successes.

A residual explores part of the task; a network that imitates its successes generalises them, because
supervised learning needs fewer episodes than a critic (PLD, Xiao et al. 2025, 2511.00091, does so for VLAs).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy
from policies.registry import SavedPolicy
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from robo_rl.apps.training.base_run import train
from robo_rl.apps.tuning.diverged import DIVERGED_IMITATION
from robo_rl.conf.train import StartedImageConfig, TrainConfig
from robo_rl.core.errors import DivergedError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.text.commands import command
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.merge import difference, merge
from robo_rl.eval.timing import cpu_seconds

UPDATES = 4000  # of the new base
VLA_BATCH = 32  # windows of an update of a vision-language-action policy, whose prefix costs far more


def imitate(
    base: GenerativePolicy | VlaPolicy, demos: str | None, recorded: Sequence[Path], folder: Path, seed: int
) -> tuple[SavedPolicy, float] | None:
    """(policy, CPU seconds): a policy of the configuration of `base`, trained from scratch on demonstrations
    and recorded successes.

    None if no success was recorded. `folder` gets data/, the merged dataset, run/ and cost.json. An
    interrupted call continues; its seconds are then those of the last part. Demonstrations whose contract
    differs from the environment's are left out with a message.
    """
    sources = [path for path in recorded if len(EpisodeStore(path))]
    if not sources:
        return None
    data, run = folder / "data", folder / "run"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        merge([*_mergeable(demos, sources[0]), *sources], data)
    config = TrainConfig(
        data=str(data),
        out=str(run),
        seed=seed,
        steps=UPDATES,
        resume=(run / "run.json").exists(),
        overwrite=True,
        obs_steps=base.obs_steps,
        chunk=base.chunk,
        **_networks(base),
    )
    cost = folder / "cost.json"  # this file is written last
    if not cost.exists():
        start_s, threads = cpu_seconds(), torch.get_num_threads()
        try:  # the dataset is next to the run, and both may have been moved
            train(config, free=frozenset({"data"}))
        except DivergedError as error:  # it advises settings of `train`, which method=auto refuses
            look = command("data validate", path=data)
            found = f"The imitation of method=auto in {run} has diverged. {error.found}"
            raise DivergedError(found, DIVERGED_IMITATION.format(look=look)) from error
        # training on images sets more threads, which must not affect the next stage
        torch.set_num_threads(threads)
        write_json(cost, {"train_cpu_s": cpu_seconds() - start_s})
    return load_policy(run / "policy"), float(read_json(cost)["train_cpu_s"])


def _networks(base: GenerativePolicy | VlaPolicy) -> dict[str, Any]:
    """Settings of training that make a policy like `base`, with its own planning interval."""
    shape = base.shape
    if isinstance(shape, VlaConfig):
        return {"policy": shape, "execute": base.execute, "batch_size": VLA_BATCH}
    parts = ("execute", "net", "process", "points")
    image = StartedImageConfig(**asdict(shape.image))
    return {name: getattr(shape, name) for name in parts} | {"image": image}


def _mergeable(demos: str | None, recorded: Path) -> list[Path]:
    """The demonstrations, if they can be merged with the recorded episodes."""
    if demos is None:
        return []
    if what := difference(EpisodeStore(recorded), EpisodeStore(demos)):
        print(f"imitation: without the demonstrations, because they differ from this environment in {what}")
        return []
    return [Path(demos)]
