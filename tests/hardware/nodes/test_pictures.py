"""Policies with cameras in virtual time: they act on recent pictures only, however the camera fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.camera.jpeg import encoded
from hardware.description import CameraDescription
from hardware.messages import CompressedImage, Diagnostics, Floats, Image
from hardware.nodes.shared.pictures import UNKNOWN_S, NewestPictures, PictureSettings, picture_age_s
from hardware.safety.reasons import Reason
from hardware.topics import LOOP_STATUS, POLICY_STATUS, compressed_topic, image_topic
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import DataError
from robo_rl.core.spec import ArraySpec
from tests.hardware.arm_descriptions import arm
from tests.hardware.bundles import arm_bundle, arm_env
from tests.hardware.nodes.cell import Cell

CAMERAS = {"top": {"width_px": 32, "height_px": 32, "rate_hz": 30}}
PICTURE = Image(0.0, np.zeros((32, 32, 3), np.uint8))
SILENT = (
    "No picture of the camera 'top' has come for 0.1 s, so the policy is not asked: see that the camera runs."
)


@pytest.fixture(scope="module", params=[1, 16], ids=["single", "chunks"])
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A policy that observes the camera 'top' and the robot's state; decided by the head or a process."""
    env = arm_env(**{"image.top": ArraySpec((32, 32, 3), "uint8")})
    folder: Path = tmp_path_factory.mktemp("seeing") / "bundle"
    return arm_bundle(folder, request.param, max(1, request.param // 2), env)


def cell_with_camera(bundle: Bundle) -> tuple[Cell, list[float]]:
    """A cell whose camera runs at 30 Hz until its node is killed, and when its pictures were taken."""
    cell, taken = Cell(bundle, cameras=CAMERAS), list[float]()
    bus = cell.world.bus("camera")
    publish = image_topic("top").publisher(bus)

    def tick() -> None:
        publish(PICTURE)
        taken.append(bus.now())

    bus.timer(1 / 30, tick)
    cell.give(Floats(np.array([0.5])))
    return cell, taken


def test_dead_camera_ends_the_commands(seeing: Bundle) -> None:
    """No command is based on a picture older than 3 periods; the filter holds, then stops; one report."""
    cell, taken = cell_with_camera(seeing)
    cell.until(1.0)
    assert len(cell.raw) >= 40
    assert cell.filter.filter.reason is None
    cell.world.kill("camera")
    cell.until(5.0)
    decided_s = [m.stamp_s for m in (cell.chunks if seeing.chunk > 1 else cell.raw)]
    assert (
        taken[-1] + 0.02 < max(decided_s) <= taken[-1] + 0.1 + 0.02
    )  # stamped with the state before the decision
    played_s = (seeing.chunk if seeing.chunk > 1 else 0) / 50.0  # what is left of the last chunk
    assert max(m.stamp_s for m in cell.raw) <= taken[-1] + 0.1 + 0.05 + played_s
    assert Reason.STALE_COMMAND in cell.filter.filter.counts
    assert cell.filter.at_rest
    waited = [line for line in cell.said if "has come yet" not in line]  # before the camera's first one
    assert waited == [f"{'policy' if seeing.chunk > 1 else 'head'}: {SILENT}"]


def test_returning_camera_is_used_again(seeing: Bundle) -> None:
    """Until then the status is a warning with what is missing."""
    cell, _ = cell_with_camera(seeing)
    heard: list[Diagnostics] = []
    for topic in (POLICY_STATUS, LOOP_STATUS):
        topic.subscribe(cell.bus["task"], lambda m, at: heard.append(m))
    cell.until(1.0)
    cell.world.kill("camera")
    cell.until(2.0)
    newest = {status.name: status for m in heard for status in m.status}
    who = "policy" if seeing.chunk > 1 else "head"
    assert (newest[who].level, newest[who].message) == (1, SILENT)
    sent = len(cell.raw)
    again = cell.world.bus("camera_again")
    publish = image_topic("top").publisher(again)
    again.timer(1 / 30, lambda: publish(PICTURE))
    cell.until(3.0)
    assert len(cell.raw) > sent + 30
    newest = {status.name: status for m in heard for status in m.status}
    assert newest[who].level == 0


def test_compressed_pictures_are_used(seeing: Bundle) -> None:
    """A malformed one silences the policy, which reports it once."""
    cell = Cell(seeing, pictures=PictureSettings(transport="compressed"), cameras=CAMERAS)
    bus, sent = cell.world.bus("camera"), list[float]()
    publish, whole = compressed_topic("top").publisher(bus), encoded(PICTURE.pixels, 90)

    def tick() -> None:
        broken = 1.0 < bus.now() < 2.0
        publish(CompressedImage(0.0, whole[:0] if broken else whole))
        sent.append(bus.now())

    bus.timer(1 / 30, tick)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    assert len(cell.raw) >= 40
    cell.until(1.9)
    before = len(cell.raw)
    cell.until(2.0)
    assert len(cell.raw) == before
    assert cell.said[-1].endswith("A compressed picture of 0 bytes is no JPEG or PNG that OpenCV can decode.")
    cell.until(3.0)
    assert len(cell.raw) > before + 30
    assert len([line for line in cell.said if "has come yet" not in line]) == 1


def test_each_compressed_picture_is_decoded_once() -> None:
    """A head asks at every state, several times per picture."""
    world = InProcessWorld()
    bus, camera = world.bus("policy"), world.bus("camera")
    pictures = NewestPictures(
        bus, arm(cameras=CAMERAS), ("image.top",), PictureSettings(transport="compressed")
    )
    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    compressed_topic("top").publisher(camera)(CompressedImage(1.5, encoded(pixels, 100), frame="top_optical"))
    until(world, bus, 0.01)
    first = pictures.fresh()["image.top"]
    assert (first.stamp_s, first.frame, first.pixels.shape) == (1.5, "top_optical", (32, 32, 3))
    assert np.abs(first.pixels.mean(axis=(0, 1)) - pixels.mean(axis=(0, 1))).max() < 5.0  # red is red
    assert pictures.fresh()["image.top"] is first


def test_policy_waits_for_the_first_picture(seeing: Bundle) -> None:
    cell = Cell(seeing, cameras=CAMERAS)
    cell.give(Floats(np.array([0.5])))
    cell.until(1.0)
    assert not cell.raw
    assert cell.said[-1].endswith("No picture of the camera 'top' has come yet.")


@pytest.mark.parametrize(("age_s", "limit_s"), [(None, 0.1), (0.4, 0.4)])
def test_age_counts_from_receipt(age_s: float | None, limit_s: float) -> None:
    """A stamp far in the future makes no picture recent, and one of 1970 makes none old."""
    world = InProcessWorld()
    bus, camera = world.bus("policy"), world.bus("camera")
    pictures = NewestPictures(bus, arm(cameras=CAMERAS), ("image.top",), PictureSettings(age_s))
    assert pictures.fresh() == {}
    for stamp_s in (-1e9, 1e9):
        image_topic("top").publisher(camera)(Image(stamp_s, PICTURE.pixels))
        begin_s = world.now()
        until(world, bus, begin_s + limit_s - 0.01)
        assert pictures.fresh()["image.top"].stamp_s == stamp_s
        until(world, bus, begin_s + limit_s + 0.06)
        with pytest.raises(DataError, match=f"has come for {limit_s:.3g} s"):
            pictures.fresh()


def until(world: InProcessWorld, bus: Any, end_s: float) -> None:
    bus.timer(max(1e-6, end_s - world.now()), lambda: None)  # so that there is an instant to wait for
    bus.spin(lambda: world.now() >= end_s - 1e-9)


def test_largest_age_follows_the_camera_rate() -> None:
    """A slow camera is not reported as dead; one that is not in the description has half a second."""
    robot = arm(cameras={"slow": {"width_px": 8, "height_px": 8, "rate_hz": 5}})
    assert robot.cameras["slow"] == CameraDescription(8, 8, 5.0)
    assert picture_age_s(robot, "slow") == pytest.approx(0.6)
    assert picture_age_s(robot, "other") == UNKNOWN_S
