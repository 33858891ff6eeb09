"""Kill the recording app, fill its disk, and count lost data: `python benchmarks/kill_app.py --full 50`.

Episodes of two cameras go through the code of the app. Kills: a second process reports each frame and each
saved episode, and gets SIGKILL after a random time; every reported episode must then exist, bit for bit, with
its label, and the next start must salvage every frame of the running one that was written. Full disks:
episodes are recorded on a file system of a few MiB, which needs the right to mount one, until nothing fits;
every saved episode must be there, the running one is ended and saved, and after room was made the next one is
recorded.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import emit, parser

from hardware.checks.faulty_disk import small_disk
from robo_rl.apps.recording.episodes import ENDED, IDLE, RECORDING, Episodes, Tally
from robo_rl.core.errors import DiskFullError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import STAMP_COLUMNS
from robo_rl.data.store import DatasetWriter, Episode, EpisodeStore, recover
from robo_rl.data.validate import validate

FRAMES, JOINTS, SIDE_PX = 100, 6, 32
IMAGES = ("image.front", "image.wrist")
ENV = EnvSpec(
    "benchmark/app",
    {"state": ArraySpec((JOINTS,)), **{key: ArraySpec((SIDE_PX, SIDE_PX, 3), "uint8") for key in IMAGES}},
    ActionSpec((-9.0,) * JOINTS, (9.0,) * JOINTS),
    FRAMES + 1,
    20.0,
)
PROGRESS = struct.Struct("<qqq")  # seed of the running episode, frames written of it, episodes saved
DISK_MIB = 4


@dataclass
class Count:
    kills: int = 0
    full: int = 0
    saved: int = 0
    lost: int = 0  # saved episodes that are missing, cut off, or without their label
    frames_lost: int = 0
    wrong_rows: int = 0
    refused: int = 0  # starts that failed although there was room again


def seen(seed: int, i: int) -> dict[str, np.ndarray]:
    """Every number of a frame follows from the episode's seed and the frame's position."""
    picture = np.full((SIDE_PX, SIDE_PX, 3), (31 * seed + i) % 256, np.uint8)
    state = np.array([seed, *(i,) * (JOINTS - 1)], np.float32)
    return {"state": state, IMAGES[0]: picture, IMAGES[1]: 255 - picture}


def app_on(path: Path, seed: list[int]) -> Episodes:
    """The app's episodes in a dataset, which is created if it is absent."""
    if path.exists():
        writer = DatasetWriter.open(path, min_free_bytes=0)
    else:
        writer = DatasetWriter.create(path, ENV, stamps=STAMP_COLUMNS, min_free_bytes=0)
    return Episodes(writer, Tally(), FRAMES + 1, "benchmark", lambda: {"seed": seed[0]})


def take(app: Episodes, seed: int, i: int) -> str:
    """One tick of the recording; frame i - 1 gets its action."""
    return app.frame(seen(seed, i), {"t_capture_ns": i + 1}, np.full(JOINTS, i / FRAMES), True, i + 1)


def record_until_killed(path: Path, first_seed: int, progress_fd: int) -> None:
    """The recording process."""
    seed = [first_seed]
    app = app_on(path, seed)
    while True:
        saved = seed[0] - first_seed
        app.start()
        for i in range(FRAMES + 1):
            os.pwrite(progress_fd, PROGRESS.pack(seed[0], max(0, app.frames - 1), saved), 0)
            take(app, seed[0], i)  # the newest frame waits for its reward
        app.save(seed[0] % 2 == 0)
        seed[0] += 1
        os.pwrite(progress_fd, PROGRESS.pack(seed[0], 0, seed[0] - first_seed), 0)


def kill_once(path: Path, count: Count, delay_s: float) -> None:
    """One kill, one new start, and the count of lost data."""
    before, first_seed = len(EpisodeStore(path)), 1000 * (count.kills + 1)
    with (path.parent / "progress").open("w+b", buffering=0) as progress:
        progress.write(PROGRESS.pack(first_seed, 0, 0))
        if (pid := os.fork()) == 0:
            record_until_killed(path, first_seed, progress.fileno())
        time.sleep(delay_s)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        running, frames, saved = PROGRESS.unpack(os.pread(progress.fileno(), PROGRESS.size, 0))
    recover(path)
    new = {int(episode.meta.info["seed"]): episode for episode in list(EpisodeStore(path))[before:]}
    count.kills += 1
    count.saved += saved
    count.lost += sum(not is_whole(new.get(seed), seed) for seed in range(first_seed, first_seed + saved))
    count.frames_lost += max(0, frames - (new[running].frames if running in new else 0))
    count.wrong_rows += sum(wrong_rows(seed, episode) for seed, episode in new.items())


