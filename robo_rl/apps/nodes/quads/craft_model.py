"""Craft of a bundle, and its landing model, without the simulator, which a flight filter never loads."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from hardware.safety.landing import CraftModel
from sim.engines.quad.craft import Craft, load_craft

if TYPE_CHECKING:
    from policies.deploy.bundle import Bundle

USUAL_CRAFT = "cf2x_l2f"


def bundle_craft(bundle: Bundle | None) -> Craft:
    """Craft in the name of the bundle's environment, the usual one where the name has none."""
    options = "" if bundle is None else bundle.env.name.partition(":")[2]
    named = [
        word.partition("=")[2].strip() for word in options.split(",") if word.strip().startswith("craft=")
    ]
    return load_craft(named[0] if named else USUAL_CRAFT)


def craft_model(craft: Craft) -> CraftModel:
    """Parameters of the craft that a landing needs."""
    values: dict[str, Any] = {item.name: getattr(craft, item.name) for item in fields(CraftModel)}
    return CraftModel(**values)
