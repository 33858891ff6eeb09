"""Contents of the page that do not change while the app runs."""

from __future__ import annotations

from typing import Any

from robo_rl.apps.recording.scene import chain_of
from robo_rl.apps.recording.settings import AppSettings
from robo_rl.conf.record import RecordAppNodeConfig


def facts_of(settings: AppSettings, config: RecordAppNodeConfig) -> dict[str, Any]:
    """Robot, dataset and limits."""
    robot = settings.robot
    return {
        "robot": robot.name,
        "joints": list(robot.names),
        "low": robot.column("low_rad").tolist(),
        "high": robot.column("high_rad").tolist(),
        "cameras": list(settings.cameras),
        "rate_hz": settings.spec.control_hz,
        "command_hz": robot.command_hz,
        "longest_s": round(settings.spec.max_episode_steps / settings.spec.control_hz, 1),
        "out": str(settings.out),
        "operator": config.operator,
        "drives": settings.drives,
        "device": config.device,
        "resets": settings.resets,
        "gripper": robot.gripper is not None,
        "chain": chain_of(robot),
    }
