"""The camera: pictures as they come, and a sentence when they stop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hardware.bus.protocol import Bus
from hardware.camera_source import Source, open_source
from hardware.messages import Diagnostics, Image, Status
from hardware.topics import CAMERA_STATUS, image_topic
from robo_rl.core.errors import DriverError

RETRY_S = 1.0  # a camera that stopped is opened again this often
OK, ERROR = 0, 2


@dataclass(frozen=True)
class CameraConfig:
    """Settings of a camera."""

    camera: str = "camera"  # name; pictures go to camera/<name>/image_raw
    source: str = "0"  # number or path of a device, a video file, or `pattern`
    width: int = 640
    height: int = 480
    fps: float = 30.0
    loop: bool = False  # begin a video file anew at its end


class CameraNode:
    """Publishes camera/<name>/image_raw and camera/status. Raises DriverError when there is no camera at the start.

    A camera that stops later is said once, shown in its status, and opened again every second: who needs pictures sees
    them grow old meanwhile. A video file ends, or begins anew; one that is gone by then has ended, and why is said.
    """

    def __init__(self, bus: Bus, config: CameraConfig, say: Callable[[str], None] = print) -> None:
        self._bus, self._config, self._say = bus, config, say
        self._source: Source | None = self._open()
        self._publish = image_topic(config.camera).publisher(bus)
        self._diagnose = CAMERA_STATUS.publisher(bus)
        self._retry_s = 0.0
        self.pictures, self._begun = 0, 0  # so far; of them, before the film that is shown now began
        self.done, self._fault = False, ""
        bus.timer(1.0 / config.fps, self._tick)
        bus.timer(1.0, self._tell)

    def stop(self, why: str) -> str:
        """Nothing moves because of this node."""
        return f"{why}: {self.pictures} pictures were published"

    @property
    def at_rest(self) -> bool:
        return True

    def last_word(self) -> None:
        """Let the camera go."""
        self._close()

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
        self._source = None

    def _open(self) -> Source:
        return open_source(self._config.source, self._config.width, self._config.height, self._config.fps)

    def _tick(self) -> None:
        if self._source is None:
            self._try_again()
            return
        picture = self._source.read()
        if picture is not None:
            self._publish(Image(self._bus.stamp(), picture, f"{self._config.camera}_optical"))
            self.pictures += 1
        elif self._is_film():
            self._end()
        else:
            self._lose()

    def _end(self) -> None:
        self._close()
        if self._config.loop and self.pictures > self._begun:
            self._begun = self.pictures
            try:
                self._source = self._open()
            except DriverError as error:  # deleted or overwritten since it was opened
                self._fault = str(error)
                self._say(f"Camera '{self._config.camera}' cannot begin anew after {self.pictures} pictures: {error}")
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
            f"Camera '{self._config.camera}' ({self._config.source}) has stopped after {self.pictures} pictures: is it "
            "still plugged in? It is opened again every second."
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
        level, message = OK, "running"
        if self._source is None:
            level, message = ERROR, self._fault or ("ended" if self.done else "stopped")
        status = Status(f"camera {self._config.camera}", level, message, {"pictures": str(self.pictures)})
        self._diagnose(Diagnostics(self._bus.stamp(), (status,)))
