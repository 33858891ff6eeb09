"""Sources of pictures: a camera, a video file, or a generated test pattern.

All return RGB pictures, (h, w, 3) uint8. OpenCV is imported when a camera or a file is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DriverError, MissingDependencyError
from robo_rl.core.packages import pip_install
from robo_rl.core.shapes import UInt8

Picture = UInt8[ndarray, "h w 3"]


@runtime_checkable
class PictureSource(Protocol):
    """Sequence of RGB pictures."""

    def read(self) -> Picture | None:
        """Wait for the next picture and return it; None at the end of the source."""
        ...

    def close(self) -> None:
        """Release the device or file."""
        ...


def open_source(name: str, width: int, height: int, fps: float) -> PictureSource:
    """The source `name`: `pattern`, the number or path of a device (`0`, `/dev/video0`), or a video file.

    width, height [pixels] and fps [Hz] are requested from a device; a file keeps its own. Raises DriverError
    when the source cannot be opened, and ConfigError for a size below 8 x 8 or a rate outside (0, 1000] Hz.
    """
    if width < 8 or height < 8 or not 0.0 < fps <= 1000.0:
        raise ConfigError(
            f"A camera of {width} x {height} at {fps} Hz: expected at least 8 x 8 pixels and a rate above 0 "
            "and up to 1000 Hz."
        )
    if name == "pattern":
        return Pattern(width, height)
    if name.isdecimal() or name.startswith("/dev/"):
        return CameraDevice(name, width, height, fps)
    return VideoFile(name)


@dataclass
class Pattern:
    """Test pattern: a bar that moves to the right by one pixel per picture.

    The red values of the first four pixels encode the number of the picture; see `pattern_number`.
    """

    width: int
    height: int
    number: int = 0

    def read(self) -> Picture:
        """The next picture; the pattern never ends."""
        ramp = np.arange(self.width, dtype=np.int64) + self.width - self.number
        picture = np.zeros((self.height, self.width, 3), np.uint8)
        picture[..., 1] = (ramp % self.width * 255 // self.width).astype(np.uint8)
        picture[0, :4, 0] = np.frombuffer(np.uint32(self.number).tobytes(), np.uint8)
        self.number += 1
        return picture

    def close(self) -> None:
        """Nothing to close."""


def pattern_number(picture: Picture) -> int:
    """Number of a picture made by `Pattern`, starting from 0."""
    return int(np.frombuffer(picture[0, :4, 0].tobytes(), np.uint32)[0])


class VideoFile:
    """Pictures of a video file, from its first to its last. Raises DriverError when it cannot be read."""

    def __init__(self, path: str) -> None:
        if not Path(path).is_file():
            raise DriverError(
                f"There is no video file '{path}'. Expected a video file, a camera by its number or path (0, "
                "/dev/video0), or `pattern`."
            )
        self._capture = _capture(path)
        if not self._capture.isOpened():
            raise DriverError(f"'{path}' is no video that OpenCV can read.")

    def read(self) -> Picture | None:
        return _read(self._capture)

    def close(self) -> None:
        self._capture.release()


class CameraDevice:
    """Pictures of a camera that OpenCV can open. Raises DriverError when it cannot be opened."""

    def __init__(self, name: str, width: int, height: int, fps: float) -> None:
        import cv2

        self._capture = _capture(int(name) if name.isdecimal() else name)
        if not self._capture.isOpened():
            found = ", ".join(str(path) for path in sorted(Path("/dev").glob("video*"))) or "none"
            raise DriverError(
                f"Camera '{name}' cannot be opened; devices here: {found}. Plug it in, close the program "
                "that uses it, and make sure that you may read it (group video)."
            )
        for key, value in ((cv2.CAP_PROP_FRAME_WIDTH, width), (cv2.CAP_PROP_FRAME_HEIGHT, height)):
            self._capture.set(key, value)
        self._capture.set(cv2.CAP_PROP_FPS, fps)
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # so that reads return the newest picture

    def read(self) -> Picture | None:
        return _read(self._capture)

    def close(self) -> None:
        self._capture.release()


def _capture(name: int | str) -> Any:
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"Cameras and video files need OpenCV, which is not installed. Run: {pip_install('robot')}"
        ) from error
    # Our errors are more specific than OpenCV's warnings about missing devices.
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    return cv2.VideoCapture(name)


def _read(capture: Any) -> Picture | None:
    import cv2

    ok, picture = capture.read()
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB) if ok and picture is not None else None
