"""`robo-rl call`: call a Trigger service of a running node, with or without ROS."""

from __future__ import annotations

import os

from hardware.bus.choose import make_bus
from robo_rl.conf.up import CallConfig


def main(config: CallConfig) -> int:
    """Print the answer; 0 for success, 1 for failure. Raises BusError if no server answers."""
    bus = make_bus(f"call_{os.getpid()}", config.namespace, config.bus)
    try:
        yes, sentence = bus.call(config.service, config.timeout_s)
    finally:
        bus.close()
    print(f"{config.service}: {'yes' if yes else 'no'}{f', {sentence}' if sentence else ''}")
    return 0 if yes else 1
