"""The camera node in virtual time: its pictures, and its reports when they stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from hardware import messages as m
from hardware.bus.in_process import InProcessWorld
from hardware.camera.jpeg import decoded
from hardware.camera.source import Pattern, open_source, pattern_number
from hardware.nodes import camera as camera_module
from hardware.nodes.camera import CameraConfig, CameraNode
from hardware.topics import CAMERA_STATUS, camera_info_topic, compressed_topic, image_topic
from robo_rl.core.errors import ConfigError, DriverError
from tests.hardware.camera.test_calibration import FILE


@pytest.fixture
def film(tmp_path: Path) -> str:
    """Twelve pictures, blue at first and red at last."""
    path = str(tmp_path / "film.avi")
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*"MJPG"), 30.0, (64, 48))
    for number in range(12):
        writer.write(np.full((48, 64, 3), (250 - 20 * number, 0, 20 * number), np.uint8))  # OpenCV writes BGR
    writer.release()
    return path


def run(config: CameraConfig, seconds: float) -> tuple[CameraNode, list[m.Image], list[m.Status], list[str]]:
    """The node, its pictures, diagnostics and terminal output after this much virtual time."""
    world, said = InProcessWorld(), []
    node = CameraNode(world.bus("camera"), config, said.append)
    pictures: list[m.Image] = []
    states: list[m.Status] = []
    viewer = world.bus("viewer")
    image_topic(config.camera).subscribe(viewer, lambda picture, _: pictures.append(picture))
    CAMERA_STATUS.subscribe(viewer, lambda d, _: states.extend(d.status))
    viewer.spin(lambda: world.now() >= seconds)
    return node, pictures, states, said


def test_pattern_is_published_at_its_rate() -> None:
    """Two seconds at 30 Hz are 60 pictures, numbered without a gap, stamped with the time of capture."""
    _, pictures, states, said = run(CameraConfig(camera="wrist", source="pattern", width=64, height=48), 2.01)
    assert [pattern_number(picture.pixels) for picture in pictures] == list(range(60))
    assert pictures[0].pixels.shape == (48, 64, 3)
    assert pictures[0].frame == "wrist_optical"
    assert np.allclose(np.diff([picture.stamp_s for picture in pictures]), 1 / 30)
    assert states[-1].level == 0
    assert said == []


@pytest.mark.parametrize("transport", ["raw", "compressed", "both"])
def test_formats_are_published_as_configured(transport: str) -> None:
    """JPEG equals the raw picture within its loss; pairs of both formats have one stamp."""
    world = InProcessWorld()
    config = CameraConfig(camera="wrist", source="pattern", width=64, height=48, transport=transport)
    CameraNode(world.bus("camera"), config)
    viewer, raw, pressed = world.bus("viewer"), list[m.Image](), list[m.CompressedImage]()
    image_topic("wrist").subscribe(viewer, lambda picture, _: raw.append(picture))
    compressed_topic("wrist").subscribe(viewer, lambda picture, _: pressed.append(picture))
    viewer.spin(lambda: world.now() >= 0.51)
    assert len(raw) == (0 if transport == "compressed" else 15)
    assert len(pressed) == (0 if transport == "raw" else 15)
    for picture in pressed:
        assert picture.format == "rgb8; jpeg compressed bgr8"
        assert picture.frame == "wrist_optical"
        assert picture.data[:2].tobytes() == b"\xff\xd8"  # as every JPEG begins
        assert len(picture.data) < 64 * 48 * 3 / 3
    for picture, other in zip(pressed, raw, strict=False):
        assert picture.stamp_s == other.stamp_s
        inside = np.abs(decoded(picture.data)[8:, 8:].astype(int) - other.pixels[8:, 8:])
        assert np.median(inside) < 8


def test_camera_info_is_published_with_each_picture(tmp_path: Path) -> None:
    """With the same stamp and frame; none for pictures of another size, which is reported once."""
    (tmp_path / "wrist.yaml").write_text(FILE)
    for width, infos in ((64, 15), (32, 0)):
        world, said, states = InProcessWorld(), list[str](), list[m.Status]()
        config = CameraConfig("wrist", "pattern", width, 48, calibration=str(tmp_path / "wrist.yaml"))
        CameraNode(world.bus("camera"), config, said.append)
        viewer, pictures, told = world.bus("viewer"), list[m.Image](), list[m.CameraInfo]()
        image_topic("wrist").subscribe(viewer, lambda picture, _, to=pictures: to.append(picture))
        camera_info_topic("wrist").subscribe(viewer, lambda info, _, to=told: to.append(info))
        CAMERA_STATUS.subscribe(viewer, lambda d, _, to=states: to.extend(d.status))
        viewer.spin(lambda world=world: world.now() >= 0.51)
        assert len(pictures) == 15
        assert [(i.stamp_s, i.frame) for i in told] == [(p.stamp_s, p.frame) for p in pictures][:infos]
        assert len(told) == infos
        viewer.spin(lambda world=world: world.now() >= 1.1)
        assert len(said) == (0 if infos else 1)
        assert states[-1].level == (0 if infos else 1)
    assert "is of pictures of 64 x 48, these are 32 x 48" in said[0]


def test_pattern_moves_by_one_pixel() -> None:
    source = Pattern(64, 48)
    first, second = source.read()[1:, :, 1], source.read()[1:, :, 1]
    assert (np.roll(first, 1, axis=1) == second).all()


def test_video_file_is_played_once_in_rgb(film: str) -> None:
    """OpenCV's BGR order is reversed. The node reports the end of the file once."""
    node, pictures, states, said = run(CameraConfig(source=film), 2.5)
    assert len(pictures) == 12
    red, _, blue = pictures[0].pixels[24, 32]
    assert blue > 200 > 50 > red
    assert node.done
    assert said == [f"'{film}' has ended after 12 pictures."]
    assert (states[-1].level, states[-1].message) == (2, "ended")


