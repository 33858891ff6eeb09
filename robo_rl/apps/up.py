"""`robo-rl up`: a set of nodes on a machine without ROS, each a process, as the launch files start them with ROS."""

from __future__ import annotations

import os
import sys
from functools import partial

from hardware.bus.choose import choose
from robo_rl.apps.node_sets import load_set
from robo_rl.apps.supervise import Supervisor
from robo_rl.conf.up import UpConfig

ARGUMENTS = ("bundle", "robot", "driver", "device", "level", "arm", "goal", "camera", "record")  # what sets may take


def main(config: UpConfig) -> int:
    """Run the set until it is stopped, or one of its nodes ends."""
    chosen = load_set(config.set)
    given = {name: getattr(config, name) for name in ARGUMENTS}
    texts = {name: _text(value) for name, value in given.items() if value is not None}
    bus = choose(config.bus)  # says what is missing once, before anything starts
    common = [f"bus={bus}", f"namespace={config.namespace}"]
    tended = [sys.executable, "-m", "robo_rl.apps.tended", str(os.getpid())]
    commands = {name: [*tended, *words, *common] for name, words in chosen.commands(texts).items()}
    print(f"up: {chosen.about} Nodes: {', '.join(commands)}. Ctrl-C stops them.", flush=True)
    for name, words in commands.items():
        if "arm=false" in words:
            print(f"up: nothing moves before the filter is armed: robo-rl call {name}/arm, or arm=true.", flush=True)
    return Supervisor(commands, partial(print, flush=True)).run(config.seconds)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
