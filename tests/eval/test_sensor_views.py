"""Images of sensor data next to a video."""

from __future__ import annotations

import numpy as np
import torch

from robo_rl.eval.sensor_views import add_columns, observation_images


def test_sensor_images_are_drawn() -> None:
    """Cameras unchanged, near warm and far cold, a cloud as points on a dark background."""
    picture = torch.randint(0, 255, (1, 8, 8, 3), dtype=torch.uint8)
    depth_m = torch.full((1, 8, 8), 3.0)
    depth_m[0, :, :4] = 0.5
    cloud_m = torch.rand(1, 50, 3)
    seen = observation_images(
        {"state": torch.zeros(1, 5), "image.a": picture, "depth.a": depth_m, "points.a": cloud_m}
    )
    assert list(seen) == ["image.a", "depth.a", "points.a"]
    assert np.array_equal(seen["image.a"], picture[0].numpy())
    near, far = seen["depth.a"][0, 0].astype(int), seen["depth.a"][0, 7].astype(int)
    assert near[0] > near[2]  # red
    assert far[2] > far[0]  # blue
    assert 20 < (seen["points.a"] != 24).any(-1).sum() < 1000


def test_classes_have_a_colour_each() -> None:
    seen = observation_images({"segmentation.a": torch.arange(4, dtype=torch.uint8).view(1, 2, 2, 1)})[
        "segmentation.a"
    ]
    assert seen.shape == (2, 2, 3)
    assert len({tuple(pixel) for pixel in seen.reshape(-1, 3).tolist()}) == 4


def test_a_cloud_of_one_point_and_a_flat_depth_are_drawn() -> None:
    """Constant depths and clouds do not divide by zero."""
    seen = observation_images({"points.a": torch.zeros(1, 4, 3), "depth.a": torch.ones(1, 8, 8)})
    assert (seen["points.a"] != 24).any()
    assert seen["depth.a"].shape == (8, 8, 3)


def test_pictures_stand_in_columns_at_the_right() -> None:
    """The video frame is unchanged; five images need a second column."""
    frame = np.full((320, 320, 3), 7, np.uint8)
    one = np.full((8, 8, 3), 200, np.uint8)
    assert add_columns(frame, {}) is frame
    assert add_columns(frame, {"image.a": one}).shape == (320, 320 + 160, 3)
    wide = add_columns(frame, {f"image.{name}": one for name in "abcde"})
    assert wide.shape == (320, 320 + 2 * 80, 3)
    assert np.array_equal(wide[:, :320], frame)
    assert (wide[-40:, 320:400] == 200).all()  # the fourth, below its name
    assert (wide[81:, 400:] == 0).all()  # nothing below the fifth
