"""Where pictures come from: a camera, a video file, or a pattern that is drawn.

All give RGB pictures (h, w, 3) uint8. OpenCV is imported when a camera or a file is opened.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DriverError, MissingDependencyError

Picture = UInt8[ndarray, "h w 3"]


@runtime_checkable
class PictureSource(Protocol):
    """A row of pictures."""

    def read(self) -> Picture | None:
        """The next picture, waiting for it; None when there is none any more."""
        ...

    def close(self) -> None: ...


def open_source(name: str, width: int, height: int, fps: float) -> PictureSource:
    """`pattern`, the number or path of a device (`0`, `/dev/video0`), or a video file.

    Raises DriverError when it cannot be opened, and ConfigError for a size or rate that no camera has.
    """
    if width < 8 or height < 8 or not 0.0 < fps <= 1000.0:
        raise ConfigError(
            f"A camera of {width} x {height} at {fps} Hz cannot be; expected at least 8 x 8, up to 1000 Hz."
        )
    if name == "pattern":
        return Pattern(width, height)
    if name.isdecimal() or name.startswith("/dev/"):
        return CameraDevice(name, width, height, fps)
    return Film(name)


@dataclass
class Pattern:
    """A bar that wanders to the right by one pixel per picture; the first pixels hold the picture's
    number.
    """

    width: int
    height: int
    number: int = 0

    def read(self) -> Picture:
        """Never ends. `number_of` tells which one it is."""
        ramp = np.arange(self.width, dtype=np.int64) + self.width - self.number
        picture = np.zeros((self.height, self.width, 3), np.uint8)
        picture[..., 1] = (ramp % self.width * 255 // self.width).astype(np.uint8)
        picture[0, :4, 0] = np.frombuffer(np.uint32(self.number).tobytes(), np.uint8)
        self.number += 1
        return picture

    def close(self) -> None:
        """Nothing to close."""


def number_of(picture: Picture) -> int:
    """The number that `Pattern` gave its picture, from 0."""
    return int(np.frombuffer(picture[0, :4, 0].tobytes(), np.uint32)[0])


class Film:
    """A video file, from its beginning; ends with it."""

    def __init__(self, path: str) -> None:
        if not Path(path).is_file():
            raise DriverError(
                f"There is no video file '{path}'. A camera is named by its number or path (0, /dev/video0), "
                "a drawn picture by `pattern`."
            )
        self._capture = _capture(path)
        if not self._capture.isOpened():
            raise DriverError(f"'{path}' is no video that OpenCV can read.")

    def read(self) -> Picture | None:
        return _read(self._capture)

    def close(self) -> None:
        self._capture.release()


class CameraDevice:
    """A camera that OpenCV can open."""

    def __init__(self, name: str, width: int, height: int, fps: float) -> None:
        import cv2

        self._capture = _capture(int(name) if name.isdecimal() else name)
        if not self._capture.isOpened():
            found = ", ".join(str(path) for path in sorted(Path("/dev").glob("video*"))) or "none"
            raise DriverError(
                f"Camera '{name}' cannot be opened; devices here: {found}. Plug it in, close the program "
                "that uses it, and see that you may read it (group video)."
            )
        for key, value in ((cv2.CAP_PROP_FRAME_WIDTH, width), (cv2.CAP_PROP_FRAME_HEIGHT, height)):
            self._capture.set(key, value)
        self._capture.set(cv2.CAP_PROP_FPS, fps)
        self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)  # the newest picture, not the oldest that waits

    def read(self) -> Picture | None:
        return _read(self._capture)

    def close(self) -> None:
        self._capture.release()


def _capture(name: int | str) -> Any:
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "Cameras and video files need OpenCV, which is not installed. Run: pip install 'robo-rl[robot]'"
        ) from error
    cv2.utils.logging.setLogLevel(
        cv2.utils.logging.LOG_LEVEL_SILENT
    )  # its warnings about devices that are not there say less than ours
    return cv2.VideoCapture(name)


def _read(capture: Any) -> Picture | None:
    import cv2

    ok, picture = capture.read()
    return cv2.cvtColor(picture, cv2.COLOR_BGR2RGB) if ok and picture is not None else None