def is_whole(episode: Episode | None, seed: int) -> bool:
    """True for a saved episode with its label and all frames."""
    if episode is None:
        return False
    return episode.meta.complete and episode.success is (seed % 2 == 0) and episode.frames == FRAMES


def wrong_rows(seed: int, episode: Episode) -> int:
    """Number of frames that differ from the recorded ones."""
    wrong = 0
    for i in range(episode.frames):
        obs = seen(seed, i)
        same = all(np.array_equal(episode.obs(key, i, i + 1)[0], value) for key, value in obs.items())
        wrong += not (same and np.allclose(episode.action[i], (i + 1) / FRAMES))
    return wrong


def fill_once(folder: Path, count: Count, ballast_bytes: int) -> None:
    """Record until the disk is full, look at what is there, make room, and record once more."""
    path, ballast, seed = folder / "set", folder / "ballast", [0]
    ballast.write_bytes(bytes(ballast_bytes))
    app, saved = app_on(path, seed), list[int]()
    full = False
    while not full:
        try:
            app.start()
        except DiskFullError:
            break
        for i in range(FRAMES + 1):
            take(app, seed[0], i)
            if app.state != RECORDING:
                full = app.state == IDLE
                break
        if not full:
            app.save(seed[0] % 2 == 0)
            full = app.state == ENDED
            saved += [] if full else [seed[0]]
        seed[0] += 0 if full else 1
    ballast.unlink()
    if app.state == ENDED:  # the label did not fit: it does now
        app.save(seed[0] % 2 == 0)
        saved.append(seed[0])
    recover_after_full(app, path)
    found = {int(episode.meta.info["seed"]): episode for episode in EpisodeStore(path)}
    count.full += 1
    count.saved += len(saved)
    count.lost += sum(not is_whole(found.get(each), each) for each in saved)
    count.wrong_rows += sum(wrong_rows(each, episode) for each, episode in found.items())
    again = app_on(path, [10**6])
    again.start()
    for i in range(5):
        take(again, 10**6, i)
    again.save(None)
    count.refused += again.tally.episodes != 1
    again.close("the round ends")
    shutil.rmtree(path)


def recover_after_full(app: Episodes, path: Path) -> None:
    """What the next start of the app does."""
    app.close("the disk was full")
    recover(path)


def measure_kills(kills: int, instants: random.Random) -> None:
    count = Count()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "set"
        app_on(path, [0]).close("created")
        for _ in range(kills):
            kill_once(path, count, instants.uniform(0.0, 0.4))
        faults = sum(fault.severity == "error" for fault in validate(path))
    emit("app/kills", count.kills, "kills", saved=count.saved)
    emit("app/kill_saved_lost", count.lost, "episodes")
    emit("app/kill_frames_lost", count.frames_lost, "frames")
    emit("app/kill_wrong_rows", count.wrong_rows, "rows", faults=faults)


def measure_full(rounds: int, sizes: random.Random, folder: Path) -> None:
    count = Count()
    for _ in range(rounds):
        fill_once(folder, count, sizes.randrange(400_000, 2_000_000))
    emit("app/full_disks", count.full, "full disks", saved=count.saved)
    emit("app/full_saved_lost", count.lost, "episodes")
    emit("app/full_wrong_rows", count.wrong_rows, "rows", refused=count.refused)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--kills", type=int, default=200, help="number of kills")
    options.add_argument("--full", type=int, default=50, help="number of full disks")
    options.add_argument("--seed", type=int, default=0, help="seed of the instants")
    options.add_argument("--on", type=Path, help="internal: small file system to fill")
    args = options.parse_args()
    kills, full = (min(args.kills, 20), min(args.full, 5)) if args.quick else (args.kills, args.full)
    if args.on is not None:
        measure_full(full, random.Random(args.seed), args.on)
        return
    measure_kills(kills, random.Random(args.seed))
    with TemporaryDirectory() as folder:
        if (prefix := small_disk(Path(folder), DISK_MIB)) is None:
            print("app/full_disks: this machine lets us mount no file system (unshare)", file=sys.stderr)
            return
        subprocess.run([*prefix, sys.executable, *sys.argv, "--on", folder], check=True)


if __name__ == "__main__":
    main()
