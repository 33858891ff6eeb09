"""What the four numbers of a flight policy command: the words by which simulator, bundle and robot know it.

motors  rotor speeds, for a policy that runs on board
rates   collective thrust and body rates, which an autopilot behind a link follows with a loop of its own
"""

from __future__ import annotations

LEVELS = ("motors", "rates")
UNITS = {  # level -> unit of the action in a contract
    "motors": "motor command: -1 stopped, 1 full speed",
    "rates": "thrust weights: 1 hovers; body rates rad/s: x, y, z",
}
