"""Video of recorded flights in real time: perspective, ground, shadows, trails.

It needs no simulator, so real flights are filmed like simulated ones. Aircraft of a few centimetres would be
a few pixels wide: they are enlarged, and the caption states the factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float
from robo_rl.eval.flight.drawing import WHITE, Canvas, fit_camera, put_text, rgb, rotation
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.gates import GateFrame
from robo_rl.eval.plots import GRID, INK, MUTED, PALETTE
from robo_rl.eval.video import Frame, VideoWriter

ARM_M = 0.04  # centre of a Crazyflie to a rotor
TRAIL_S = 1.2
_AZIMUTH_DEG, _ELEVATION_DEG = -65.0, 24.0
_DRAWN_ARM = 0.09  # drawn arm length as a fraction of the scene's half-width
_PROP, _RISE, _HUB = 0.58, 0.14, 0.3  # rotor radius, rotor height over the arms, body size; in arm lengths
_CIRCLE = np.stack(
    [np.cos(a := np.linspace(0.0, 2.0 * np.pi, 40, endpoint=False)), np.sin(a), 0.0 * a], axis=-1
)
_ROTORS = np.array([[1, -1, 0], [-1, -1, 0], [-1, 1, 0], [1, 1, 0]]) / np.sqrt(2.0)  # in the order of the log
_FRONT = (0, 3)


class FlightScene:
    """Some drones of a log, a camera that covers their entire flight, and a frame for any time; see
    `write_flight_video`.
    """

    def __init__(
        self, log: FlightLog, drones: int = 6, size: tuple[int, int] = (640, 480), arm_m: float = ARM_M,
        floor_m: float | None = None, spacing_m: float | None = None, gates: Sequence[GateFrame] = (),
    ) -> None:  # fmt: skip
        if spacing_m is None:
            shared = log.goal_m.ndim == 1
            spacing_m = (
                _round_length(2.0 * _reach(_points(_side_by_side(log, drones, 0.0)))) if shared else 0.0
            )
        self.log, self.total = _side_by_side(log, drones, spacing_m), log.num_drones
        points = np.concatenate([_points(self.log), *(gate.corners(gate.outer_m) for gate in gates)])
        low, high = points.min(0), points.max(0)
        self.middle, self.reach_m = (low + high) / 2.0, max(_reach(points), 4.0 * arm_m)
        # Gates give a sense of depth, so aircraft can be drawn smaller.
        self.arm_m = max(arm_m, (0.6 if gates else 1.0) * _DRAWN_ARM * self.reach_m)
        self.floor_m = _floor(float(low[2]), self.arm_m, self.reach_m) if floor_m is None else floor_m
        self.grid_m = _round_length(self.reach_m / 3.0)
        self.caption = " · ".join(self._facts(self.arm_m / arm_m, spacing_m))
        around = 1.6 * self.arm_m * np.array([[x, y, 0.0] for x in (-1, 1) for y in (-1, 1)])
        shadows = points * (1.0, 1.0, 0.0) + (0.0, 0.0, self.floor_m)
        seen = np.concatenate([part + corner for part in (points, shadows) for corner in around])
        self.camera = fit_camera(seen, size, _AZIMUTH_DEG, _ELEVATION_DEG)
        # goal trajectories, without duplicates
        ways = np.unique(self.log.goals().round(6), axis=1).swapaxes(0, 1)
        self._ways = [
            way[np.isfinite(way).all(-1)]
            for way in ways
            if (np.nan_to_num(np.diff(way, axis=0)) != 0.0).any()
        ]
        self._flying, self._ground = self.log.flying(), Canvas(size)
        self._draw_ground(self._ground)
        self._gates = gates
        for gate in gates:
            self._draw_gate(self._ground, gate)

    def _facts(self, enlarged: float, spacing_m: float) -> list[str]:
        """Caption texts on scale and spacing."""
        facts = ["real time", f"grid {100 * self.grid_m:g} cm"]
        facts.append(
            f"crafts drawn {enlarged:.1f} times their size" if enlarged > 1.05 else "crafts to scale"
        )
        if spacing_m and self.log.num_drones > 1:
            facts.append(f"drawn {100 * spacing_m:g} cm apart")
        return [*facts, "colour marks the front"]

    def frame(self, time_s: float) -> Frame:
        """Image at this time of the log. A cross marks the last position of drones that have ended."""
        canvas, log = self._ground.copy(), self.log
        position, quat, goal = log.pose_at(time_s)
        drones = [
            int(i) for i in np.argsort(-self.camera.project(position)[1])
        ]  # the nearest last, over all others
        flying = [i for i in drones if np.isfinite(position[i]).all() and np.isfinite(quat[i]).all()]
        for i in flying:
            self._draw_shadow(canvas, position[i])
        for i in drones:
            self._draw_trail(canvas, i, time_s, position[i] if i in flying else None)
        for way in [] if self._gates else self._ways:
            self._line(canvas, way, MUTED, 0.5, 1.0)
        goals = goal if not self._gates else goal[:0]  # a gate replaces the goal mark
        for point in np.unique(goals[np.isfinite(goals).all(-1)].round(6), axis=0):
            self._draw_goal(canvas, point)
        for i in flying:
            self._draw_craft(canvas, position[i], rotation(quat[i]), PALETTE[i % len(PALETTE)])
        frame = canvas.finished()
        self._write(frame, time_s, position[flying] - goal[flying])
        return frame

    def _line(
        self, canvas: Canvas, points: Float[ndarray, "k 3"], colour: str, strength: float, width_px: float
    ) -> None:
        canvas.line(self.camera.project(points)[0], rgb(colour, strength), width_px)

    def _draw_ground(self, canvas: Canvas) -> None:
        """Round grid that fades outwards, and space for the caption below it."""
        step, reach = self.grid_m, 1.7 * self.reach_m
        middle = np.round(self.middle[:2] / step) * step
        ticks = np.arange(-np.ceil(reach / step), np.ceil(reach / step) + 1) * step
        for tick in ticks:
            for start, end in pairwise(np.linspace(-reach, reach, 61)):
                strength = 1.0 - np.hypot(tick, 0.5 * (start + end)) / reach
                if strength > 0.0:
                    for way in ([[start, tick], [end, tick]], [[tick, start], [tick, end]]):
                        flat = np.array(way) + middle
                        points = np.column_stack([flat, [self.floor_m] * 2])
                        self._line(canvas, points, "#a1a1aa", float(strength), 0.8)
        width, height = self.camera.size
        for row in np.linspace(0.88, 0.95, 12) * height:  # background of the caption
            canvas.area(np.array([[0.0, row], [width, row], [width, height], [0.0, height]]), WHITE, 0.25)

    def _draw_shadow(self, canvas: Canvas, position: Float[ndarray, " 3"]) -> None:
        below = np.array([position[0], position[1], self.floor_m])
        self._line(canvas, np.stack([below, position]), GRID, 1.0, 0.8)
        softness = 1.0 + (position[2] - self.floor_m) / (2.0 * self.reach_m)
        for size in np.linspace(1.8, 0.4, 8):
            outline = below + size * softness * self.arm_m * _CIRCLE
            canvas.area(self.camera.project(outline)[0], rgb(INK), 0.025 / softness)

    def _draw_goal(self, canvas: Canvas, goal: Float[ndarray, " 3"]) -> None:
        below = np.array([goal[0], goal[1], self.floor_m])
        self._line(canvas, np.stack([below, goal]), MUTED, 0.7, 1.0)
        pixel = self.camera.project(goal)[0]
        for radius, colour, alpha in ((7.0, rgb(INK), 0.9), (5.0, rgb("white"), 1.0), (2.5, rgb(INK), 0.9)):
            canvas.area(pixel + radius * _CIRCLE[:, :2], colour, alpha)

    def _draw_gate(self, canvas: Canvas, gate: GateFrame) -> None:
        """Gate frame, posts and shadow; drawn first, so it never hides an aircraft."""
        below = np.array([gate.position_m[0], gate.position_m[1], self.floor_m])
        feet = gate.corners(gate.outer_m)[:2] * (1.0, 1.0, 0.0) + (0.0, 0.0, self.floor_m)
        self._line(canvas, feet, MUTED, 0.5, 3.0)
        self._line(canvas, np.stack([below, gate.corners(gate.outer_m)[:2].mean(0)]), MUTED, 0.6, 1.5)
        for bar in gate.bars():
            outline = self.camera.project(bar)[0]
            canvas.area(outline, rgb(MUTED, 0.7), 0.85)
            canvas.line(outline, rgb(INK, 0.5), 0.7, closed=True)

    def _draw_trail(
        self, canvas: Canvas, drone: int, time_s: float, now: Float[ndarray, " 3"] | None
    ) -> None:
        """Trail of the last TRAIL_S seconds; of a drone that has ended only the cross remains."""
        log = self.log
        flown = (log.time_s <= time_s) & self._flying[:, drone]
        past = flown & (log.time_s >= time_s - TRAIL_S)
        points, ages = log.position_m[past, drone], (time_s - log.time_s[past]) / TRAIL_S
        if now is not None:
            points, ages = np.concatenate([points, now[None]]), np.append(ages, 0.0)
        pixels, colour = self.camera.project(points)[0], PALETTE[drone % len(PALETTE)]
        step = 1 + len(pixels) // 32  # a few samples share a shade
        for first in range(0, len(pixels) - 1, step):
            fresh = 1.0 - float(ages[min(first + step, len(ages) - 1)])
            canvas.line(pixels[first : first + step + 1], rgb(colour, 0.8 * fresh), 0.8 + 1.6 * fresh)
        if now is None and flown.any():
            last = self.camera.project(log.position_m[flown, drone][-1])[0]
            for way in np.array([[4.0, 4.0], [4.0, -4.0]]):
                canvas.line(last + np.stack([-way, way]), rgb(colour), 1.8)

    def _draw_craft(
        self, canvas: Canvas, position: Float[ndarray, " 3"], turn: Float[ndarray, "3 3"], colour: str
    ) -> None:
        def seen(body: Float[ndarray, "k 3"]) -> Float[ndarray, "k 2"]:
            return self.camera.project(position + self.arm_m * body @ turn.T)[0]

        px = self.camera.focal_px * self.arm_m / float(self.camera.project(position)[1])  # length of one arm
        discs = [_ROTORS[i] + (0.0, 0.0, _RISE) + _PROP * _CIRCLE for i in range(4)]
        from_above = float((self.camera.eye_m - position) @ turn[:, 2]) > 0.0
        if not from_above:
            self._draw_discs(canvas, [seen(disc) for disc in discs], colour)
        for i in range(4):
            canvas.line(seen(np.stack([0.0 * _ROTORS[i], _ROTORS[i]])), rgb(INK), 0.16 * px)
            canvas.line(
                seen(_ROTORS[i] + np.array([[0.0, 0.0, 0.0], [0.0, 0.0, _RISE]])), rgb(INK), 0.12 * px
            )
        canvas.area(seen(_HUB * _CIRCLE + (0.0, 0.0, 0.05)), rgb(INK), 1.0)
        if from_above:
            self._draw_discs(canvas, [seen(disc) for disc in discs], colour)

    def _draw_discs(self, canvas: Canvas, outlines: list[Float[ndarray, "k 2"]], colour: str) -> None:
        for i, outline in enumerate(outlines):
            shade = colour if i in _FRONT else MUTED
            canvas.area(outline, rgb(shade), 0.7 if i in _FRONT else 0.3)
            canvas.line(outline, rgb(shade), 1.1, closed=True)

    def _write(self, frame: Frame, time_s: float, error_m: Float[ndarray, "k 3"]) -> None:
        height, width = frame.shape[:2]
        unit, num = height / 480, self.log.num_drones

        def write(text: str, line_px: float, large: bool = False, right: bool = False) -> None:
            at = round(width - 16 * unit if right else 16 * unit), round(line_px * unit)
            letters_px, colour = (15.0, INK) if large else (11.0, MUTED)
            put_text(frame, text, at, letters_px * unit, rgb(colour), bold=large and not right, right=right)

        write(self.log.label, 28.0, large=True)
        write(f"{num} of {self.total} drones" if self.total > 1 else "1 drone", 47.0)
        write(f"{time_s - self.log.time_s[0]:.2f} s", 28.0, large=True, right=True)
        if len(error_m) and not self._gates:
            middle_cm = 100.0 * float(np.median(np.linalg.norm(error_m, axis=-1)))
            write(f"{'median ' if num > 1 else ''}error {middle_cm:.1f} cm", 47.0, right=True)
        write(self.caption, 466.0)


def write_flight_video(
    path: Path,
    log: FlightLog,
    fps: float = 30.0,
    drones: int = 6,
    size: tuple[int, int] = (640, 480),
    arm_m: float = ARM_M,
    floor_m: float | None = None,
    spacing_m: float | None = None,
    gates: Sequence[GateFrame] = (),
    most_s: float | None = None,
    moved: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """Film the first `drones` drones of a log in real time as MP4; one frame every 1 / fps seconds, including
    the last.

    size: width and height, even. arm_m: centre of the real aircraft to a rotor; the caption states its
    enlargement. floor_m: height of the ground; by default 0 if the flight comes near it, else just below the
    flight. spacing_m: distance by which the drones are moved apart; None moves apart only drones with one
    shared fixed goal, which cannot have flown together. gates: drawn instead of goals. most_s: longest
    duration of the video. moved: called after each frame with (frames done, frames).
    """
    if drones < 1 or fps <= 0 or size[0] % 2 or size[1] % 2 or min(size) < 64:
        raise ConfigError(
            f"A video with drones = {drones}, fps = {fps:g}, size = {size} cannot be made: at least one "
            "drone, one frame per second, and even sides of 64 pixels or more."
        )
    scene = FlightScene(log, drones, size, arm_m, floor_m, spacing_m, gates)
    length_s = log.duration_s if most_s is None else min(most_s, log.duration_s)
    with VideoWriter(path, fps, crf=18) as writer:  # high quality for thin lines
        frames = int(length_s * fps + 1e-6) + 1
        for i in range(frames):
            writer.add(scene.frame(float(log.time_s[0]) + i / fps))
            moved(i + 1, frames)
    return path


def _side_by_side(log: FlightLog, drones: int, spacing_m: float) -> FlightLog:
    """The first drones, moved apart in a grid."""
    num = min(drones, log.num_drones)
    columns = int(np.ceil(np.sqrt(num)))
    places = (
        np.stack([np.arange(num) % columns, np.arange(num) // columns, np.zeros(num)], axis=-1) * spacing_m
    )
    return replace(
        log,
        position_m=log.position_m[:, :num] + places,
        goal_m=log.goals()[:, :num] + places,
        quat_wxyz=log.quat_wxyz[:, :num].astype(float),
        velocity_m_s=log.velocity_m_s[:, :num],
        command=log.command[:, :num],
    )


def _points(log: FlightLog) -> Float[ndarray, "k 3"]:
    """All points that the camera has to cover."""
    points = np.concatenate([log.position_m, log.goals()]).reshape(-1, 3)
    seen: ndarray = points[np.isfinite(points).all(-1)]
    return seen


def _reach(points_m: Float[ndarray, "k 3"]) -> float:
    """Half of the longest side of the points' bounding box; at least a small positive number."""
    return max(float((points_m.max(0) - points_m.min(0)).max()) / 2.0, 1e-2)


def _floor(lowest_m: float, arm_m: float, reach_m: float) -> float:
    return 0.0 if 0.0 <= lowest_m < reach_m else lowest_m - max(2.0 * arm_m, 0.3 * reach_m)


def _round_length(metres: float) -> float:
    """The largest of 1, 2, 5, 10, 20 ... that is not longer."""
    decade = 10.0 ** np.floor(np.log10(metres))
    return float(max(step for step in (1.0, 2.0, 5.0) if step * decade <= metres * 1.0001) * decade)
