"""A policy with two cameras in closed loop: camera, policy, head, filter and robot nodes in virtual time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hardware.loop.inference import Running
from hardware.loop.observation import Seen
from hardware.messages import Floats
from hardware.nodes.camera import CameraConfig, CameraNode
from robo_rl.core.spec import ArraySpec
from tests.hardware.bundles import arm_bundle, arm_env
from tests.hardware.nodes.cell import Cell, DelayedInference

CAMERAS = {
    "wrist": {"width_px": 64, "height_px": 32, "rate_hz": 30},
    "front": {"width_px": 32, "height_px": 32, "rate_hz": 10},
}


class Noting(DelayedInference):
    """Records the policy's last observation."""

    seen: Seen

    def request(self, seen: Seen, decision: int, running: Running | None = None) -> bool:
        self.seen = seen
        return super().request(seen, decision, running)


@pytest.mark.long
def test_policy_needs_both_cameras(tmp_path: Path) -> None:
    """Each observed picture is that of its own camera, scaled as in the bundle; one dead camera ends
    the commands.
    """
    shapes = {"image.wrist": (16, 32, 3), "image.front": (32, 32, 3)}
    env = arm_env(**{key: ArraySpec(shape, "uint8") for key, shape in shapes.items()})
    cell = Cell(arm_bundle(tmp_path / "bundle", env=env), inference=Noting, cameras=CAMERAS)
    for name, row in CAMERAS.items():
        size = row["width_px"], row["height_px"]
        CameraNode(cell.world.bus(f"camera_{name}"), CameraConfig(name, "pattern", *size, row["rate_hz"]))
    cell.give(Floats(np.array([0.5])))
    cell.until(2.0)
    assert isinstance(cell.inference, Noting)
    assert {key: value.shape[1:] for key, value in cell.inference.seen.items() if key != "state"} == shapes
    assert cell.filter.filter.reason is None
    commands = len(cell.raw)
    assert commands >= 80
    assert not [line for line in cell.said if "has come yet" not in line]
    cell.world.kill("camera_front")
    cell.until(5.0)
    assert len(cell.raw) < commands + 40  # what was left of the last chunk
    assert cell.said[-1].startswith("policy: No picture of the camera 'front' has come for 0.3 s")
    assert cell.filter.at_rest
