"""Command levels: meaning of a flight policy's four outputs, shared by simulator, bundle and robot.

motors    rotor speeds, for a policy that runs on board
rates     collective thrust and body rates, which an autopilot tracks with its own controller
velocity  velocity and yaw rate, which the policy's node turns into thrust and body rates
"""

from __future__ import annotations

LEVELS = ("motors", "rates")  # of commands to the flight filter
UNITS = {  # level -> unit of the action in a contract
    "motors": "motor command: -1 stopped, 1 full speed",
    "rates": "thrust weights: 1 hovers; body rates rad/s: x, y, z",
    "velocity": "m/s forward, left, up in level axes along the heading, rad/s yaw rate",
}
