"""Plots and videos of swarms: objects are drawn at their positions, and invalid input is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from robo_rl.core.errors import ConfigError
from robo_rl.eval.flight.drawing import rgb
from robo_rl.eval.flight.swarm_log import SwarmLog
from robo_rl.eval.flight.swarm_plots import swarm_figure, write_swarm_plot
from robo_rl.eval.flight.swarm_video import SwarmScene, write_swarm_video
from robo_rl.eval.plots import PALETTE

SIZE = (320, 240)


def log(steps: int = 6, drones: int = 2) -> SwarmLog:
    """Drones fly along y = 0 and y = 1 from x = -4 to 4, 2 m high."""
    x = np.linspace(-4.0, 4.0, steps)
    position = np.stack(
        [np.stack([x, np.full(steps, float(i)), np.full(steps, 2.0)], axis=-1) for i in range(drones)], 1
    )
    quat = np.zeros((steps, drones, 4))
    quat[..., 0] = 1.0
    goal = np.broadcast_to(position[-1], position.shape)
    failed = np.array([False, True])[:drones]
    cylinders = np.array([[0.5, 3.5], [-2.5, -2.5]])
    return SwarmLog(
        "swap", np.arange(steps) / 25.0, position, quat, goal, cylinders, failed, 0.3, (10.0, 10.0, 10.0)
    )


def test_a_drone_is_drawn_where_it_is() -> None:
    """The drone's colour is at its projected position and not where it was six frames before."""
    made = log()
    scene = SwarmScene(made, SIZE)
    first, last = scene.frame(0), scene.frame(5)

    def coloured(frame: np.ndarray, step: int) -> int:
        u, v = (round(float(part)) for part in scene.camera.project(made.position_m[step, 0])[0])
        patch = frame[v - 4 : v + 5, u - 4 : u + 5].astype(float)
        return int((np.abs(patch - np.array(rgb(PALETTE[0]))).max(-1) < 60.0).sum())

    assert coloured(first, 0) > 5
    assert coloured(first, 5) == 0
    assert coloured(last, 5) > 5


def test_axes_are_in_metres() -> None:
    """Four worlds in three columns: x labels below the lowest panels, y labels at the left, ticks
    everywhere.
    """
    figure = swarm_figure([log()] * 4, "four worlds")
    assert [axes.get_xlabel() for axes in figure.axes] == ["", "x, m", "x, m", "x, m"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["y, m", "", "", "y, m"]
    assert all(len(axes.get_xticks()) > 2 for axes in figure.axes)


def test_titles_show_the_success() -> None:
    """The number of a swarm's drones near their goals, or the state of a single drone."""
    crowd, alone = (
        swarm_figure([log(drones=drones)], "world").axes[0].get_title(loc="left") for drones in (2, 1)
    )
    assert (crowd, alone) == ("swap: 1 of 2 reached", "swap: reached")


def test_files_are_written(tmp_path: Path) -> None:
    """A picture, and a film with a frame for every 40 ms of two worlds."""
    assert write_swarm_plot(tmp_path / "swarm.png", [log(), log()], "two worlds").stat().st_size > 10_000
    path = write_swarm_video(tmp_path / "swarm.mp4", [log(), log()], fps=25.0, size=SIZE)
    with av.open(str(path)) as file:
        assert sum(1 for _ in file.decode(video=0)) == 12


def test_invalid_input_is_refused(tmp_path: Path) -> None:
    """Nothing, odd sides, and arrays that do not fit together."""
    with pytest.raises(ConfigError, match="no swarm"):
        write_swarm_plot(tmp_path / "swarm.png", [], "none")
    with pytest.raises(ConfigError, match="even sides"):
        write_swarm_video(tmp_path / "swarm.mp4", [log()], size=(321, 240))
    with pytest.raises(ConfigError, match="goal_m has shape"):
        replace(log(), goal_m=np.zeros((6, 3, 3)))
