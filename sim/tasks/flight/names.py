"""Names of the flight tasks."""

from __future__ import annotations

TASKS = ("hover", "figure8", "waypoints", "race", "obstacles")
BY_CAMERA = ("vision_hover",)  # tasks of the suite `pybullet`
