"""A base policy anew, from the demonstrations and from all that was succeeded in since.

What a residual finds out by trial in one corner of the task, a network that imitates its successes carries
over to the rest: supervised learning needs fewer episodes than a critic (PLD, Xiao et al. 2025, 2511.00091,
does it to VLAs).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy
from policies.registry import SavedPolicy
from robo_rl.apps.tuning.base_run import train
from robo_rl.conf.train import TrainConfig
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.merge import difference, merge
from robo_rl.eval.timing import cpu_seconds

UPDATES = 4000  # of the new base


def imitate(
    base: GenerativePolicy, demos: str | None, recorded: Sequence[Path], folder: Path, seed: int
) -> tuple[SavedPolicy, float] | None:
    """A policy built like `base`, trained from nothing on demonstrations and recorded successes, and its CPU
    seconds.

    None where nothing was recorded. `folder` gets data/, the merged dataset, run/ and cost.json. A call that
    was interrupted goes on where it was; its seconds are then those of the last part. Demonstrations with
    another contract than the environment's are left out, and the user is told so.
    """
    sources = [path for path in recorded if len(EpisodeStore(path))]
    if not sources:
        return None
    data, run = folder / "data", folder / "run"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        merge([*_mergeable(demos, sources[0]), *sources], data)
    shape = base.shape
    config = TrainConfig(
        data=str(data),
        out=str(run),
        seed=seed,
        steps=UPDATES,
        resume=(run / "run.json").exists(),
        overwrite=True,
        obs_steps=shape.obs_steps,
        chunk=shape.chunk,
        execute=shape.execute,
        net=shape.net,
        process=shape.process,
        image=shape.image,
        points=shape.points,
    )
    cost = folder / "cost.json"  # written last
    if not cost.exists():
        start_s, threads = cpu_seconds(), torch.get_num_threads()
        train(config, free=frozenset({"data"}))  # it lies beside the run, and both may have been moved
        torch.set_num_threads(threads)  # with pictures it takes more: the next stage shall not depend on that
        write_json(cost, {"train_cpu_s": cpu_seconds() - start_s})
    return load_policy(run / "policy"), float(read_json(cost)["train_cpu_s"])


def _mergeable(demos: str | None, recorded: Path) -> list[Path]:
    """The demonstrations, where they can stand beside what was recorded."""
    if demos is None:
        return []
    if what := difference(EpisodeStore(recorded), EpisodeStore(demos)):
        print(f"imitation: without the demonstrations, since they and this environment have different {what}")
        return []
    return [Path(demos)]
