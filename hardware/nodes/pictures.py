"""The newest picture of each camera that a policy is shown, for as long as it is new enough to act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardware.bus.protocol import Bus
from hardware.description import RobotDescription
from hardware.jpeg import decoded
from hardware.messages import CompressedImage, Image
from hardware.topics import compressed_topic, image_topic
from robo_rl.core.errors import DataError

STALE_PICTURE_PERIODS = 3.0
UNKNOWN_S = 0.5  # how old a picture of a camera may be whose rate nobody has said


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """How pictures come. age_s: how old one may be, by its receipt; none: 3 periods of its camera."""

    age_s: float | None = None
    transport: str = "raw"  # or compressed


USUAL = PictureSettings()


class Pictures:
    """Listens to `cameras`. Of compressed pictures only those that a policy is shown are decoded."""

    def __init__(
        self, bus: Bus, robot: RobotDescription, cameras: Sequence[str], settings: PictureSettings = USUAL
    ) -> None:
        self._bus = bus
        limit_s = settings.age_s
        self._limits_s = {camera: picture_age_s(robot, camera) if limit_s is None else limit_s for camera in cameras}
        self._newest: dict[str, tuple[Image | CompressedImage, float]] = {}
        for camera in cameras:
            if settings.transport == "compressed":
                compressed_topic(camera).subscribe(bus, self._keep(camera))
            else:
                image_topic(camera).subscribe(bus, self._keep(camera))

    def fresh(self) -> dict[str, Image]:
        """Those that have come, by camera. Raises DataError when one is too old to act on, or cannot be read."""
        now_s = self._bus.now()
        for camera, (_, received_s) in self._newest.items():
            if now_s - received_s > self._limits_s[camera]:
                raise DataError(
                    f"No picture of the camera '{camera}' has come for {self._limits_s[camera]:.3g} s, so the policy "
                    "is not asked: see that the camera runs."
                )
        return {camera: self._picture(camera) for camera in self._newest}

    def _picture(self, camera: str) -> Image:
        """Decoded once, however often it is asked for."""
        picture, received_s = self._newest[camera]
        if isinstance(picture, CompressedImage):
            picture = Image(picture.stamp_s, decoded(picture.data), picture.frame)
            self._newest[camera] = picture, received_s
        return picture

    def _keep(self, camera: str) -> Callable[[Image | CompressedImage, float], None]:
        def keep(message: Image | CompressedImage, received_s: float) -> None:
            self._newest[camera] = message, received_s

        return keep


def picture_age_s(robot: RobotDescription, camera: str) -> float:
    """How old a picture of this camera may be [s]."""
    known = robot.cameras.get(camera)
    return UNKNOWN_S if known is None else STALE_PICTURE_PERIODS / known.rate_hz
