"""Round trips through every format, and training windows per CPU-second of the store beside other readers.

    python benchmarks/formats.py --lerobot /path/to/an/environment/with/lerobot/bin/python

`formats/<name>/round_trip_errors` counts arrays and labels that differ after export and import: everything
must be equal bit for bit, in videos images may differ by `VIDEO_ERROR` grey levels on average.
`formats/<name>/bytes` is the size of the export, in fractions of the raw values.

`formats/<name>/read_windows_per_cpu_s` reads windows of 2 observations of two cameras of 128 x 128 and a
state, and 16 actions, at random places, from the page cache: the store, the store by a DataLoader with 2
workers (their CPU time counts, and the transport), a zarr v2 replay buffer of the same episodes read by
zarr-python, and the video of the LeRobot export by LeRobot's own reader, in the Python that `--lerobot`
names (it brings its own versions).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from common import emit, parser
from windows import (
    BATCH,
    ENV,
    SPEC,
    STEPS,
    cpu_seconds,
    episode_arrays,
    replay_buffer_reader,
    write_replay_buffer,
)

from robo_rl.data.formats.registry import FORMATS, load_part
from robo_rl.data.formats.rows import labels_json, raw_bytes, rows_of
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.windows import WindowDataset, window_loader

VIDEO_ERROR = 6.0  # mean grey levels, of images with sensor noise, which a video does not keep
LEROBOT = """
import json, random, sys, time
import torch
from lerobot.datasets.lerobot_dataset import LeRobotDataset
torch.set_num_threads(1)
folder, fps, obs, chunk, count = sys.argv[1], float(sys.argv[2]), *map(int, sys.argv[3:6])
seen = [i / fps for i in range(1 - obs, 1)]
names = ["observation.state", "observation.images.left", "observation.images.right"]
stamps = {name: seen for name in names} | {"action": [i / fps for i in range(chunk)]}
data = LeRobotDataset("local/benchmark", root=folder, delta_timestamps=stamps, video_backend="pyav")
choose = random.Random(0)
for i in range(3):
    data[choose.randrange(len(data))]
start = time.process_time()
for i in range(count):
    sample = data[choose.randrange(len(data))]
