"""Pre-training from video: success of a policy from pictures that has few demonstrations, with and without.

    python benchmarks/video_values.py --seeds 5 --folder runs/video-values
    python benchmarks/video_values.py --task pick-place --demos 10 --videos 100

One seed is a run of the verbs, as a user types them. It collects few demonstrations, and more episodes with
another amount of noise on the expert, of which only pictures are read and failures are kept. It pre-trains an
encoder from both, and trains a flow policy from the demonstrations twice, with the same seed: `plain`, and
`video` with image.init=. Both are evaluated on the same 100 new episodes. --folder keeps what is finished,
and interrupted verbs continue.

Names: video_values/<task>/<plain or video>/success (mean over seeds), video_values/<task>/gain (difference in
points, with Student's interval over seeds), video_values/<task>/pretrain_cpu_s.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from common import cpu_seconds, emit, own_folder, parser, verb

from robo_rl.core.files.durable import read_json, write_json
from robo_rl.eval.stats import mean_over_seeds

TASKS = ("push", "pick-place", "assembly")
NETWORK = ("image.widths=[16,32,64]", "threads=1")
EVAL_SEED = 77  # of episodes that nothing else uses
COST_FILE = "cpu_s.json"


@dataclass(frozen=True)
class Size:
    """Length of one seed's run."""

    demos: int
    videos: int
    image_size: int = 64
    pretrain_steps: int = 10_000
    steps: int = 3000
    batch_size: int = 64
    episodes: int = 100


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--task", choices=TASKS, default="push", help="task of MetaWorld")
    options.add_argument("--demos", type=int, default=10, help="demonstrations")
    options.add_argument("--videos", type=int, default=50, help="further episodes, for pre-training alone")
    options.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    options.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="of both trainings")
    options.add_argument("--folder", type=Path, default=Path("runs/video-values"), help="kept runs")
    args = options.parse_args()
    size = Size(args.demos, args.videos)
    if args.quick:
        size = Size(2, 2, image_size=24, pretrain_steps=20, steps=20, batch_size=8, episodes=2)
    folder = own_folder(args.folder) / f"{args.task}-{args.demos}-{args.videos}"
    seeds = range(1 if args.quick else args.seeds)
    found = [one_seed(args.task, seed, size, folder / f"seed{seed}", args.device) for seed in seeds]
    about = {"demos": size.demos, "videos": size.videos, "episodes": size.episodes, "device": args.device}
    for name in ("plain", "video"):
        rates = [each[name] for each in found]
        prefix = f"video_values/{args.task}/{name}"
        emit(f"{prefix}/success", fmean(rates), "fraction", per_seed=rates, **about)
    gains = [100 * (each["video"] - each["plain"]) for each in found]
    more: dict[str, Any] = {"per_seed": gains}
    if len(gains) > 1:
        estimate = mean_over_seeds(gains)
        more["t95"] = [estimate.low, estimate.high]
    emit(f"video_values/{args.task}/gain", fmean(gains), "points", **more, **about)
    emit(f"video_values/{args.task}/pretrain_cpu_s", fmean(each["cpu_s"] for each in found), "cpu-s", **about)


def one_seed(task: str, seed: int, size: Size, folder: Path, device: str) -> dict[str, float]:
    """Success of `plain` and `video`, and CPU time of the pre-training."""
    env = f"metaworld/{task}-v3:cameras=corner3,image_size={size.image_size},state=robot"
    demos, videos, encoder = folder / "demos", folder / "videos", folder / "encoder"
    finished("collect", demos, env=env, episodes=size.demos, noise=0.1, seed=seed)
    finished("collect", videos, env=env, episodes=size.videos, noise=0.5, seed=1000 + seed, keep="all")
    training: dict[str, Any] = {"batch_size": size.batch_size, "seed": seed, "device": device}
    both = f"[{demos},{videos}]"
    cpu_s = finished("pretrain", encoder, *NETWORK, data=both, steps=size.pretrain_steps, **training)
    found = {"cpu_s": cpu_s}
    for name, words in (("plain", NETWORK), ("video", (*NETWORK, f"image.init={encoder}"))):
        run = folder / name
        finished("train", run, *words, data=demos, steps=size.steps, **training)
        found[name] = success(run, size)
    return found


def finished(name: str, out: Path, *words: str, **settings: Any) -> float:
    """Run a verb unless it has finished. Returns its CPU time, without that of earlier interrupted ones."""
    note = out / COST_FILE
    if not note.exists():
        if (out / "run.json").exists():
            settings["resume"] = True
        start_s = cpu_seconds()
        verb(name, *words, out=out, **settings)
        write_json(note, cpu_seconds() - start_s)
    return float(read_json(note))


def success(run: Path, size: Size) -> float:
    """Success rate of a run's policy; a result that exists is kept."""
    result = run / "success.json"
    if not result.exists():
        verb("evaluate", policy=run, episodes=size.episodes, seed=EVAL_SEED, noise=0, out=result)
    rate = read_json(result)["policy"]["rate"]
    return float(rate["k"] / rate["n"])


if __name__ == "__main__":
    main()
