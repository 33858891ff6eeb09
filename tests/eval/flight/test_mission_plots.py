"""Plots of missions: axes in metres, and an error without a mission."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.eval.flight.mission_plots import MissionView, mission_figure, write_mission_plots


def scene() -> MissionView:
    """From the origin to the place a, 1 m away along x."""
    way = np.stack([np.linspace(0.0, 1.0, 20), np.zeros(20), np.zeros(20)], axis=1)
    return MissionView(
        "reach 0",
        {"a": np.array([1.0, 0.0, 0.0])},
        0.2,
        np.zeros((0, 2)),
        0.1,
        (2.0, 1.5, 1.0),
        way,
        way,
        0.01,
        0.1,
    )


def test_axes_are_in_metres() -> None:
    """Axes have ticks and a unit."""
    figure = mission_figure([[scene(), scene()]], "missions")
    first, second = figure.axes[:2]
    assert (first.get_xlabel(), first.get_ylabel()) == ("x, m", "y, m")
    assert (second.get_xlabel(), second.get_ylabel()) == ("x, m", "")
    assert min(len(axes.get_xticks()) for axes in (first, second)) > 2
    assert first.get_aspect() == 1.0
    assert figure.axes[-1].get_ylabel() == "time, s"


def test_a_picture_is_written_or_refused(tmp_path: Path) -> None:
    assert write_mission_plots(tmp_path / "missions.png", [[scene()]], "one").stat().st_size > 5_000
    with pytest.raises(ConfigError, match="no mission to draw"):
        write_mission_plots(tmp_path / "none.png", [], "none")
