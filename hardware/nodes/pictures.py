"""The newest picture of each camera that a policy is shown, for as long as it is new enough to act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hardware.bus.protocol import Bus
from hardware.description import RobotDescription
from hardware.messages import Image
from hardware.topics import image_topic
from robo_rl.core.errors import DataError

STALE_PICTURE_PERIODS = 3.0
UNKNOWN_S = 0.5  # how old a picture of a camera may be whose rate nobody has said


class Pictures:
    """Listens to `cameras`. age_s: how old a picture may be, by its receipt; none: 3 periods of its camera."""

    def __init__(self, bus: Bus, robot: RobotDescription, cameras: Sequence[str], age_s: float | None = None) -> None:
        self._bus = bus
        self._limits_s = {camera: picture_age_s(robot, camera) if age_s is None else age_s for camera in cameras}
        self._newest: dict[str, tuple[Image, float]] = {}
        for camera in cameras:
            image_topic(camera).subscribe(bus, self._keep(camera))

    def fresh(self) -> dict[str, Image]:
        """Those that have come, by camera. Raises DataError when one of them is too old to act on."""
        now_s = self._bus.now()
        for camera, (_, received_s) in self._newest.items():
            if now_s - received_s > self._limits_s[camera]:
                raise DataError(
                    f"No picture of the camera '{camera}' has come for {self._limits_s[camera]:.3g} s, so the policy "
                    "is not asked: see that the camera runs."
                )
        return {camera: picture for camera, (picture, _) in self._newest.items()}

    def _keep(self, camera: str) -> Callable[[Image, float], None]:
        def keep(message: Image, received_s: float) -> None:
            self._newest[camera] = message, received_s

        return keep


def picture_age_s(robot: RobotDescription, camera: str) -> float:
    """How old a picture of this camera may be [s]."""
    known = robot.cameras.get(camera)
    return UNKNOWN_S if known is None else STALE_PICTURE_PERIODS / known.rate_hz
