"""Prints the bus that `ros2 launch bus:=auto` uses: the one that the Python of the nodes can import."""

from __future__ import annotations

import sys

from hardware.bus.choose import choose
from robo_rl.core.errors import RoboRLError


def main() -> int:
    """Print the bus that `auto` selects in this Python; without one, print the sentence that says why."""
    try:
        print(choose("auto"))
    except RoboRLError as error:
        print(f"robo-rl: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
