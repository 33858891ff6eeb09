"""Conversion between ROS messages and the records of cameras: raw, depth and JPEG pictures, intrinsics."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from hardware import messages as m
from hardware.bus.wire_values import New, floats, header, join_time
from robo_rl.core.errors import BusError
from robo_rl.core.shapes import UInt8

CHANNELS = {  # encoding -> (bytes per pixel, indices of red, green and blue)
    "rgb8": (3, (0, 1, 2)),
    "bgr8": (3, (2, 1, 0)),
    "rgba8": (4, (0, 1, 2)),
    "bgra8": (4, (2, 1, 0)),
    "mono8": (1, (0, 0, 0)),
}
DEPTHS = {"32FC1": "f4", "16UC1": "u2"}  # metres, and millimetres with 0 for unknown depths


def _rows(msg: Any, bytes_per_pixel: int, what: str) -> UInt8[ndarray, "h b"]:
    """The bytes of a sensor_msgs/Image, by rows, without padding. Raises BusError for a wrong size."""
    data = np.frombuffer(memoryview(msg.data), np.uint8)
    if msg.step < bytes_per_pixel * msg.width or data.size != msg.step * msg.height:
        raise BusError(
            f"{what} of {msg.width} x {msg.height} {msg.encoding} has {data.size} bytes and step={msg.step}; "
            f"expected step >= {bytes_per_pixel * msg.width} and step * height bytes."
        )
    return data.reshape(msg.height, msg.step)[:, : bytes_per_pixel * msg.width]


def pack_image(r: m.Image, new: New) -> Any:
    """sensor_msgs/Image. Raises BusError unless the pixels are (h, w, 3) uint8."""
    if r.pixels.dtype != np.uint8 or r.pixels.ndim != 3 or r.pixels.shape[2] != 3:
        raise BusError(f"An image has pixels {r.pixels.dtype} {r.pixels.shape}; expected uint8 (h, w, 3).")
    height, width, _ = r.pixels.shape
    return new(
        "sensor_msgs/msg/Image",
        header=header(new, r.stamp_s, r.frame),
        height=height,
        width=width,
        encoding="rgb8",
        step=3 * width,
        data=np.ascontiguousarray(r.pixels).reshape(-1),
    )


def unpack_image(msg: Any) -> m.Image:
    """RGB picture of a sensor_msgs/Image. Raises BusError for an unknown encoding or a wrong size."""
    if msg.encoding not in CHANNELS:
        raise BusError(f"An image is encoded as {msg.encoding!r}; expected one of {', '.join(CHANNELS)}.")
    depth, order = CHANNELS[msg.encoding]
    pixels = _rows(msg, depth, "An image").reshape(msg.height, msg.width, depth)
    rgb = pixels if msg.encoding == "rgb8" else pixels[..., order]
    return m.Image(join_time(msg.header.stamp), rgb, msg.header.frame_id)


def pack_depth(r: m.DepthImage, new: New) -> Any:
    """sensor_msgs/Image with the encoding 32FC1. Raises BusError unless the depths are (h, w)."""
    depth_m = np.ascontiguousarray(r.depth_m, dtype="<f4")
    if depth_m.ndim != 2:
        raise BusError(f"A depth picture has shape {depth_m.shape}; expected (h, w).")
    height, width = depth_m.shape
    return new(
        "sensor_msgs/msg/Image",
        header=header(new, r.stamp_s, r.frame),
        height=height,
        width=width,
        encoding="32FC1",
        step=4 * width,
        data=depth_m.view(np.uint8).reshape(-1),
    )


def unpack_depth(msg: Any) -> m.DepthImage:
    """Depths [m] of a sensor_msgs/Image, NaN where unknown. Raises BusError for an unknown encoding."""
    if msg.encoding not in DEPTHS:
        raise BusError(
            f"A depth picture is encoded as {msg.encoding!r}; expected one of {', '.join(DEPTHS)}."
        )
    kind = np.dtype(DEPTHS[msg.encoding]).newbyteorder(">" if msg.is_bigendian else "<")
    rows = np.ascontiguousarray(_rows(msg, kind.itemsize, "A depth picture"))
    values = rows.view(kind).reshape(msg.height, msg.width)
    depth_m = values.astype(np.float32)
    if msg.encoding == "16UC1":
        depth_m = np.where(values > 0, depth_m / np.float32(1000.0), np.float32(np.nan))
    return m.DepthImage(join_time(msg.header.stamp), depth_m, msg.header.frame_id)


def pack_compressed(r: m.CompressedImage, new: New) -> Any:
    """sensor_msgs/CompressedImage. Raises BusError unless the data are (n,) uint8."""
    data = np.ascontiguousarray(r.data)
    if data.dtype != np.uint8 or data.ndim != 1:
        raise BusError(f"A compressed image is {data.dtype} {data.shape}; expected the bytes as uint8 (n,).")
    stamped = header(new, r.stamp_s, r.frame)
    return new("sensor_msgs/msg/CompressedImage", header=stamped, format=r.format, data=data)


def unpack_compressed(msg: Any) -> m.CompressedImage:
    """Bytes of a sensor_msgs/CompressedImage, not decoded."""
    data = np.frombuffer(memoryview(msg.data), np.uint8)
    return m.CompressedImage(join_time(msg.header.stamp), data, msg.format, msg.header.frame_id)


def pack_info(r: m.CameraInfo, new: New) -> Any:
    """sensor_msgs/CameraInfo. Raises BusError for matrices of wrong shapes."""
    shapes = {"matrix": (3, 3), "rectification": (3, 3), "projection": (3, 4)}
    if wrong := [name for name, shape in shapes.items() if np.shape(getattr(r, name)) != shape]:
        raise BusError(
            f"A camera's {wrong[0]} has shape {np.shape(getattr(r, wrong[0]))}; expected {shapes[wrong[0]]}."
        )
    return new(
        "sensor_msgs/msg/CameraInfo",
        header=header(new, r.stamp_s, r.frame),
        height=r.height_px,
        width=r.width_px,
        distortion_model=r.model,
        d=floats(r.distortion),
        k=floats(r.matrix).reshape(-1),
        r=floats(r.rectification).reshape(-1),
        p=floats(r.projection).reshape(-1),
    )


def unpack_info(msg: Any) -> m.CameraInfo:
    """Intrinsics of a sensor_msgs/CameraInfo."""
    return m.CameraInfo(
        join_time(msg.header.stamp),
        int(msg.width),
        int(msg.height),
        msg.distortion_model,
        floats(msg.d),
        floats(msg.k).reshape(3, 3),
        floats(msg.r).reshape(3, 3),
        floats(msg.p).reshape(3, 4),
        msg.header.frame_id,
    )
