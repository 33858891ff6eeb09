"""The keys of a description in docs/robot.md, from the code: `python -m hardware.description_table` prints
them.
"""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

from hardware.description import LAG_S, Box, CameraDescription, Joint, RobotDescription

PLACES: dict[str, Any] = {
    "": RobotDescription,
    "joints[]": Joint,
    "cameras.<name>": CameraDescription,
    "workspace": Box,
}
MEANINGS = {
    "name": "what messages call the robot",
    "command_hz": "rate at which it takes commands; what a stale command is follows from it",
    "state_hz": "rate at which it tells its state; what a stale state is follows from it",
    "joints": "its joints, in any order",
    "cameras": "name to what its pictures are",
    "start_jump_rad": "how far the first command may be from where the arm is",
    "workspace": "box for elbow, wrist and tool, in the frame of the base; needs each joint's `axis` and `offset_m`",
    "tool_m": "the tool in the frame of the last joint",
    "joints[].name": "as in `joint_states`, and as the driver calls it",
    "joints[].low_rad": "lower end of its range",
    "joints[].high_rad": "upper end of its range",
    "joints[].velocity_rad_s": "fastest that it may turn",
    "joints[].acceleration_rad_s2": "hardest that it may speed up or brake",
    "joints[].step_rad": "how far a command may be from where the joint is measured",
    "joints[].axis": "direction of the joint in the frame of the one before, at zero",
    "joints[].offset_m": "place of the joint in the frame of the one before, at zero",
    "cameras.<name>.width_px": "width of its pictures",
    "cameras.<name>.height_px": "height of its pictures",
    "cameras.<name>.rate_hz": "pictures per second",
    "cameras.<name>.source": "0, /dev/video0, a video file or pattern: the sets `arm` and `teleop` start a node for it",
    "workspace.low_m": "lowest corner [x, y, z]",
    "workspace.high_m": "highest corner [x, y, z]",
}
COMPUTED = {
    "tool_m": "the last joint itself",
    "cameras.<name>.source": "by `camera=`, or another program",
    "joints[].step_rad": f"{LAG_S:g} s at `velocity_rad_s`",
}  # where the default follows from another key


def key_rows() -> list[str]:
    """Markdown lines, one per key."""
    rows = ["| key | if left out | meaning |", "| --- | --- | --- |"]
    for place, kind in PLACES.items():
        for item in fields(kind):
            key = f"{place}.{item.name}".lstrip(".")
            rows.append(f"| `{key}` | {COMPUTED.get(key, _default(item))} | {MEANINGS[key]} |")
    return rows


def _default(item: Any) -> str:
    if item.default is not MISSING:
        return "none" if item.default is None else f"{item.default}"
    return "**needed**" if item.default_factory is MISSING else "none"


if __name__ == "__main__":
    print("\n".join(key_rows()))
