"""Cameras of a simulated robot, published as a camera's driver would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

from numpy import ndarray

from hardware.bus.protocol import Bus
from hardware.messages import DepthImage, Image
from hardware.topics import depth_topic, image_topic
from robo_rl.core.shapes import Float, UInt8

SENSES = ("rgb", "depth", "rgb+depth")


@runtime_checkable
class SimCamera(Protocol):
    """A camera in a simulator."""

    def rgb(self) -> UInt8[ndarray, "h w 3"]: ...

    def depth_m(self) -> Float[ndarray, "h w"]:
        """Along the camera's axis."""
        ...

    def rgbd(self) -> tuple[UInt8[ndarray, "h w 3"], Float[ndarray, "h w"]]:
        """Both, of one instant."""
        ...


class SimCameras:
    """Publishes camera/<name>/image_raw, camera/<name>/depth/image_raw or both, `rate_hz` times per
    second.
    """

    def __init__(self, bus: Bus, cameras: Mapping[str, SimCamera], senses: str, rate_hz: float) -> None:
        self._bus, self._cameras = bus, dict(cameras)
        coloured, deep = "rgb" in senses, "depth" in senses
        self._show: dict[str, Callable[[Image], None]] = {
            name: image_topic(name).publisher(bus) for name in cameras if coloured
        }
        self._measure: dict[str, Callable[[DepthImage], None]] = {
            name: depth_topic(name).publisher(bus) for name in cameras if deep
        }
        bus.timer(1.0 / rate_hz, self._tick)

    def _tick(self) -> None:
        for name, camera in self._cameras.items():
            stamp_s, frame = self._bus.stamp(), f"{name}_optical"
            if name in self._show and name in self._measure:
                pixels, depth_m = camera.rgbd()
                self._show[name](Image(stamp_s, pixels, frame))
                self._measure[name](DepthImage(stamp_s, depth_m, frame))
            elif name in self._show:
                self._show[name](Image(stamp_s, camera.rgb(), frame))
            else:
                self._measure[name](DepthImage(stamp_s, camera.depth_m(), frame))
