"""Run by test_disk_full.py on a file system of a few MiB: fill it while recording, then make room and go
on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from robo_rl.core.errors import DiskFullError
from robo_rl.data.store import DatasetWriter, EpisodeStore, recover
from robo_rl.data.validate import validate
from tests.data.recordings import ENV, action, add_frames, obs


def main(root: Path) -> None:
    ballast = root / "ballast"
    ballast.write_bytes(bytes(200_000))
    writer = DatasetWriter.create(root / "set", ENV, min_free_bytes=0)
    result: dict[str, object] = {}
    try:
        for seed in range(10_000):
            with writer.episode(seed=seed) as episode:
                add_frames(episode, seed, 40)
                episode.commit(success=True)
    except DiskFullError as error:
        result["message"] = str(error)
    committed = len(EpisodeStore(writer.path))
    ballast.unlink()
    result["salvaged"] = [s.frames for s in recover(writer.path)]
    with writer.episode(seed=0) as episode:
        frames = 0
        try:
            while True:
                episode.add(obs(0, frames), action(0, frames))
                frames += 1
        except DiskFullError:
            oldest = writer.path / "episodes" / "000000"
            for file in oldest.rglob("c*"):
                file.unlink()
            number = episode.commit(success=False)  # room was made: what was recorded before is committed
    faults = [f for f in validate(writer.path) if f.severity == "error" and f.episode != 0]
    read = EpisodeStore(writer.path).episode(number)
    result |= {
        "committed": committed,
        "faults": [str(f) for f in faults],
        "frames": frames,
        "kept": read.frames,
        "state_ok": bool((read.obs("state")[:, 1] == range(frames)).all()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
