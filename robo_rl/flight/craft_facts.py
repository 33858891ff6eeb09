"""Aircraft parameters for the comment of a C header, whose reader has no craft file."""

from __future__ import annotations

from sim.engines.quad.craft import Craft

ROTORS = ("front right", "back right", "back left", "front left")


def craft_facts(craft: Craft) -> dict[str, str]:
    """Lines of the comment at the top of `policy.h`: source, full speed, thrust curve, spin, and validity."""
    c0, c1, c2 = craft.thrust_n
    return {
        "craft": f"{craft.name} ({craft.source})",
        "full speed": f"{craft.max_rpm:g} RPM, {sum(craft.thrust_n):.4g} N per rotor",
        "thrust": f"of one rotor at the fraction s of full speed: {c0:.6g} + {c1:.6g} s + {c2:.6g} s^2 N; "
        f"hover is s = {craft.hover_speed:.4f} at {craft.mass_kg:g} kg",
        "spin": ", ".join(f"{name} {_spin(sign)}" for name, sign in zip(ROTORS, craft.yaw_sign, strict=True))
        + "; seen from above",
        "valid for": "this craft. On another one the policy chatters: with 3.6 times the inertia its "
        "commands changed by 36 % of full speed per control period. Describe your craft in a YAML file and "
        "train for it: robo-rl fly craft=mine.yaml randomize=0.2",
    }


def _spin(yaw_sign: float) -> str:
    """Spin direction of a rotor, seen from above: its drag turns the body the other way, so +1 is
    clockwise.
    """
    return "clockwise" if yaw_sign > 0.0 else "counter-clockwise"
