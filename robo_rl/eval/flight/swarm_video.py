"""Video of a recorded swarm in real time, obliquely from above: room, cylinders, shadows, trails, goals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.flight.drawing import Canvas, fit_camera, put_text, rgb, rotation
from robo_rl.eval.flight.swarm_log import SwarmLog
from robo_rl.eval.plots import GRID, INK, MUTED, PALETTE
from robo_rl.eval.video import Frame, VideoWriter

TRAIL_S = 2.0
CYLINDER_M = 1.2  # drawn height: full cylinders would hide the drones behind them
_AZIMUTH_DEG, _ELEVATION_DEG = -60.0, 52.0
_DRAWN_ARM_M = 0.11  # aircraft of a few centimetres would be invisible in a room of ten metres
_CIRCLE = np.stack(
    [np.cos(a := np.linspace(0.0, 2.0 * np.pi, 28, endpoint=False)), np.sin(a), 0.0 * a], axis=-1
)
_ROTORS = np.array([[1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 1, 0]]) / np.sqrt(2.0)


class SwarmScene:
    """One recorded world, a camera that covers the room, and a frame for any sample."""

    def __init__(self, log: SwarmLog, size: tuple[int, int] = (720, 560)) -> None:
        self.log = log
        wide, deep, _ = log.room_m
        top = max(CYLINDER_M, float(max(log.position_m[..., 2].max(), log.goal_m[..., 2].max())))
        corners = np.array(
            [[x * wide, y * deep, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, top)]
        )
        self.camera = fit_camera(corners, size, _AZIMUTH_DEG, _ELEVATION_DEG, fill=(0.96, 0.92))
        self._ground = Canvas(size)
        self._draw_floor()
        order = np.argsort(-self.camera.project(np.c_[log.cylinders_m, np.zeros(len(log.cylinders_m))])[1])
        for x, y in log.cylinders_m[order]:
            self._draw_cylinder(np.array([x, y, 0.0]))

    def frame(self, index: int) -> Frame:
        """Image at this sample."""
        canvas, log = self._ground.copy(), self.log
        for goal in np.unique(log.goal_m[index].round(4), axis=0):
            self._draw_goal(canvas, goal)
        for i in range(len(log.failed)):
            self._draw_shadow(canvas, log.position_m[index, i])
        for i in np.argsort(-self.camera.project(log.position_m[index])[1]):
            self._draw_trail(canvas, int(i), index)
            self._draw_craft(canvas, int(i), index)
        frame = canvas.finished()
        self._write(frame, index)
        return frame

    def _line(
        self, canvas: Canvas, points: Float[ndarray, "k 3"], colour: str, strength: float, px: float
    ) -> None:
        canvas.line(self.camera.project(points)[0], rgb(colour, strength), px)

    def _draw_floor(self) -> None:
        wide, deep, _ = self.log.room_m
        for at in np.arange(-wide / 2, wide / 2 + 0.5):
            self._line(self._ground, np.array([[at, -deep / 2, 0.0], [at, deep / 2, 0.0]]), GRID, 0.8, 0.8)
        for at in np.arange(-deep / 2, deep / 2 + 0.5):
            self._line(self._ground, np.array([[-wide / 2, at, 0.0], [wide / 2, at, 0.0]]), GRID, 0.8, 0.8)

    def _draw_cylinder(self, foot: Float[ndarray, " 3"]) -> None:
        ring = foot + self.log.cylinder_radius_m * _CIRCLE
        top = ring + np.array([0.0, 0.0, CYLINDER_M])
        for i in range(len(_CIRCLE)):
            j = (i + 1) % len(_CIRCLE)
            wall = self.camera.project(np.stack([ring[i], ring[j], top[j], top[i]]))[0]
            self._ground.area(wall, rgb(MUTED, 0.45), 1.0)
        lid = self.camera.project(top)[0]
        self._ground.area(lid, rgb(MUTED, 0.3), 1.0)
        self._ground.line(lid, rgb(MUTED, 0.8), 0.8, closed=True)

    def _draw_goal(self, canvas: Canvas, goal: Float[ndarray, " 3"]) -> None:
        self._line(canvas, np.stack([goal * (1.0, 1.0, 0.0), goal]), MUTED, 0.5, 0.8)
        pixel = self.camera.project(goal)[0]
        for radius, colour in ((5.0, INK), (3.6, "white"), (1.8, INK)):
            canvas.area(pixel + radius * _CIRCLE[:, :2], rgb(colour), 1.0)

    def _draw_shadow(self, canvas: Canvas, position: Float[ndarray, " 3"]) -> None:
        below = position * (1.0, 1.0, 0.0)
        canvas.area(self.camera.project(below + 1.3 * _DRAWN_ARM_M * _CIRCLE)[0], rgb(INK), 0.12)

    def _draw_trail(self, canvas: Canvas, drone: int, index: int) -> None:
        log = self.log
        first = int(np.searchsorted(log.time_s, log.time_s[index] - TRAIL_S))
        pixels = self.camera.project(log.position_m[first : index + 1, drone])[0]
        for at in range(0, len(pixels) - 1, 3):
            fresh = at / max(1, len(pixels) - 1)
            canvas.line(
                pixels[at : at + 4], rgb(PALETTE[drone % len(PALETTE)], 0.15 + 0.7 * fresh), 0.8 + fresh
            )

    def _draw_craft(self, canvas: Canvas, drone: int, index: int) -> None:
        position, turn = self.log.position_m[index, drone], rotation(self.log.quat_wxyz[index, drone])
        for rotor in _ROTORS:
            tip = rotor @ turn.T * _DRAWN_ARM_M
            self._line(canvas, np.stack([position, position + tip]), INK, 1.0, 1.2)
            disc = position + tip + 0.6 * _DRAWN_ARM_M * (_CIRCLE @ turn.T)
            canvas.area(self.camera.project(disc)[0], rgb(PALETTE[drone % len(PALETTE)]), 0.8)

    def _write(self, frame: Frame, index: int) -> None:
        height, width = frame.shape[:2]
        log = self.log
        near = np.linalg.norm(log.position_m[index] - log.goal_m[index], axis=-1) < 0.5
        put_text(frame, log.label, (16, 28), 15.0, rgb(INK), bold=True)
        put_text(frame, f"{log.time_s[index]:.1f} s", (width - 16, 28), 15.0, rgb(INK), bold=True, right=True)
        put_text(frame, f"{int(near.sum())} of {len(near)} near their goals", (16, 47), 11.0, rgb(MUTED))
        note = "real time · grid 1 m · crafts drawn larger, cylinders cut off"
        put_text(frame, note, (16, height - 12), 11.0, rgb(MUTED))


def write_swarm_video(
    path: Path, logs: list[SwarmLog], fps: float = 25.0, size: tuple[int, int] = (720, 560)
) -> Path:
    """Film the worlds one after another as MP4. Raises ConfigError without a world or for an odd size."""
    if not logs or fps <= 0 or size[0] % 2 or size[1] % 2 or min(size) < 64:
        raise ConfigError(
            f"A video of {len(logs)} worlds with fps = {fps:g}, size = {size} cannot be made: at least one "
            "world, one frame per second, and even sides of 64 pixels or more."
        )
    with VideoWriter(path, fps) as writer:
        for log in logs:
            scene = SwarmScene(log, size)
            for i in range(int((log.time_s[-1] - log.time_s[0]) * fps + 1e-6) + 1):
                at = log.time_s[0] + i / fps
                writer.add(scene.frame(min(len(log.time_s) - 1, int(np.searchsorted(log.time_s, at - 1e-6)))))
    return path
