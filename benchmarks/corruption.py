"""Injected corruptions of a dataset that `robo-rl data validate` finds.

    python benchmarks/corruption.py

Each kind of corruption is injected several times at random places into a copy of a valid dataset of 6
episodes (a state, two cameras, stamps; raw and JPEG in turn). It counts as found if a fault names the
damaged episode, or the dataset where the damage is not in an episode. `corruption/kinds` is the number
of kinds, `corruption/found` the number of those found at every place; `corruption/<kind>` the fraction
of places. The clean dataset must have no fault.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import emit, parser

from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.episodes.rewrite import rewrite_arrays
from robo_rl.data.episodes.schema import Codec
from robo_rl.data.store import DatasetWriter, Episode, EpisodeStore
from robo_rl.data.validate import validate

EPISODES, FRAMES = 6, 24
ENV = EnvSpec(
    "benchmark/corruption",
    {
        "state": ArraySpec((4,)),
        "image.front": ArraySpec((24, 32, 3), "uint8"),
        "image.wrist": ArraySpec((16, 16, 3), "uint8"),
    },
    ActionSpec((-1.0, -1.0), (1.0, 1.0)),
    FRAMES,
    20.0,
)
Injection = Callable[[Episode, np.random.Generator], object]


def write(path: Path, codec: Codec) -> Path:
    """A valid dataset, in which everything changes from frame to frame."""
    rng, period_ns = np.random.default_rng(0), round(1e9 / ENV.control_hz)
    writer = DatasetWriter.create(path, ENV, image_codec=codec, min_free_bytes=0, durable=False)
    for seed in range(EPISODES):
        with writer.episode(seed=seed, task="insert the peg") as episode:
            for i in range(FRAMES):
                obs = {
                    key: rng.integers(0, 255, spec.shape).astype(np.uint8)
                    if spec.dtype == "uint8"
                    else rng.standard_normal(spec.shape).astype(np.float32)
                    for key, spec in ENV.obs.items()
                }
                start_ns = 10**18 + i * period_ns
                stamps = {"t_capture_ns": start_ns, "t_receive_ns": start_ns + 5_000_000}
                episode.add(
                    obs, rng.uniform(-1, 1, 2), stamps={**stamps, "t_command_ns": start_ns + 9_000_000}
                )
            episode.commit(success=seed % 2 == 0, final_obs=obs)
    writer.close()
    return path


def shards(episode: Episode) -> list[Path]:
    return sorted(path for path in episode.path.glob("*/c.*") if path.stat().st_size)


def flip(path: Path, at: int, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(data)


def flip_data(episode: Episode, rng: np.random.Generator) -> None:
    name = str(rng.choice(sorted(episode.meta.arrays)))
    array = episode.meta.arrays[name]
    size = int(np.prod(array.shape)) * np.dtype(array.dtype).itemsize
    path = next((episode.path / name).glob("c.*"))
    flip(path, int(rng.integers(size)), rng)


def edit(path: Path, **changes: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_array(episode: Episode, name: str, **changes: object) -> None:
    arrays = json.loads((episode.path / "episode.json").read_text())["arrays"]
    edit(episode.path / "episode.json", arrays={**arrays, name: {**arrays[name], **changes}})


def cut(path: Path, rng: np.random.Generator) -> None:
    path.write_bytes(path.read_bytes()[: int(rng.integers(path.stat().st_size))])


def change(episode: Episode, name: str, value: Callable[[np.ndarray], object]) -> None:
    """New values with matching checksums, as a faulty driver or sensor would have recorded them."""
    rows = np.array(episode.array(name))
    value(rows)
    rewrite_arrays(episode.path, episode.meta, {name: rows})


def other(episode: Episode) -> Path:
    return episode.path.with_name(f"{(episode.number + 1) % EPISODES:06d}")


def replace_episode(episode: Episode, _: np.random.Generator) -> None:
    shutil.rmtree(episode.path)
    shutil.copytree(other(episode), episode.path)


def set_row(name: str, value: object) -> Injection:
    return lambda e, rng: change(e, name, lambda rows: rows.__setitem__(int(rng.integers(e.frames)), value))


def stamp(column: int, shift_ns: int) -> Injection:
    def inject(episode: Episode, rng: np.random.Generator) -> None:
        at = int(rng.integers(2, episode.frames - 2))
        change(episode, "stamps_ns", lambda rows: rows.__setitem__((at, column), rows[at, column] + shift_ns))

    return inject


INJECTIONS: dict[str, Injection] = {
    "a bit of the data flips": flip_data,
    "a bit of an index flips": lambda e, rng: flip(shards(e)[int(rng.integers(len(shards(e))))], -1, rng),
    "a file of an array is cut off": lambda e, rng: cut(shards(e)[int(rng.integers(len(shards(e))))], rng),
    "a file of an array is gone": lambda e, rng: shards(e)[int(rng.integers(len(shards(e))))].unlink(),
    "a folder of an array is gone": lambda e, rng: shutil.rmtree(
        e.path / str(rng.choice(sorted(e.meta.arrays)))
    ),
    "episode.json is cut off": lambda e, rng: cut(e.path / "episode.json", rng),
    "episode.json is gone": lambda e, _: (e.path / "episode.json").unlink(),
    "frames are overstated": lambda e, rng: edit(
        e.path / "episode.json", frames=FRAMES + 1 + int(rng.integers(9))
    ),
    "the episode is empty": lambda e, _: edit(e.path / "episode.json", frames=0),
    "rows are missing in one array": lambda e, rng: edit_array(
        e, "reward", shape=[int(rng.integers(1, FRAMES))]
    ),
    "an array has another type": lambda e, _: edit_array(e, "state", dtype="float64"),
    "rows have another shape": lambda e, _: edit_array(e, "action", shape=[FRAMES, 3]),
    "zarr.json of an array is cut off": lambda e, rng: cut(e.path / "action" / "zarr.json", rng),
    "zarr.json of an array lies": lambda e, _: edit(e.path / "state" / "zarr.json", data_type="float64"),
    "zarr.json of the episode is gone": lambda e, _: (e.path / "zarr.json").unlink(),
    "a state is not a number": set_row("state", np.nan),
    "an action is infinite": set_row("action", np.inf),
    "an action exceeds its limits": set_row("action", 1.5),
    "a time stamp goes back": stamp(0, -(10**9)),
    "a frame is received before its capture": stamp(1, -20_000_000),
    "commands run at another rate": lambda e, _: change(
        e, "stamps_ns", lambda rows: rows.__setitem__(slice(None), rows[0] + 2 * (rows - rows[0]))
    ),
    "a camera is frozen": lambda e, _: change(
        e, "image.front", lambda rows: rows.__setitem__(slice(2, 20), rows[1])
    ),
    "an episode is there twice": replace_episode,
    "an episode is gone": lambda e, _: shutil.rmtree(e.path),
    "a foreign file lies among the episodes": lambda e, _: (e.path.parent / "notes.txt").write_text("x"),
}
RAW_ONLY = ("a camera is frozen",)


def is_found(path: Path, number: int) -> bool:
    return any(fault.episode in (number, None) for fault in validate(path))


def main() -> None:
    args = parser(__doc__ or "").parse_args()
    places, rng, found = (2 if args.quick else 20), np.random.default_rng(1), 0
    with TemporaryDirectory() as folder:
        root = Path(folder)
        clean = {codec: write(root / codec, codec) for codec in ("raw", "jpeg")}
        alarms = [str(fault) for path in clean.values() for fault in validate(path)]
        print(*alarms, sep="\n", file=sys.stderr, end="")
        for name, inject in INJECTIONS.items():
            hits = 0
            for i in range(places):
                source = clean["raw" if i % 2 == 0 or name in RAW_ONLY else "jpeg"]
                copy = Path(shutil.copytree(source, root / "copy"))
                number = int(rng.integers(1, EPISODES - 1))
                inject(EpisodeStore(copy).episode(number), rng)
                hits += is_found(copy, number)
                shutil.rmtree(copy)
            emit(f"corruption/{name.replace(' ', '_')}", hits / places, "fraction", places=places)
            found += hits == places
    emit("corruption/kinds", len(INJECTIONS), "kinds", places=places)
    emit("corruption/found", found, "kinds", places=places)
    emit("corruption/false_alarms", len(alarms), "faults")


if __name__ == "__main__":
    main()
