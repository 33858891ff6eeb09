"""Landing model of a simulated craft, separate from the simulator, which a flight filter never loads."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hardware.safety.landing import CraftModel
from sim.engines.quad.craft import Craft


def craft_model(craft: Craft) -> CraftModel:
    """Parameters of the craft that a landing needs."""
    values: dict[str, Any] = {item.name: getattr(craft, item.name) for item in fields(CraftModel)}
    return CraftModel(**values)
