"""Video of a flight by PyBullet's renderer, with the drone's camera image in the corner."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.video import Frame, VideoWriter, caption
from robo_rl.flight.flight_run import FlightRun
from robo_rl.runs.progress import progress
from sim.engines.bullet.effects import AirEffects, equipped
from sim.engines.bullet.motion import Motion
from sim.engines.bullet.world import BulletWorld
from sim.flight.bullet.flights import floor_of
from sim.flight.trial import Trial

FPS = 25
_FROM = np.array([-0.8, -0.75, 0.45])  # camera position, in spans of the flight
_INSET = 0.3  # fraction of the width


def check_size(size: Sequence[int]) -> tuple[int, int]:
    """(width, height) in pixels. Raises ConfigError for sides that a video cannot have."""
    if len(size) != 2 or min(size) < 64 or any(side % 4 for side in size):
        raise ConfigError(
            f"size={list(size)} cannot be filmed: give two sides of 64 pixels or more, multiples of 4."
        )
    return size[0], size[1]


def film(
    path: Path, flown: FlightRun, scene: AirEffects, trial: Trial, size: tuple[int, int] = (640, 480)
) -> Path:
    """Film drone 0 of a trial in real time until it leaves the box, from the recorded poses."""
    width, height = check_size(size)
    poses = poses_of(trial)
    others = 1 if scene.above_m is None else 2
    world = BulletWorld(
        equipped(flown.craft, scene),
        others,
        1.0 / 240.0,
        floor_m=floor_of(flown.task, scene),
        per_arena=others,
    )
    middle, eye = viewpoint(poses.position_m)
    every = max(1, round(1.0 / (FPS * flown.task.dt_s)))
    steps = range(0, poses.position_m.shape[1], every)
    with (
        VideoWriter(path, 1.0 / (every * flown.task.dt_s)) as writer,
        progress(len(steps), "film", "frame") as bar,
    ):
        for i in steps:
            world.place(_with_other(poses, i, scene.above_m))
            outside = world.look(0, eye, middle, np.array([0.0, 0.0, 1.0]), width, height).rgb
            onboard = world.camera(0, round(_INSET * width), round(_INSET * height)).rgb
            frame = inset(outside, onboard)
            writer.add(caption(frame, f"PyBullet | onboard camera in the corner | {flown.craft.name}",
                               f"{(i + 1) * flown.task.dt_s:.2f} s", None))  # fmt: skip
            bar.update(1)
    world.close()
    return path


def poses_of(trial: Trial) -> Motion:
    """Motion of drone 0, one column per step, until it left the box."""
    position, quat = (value[:, :, 0].double().numpy().T for value in (trial.position_m, trial.quat_wxyz))
    stayed = np.isfinite(position).all(0)
    return Motion.at_rest(position[:, stayed], quat[:, stayed])


def _with_other(poses: Motion, i: int, above_m: float | None) -> Motion:
    now = poses.columns(slice(i, i + 1))
    if above_m is None:
        return now
    other = Motion.at_rest(np.array([[0.0], [0.0], [above_m]]))
    return Motion(*(np.concatenate(both, axis=-1) for both in zip(now, other, strict=True)))


def viewpoint(position_m: Float[ndarray, "3 t"]) -> tuple[ndarray, ndarray]:
    """(target, camera position) [m] that show the entire flight."""
    low, high = position_m.min(1), position_m.max(1)
    middle, span = (low + high) / 2.0, max(float((high - low).max()), 0.4)
    return middle, middle + 1.3 * span * _FROM


def inset(frame: Frame, small: Frame) -> Frame:
    frame = frame.copy()
    height, width = small.shape[:2]
    frame[8 : 8 + height, -8 - width : -8] = small
    for edge in (frame[8 : 8 + height, -9 - width], frame[8 : 8 + height, -8]):
        edge[:] = 40
    for edge in (frame[7, -9 - width : -7], frame[8 + height, -9 - width : -7]):
        edge[:] = 40
    return frame
