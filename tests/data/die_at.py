"""Run by test_kill.py: kill a recorder at its k-th disk call, and inspect the dataset.

python die_at.py <folder> <codec> <stride> runs k from 1 in steps of `stride` until the recorder survives, and
prints one JSON object per k.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np

from hardware.checks.faulty_disk import killed_at
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from robo_rl.data.validate import validate
from tests.data.recordings import add_frames, obs, record

CALLS = ("write", "fsync", "ftruncate", "mkdir", "rename", "replace", "unlink", "open")
FRAMES = 2


def _record_one(path: Path, with_final_obs: bool) -> None:
    with DatasetWriter.open(path, min_free_bytes=0).episode(seed=1) as episode:
        add_frames(episode, 1, FRAMES)
        episode.commit(success=True, final_obs=obs(1, FRAMES) if with_final_obs else None)


def _same(path: Path, number: int) -> bool:
    """True if every stored row equals the recorded one. Episode 0 has seed 0, later ones seed 1."""
    episode = EpisodeStore(path).episode(number)
    seed = episode.meta.seed or 0
    for i in range(episode.obs_rows):
        for key, value in obs(seed, i).items():
            slack = 8 if key.startswith("image.") and episode.dataset.jpeg_keys else 0
            if np.abs(episode.obs(key, i, i + 1)[0].astype(float) - value).max() > slack:
                return False
    return True


def _orphan(path: Path) -> int:
    """A recorder forks a child (e.g. a simulator's worker) and dies; the child lives on. Returns the child's
    id.
    """
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        episode = DatasetWriter.open(path, min_free_bytes=0).episode(seed=1)
        add_frames(episode, 1, FRAMES)
        ready, begun = os.pipe()
        if (child := os.fork()) == 0:
            os.write(begun, b".")  # from here on the child has dropped the locks that it inherited
            time.sleep(60)
            os._exit(0)
        os.read(ready, 1)
        os.write(write, str(child).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return int(os.read(read, 32))


def main(folder: Path, codec: str, stride: int) -> None:
    clean = record(folder / "clean", [2], codec="jpeg" if codec == "jpeg" else "raw")
    path = folder / "set"
    copytree(clean, path)
    orphan = _orphan(path)
    print(json.dumps({"orphan": [s.frames for s in recover(path)]}), flush=True)
    os.kill(orphan, signal.SIGKILL)
    rmtree(path)
    k, died = 1 - stride, True
    while died:
        k += stride
        copytree(clean, path)
        died = killed_at(k, partial(_record_one, path, k % 2 == 0), CALLS, "half")
        committed = len(EpisodeStore(path))
        salvaged = recover(path)
        result = {
            "k": k,
            "died": died,
            "committed": committed,
            "salvaged": [s.frames for s in salvaged],
            "complete": [s.complete for s in salvaged],
            "success": [EpisodeStore(path).episode(s.number).meta.success for s in salvaged],
            "faults": [str(f) for f in validate(path) if f.severity == "error"],
            "staging": [p.name for p in (path / "staging").iterdir() if p.is_dir()],
            "content": all(_same(path, n) for n in range(len(EpisodeStore(path)))),
        }
        print(json.dumps(result), flush=True)
        rmtree(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
