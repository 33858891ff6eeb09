"""Hovering by an onboard camera in PyBullet: students of several seeds, their teacher, and a blind student.

    python benchmarks/vision.py --seeds 3

As `robo-rl vision` does. Names: vision/<pilot>/held, the share of starts whose mean distance over the last 2
s is below 10 cm, with its Wilson interval; vision/<pilot>/error_mm of those that stayed;
vision/camera/<px>px/per_cpu_s, images rendered per CPU-second. Pilots: policy (all seeds together), teacher
(with the true state), blind (the first student with a black image).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import cpu_seconds, emit, parser

from robo_rl.conf.vision import VisionConfig
from robo_rl.eval.stats import SuccessRate
from robo_rl.flight.rows import FlyRow
from robo_rl.flight.vision.runs import baseline_trials, load_teacher, train_students, vision_setup
from robo_rl.runs.run_dir import RunDir
from sim.engines.bullet.floor_view import FloorCamera, FloorView

SIDES_PX = (32, 48, 64, 96)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--seeds", type=int, default=3, help="students, from seed 0, of one teacher")
    options.add_argument(
        "--teacher", help="a run of robo-rl fly task=hover integral=false; none: trained first"
    )
    options.add_argument("--camera-only", action="store_true", help="measure the renderer only")
    args = options.parse_args()
    torch.set_num_threads(1)
    for px in SIDES_PX:
        camera(px, 20 if args.quick else 200)
    if args.camera_only:
        return
    small = {
        "flights": 6,
        "rounds": 2,
        "shots": 1000,
        "eye_updates": 50,
        "eval_episodes": 10,
        "teacher_updates": 10,
        "eager": True,
    }
    given = small | {"seeds": 1} if args.quick else {"seeds": args.seeds}
    with tempfile.TemporaryDirectory() as folder:
        config = VisionConfig(teacher=args.teacher, out=str(Path(folder) / "run"), **given)
        run = RunDir.create(config.out, config)
        setup = vision_setup(config, load_teacher(config, run.path))
        rows, _ = train_students(config, setup, run)
        tell("policy", rows)
        for other, _ in baseline_trials(config, setup, run):
            tell(other.name, [other])


def camera(px: int, pictures: int) -> None:
    view, turn = FloorView(FloorCamera(px), -1.0), np.repeat(np.eye(3)[:, :, None], pictures, 2)
    place = np.random.default_rng(0).uniform(-0.3, 0.3, (3, pictures))
    start_s = cpu_seconds()
    view.look(place, turn, np.ones(pictures, dtype=bool))
    emit(f"vision/camera/{px}px/per_cpu_s", round(pictures / (cpu_seconds() - start_s)), "pictures/cpu-s")
    view.close()


def tell(name: str, rows: list[FlyRow]) -> None:
    total = SuccessRate(sum(item.held.k for item in rows), sum(item.held.n for item in rows))
    cost = round(fmean(item.train_cpu_s for item in rows), 1)
    emit(f"vision/{name}/held", total.rate, "share", k=total.k, n=total.n, wilson95=list(total.wilson()),
         per_seed=[item.held.rate for item in rows], **({"train_cpu_s": cost} if cost else {}))  # fmt: skip
    errors = [1000.0 * item.position_error_m for item in rows if item.position_error_m is not None]
    if errors:
        emit(
            f"vision/{name}/error_mm",
            round(fmean(errors), 1),
            "mm",
            per_seed=[round(error, 1) for error in errors],
        )


if __name__ == "__main__":
    main()
