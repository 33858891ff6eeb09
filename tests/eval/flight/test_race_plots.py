"""Plots of gates and paths: corners are correct, and all paths are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.flight_video import FlightScene
from robo_rl.eval.flight.gates import GateFrame
from robo_rl.eval.flight.race_plots import write_race_plots

GATE = GateFrame((1.0, 2.0, 1.5), 90.0, opening_m=0.6, outer_m=0.8)


def circle(num: int = 2) -> FlightLog:
    time = np.linspace(0.0, 3.0, 31)
    angle = 2.0 * time[:, None] + np.arange(num)
    position = np.stack([np.cos(angle), np.sin(angle), 1.0 + 0.0 * angle], axis=-1)
    velocity = 2.0 * np.stack([-np.sin(angle), np.cos(angle), 0.0 * angle], axis=-1)
    position[20:, -1], velocity[20:, -1] = np.nan, np.nan  # the last one ends early
    quat = np.broadcast_to([1.0, 0.0, 0.0, 0.0], (31, num, 4))
    return FlightLog(time, position, quat, velocity, np.full((31, num, 4), 0.5), np.zeros(3), "test")


def test_a_gate_flown_along_y_lies_in_x_and_z() -> None:
    """Heading 90 degrees: corners at x = 1 +- 0.3, y = 2, z = 1.5 +- 0.3, and the bars fill what is left to
    0.8 m.
    """
    corners = GATE.corners(0.6)
    assert np.allclose(corners.min(0), (0.7, 2.0, 1.2))
    assert np.allclose(corners.max(0), (1.3, 2.0, 1.8))
    areas = 0.0
    for bar in GATE.bars():
        x, z = bar[:, 0], bar[:, 2]
        areas += 0.5 * abs(np.dot(x, np.roll(z, 1)) - np.dot(z, np.roll(x, 1)))
    assert areas == pytest.approx(0.8**2 - 0.6**2)


def test_a_race_is_drawn_and_nothing_is_refused(tmp_path: Path) -> None:
    write_race_plots(tmp_path / "race.png", [circle(), circle(1)], [GATE], "two pilots")
    assert (tmp_path / "race.png").stat().st_size > 10_000
    with pytest.raises(ConfigError, match="no flight"):
        write_race_plots(tmp_path / "none.png", [], [GATE], "nobody")


def test_gates_are_in_the_film() -> None:
    """The camera covers all corners, and the gate changes the frame."""
    scene, empty = (FlightScene(circle(1), gates=gates) for gates in ((GATE,), ()))
    pixels = scene.camera.project(GATE.corners(GATE.outer_m))[0]
    assert (pixels >= 0).all()
    assert (pixels <= scene.camera.size).all()
    middle = scene.camera.project(GATE.bars()[0].mean(0, keepdims=True))[0][0].astype(int)
    frame = scene.frame(1.0)
    assert frame[middle[1], middle[0]].max() < 200
    assert empty.frame(1.0).shape == frame.shape
