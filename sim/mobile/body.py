"""Which body a task of the suite `mobile` commands: a base, or a base with an arm on it."""

from __future__ import annotations

from typing import Any

from sim.drive import Body
from sim.mobile.drive import BaseBody
from sim.mobile.manipulator import ManipulatorBody, ManipulatorTask


def mobile_body(task: Any, options: Any) -> Body:
    """A task with a tool's reach has an arm."""
    if isinstance(task, ManipulatorTask):
        return ManipulatorBody(task, options)
    return BaseBody(task, options)
