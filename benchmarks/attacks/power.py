"""Attack of the episode store by simulated power losses (`power_loss`)."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from attacks.power_loss import DiskLog, Model, after_loss, write_out
from robo_rl.core.errors import RoboRLError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, Episode, EpisodeStore, recover

IMAGE = (8, 8, 3)
ENV = EnvSpec(
    "benchmark/power",
    {"state": ArraySpec((3,)), "image.front": ArraySpec(IMAGE, "uint8")},
    ActionSpec((-1.0,), (1.0,)),
    100,
    10.0,
)
DATASET = Path("lab/monday/set")  # the parents of this folder are new, too
EPISODES, LONGEST = 4, 6


def state(seed: int, frame: int) -> np.ndarray:
    """Every number of a frame follows from the episode's seed and the frame's position."""
    return np.array([seed, frame, seed * 100 + frame + 1], np.float32)


def record(root: Path, rng: random.Random, codec: Codec) -> DiskLog:
    """Log of a recorder that makes a dataset and records episodes; commits that returned are marked."""
    log = DiskLog(root)
    with log.logging():
        writer = DatasetWriter.create(root / DATASET, ENV, image_codec=codec, min_free_bytes=0)
        for seed in range(EPISODES):
            frames = rng.randint(1, LONGEST)
            with writer.episode(seed=seed) as episode:
                for frame in range(frames):
                    image = np.full(IMAGE, 10 * seed + frame, np.uint8)
                    episode.add({"state": state(seed, frame), "image.front": image}, [0.5])
                final = {"state": state(seed, frames), "image.front": np.zeros(IMAGE, np.uint8)}
                episode.commit(success=True, final_obs=final if seed % 2 else None)
            log.acknowledge((seed, frames))
        writer.close()
    return log


def violations(root: Path, acknowledged: dict[int, int]) -> list[str]:
    """What a dataset lacks after a loss. acknowledged: seed -> frames of the episodes that must exist."""
    dataset = root / DATASET
    if not acknowledged and not (dataset / "dataset.json").exists():
        return []  # nothing had been acknowledged
    found: list[str] = []
    try:
        recover(dataset)
    except (RoboRLError, OSError) as error:
        found.append(f"recover: {error}")
    try:
        episodes = {episode.meta.seed: episode for episode in EpisodeStore(dataset)}
    except (RoboRLError, OSError) as error:
        return [*found, f"open: {error}"]
    for seed, frames in acknowledged.items():
        if seed not in episodes or episodes[seed].frames != frames or not episodes[seed].success:
            found.append(f"lost: episode of seed {seed}")
    return found + [fault for episode in episodes.values() if (fault := _wrong(episode))]


def _wrong(episode: Episode) -> str:
    """Difference of an episode from the recorded one, in words; empty if they are equal."""
    seed = episode.meta.seed or 0
    try:
        rows = episode.obs("state")
        expected = np.stack([state(seed, frame) for frame in range(len(rows))])
        same = np.array_equal(rows, expected)
        same &= len(episode.obs("image.front")) == len(rows) and len(episode.action) == episode.frames
    except RoboRLError as error:
        return f"read: {error}"
    return "" if same else f"wrong: rows of seed {seed}"


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Leave out real fsyncs: the disk that loses power is simulated."""
    original, os.fsync = os.fsync, lambda fd: None
    try:
        yield
    finally:
        os.fsync = original


def attack(losses: int, seed: int) -> tuple[int, Counter[str], str]:
    """(losses tried, violations by kind, one example)."""
    rng, counts, example = random.Random(seed), Counter[str](), ""
    models: tuple[Model, ...] = ("strict", "journal")
    with TemporaryDirectory() as folder:
        logs = []
        for i, codec in enumerate(("raw", "jpeg")):
            root = Path(folder) / str(i)
            root.mkdir()
            logs.append(record(root, rng, codec))
        for i in range(losses):
            log, model = rng.choice(logs), models[i % 2]
            instant = rng.choice(
                [rng.randint(0, len(log.calls)), rng.choice(log.marks)[0]]
            )  # half just after a promise
            after = Path(folder) / "after" / str(i)
            after.parent.mkdir(exist_ok=True)
            write_out(after_loss(log, instant, model, rng), after)
            promised = dict(what for calls, what in log.marks if calls <= instant)
            with _no_waiting():
                faults = violations(after, promised)
            for fault in faults:
                counts[f"{model} {fault.partition(':')[0]}"] += 1
                example = f"{model}, after {instant} of {len(log.calls)} calls: {fault}"
    return losses, counts, example