def test_looped_video_repeats(film: str) -> None:
    node, pictures, _, said = run(CameraConfig(source=film, loop=True), 2.0)
    assert len(pictures) > 50
    assert not node.done
    assert said == []


@pytest.mark.parametrize("what", ["deleted", "no video any more"])
def test_deleted_looped_video_is_reported_once(film: str, what: str) -> None:
    """Pictures of the open file are still published; then one report, a status, and the node continues."""
    world, said, states = InProcessWorld(), list[str](), list[m.Status]()
    node = CameraNode(world.bus("camera"), CameraConfig(source=film, loop=True), said.append)
    viewer = world.bus("viewer")
    CAMERA_STATUS.subscribe(viewer, lambda d, _: states.extend(d.status))
    viewer.spin(lambda: world.now() >= 0.1)
    Path(film).unlink()
    if what != "deleted":
        Path(film).write_text("not a video")
    viewer.spin(lambda: world.now() >= 3.0)
    reason = f"There is no video file '{film}'" if what == "deleted" else f"'{film}' is no video"
    assert len(said) == 1
    assert said[0].startswith(f"Camera 'camera' cannot begin anew after 12 pictures: {reason}")
    assert node.done
    assert node.pictures == 12
    assert (states[-1].level, states[-1].values["pictures"]) == (2, "12")
    assert states[-1].message.startswith(reason)


def test_missing_camera_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="Camera '/dev/video97' cannot be opened; devices here"):
        open_source("/dev/video97", 640, 480, 30.0)
    with pytest.raises(DriverError, match="Camera '97' cannot be opened"):
        open_source("97", 640, 480, 30.0)
    with pytest.raises(DriverError, match=r"There is no video file 'nope\.mp4'"):
        open_source("nope.mp4", 640, 480, 30.0)
    (tmp_path / "text.mp4").write_text("not a video")
    with pytest.raises(DriverError, match="is no video that OpenCV can read"):
        open_source(str(tmp_path / "text.mp4"), 640, 480, 30.0)
    with pytest.raises(ConfigError, match="640 x 480 at 0"):
        open_source("pattern", 640, 480, 0.0)


class Unplugged:
    """A camera that gives forty pictures, then none, and works again when opened for the third time."""

    opened = 0

    def __init__(self) -> None:
        type(self).opened += 1
        if Unplugged.opened == 2:
            raise DriverError("Camera '0' cannot be opened")
        self.left = 40

    def read(self) -> Any:
        self.left -= 1
        return None if self.left < 0 else np.zeros((8, 8, 3), np.uint8)

    def close(self) -> None:
        """Nothing to close."""


def test_stopped_camera_is_reported_and_reopened(monkeypatch: pytest.MonkeyPatch) -> None:
    """One report of the stop, one of the return. Meanwhile no old picture is repeated."""
    monkeypatch.setattr(Unplugged, "opened", 0)
    monkeypatch.setattr(camera_module, "open_source", lambda *_: Unplugged())
    _, pictures, states, said = run(CameraConfig(source="0"), 4.5)
    assert 60 < len(pictures) < 80
    assert [line.split("(")[0].strip() for line in said[:2]] == [
        "Camera 'camera'",
        "Camera 'camera' is back.",
    ]
    assert "has stopped after 40 pictures" in said[0]
    assert {state.level for state in states} == {0, 2}
