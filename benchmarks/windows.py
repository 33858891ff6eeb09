"""Training windows per CPU-second, compared with a zarr v2 replay buffer read by zarr-python.

    python benchmarks/windows.py

The same camera-like frames (a smooth scene, sensor noise of 2 grey levels; 128 x 128 x 3, two cameras) are
stored three times: in the episode store raw and as JPEG, and as a replay buffer in the layout of Diffusion
Policy (one Blosc-zstd chunk per frame). A window is 2 observations of both cameras and a 14-dimensional
state, and 16 actions. Windows are read in random order in batches of 64, files in the page cache; the value
is the median round, `first_pass` the round that came before them. `dataloader_2w` counts the workers' CPU
time and what it takes to send batches to this process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import zarr
from common import cpu_seconds, emit, parser
from numcodecs import Blosc

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.windows import WindowDataset, WindowSpec, window_loader

STEPS, DIM, SIZE, BATCH = 300, 14, 128, 64
CAMERAS = ("image.left", "image.right")
SPEC = WindowSpec(obs_steps=2, chunk=16)
ENV = EnvSpec(
    "benchmark/windows",
    {"state": ArraySpec((DIM,)), **{camera: ArraySpec((SIZE, SIZE, 3), "uint8") for camera in CAMERAS}},
    ActionSpec((-1.0,) * DIM, (1.0,) * DIM),
    STEPS,
    30.0,
)
Arrays = dict[str, np.ndarray]


def episode_arrays(seed: int) -> Arrays:
    """One episode: a scene that the cameras pan over, with noise."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0.0, 2.0, (16, SIZE, SIZE, 3))
    arrays: Arrays = {"state": rng.standard_normal((STEPS, DIM)).astype(np.float32)}
    for camera in CAMERAS:
        coarse = np.kron(rng.integers(0, 256, (12, 12, 3)), np.ones((32, 32, 1)))
        scene = sum(np.roll(coarse, shift, axis=(0, 1)) for shift in range(-16, 16, 4)) / 8
        frames = [scene[t // 2 : t // 2 + SIZE, t // 3 : t // 3 + SIZE] + noise[t % 16] for t in range(STEPS)]
        arrays[camera] = np.clip(frames, 0, 255).astype(np.uint8)
    arrays["action"] = rng.uniform(-1, 1, (STEPS, DIM)).astype(np.float32)
    return arrays


def write_store(path: Path, episodes: list[Arrays], codec: Codec) -> None:
    """Record as a robot would; emits the cost of a frame and of a commit."""
    writer = DatasetWriter.create(path, ENV, image_codec=codec)
    add_ms: list[float] = []
    commit_ms: list[float] = []
    for arrays in episodes:
        with writer.episode() as episode:
            for i in range(STEPS):
                obs, action = {key: arrays[key][i] for key in ENV.obs}, arrays["action"][i]
                add_ms.append(timed_ms(lambda o=obs, a=action: episode.add(o, a)))
            commit_ms.append(timed_ms(episode.commit))
    emit(f"store/{codec}/add_ms_p50", float(np.percentile(add_ms, 50)), "ms")
    emit(f"store/{codec}/add_ms_p99", float(np.percentile(add_ms, 99)), "ms")
    emit(f"store/{codec}/commit_ms_p50", float(np.percentile(commit_ms, 50)), "ms", frames=STEPS)


def timed_ms(call: Callable[[], Any]) -> float:
    start_s = time.perf_counter()
    call()
    return (time.perf_counter() - start_s) * 1e3


def write_replay_buffer(path: Path, episodes: list[Arrays]) -> None:
    """zarr v2, `data/*` and `meta/episode_ends`, a chunk per image."""
    group, codec = (
        zarr.create_group(path, zarr_format=2),
        Blosc(cname="zstd", clevel=5, shuffle=Blosc.BITSHUFFLE),
    )
    for key in (*ENV.obs, "action"):
        data = np.concatenate([arrays[key] for arrays in episodes])
        chunk = 1 if key in CAMERAS else 161
        group.create_array(f"data/{key}", data=data, chunks=(chunk, *data.shape[1:]), compressors=codec)
    group.create_array("meta/episode_ends", data=STEPS * np.arange(1, len(episodes) + 1))


def replay_buffer_reader(path: Path) -> Callable[[np.ndarray], Any]:
    """Windows as read by the sequence sampler of a replay buffer: one slice per key, edges padded by
    repetition.
    """
    group = zarr.open_group(path, mode="r")
    arrays: dict[str, Any] = {key: group[f"data/{key}"] for key in (*ENV.obs, "action")}

    def window(index: int) -> Arrays:
        first = index - index % STEPS
        low = max(first, index + 1 - SPEC.obs_steps)
        sample = {key: arrays[key][low : index + 1] for key in ENV.obs}
        sample["action"] = arrays["action"][index : min(index + SPEC.chunk, first + STEPS)]
        lengths = {key: SPEC.obs_steps - len(sample[key]) for key in ENV.obs}
        padded = {k: np.concatenate([sample[k][:1].repeat(n, axis=0), sample[k]]) for k, n in lengths.items()}
        rest = SPEC.chunk - len(sample["action"])
        padded["action"] = np.concatenate([sample["action"], sample["action"][-1:].repeat(rest, axis=0)])
        return padded

    return lambda indices: [window(int(index)) for index in indices]


def measure(name: str, read: Callable[[np.ndarray], Any], frames: int, windows: int, rounds: int) -> float:
    """Emit the median round's windows per CPU-second, and return it."""
    rng, rates = np.random.default_rng(0), []
    read(rng.integers(0, frames, BATCH))
    for _ in range(rounds + 1):
        batches = rng.integers(0, frames, (max(1, windows // BATCH), BATCH))
        start_s = time.process_time()
        for batch in batches:
            read(batch)
        rates.append(batches.size / (time.process_time() - start_s))
    value = float(np.median(rates[1:]))
    emit(name, value, "windows/cpu-s", best=max(rates), first_pass=rates[0], windows=windows, rounds=rounds)
    return value


def measure_loader(path: Path, epochs: int) -> None:
    """Two workers, one epoch after another; the start of the workers is not counted, as in training."""
    dataset = WindowDataset(path, SPEC)
    loader = window_loader(dataset, BATCH, num_workers=2, persistent_workers=True)
    count, start_s, start_cpu_s = 0, time.perf_counter(), cpu_seconds()
    for _ in range(epochs):
        count += sum(len(batch["action"]) for batch in loader)
    wall_s = time.perf_counter() - start_s
    del loader  # joins the workers, so that their CPU time counts
    emit("windows/dataloader_2w/wall", count / wall_s, "windows/s", windows=count)
    emit(
        "windows/dataloader_2w/per_cpu_s",
        count / (cpu_seconds() - start_cpu_s),
        "windows/cpu-s",
        windows=count,
    )


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument(
        "--folder", type=Path, default=None, help="folder of the files; by default a temporary one"
    )
    args = options.parse_args()
    torch.set_num_threads(1)
    count, rounds, scale = (4, 5, 1) if args.quick else (50, 9, 4)
    episodes = [episode_arrays(seed) for seed in range(count)]
    with TemporaryDirectory(dir=args.folder) as folder:
        root, frames = Path(folder), count * STEPS
        for codec in ("raw", "jpeg"):
            write_store(root / codec, episodes, "jpeg" if codec == "jpeg" else "raw")
        write_replay_buffer(root / "buffer.zarr", episodes)
        del episodes
        os.sync()  # written data must not be flushed during the measurement
        raw = measure(
            "windows/raw/per_cpu_s", WindowDataset(root / "raw", SPEC).gather, frames, 4096 * scale, rounds
        )
        measure(
            "windows/jpeg/per_cpu_s", WindowDataset(root / "jpeg", SPEC).gather, frames, 384 * scale, rounds
        )
        name = "windows/zarr_v2_replay_buffer/per_cpu_s"
        zarr_v2 = measure(name, replay_buffer_reader(root / "buffer.zarr"), frames, 128 * scale, rounds)
        emit("windows/raw/ratio_to_zarr_v2", raw / zarr_v2, "x")
        measure_loader(root / "raw", epochs=3 if args.quick else 2)
        for codec in ("raw", "jpeg"):
            stored = sum(p.stat().st_size for p in (root / codec).rglob("*") if p.is_file())
            files = sum(p.is_file() for p in EpisodeStore(root / codec).episode(0).path.rglob("*"))
            emit(f"store/{codec}/bytes_per_frame", stored / frames, "bytes", files_per_episode=files)


if __name__ == "__main__":
    main()
