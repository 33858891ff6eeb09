"""Kill a recorder at random times and count lost data: `python benchmarks/kill_recorder.py --kills 200`.

A second process records short episodes with two cameras, and reports each frame when `add` and each episode
when `commit` has returned. After a random time it gets SIGKILL. Every reported episode must then exist, bit
for bit, and `recover` must restore every reported frame of the unfinished one. SIGKILL keeps the page cache;
protection against power loss depends on fsync, which is called but not tested here.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import emit, parser

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, Episode, EpisodeStore, recover
from robo_rl.data.validate import validate

FRAMES = 150
IMAGE = (32, 32, 3)
ENV = EnvSpec(
    "benchmark/recorder",
    {
        "state": ArraySpec((7,)),
        "image.left": ArraySpec(IMAGE, "uint8"),
        "image.right": ArraySpec(IMAGE, "uint8"),
    },
    ActionSpec((-1.0,) * 7, (1.0,) * 7),
    FRAMES,
    30.0,
)
PROGRESS = struct.Struct("<qqq")  # seed of the running episode, frames added to it, episodes committed


@dataclass
class Count:
    kills: int = 0
    committed: int = 0
    lost_episodes: int = 0
    lost_frames: int = 0
    salvaged: int = 0
    finished_commits: int = 0
    wrong_rows: int = 0
    faults: int = 0


def frame(seed: int, i: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Every number of a frame follows from the episode's seed and the frame's position."""
    image = np.full(IMAGE, (seed * 31 + i) % 256, dtype=np.uint8)
    state = np.array([seed, i, 0, 0, 0, 0, 0], dtype=np.float32)
    return {"state": state, "image.left": image, "image.right": 255 - image}, np.full(
        7, i / FRAMES, dtype=np.float32
    )


def record_for_ever(path: Path, first_seed: int, progress_fd: int) -> None:
    """The recording process, which is killed."""
    writer = DatasetWriter.open(path, min_free_bytes=0)
    for seed in range(first_seed, first_seed + 10**6):
        committed = seed - first_seed
        os.pwrite(progress_fd, PROGRESS.pack(seed, 0, committed), 0)
        with writer.episode(seed=seed) as episode:
            for i in range(FRAMES):
                episode.add(*frame(seed, i))
                os.pwrite(progress_fd, PROGRESS.pack(seed, i + 1, committed), 0)
            episode.commit(success=True, final_obs=frame(seed, FRAMES)[0])


def kill_once(path: Path, first_seed: int, delay_s: float) -> tuple[int, int, int]:
    """Record, kill after `delay_s`; returns the last report of the killed process."""
    with (path.parent / "progress").open("w+b", buffering=0) as progress:
        progress.write(PROGRESS.pack(first_seed, 0, 0))
        if (pid := os.fork()) == 0:
            record_for_ever(path, first_seed, progress.fileno())
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        seed, frames, committed = PROGRESS.unpack(os.pread(progress.fileno(), PROGRESS.size, 0))
    return seed, frames, committed


def wrong_rows(episode: Episode) -> int:
    """Number of rows that differ from the recorded ones (JPEG: by more than 8 grey levels)."""
    seed, slack = episode.meta.seed or 0, 8 if episode.dataset.jpeg_keys else 0
    wrong = 0
    for i in range(episode.obs_rows):
        obs, action = frame(seed, i)
        far = [
            np.abs(episode.obs(k, i, i + 1)[0].astype(int) - v.astype(int)).max() > slack
            for k, v in obs.items()
        ]
        wrong += any(far) or (i < episode.frames and not np.array_equal(episode.action[i], action))
    return wrong


def round_of(path: Path, count: Count, delay_s: float) -> None:
    """One kill, one recovery, and the count of lost data."""
    before = len(EpisodeStore(path))
    first_seed = 1000 * (count.kills + 1)
    seed, frames, committed = kill_once(path, first_seed, delay_s)
    salvaged = recover(path)
    new = list(EpisodeStore(path))[before:]
    by_seed = {episode.meta.seed: episode for episode in new}
    running = by_seed.get(seed)
    count.kills += 1
    count.committed += committed
    count.lost_episodes += sum(
        s not in by_seed or not by_seed[s].meta.complete for s in range(first_seed, first_seed + committed)
    )
    count.lost_frames += max(0, frames - (running.frames if running else 0))
    count.salvaged += len(salvaged)
    count.finished_commits += sum(s.complete for s in salvaged)
    count.wrong_rows += sum(wrong_rows(episode) for episode in new)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--kills", type=int, default=200, help="number of kills")
    options.add_argument("--codec", choices=("raw", "jpeg"), default="raw", help="storage of images")
    options.add_argument("--seed", type=int, default=0, help="seed of the instants")
    args = options.parse_args()
    codec: Codec = "jpeg" if args.codec == "jpeg" else "raw"
    count, instants = Count(), random.Random(args.seed)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "set"
        DatasetWriter.create(path, ENV, image_codec=codec, min_free_bytes=0)
        for _ in range(min(args.kills, 40) if args.quick else args.kills):
            round_of(path, count, instants.uniform(0.0, 0.3))
        count.faults = sum(fault.severity == "error" for fault in validate(path))
        emit("recorder/kills", count.kills, "kills", codec=codec)
        emit("recorder/committed", count.committed, "episodes", codec=codec)
        emit("recorder/committed_lost", count.lost_episodes, "episodes", codec=codec)
        emit("recorder/frames_lost", count.lost_frames, "frames", codec=codec)
        emit(
            "recorder/salvaged",
            count.salvaged,
            "episodes",
            codec=codec,
            finished_commits=count.finished_commits,
        )
        emit("recorder/wrong_rows", count.wrong_rows, "rows", codec=codec)
        emit("recorder/faults", count.faults, "faults", codec=codec)


if __name__ == "__main__":
    main()
