"""Settings of `robo-rl overlay`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import REQUIRED, one_of, setting


@dataclass
class OverlayConfig:
    """`robo-rl overlay`."""

    data: str = setting(REQUIRED, "dataset of hand videos, with the pose of the hand in every frame")
    robot: str = setting(REQUIRED, "arm to draw: arm6, panda, or the YAML file of another arm")
    out: str = setting(REQUIRED, "dataset with the robot in the pictures; an interrupted one is continued")
    camera: str | None = setting(None, "camera whose pictures are changed; none: the only one")
    camera_file: str | None = setting(
        None,
        "YAML or JSON file with position_m, quat and fovy_rad of the camera; none: camera.<camera>.yaml in "
        "the dataset",
    )
    base_m: list[float] = setting([0.0, 0.0, 0.0], "position of the robot's base in the world frame [m]")
    base_yaw_rad: float = setting(0.0, "rotation of the robot's base about the world's z axis [rad]")
    hsv_low: list[int] = setting(
        [0, 40, 60],
        "without mask.<camera>: lowest hue (0 to 179), saturation and value (0 to 255) of the hand, as in "
        "OpenCV",
        at_least=0,
        at_most=255,
    )
    hsv_high: list[int] = setting(
        [25, 190, 255], "without mask.<camera>: highest hue, saturation and value", at_least=0, at_most=255
    )
    grow_px: int = setting(1, "pixels by which the mask is enlarged", at_least=0, at_most=50)
    fill: str = one_of(
        "median",
        "telea",
        help="how the hand is removed. median: median of the episode's frames, for a camera that stands "
        "still; telea: from the pixels around it, by cv2.inpaint",
    )
    tolerance_m: float = setting(0.02, "largest distance of the gripper from a reached hand [m]", above=0.0)
    tolerance_rad: float = setting(
        0.2, "largest angle between the gripper and a reached hand [rad]", above=0.0
    )
