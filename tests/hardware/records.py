"""Random records for tests, and their comparison."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hardware import messages as m

NUMBERS = st.floats(allow_nan=True, allow_infinity=True, width=64)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
NAMES = st.lists(TEXTS, max_size=4).map(tuple)
# Whole nanoseconds near zero, and any double of this decade: what clocks of simulations and of machines tell.
STAMPS = st.builds(lambda sec, nanosec: sec + nanosec / 1e9, st.integers(0, 10**5), st.integers(0, 10**9 - 1))
STAMPS |= st.floats(1.0e9, 2.0e9)
PIXELS = st.integers(0, 2**32 - 1)


def floats(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, shape, elements=NUMBERS)


@st.composite
def joint_states(draw: st.DrawFn) -> m.JointState:
    names = draw(NAMES)
    optional = st.sampled_from([0, len(names)]).flatmap(floats)
    place = draw(floats(len(names)))
    return m.JointState(draw(STAMPS), names, place, draw(optional), draw(optional), draw(TEXTS))


@st.composite
def trajectories(draw: st.DrawFn) -> m.JointTrajectory:
    names, points = draw(NAMES), draw(st.integers(0, 3))
    times = draw(st.lists(STAMPS, min_size=points, max_size=points))
    rows = draw(floats(points, len(names)))
    given = points * len(names) > 0 and draw(st.booleans())
    speeds = draw(floats(points, len(names))) if given else np.zeros(0)
    return m.JointTrajectory(draw(STAMPS), names, rows, np.array(times), draw(TEXTS), speeds)


@st.composite
def images(draw: st.DrawFn) -> m.Image:
    shape = (draw(st.integers(0, 5)), draw(st.integers(1, 5)), 3)
    return m.Image(draw(STAMPS), draw(hnp.arrays(np.uint8, shape)), draw(TEXTS))


@st.composite
def depths(draw: st.DrawFn) -> m.DepthImage:
    shape = (draw(st.integers(0, 5)), draw(st.integers(1, 5)))
    return m.DepthImage(draw(STAMPS), draw(hnp.arrays(np.float32, shape)), draw(TEXTS))


STATUS = st.builds(
    m.Status, TEXTS, st.integers(0, 3), TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=3), TEXTS
)
RECORDS = {
    m.JointState: joint_states(),
    m.JointTrajectory: trajectories(),
    m.JointJog: st.builds(m.JointJog, STAMPS, NAMES, st.integers(0, 4).flatmap(floats), TEXTS),
    m.Twist: st.builds(m.Twist, STAMPS, floats(3), floats(3), TEXTS),
    m.Floats: st.builds(m.Floats, st.integers(0, 8).flatmap(floats)),
    m.FlightCommand: st.builds(m.FlightCommand, STAMPS, st.integers(0, 8).flatmap(floats), NAMES),
    m.Odometry: st.builds(m.Odometry, STAMPS, floats(3), floats(4), floats(3), floats(3), TEXTS, TEXTS),
    m.Imu: st.builds(m.Imu, STAMPS, floats(4), floats(3), floats(3), TEXTS),
    m.Image: images(),
    m.DepthImage: depths(),
    m.CompressedImage: st.builds(
        m.CompressedImage, STAMPS, hnp.arrays(np.uint8, st.integers(0, 40)), TEXTS, TEXTS
    ),
    m.CameraInfo: st.builds(
        m.CameraInfo,
        STAMPS,
        PIXELS,
        PIXELS,
        TEXTS,
        st.integers(0, 8).flatmap(floats),
        floats(3, 3),
        floats(3, 3),
        floats(3, 4),
        TEXTS,
    ),
    m.Text: st.builds(m.Text, TEXTS),
    m.Flag: st.builds(m.Flag, st.booleans()),
    m.Diagnostics: st.builds(m.Diagnostics, STAMPS, st.lists(STATUS, max_size=3).map(tuple)),
}


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, with NaN equal to NaN."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if is_dataclass(a):
        return type(a) is type(b) and all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    return bool(a == b)


SAMPLES: dict[type[Any], Any] = {
    m.JointState: m.JointState(
        1.7e9 + 0.25, ("shoulder", "ü"), np.array([np.nan, -0.0]), np.array([1.5, np.inf]), frame="base_link"
    ),
    m.JointTrajectory: m.JointTrajectory(
        1.7e9 + 0.5,
        ("a", "b"),
        np.array([[0.1, -0.2], [0.3, 1e300]]),
        np.array([0.02, 1.5]),
        "base_link",
    ),
    m.Floats: m.Floats(np.array([1.0, -2.0, 5e-324])),
    m.JointJog: m.JointJog(1.7e9 + 0.75, ("b", "a"), np.array([0.5, -1.0]), "base_link"),
    m.Twist: m.Twist(1.7e9 + 0.75, np.array([0.1, 0.0, -0.2]), np.array([0.0, 0.3, np.inf]), "base_link"),
    m.FlightCommand: m.FlightCommand(7.0, np.array([0.5, -0.25, 0.0, 1e-3]), m.RATES),
    m.Odometry: m.Odometry(
        2.5,
        np.array([1.0, 2.0, 3.0]),
        np.array([0.5, -0.5, 0.5, -0.5]),
        np.array([4.0, 5.0, 6.0]),
        np.arange(3.0),
    ),
    m.Imu: m.Imu(3.75, np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.1, 0.2, 0.3]), np.array([0.0, 0.0, 9.81])),
    m.Image: m.Image(4.125, np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3), "wrist_optical"),
    m.DepthImage: m.DepthImage(
        4.125, np.array([[0.5, np.inf, np.nan], [1.25, 10.0, 0.0]], np.float32), "wrist_optical"
    ),
    m.CompressedImage: m.CompressedImage(4.125, np.arange(7, dtype=np.uint8), frame="wrist_optical"),
    m.CameraInfo: m.CameraInfo(
        4.125,
        640,
        480,
        "plumb_bob",
        np.array([-0.25, 0.0625, 0.0, 1e-3, 0.0]),
        np.array([[500.0, 0.0, 320.5], [0.0, 501.0, 240.5], [0.0, 0.0, 1.0]]),
        np.eye(3),
        np.array([[490.0, 0.0, 320.5, 0.0], [0.0, 491.0, 240.5, 0.0], [0.0, 0.0, 1.0, 0.0]]),
        "wrist_optical",
    ),
    m.Text: m.Text("stop – now"),
    m.Flag: m.Flag(True),
    m.Diagnostics: m.Diagnostics(
        5.0, (m.Status("arm", 2, "too far", {"joint": "a", "rad": "0.2"}), m.Status("camera", 0, "ok"))
    ),
}
