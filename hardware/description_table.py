"""Generator of the table of keys in docs/robot.md: `python -m hardware.description_table` prints it."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from hardware.description import (
    LAG_S,
    Box,
    CameraDescription,
    GripperDescription,
    Joint,
    RobotDescription,
)

PLACES: dict[str, Any] = {
    "": RobotDescription,
    "joints[]": Joint,
    "cameras.<name>": CameraDescription,
    "workspace": Box,
    "gripper": GripperDescription,
}
MEANINGS = {
    "name": "name of the robot in messages",
    "command_hz": "rate of commands; the age limit of commands follows from it",
    "state_hz": "rate of `joint_states`; the age limit of states follows from it",
    "joints": "the joints, in any order",
    "cameras": "the cameras, by name",
    "start_jump_rad": "largest distance between the first command and the measured position, at most π",
    "workspace": "allowed box for elbow, wrist and tool, base frame; needs all `axis` and `offset_m`",
    "tool_m": "position of the tool in the frame of the last joint",
    "frame_id": "frame of the arm's base, in the headers of joint states and trajectories",
    "state_publishers": "publishers of `joint_states`, 2 with a gripper there, at most 4; more stop the arm",
    "gripper": "which of the joints opens and closes the gripper; it does not move the tool",
    "joints[].name": "as in `joint_states` and in the driver",
    "joints[].low_rad": "lower position limit",
    "joints[].high_rad": "upper position limit",
    "joints[].velocity_rad_s": "velocity limit",
    "joints[].acceleration_rad_s2": "acceleration limit, also for braking",
    "joints[].step_rad": "largest distance of a command from the measured position; at most the range",
    "joints[].axis": "axis of rotation in the frame of the previous joint, at position zero; of any length",
    "joints[].offset_m": "origin of the joint in the frame of the previous joint, at position zero",
    "cameras.<name>.width_px": "width of the pictures",
    "cameras.<name>.height_px": "height of the pictures",
    "cameras.<name>.rate_hz": "pictures per second",
    "cameras.<name>.source": "`0`, `/dev/video0`, a video file or `pattern`, for a camera node of `up`",
    "workspace.low_m": "corner with the smallest coordinates [x, y, z]",
    "workspace.high_m": "corner with the largest coordinates [x, y, z]",
    "gripper.joint": "name of this joint in `joints`; its values there are in rad, or in m where it slides",
    "gripper.open_at": "position at which the gripper is open",
    "gripper.closed_at": "position at which the gripper is closed",
}
# Defaults that follow from another key or setting.
COMPUTED = {
    "tool_m": "origin of the last joint",
    "cameras.<name>.source": "the setting `camera=`, or another program",
    "joints[].step_rad": f"{LAG_S:g} s at `velocity_rad_s`; of a gripper, its whole range",
}


def key_rows() -> list[str]:
    """Markdown lines, one per key."""
    rows = ["| key | default | meaning |", "| --- | --- | --- |"]
    for place, kind in PLACES.items():
        for item in fields(kind):
            key = f"{place}.{item.name}".lstrip(".")
            rows.append(f"| `{key}` | {COMPUTED.get(key, _default(item))} | {MEANINGS[key]} |")
    return rows


def _default(item: Any) -> str:
    if item.default is not MISSING:
        return "none" if item.default is None else f"{item.default}"
    return "**required**" if item.default_factory is MISSING else "none"


if __name__ == "__main__":
    print("\n".join(key_rows()))