seconds = time.process_time() - start
shapes = {k: list(v.shape) for k, v in sample.items() if k in stamps}
print(json.dumps({"rate": count / seconds, "shapes": shapes, "frames": len(data)}))
"""


def write(path: Path, count: int, steps: int) -> Path:
    """Episodes with everything that a round trip can lose: stamps, labels, interventions, final
    observation.
    """
    writer = DatasetWriter.create(path, ENV, min_free_bytes=0, durable=False)
    for seed in range(count):
        arrays = episode_arrays(seed)
        with writer.episode(task=f"task {seed % 2}", seed=seed, info={"note": seed}) as episode:
            for i in range(steps):
                stamps = {name: 10**18 + i * 33_333_333 + k for k, name in enumerate(writer.meta.stamps)}
                episode.add(
                    {key: arrays[key][i] for key in ENV.obs},
                    arrays["action"][i],
                    reward=0.1 * i,
                    intervention=i % 7 == 0,
                    stamps=stamps,
                )
            last = {key: arrays[key][-1] for key in ENV.obs}
            episode.commit(success=seed % 2 == 0, final_obs=last)
    writer.close()
    return path


def differences(one: Path, other: Path, *, lossy: bool) -> list[str]:
    """Names of arrays and labels that differ."""
    before, after = EpisodeStore(one), EpisodeStore(other)
    if before.spec != after.spec or len(before) != len(after):
        return ["contract"]
    found = []
    for a, b in zip(before, after, strict=True):
        x, y = rows_of(a), rows_of(b)
        pairs: dict[str, tuple[Any, Any]] = {key: (x.obs[key], y.obs[key]) for key in x.obs}
        pairs |= {k: (x.stamps[k], y.stamps[k]) for k in x.stamps}
        for name in ("action", "reward", "terminated", "intervention"):
            pairs[name] = getattr(x, name), getattr(y, name)
        for name, (left, right) in pairs.items():
            if left.dtype != right.dtype or left.shape != right.shape:
                found.append(name)
            elif lossy and name.startswith("image."):
                error = float(np.abs(left.astype(np.float32) - right).mean())
                found += [f"{name} by {error:.1f}"] if error > VIDEO_ERROR else []
            elif left.tobytes() != right.tobytes():
                found.append(name)
        found += ["labels"] if labels_json(x.labels) != labels_json(y.labels) else []
    return found


def round_trips(root: Path, source: Path) -> None:
    raw = raw_bytes(EpisodeStore(source))
    for name in [name for name, each in FORMATS.items() if each.reader]:
        out, again = root / f"export-{name}", root / f"again-{name}"
        start_s = cpu_seconds()
        load_part(name, "writer")(source, out)
        middle_s = cpu_seconds()
        load_part(name, "reader")(out, again)
        end_s = cpu_seconds()
        wrong = differences(source, again, lossy=name == "lerobot")
        size = sum(each.stat().st_size for each in (out, *out.rglob("*")) if each.is_file())
        frames = EpisodeStore(source).totals.frames
        emit(f"formats/{name}/round_trip_errors", len(wrong), "arrays and labels", first=wrong[:3])
        emit(f"formats/{name}/bytes", size / raw, "of the raw values")
        emit(f"formats/{name}/export_frames_per_cpu_s", frames / (middle_s - start_s), "frames/cpu-s")
        emit(f"formats/{name}/import_frames_per_cpu_s", frames / (end_s - middle_s), "frames/cpu-s")


def read_rates(root: Path, store: Path, episodes: int, quick: bool, lerobot: str | None) -> None:
    """Rates of four readers, one after another on the same machine."""
    frames, rng = episodes * STEPS, np.random.default_rng(0)
    buffer = root / "buffer.zarr"
    write_replay_buffer(buffer, [episode_arrays(seed) for seed in range(episodes)])
    readers = {
        "store": (WindowDataset(store, SPEC).gather, 4096 if quick else 32768),
        "zarr": (replay_buffer_reader(buffer), 128 if quick else 1024),
    }
    for name, (read, windows) in readers.items():
        read(rng.integers(0, frames, BATCH))
        start_s = cpu_seconds()
        for batch in rng.integers(0, frames, (windows // BATCH, BATCH)):
            read(batch)
        rate(name, windows, cpu_seconds() - start_s)
    loader = window_loader(WindowDataset(store, SPEC), BATCH, num_workers=2, persistent_workers=True)
    count, start_s = 0, cpu_seconds()
    for _ in range(6 if quick else 12):
        count += sum(len(batch["action"]) for batch in loader)
    del loader  # joins the workers, so that their CPU time counts
    rate("store_2_workers", count, cpu_seconds() - start_s)
    if lerobot is None:
        print("formats/lerobot/read_windows_per_cpu_s: give --lerobot to measure it", file=sys.stderr)
        return
    load_part("lerobot", "writer")(store, root / "lerobot")
    numbers = ENV.control_hz, SPEC.obs_steps, SPEC.chunk, 30 if quick else 300
    words = [str(root / "lerobot"), *map(str, numbers)]
    done = subprocess.run([lerobot, "-c", LEROBOT, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"LeRobot's reader failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["frames"] == frames, found
    emit("formats/lerobot/read_windows_per_cpu_s", found["rate"], "windows/cpu-s", shapes=found["shapes"])


def rate(name: str, windows: int, seconds: float) -> None:
    emit(f"formats/{name}/read_windows_per_cpu_s", windows / seconds, "windows/cpu-s", windows=windows)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--lerobot", default=None, help="Python of an environment with lerobot 0.4 or newer")
    args = options.parse_args()
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        round_trips(root, write(root / "trips", 3, 20 if args.quick else STEPS))
        episodes = 2 if args.quick else 20
        read_rates(root, write(root / "store", episodes, STEPS), episodes, args.quick, args.lerobot)


if __name__ == "__main__":
    main()
