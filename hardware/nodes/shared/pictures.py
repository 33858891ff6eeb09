"""Newest picture of each camera in a policy's observation, while it is recent enough to act on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hardware.bus.protocol import Bus
from hardware.camera.jpeg import decoded
from hardware.description import RobotDescription
from hardware.loop.observation import DEPTH, Picture
from hardware.messages import CompressedImage, Image
from hardware.topics import compressed_topic, depth_topic, image_topic
from robo_rl.core.errors import DataError

STALE_PICTURE_PERIODS = 3.0
UNKNOWN_S = 0.5  # largest age of a picture of a camera whose rate is not known


@dataclass(frozen=True, slots=True)
class PictureSettings:
    """Transport and largest age of pictures. age_s: since receipt; None: 3 periods of the camera."""

    age_s: float | None = None
    transport: str = "raw"  # or compressed


USUAL = PictureSettings()


class NewestPictures:
    """Subscribes to the pictures of `keys`, image.<camera> and depth.<camera>, as in a bundle's observation.

    robot: the rates of its cameras bound the age of pictures; None: they are not known. Only compressed
    pictures that a policy uses are decoded; depth is never compressed.
    """

    def __init__(
        self,
        bus: Bus,
        robot: RobotDescription | None,
        keys: Sequence[str],
        settings: PictureSettings = USUAL,
    ) -> None:
        self._bus, limit_s = bus, settings.age_s
        cameras = {key: key.partition(".")[2] for key in keys}
        self._limits_s = {
            k: picture_age_s(robot, c) if limit_s is None else limit_s for k, c in cameras.items()
        }
        self._newest: dict[str, tuple[Picture | CompressedImage, float]] = {}
        for key, camera in cameras.items():
            if key.startswith(DEPTH):
                depth_topic(camera).subscribe(bus, self._keep(key))
            elif settings.transport == "compressed":
                compressed_topic(camera).subscribe(bus, self._keep(key))
            else:
                image_topic(camera).subscribe(bus, self._keep(key))

    def fresh(self) -> dict[str, Picture]:
        """Pictures received, by key. Raises DataError when one is too old to act on, or cannot be read."""
        now_s = self._bus.now()
        for key, (_, received_s) in self._newest.items():
            if now_s - received_s > self._limits_s[key]:
                what, camera = "depth" if key.startswith(DEPTH) else "picture", key.partition(".")[2]
                raise DataError(
                    f"No {what} of the camera '{camera}' has come for {self._limits_s[key]:.3g} s, so the "
                    "policy is not asked: see that the camera runs."
                )
        return {key: self._picture(key) for key in self._newest}

    def forget(self) -> None:
        """Forget the pictures received so far."""
        self._newest.clear()

    def _picture(self, key: str) -> Picture:
        """Picture of a key, decoded once."""
        picture, received_s = self._newest[key]
        if isinstance(picture, CompressedImage):
            picture = Image(picture.stamp_s, decoded(picture.data), picture.frame)
            self._newest[key] = picture, received_s
        return picture

    def _keep(self, key: str) -> Callable[[Picture | CompressedImage, float], None]:
        def keep(message: Picture | CompressedImage, received_s: float) -> None:
            self._newest[key] = message, received_s

        return keep


def picture_age_s(robot: RobotDescription | None, camera: str) -> float:
    """Largest age of a picture of this camera [s]."""
    known = None if robot is None else robot.cameras.get(camera)
    return UNKNOWN_S if known is None else STALE_PICTURE_PERIODS / known.rate_hz
