from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import pytest
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.eval.flight.drawing import fit_camera, put_text, rotation
from robo_rl.eval.flight.flight_log import FlightLog
from robo_rl.eval.flight.flight_plots import ROTOR_COLOURS, spread, write_flight_plots
from robo_rl.eval.flight.flight_video import FlightScene, write_flight_video
from robo_rl.eval.plots import PALETTE
from robo_rl.eval.video import Frame

LEVEL = np.array([1.0, 0.0, 0.0, 0.0])


def hover(num: int = 2, steps: int = 51, label: str = "hover", dt_s: float = 0.02) -> FlightLog:
    """Drone i rests 0.3 m i to the right of the goal, level; drone 1 ends half way."""
    time_s = np.arange(steps) * dt_s
    position = np.zeros((steps, num, 3))
    position[..., 0] = 0.3 * np.arange(num)
    log = FlightLog(
        time_s=time_s,
        position_m=position,
        quat_wxyz=np.broadcast_to(LEVEL, (steps, num, 4)).copy(),
        velocity_m_s=np.zeros((steps, num, 3)),
        command=np.full((steps, num, 4), 0.6),
        goal_m=np.zeros(3),
        label=label,
    )
    for rows in (log.position_m, log.quat_wxyz, log.velocity_m_s, log.command):
        rows[steps // 2 :, 1:2] = np.nan
    return log


def flown(positions: list[list[float]], quat: list[float]) -> FlightLog:
    """One drone, one attitude, one position every 2 s: slow enough to leave no trail."""
    steps = len(positions)
    rows = np.array(positions)[:, None]
    attitude = np.broadcast_to(np.array(quat), (steps, 1, 4)).copy()
    return FlightLog(
        2.0 * np.arange(steps), rows, attitude, 0.0 * rows, np.zeros((steps, 1, 4)), np.zeros(3), ""
    )


def blue(frame: Frame) -> ndarray:
    """Pixels (x, y) of the front rotors of drone 0, the only saturated colour."""
    inside = frame[60:-60].astype(int)
    rows, columns = np.nonzero(inside[..., 2] - inside[..., 0] > 90)
    return np.stack([columns + 0.5, rows + 60.5], axis=-1)


def test_the_film_plays_in_real_time(tmp_path: Path) -> None:
    """1 s of flight at 25 frames a second: 26 frames, the last sample among them; H.264 that browsers
    play.
    """
    path = write_flight_video(tmp_path / "flight.mp4", hover(), fps=25.0, size=(320, 240))
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert (stream.width, stream.height, stream.average_rate) == (320, 240, 25)
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
    assert len(frames) == 26
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 100  # the clock ran and drone 1 has gone


@pytest.mark.parametrize(
    "quat", [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0], [0.70710678, 0.0, 0.0, 0.70710678]]
)
def test_drone_is_drawn_at_its_projection(quat: list[float]) -> None:
    """Forwards, backwards and turned to the left: the coloured front rotors follow the attitude."""
    places = [[-0.8, 0.3, 0.9], [0.7, -0.4, 0.2]]
    scene = FlightScene(flown(places, quat))
    for time_s, place in zip((0.0, 2.0), places, strict=True):
        pixels = blue(scene.frame(time_s)).mean(0)
        front = np.array([np.sqrt(0.5), 0.0, 0.14]) * scene.arm_m
        expected = scene.camera.project(np.array(place) + rotation(np.array(quat)) @ front)[0]
        assert np.linalg.norm(pixels - expected) < 2.0
        behind = scene.camera.project(np.array(place) - rotation(np.array(quat)) @ front)[0]
        assert np.linalg.norm(pixels - behind) > 8.0


def test_between_two_samples_a_drone_is_on_its_way() -> None:
    """Half of the time is half of the way; q and -q are the same attitude."""
    log = flown([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0]], [1.0, 0.0, 0.0, 0.0])
    log.quat_wxyz[1] *= -1.0
    position, quat, goal = log.pose_at(1.0)
    np.testing.assert_allclose(position, [[0.5, 0.0, 1.0]])
    np.testing.assert_allclose(quat, [[1.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(goal, [[0.0, 0.0, 0.0]])
    np.testing.assert_allclose(log.pose_at(7.0)[0], [[1.0, 0.0, 1.0]])


def test_ended_flight_is_marked_by_a_cross() -> None:
    """After NaN the cross stays at the last position, in the drone's colour."""
    log = replace(hover(1), position_m=hover(1).position_m + np.array([0.4, 0.0, 0.0]))
    log.position_m[20:], log.quat_wxyz[20:] = np.nan, np.nan
    scene = FlightScene(log)
    before, after = blue(scene.frame(0.2)), blue(scene.frame(1.0))
    assert len(before) > 100
    assert 0 < len(after) < len(before) / 3
    cross = scene.camera.project(np.array([0.4, 0.0, 0.0]))[0]
    assert np.abs(after - cross).max() < 8.0


def test_the_camera_sees_everything_from_as_near_as_it_can() -> None:
    """All points within the frame, and one of them at its edge."""
    points = np.random.default_rng(0).normal(size=(50, 3)) * (2.0, 1.0, 0.3)
    camera = fit_camera(points, (640, 480), azimuth_deg=-65.0, elevation_deg=24.0, fill=(0.9, 0.8))
    pixels, depth = camera.project(points)
    share = np.abs(pixels - (320.0, 240.0)) / (0.9 * 320.0, 0.8 * 240.0)
    assert share.max() == pytest.approx(1.0)
    assert (depth > 0.0).all()
    up = camera.project(points.mean(0) + np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.1]]))[0]
    assert up[1, 1] < up[0, 1]  # up is up
    assert abs(up[1, 0] - up[0, 0]) < 2.0  # and nearly upright


