"""Gymnasium environments for users of gym-pybullet-drones: importing this module registers them.

    import gymnasium, sim.gym_drones
    env = gymnasium.make("robo_rl/HoverAviary-v0", act="one_d_rpm")

`gymnasium.make("sim.gym_drones:robo_rl/HoverAviary-v0")` imports it by itself.
"""

from __future__ import annotations

import gymnasium

ENVS = {  # id -> where it lives
    "robo_rl/HoverAviary-v0": "sim.flight.bullet.aviary:HoverAviary",
    "robo_rl/MultiHoverAviary-v0": "sim.flight.bullet.aviary:MultiHoverAviary",
    "robo_rl/VelocityAviary-v0": "sim.flight.bullet.aviary:VelocityAviary",
}

for _name, _place in ENVS.items():
    if _name not in gymnasium.registry:
        gymnasium.register(_name, entry_point=_place)
