"""Attack of the episode store by SIGKILL at random instants and by full disks.

A child process records and reports what returned in a log outside of the dataset. The oracle reads the files
by zarr and JSON alone: every episode whose commit returned must be there, value by value, and after recovery
the running one holds at least every frame whose `add` returned.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import zarr

from robo_rl.core.errors import DiskFullError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.store import DatasetWriter, recover

IMAGE = (16, 16, 3)
ENV = EnvSpec(
    "benchmark/store",
    {"state": ArraySpec((5,)), "image.front": ArraySpec(IMAGE, "uint8")},
    ActionSpec((-1.0,) * 2, (1.0,) * 2),
    1000,
    20.0,
)
LONGEST, LATEST_KILL_S = 60, 0.15
SMALL_KIB, LARGE_KIB, AFTER = (120, 900), 64 * 1024, "remount,size=64m"
DISKS_PER_KILL = 1 / 3


def state(seed: int, row: int) -> np.ndarray:
    """Every number of a frame follows from the episode's seed and the frame's position."""
    return np.array([seed, row, seed * row, -row, 0.5], np.float32)


def pixels(seed: int, row: int) -> np.ndarray:
    return np.full(IMAGE, (7 * seed + row) % 256, np.uint8)


def action(seed: int, row: int) -> np.ndarray:
    return np.array([(seed % 97) / 97.0, (row % 89) / 89.0], np.float32)


@dataclass
class Told:
    """Calls that returned: frames of each committed episode, and of the running one."""

    committed: dict[int, int] = field(default_factory=dict)
    running: tuple[int, int] | None = None  # (seed, frames)


def record(dataset: Path, log: int, first_seed: int, rng: random.Random) -> None:
    """Record episodes until killed or until the disk is full. log: file descriptor of the report."""
    writer = DatasetWriter.open(dataset, min_free_bytes=0)
    for seed in range(first_seed, first_seed + 10**6):
        frames = rng.randint(1, LONGEST)
        with writer.episode(seed=seed) as episode:
            for row in range(frames):
                episode.add({"state": state(seed, row), "image.front": pixels(seed, row)}, action(seed, row))
                os.write(log, f"frame {seed} {row + 1}\n".encode())
            final = {"state": state(seed, frames), "image.front": pixels(seed, frames)}
            episode.commit(success=True, final_obs=final if seed % 2 else None)
        os.write(log, f"commit {seed} {frames}\n".encode())


def read_log(path: Path) -> Told:
    told = Told()
    for line in path.read_text().splitlines():
        kind, seed, frames = line.split()
        if kind == "commit":
            told.committed[int(seed)], told.running = int(frames), None
        else:
            told.running = int(seed), int(frames)
    return told


def stored(dataset: Path) -> Iterator[tuple[int, int, bool, dict[str, np.ndarray]]]:
    """(seed, frames, with a final observation, arrays) of each episode, by zarr and JSON alone."""
    for folder in sorted((dataset / "episodes").glob("[0-9]*")):
        meta = json.loads((folder / "episode.json").read_text())
        arrays = {
            name: np.asarray(zarr.open_array(folder / name, mode="r")[:])
            for name in ("state", "image.front", "action")
        }
        yield meta["seed"], meta["frames"], meta["final_obs"], arrays


def differs(seed: int, frames: int, final: bool, arrays: dict[str, np.ndarray]) -> bool:
    """True where a stored value is not the recorded one."""
    rows = frames + final
    expected = {
        "state": [state(seed, row) for row in range(rows)],
        "image.front": [pixels(seed, row) for row in range(rows)],
        "action": [action(seed, row) for row in range(frames)],
    }
    return not all(np.array_equal(arrays[name], np.array(values)) for name, values in expected.items())


def violations(dataset: Path, told: Told) -> list[str]:
    """Promises that the dataset breaks, after recovery."""
    found: list[str] = []
    lengths: dict[int, int] = {}
    for seed, frames, final, arrays in stored(dataset):
        if seed in lengths:
            found.append("an episode is there twice")
        lengths[seed] = frames
        if differs(seed, frames, final, arrays):
            found.append("an episode has other values")
    for seed, frames in told.committed.items():
        if lengths.get(seed) != frames:
            found.append("a committed episode is lost or cut")
    if told.running is not None:
        seed, frames = told.running
        if lengths.get(seed, 0) < frames:
            found.append("a frame of the running episode is lost")
    return found


def child(work: Callable[[], None]) -> int:
    """Process id of a child that runs `work`; it ends with 0, and 3 where the disk is full."""
    if (pid := os.fork()) != 0:
        return pid
    try:
        work()
    except DiskFullError:
        os._exit(3)
    except BaseException:
        traceback.print_exc()
        os._exit(4)
    os._exit(0)


def killed(folder: Path, first_seed: int, rng: random.Random) -> list[str]:
    """Record, kill at a random instant, recover, and compare."""
    dataset, log = folder / "set", folder / f"log-{first_seed}"
    with log.open("wb", buffering=0) as file:
        pid = child(lambda: record(dataset, file.fileno(), first_seed, rng))
        time.sleep(rng.uniform(0.0, LATEST_KILL_S))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    recover(dataset)
    return violations(dataset, read_log(log))


@contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[Path]:
    """A mounted tmpfs of this size, which needs root."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)
        disk.rmdir()


def filled(folder: Path, first_seed: int, rng: random.Random) -> list[str]:
    """Record until the disk is full, make room, recover, and compare."""
    with small_disk(folder, rng.randint(*SMALL_KIB)) as disk:
        dataset, log = disk / "set", folder / f"full-{first_seed}"
        DatasetWriter.create(dataset, ENV, image_codec="raw", min_free_bytes=0).close()
        with log.open("wb", buffering=0) as file:
            pid = child(lambda: record(dataset, file.fileno(), first_seed, rng))
            ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        found = [] if ended == 3 else [f"a full disk ended the recorder with status {ended}"]
        subprocess.run(["mount", "-o", AFTER, str(disk)], check=True)
        recover(dataset)
        return found + violations(dataset, read_log(log))


def attack(tries: int, seed: int) -> tuple[int, Counter[str], str]:
    """Kill the recorder `tries` times, and fill a third as many disks."""
    rng, counts, example = random.Random(seed), Counter[str](), ""
    disks = max(1, round(tries * DISKS_PER_KILL))
    for number in range(tries + disks):
        if number % 20 == 0:  # a new dataset, so that reading it all stays quick
            folder = TemporaryDirectory(prefix="robo-rl-store-")
            DatasetWriter.create(Path(folder.name) / "set", ENV, image_codec="raw", min_free_bytes=0).close()
        what = killed if number < tries else filled
        found = what(Path(folder.name), 1000 * (number + 1), rng)
        counts.update(found)
        example = example or (f"{what.__name__}, number {number}: {found[0]}" if found else "")
        if number % 20 == 19 or number == tries + disks - 1:
            folder.cleanup()
    return tries + disks, counts, example
