"""Camera calibration files: those of ROS, and errors in others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.camera.calibration import load_calibration
from robo_rl.core.errors import ConfigError

FILE = """\
image_width: 64
image_height: 48
camera_name: wrist
camera_matrix: {rows: 3, cols: 3, data: [60.0, 0.0, 31.5, 0.0, 61.0, 23.5, 0.0, 0.0, 1.0]}
distortion_model: plumb_bob
distortion_coefficients: {rows: 1, cols: 5, data: [-0.2, 0.05, 0.001, 0.0, 0.0]}
"""


def test_ros_file_is_read(tmp_path: Path) -> None:
    """Row-major matrices; omitted ones get the values of a single camera."""
    (tmp_path / "wrist.yaml").write_text(FILE)
    found = load_calibration(str(tmp_path / "wrist.yaml"))
    assert (found.width_px, found.height_px, found.model) == (64, 48, "plumb_bob")
    assert found.matrix[0].tolist() == [60.0, 0.0, 31.5]
    assert found.distortion.tolist() == [-0.2, 0.05, 0.001, 0.0, 0.0]
    assert np.array_equal(found.rectification, np.eye(3))
    assert found.projection.tolist() == [[60.0, 0.0, 31.5, 0.0], [0.0, 61.0, 23.5, 0.0], [0.0, 0.0, 1.0, 0.0]]
    info = found.info(2.5, "wrist_optical")
    assert (info.stamp_s, info.frame, info.width_px) == (2.5, "wrist_optical", 64)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("image_width: 64\n", "", "lacks image_width"),
        ("image_width: 64", "image_width: wide", "image_width must be a whole number"),
        ("image_width: 64", "image_width: 0", "a size and focal lengths above 0"),
        ("data: [60.0,", "data: [-60.0,", "a size and focal lengths above 0"),
        ("data: [60.0, ", "data: [", "camera_matrix holds 8 numbers, expected 3 x 3"),
        ("data: [-0.2,", "data: [.nan,", "distortion_coefficients holds numbers that are not finite"),
        (
            "data: [-0.2, ",
            "data: [",
            "4 coefficients for the distortion model 'plumb_bob'; expected one of: plumb_bob",
        ),
        ("plumb_bob", "fancy", "5 coefficients for the distortion model 'fancy'"),
        ("image_width: 64", "image_width: [", "cannot be read as a camera's calibration"),
    ],
)
def test_errors_name_the_key(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in FILE
    (tmp_path / "wrist.yaml").write_text(FILE.replace(old, new))
    with pytest.raises(ConfigError, match=words):
        load_calibration(str(tmp_path / "wrist.yaml"))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml cannot be read"):
        load_calibration(str(tmp_path / "none.yaml"))
