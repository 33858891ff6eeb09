"""`robo-rl vision`: train a student that hovers by its camera, from a teacher with the exact state."""

from __future__ import annotations

from pathlib import Path

import torch

from policies.flight.policy import FlightPolicy
from policies.saved_files import POLICY_FILE
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.text.commands import command
from robo_rl.flight.fly.table import print_table
from robo_rl.flight.vision.report import write_outputs
from robo_rl.flight.vision.runs import (
    baseline_trials,
    load_teacher,
    train_students,
    vision_setup,
    with_craft_of,
)
from robo_rl.runs.run_dir import RunDir
from sim.engines.bullet.client import load_pybullet
from sim.flight.bullet.vision import steps_per_picture
from sim.tasks.flight.hover import HoverTask


def main(config: VisionConfig) -> int:
    """Train teacher and students, measure them on the same starts, and write table, plots, video and
    bundle.
    """
    load_pybullet()  # a missing package stops the run before the work
    torch.set_num_threads(1)
    steps_per_picture(config.camera_hz, HoverTask().dt_s)
    given = None if config.teacher is None else load_teacher(config, Path(config.out))
    with RunDir.create(config.out, config, resume=config.resume, overwrite=config.overwrite) as run:
        teacher = given or load_teacher(config, run.path)
        try:
            _with_students(config, teacher, run)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(left_in(run.path)) from stop
    return 0


def left_in(run: Path) -> str:
    """Clause on the students of a stopped run. Each is saved before it is measured."""
    saved = [file.parent.name for file in sorted(run.glob(f"seed*/{POLICY_FILE}"))]
    held = f"{run} has the students {', '.join(saved)}" if saved else f"no student is saved in {run}"
    return f"{held}; the same command with resume=true trains all of them again"


def _with_students(config: VisionConfig, teacher: tuple[FlightPolicy, FlyConfig], run: RunDir) -> None:
    config = with_craft_of(config, teacher[1])
    setup = vision_setup(config, teacher)
    rows, trials = train_students(config, setup, run)
    for row, trial in baseline_trials(config, setup, run):
        rows.append(row)
        trials[row.name] = trial
    print_table(config, rows)  # first: a full disk costs no measurement
    print(write_outputs(config, setup, run, rows, trials))
    print(f"Next:   {command('evaluate', policy=run.path, num_envs=10)}")
