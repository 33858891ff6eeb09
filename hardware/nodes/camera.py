"""Publishes a camera's pictures, and reports when they stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hardware.bus.protocol import Bus
from hardware.camera.calibration import load_calibration
from hardware.camera.jpeg import encoded
from hardware.camera.source import Picture, PictureSource, open_source
from hardware.messages import CompressedImage, Image
from hardware.nodes.shared.own_status import OwnStatus
from hardware.topics import CAMERA_STATUS, camera_info_topic, compressed_topic, image_topic
from robo_rl.core.errors import DriverError

RETRY_S = 1.0  # a camera that stopped is opened again this often
OK, WARNING, ERROR = 0, 1, 2


@dataclass(frozen=True)
class CameraConfig:
    """Settings of a camera."""

    camera: str = "camera"  # name; pictures go to camera/<name>/image_raw
    source: str = "0"  # number or path of a device, a video file, or `pattern`
    width: int = 640
    height: int = 480
    fps: float = 30.0
    loop: bool = False  # begin a video file anew at its end
    transport: str = "raw"  # raw, compressed or both: what goes out
    quality: int = 90  # JPEG quality, 1 to 100
    calibration: str = ""  # YAML file as ROS' camera_calibration writes it; empty: no camera_info


class CameraNode:
    """Publishes camera/<name>/image_raw, its JPEG or both, camera_info beside them, and camera/status.

    Raises DriverError when there is no camera at the start, and ConfigError for a calibration that cannot be
    used.

    A camera that fails later is reported once, shown in its status, and opened again every second; nodes that
    need pictures notice their age. A video file ends or begins anew; one that was deleted meanwhile has
    ended, and the reason is reported.
    """

    def __init__(self, bus: Bus, config: CameraConfig, say: Callable[[str], None] = print) -> None:
        self._bus, self._config, self._say = bus, config, say
        self._source: PictureSource | None = self._open()
        self._calibration = load_calibration(config.calibration) if config.calibration else None
        raw, pressed = config.transport != "compressed", config.transport != "raw"
        self._publish = image_topic(config.camera).publisher(bus) if raw else None
        self._publish_jpeg = compressed_topic(config.camera).publisher(bus) if pressed else None
        self._inform = camera_info_topic(config.camera).publisher(bus) if self._calibration else None
        self._misfit = ""
        self._own = OwnStatus(bus, CAMERA_STATUS, f"camera {config.camera}", config.camera)
        self._retry_s = 0.0
        self.pictures, self._begun = 0, 0  # so far; of them, before the film that is shown now began
        self.done, self._fault = False, ""
        bus.timer(1.0 / config.fps, self._tick)
        bus.timer(1.0, self._tell)

    def stop(self, why: str) -> str:
        """Return the closing sentence; nothing moves because of this node."""
        self._own.leave(why)
        self._tell()
        return f"{why}: {self.pictures} pictures were published"

    @property
    def at_rest(self) -> bool:
        return True

    def finish(self) -> None:
        """Close the camera."""
        self._close()

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    def _open(self) -> PictureSource:
        return open_source(self._config.source, self._config.width, self._config.height, self._config.fps)

    def _tick(self) -> None:
        if self._source is None:
            self._try_again()
            return
        picture = self._source.read()
        if picture is not None:
            self._send(picture)
            self.pictures += 1
        elif self._is_film():
            self._end()
        else:
            self._lose()

    def _send(self, picture: Picture) -> None:
        stamp_s, frame = self._bus.stamp(), f"{self._config.camera}_optical"
        if self._publish is not None:
            self._publish(Image(stamp_s, picture, frame))
        if self._publish_jpeg is not None:
            self._publish_jpeg(CompressedImage(stamp_s, encoded(picture, self._config.quality), frame=frame))
        if self._inform is not None and self._calibration is not None and self._fits(picture):
            self._inform(self._calibration.info(stamp_s, frame))

    def _fits(self, picture: Picture) -> bool:
        """True when the calibration is for pictures of this size. Reports once when it is not."""
        height, width = picture.shape[:2]
        made_for = self._calibration
        if made_for is None or (width, height) == (made_for.width_px, made_for.height_px):
            self._misfit = ""
            return True
        if not self._misfit:
            self._misfit = (
                f"{self._config.calibration} is of pictures of {made_for.width_px} x {made_for.height_px}, "
                f"these are {width} x {height}: no camera_info is published. Calibrate at this size, or ask "
                "for that one."
            )
            self._say(f"Camera '{self._config.camera}': {self._misfit}")
        return False

    def _end(self) -> None:
        self._close()
        if self._config.loop and self.pictures > self._begun:
            self._begun = self.pictures
            try:
                self._source = self._open()
            except DriverError as error:  # deleted or overwritten since it was opened
                self._fault = str(error)
                self._say(
                    f"Camera '{self._config.camera}' cannot begin anew after {self.pictures} pictures: "
                    f"{error}"
                )
                self.done = True
                self._tell()
            return
        if not self.done:
            self._say(f"'{self._config.source}' has ended after {self.pictures} pictures.")
        self.done = True

    def _lose(self) -> None:
        self._close()
        self._retry_s = self._bus.now() + RETRY_S
        self._say(
            f"Camera '{self._config.camera}' ({self._config.source}) has stopped after {self.pictures} "
            "pictures: is it still plugged in? It is opened again every second."
        )
        self._tell()

    def _try_again(self) -> None:
        if self.done or self._bus.now() < self._retry_s:
            return
        self._retry_s = self._bus.now() + RETRY_S
        try:
            self._source = self._open()
        except DriverError:
            return
        self._say(f"Camera '{self._config.camera}' is back.")

    def _is_film(self) -> bool:
        return not (self._config.source.isdecimal() or self._config.source.startswith("/dev/"))

    def _tell(self) -> None:
        level, message = (WARNING, self._misfit) if self._misfit else (OK, "running")
        if self._source is None:
            level, message = ERROR, self._fault or ("ended" if self.done else "stopped")
        self._own.tell(level, message, {"pictures": str(self.pictures)})