def test_caption_states_the_scale() -> None:
    """A flight over 4 m: a craft of 4 cm is enlarged, and the caption states the factor."""
    large = FlightScene(flown([[-2.0, 0.0, 1.0], [2.0, 0.0, 1.0]], [1.0, 0.0, 0.0, 0.0]), arm_m=0.04)
    assert f"crafts drawn {large.arm_m / 0.04:.1f} times their size" in large.caption
    assert large.arm_m > 0.1
    assert (
        "crafts to scale"
        in FlightScene(flown([[0.0, 0.0, 0.1], [0.1, 0.0, 0.1]], [1.0, 0.0, 0.0, 0.0])).caption
    )
    assert "cm apart" in FlightScene(hover()).caption  # one goal for all: they cannot have flown together
    together = replace(hover(), goal_m=np.zeros((51, 2, 3)))
    assert "apart" not in FlightScene(together).caption


def test_distances_and_tilt_are_those_of_the_formula() -> None:
    """3-4-5 triangle to the goal; 90 degrees of roll is a tilt of 90 degrees whatever the yaw."""
    log = flown([[0.3, 0.0, 0.4]], [0.5, 0.5, 0.5, 0.5])
    np.testing.assert_allclose(log.error_m(), [[0.5]])
    np.testing.assert_allclose(log.tilt_deg(), [[90.0]])


def test_percentiles_exclude_ended_flights() -> None:
    """Values 0 ... 10, one NaN, and a last row of NaN only."""
    values = np.array([[*range(11), np.nan], [np.nan] * 12])
    np.testing.assert_allclose(spread(values), [[1.0, np.nan], [5.0, np.nan], [9.0, np.nan]])


@pytest.mark.parametrize("count", [1, 2, 3])
def test_plots_are_written(tmp_path: Path, count: int) -> None:
    """One log, two, three with a log of which every drone ends and one of a single sample."""
    ended = hover(2, label="ended")
    ended.position_m[30:], ended.quat_wxyz[30:] = np.nan, np.nan
    logs = [hover(), ended, flown([[0.0, 0.0, 0.0]], [1.0, 0.0, 0.0, 0.0])][:count]
    picture = cv2.imread(str(write_flight_plots(tmp_path / "deep" / "flight.png", logs, "hover")))
    assert picture is not None
    assert picture.shape == (1520, 2080, 3)
    assert np.mean(picture < 200) > 0.005  # something is drawn


def test_the_figure_names_its_statistic(tmp_path: Path) -> None:
    """The median at the last instant is not the mean over the last seconds that a table holds."""
    picture = write_flight_plots(tmp_path / "flight.svg", [hover()], "hover").read_text()
    assert re.search(r"median at [\d.]+ s; 1 of 2 ended early", picture)


def test_motors_have_colours_of_their_own() -> None:
    """The colours of the palette stand for pilots."""
    assert len(set(ROTOR_COLOURS)) == 4
    assert not set(ROTOR_COLOURS) & set(PALETTE)


def test_no_log_is_no_plot(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no flight to draw"):
        write_flight_plots(tmp_path / "flight.png", [], "")


def test_text_is_cut_at_the_rim() -> None:
    """A long label must not stop a video; right-aligned text ends at its given point."""
    frame = np.full((40, 60, 3), 255, dtype=np.uint8)
    put_text(frame, "longer than the picture is wide", (-10, 5), 15.0, (0.0, 0.0, 0.0))
    put_text(frame, "11", (50, 35), 12.0, (0.0, 0.0, 0.0), right=True)
    columns = np.nonzero((frame[20:] < 128).any(-1))[1]
    assert 45 <= columns.max() < 50


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"time_s": np.zeros(51)}, "increasing"),
        ({"position_m": np.zeros((51, 2))}, r"position_m has shape \(51, 2\)"),
        ({"quat_wxyz": np.zeros((51, 2, 3))}, r"quat_wxyz has shape \(51, 2, 3\).*\(51, 2, 4\)"),
        ({"command": np.zeros((50, 2, 4))}, r"command has shape \(50, 2, 4\)"),
        ({"goal_m": np.zeros(4)}, r"goal_m has shape \(4,\)"),
        ({"goal_m": np.full(3, np.nan)}, "finite goal_m"),
        ({"quat_wxyz": np.ones((51, 2, 4))}, "length 2"),
    ],
)
def test_a_log_that_does_not_fit_together_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        replace(hover(), **change)


def test_a_log_with_two_flights_of_one_drone_is_refused() -> None:
    """A second episode in the log would be drawn as a jump."""
    log = hover(1)
    position = log.position_m.copy()
    position[10:20] = np.nan
    with pytest.raises(ConfigError, match="flies again"):
        replace(log, position_m=position)


def test_a_film_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="even sides"):
        write_flight_video(tmp_path / "a.mp4", hover(), size=(321, 240))
    with pytest.raises(ConfigError, match="at least one drone"):
        write_flight_video(tmp_path / "a.mp4", hover(), drones=0)
    assert not list(tmp_path.iterdir())
