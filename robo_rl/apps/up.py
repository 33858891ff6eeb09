"""`robo-rl up`: run a set of nodes on a machine without ROS, one process each, as the launch files do with
ROS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial

from hardware.bus.choose import check_installed, choose
from hardware.bus.names import domain_id, namespace_of
from robo_rl.apps.nodes.node_sets import NodeSet, load_set
from robo_rl.apps.nodes.process import child_command, ignore_lost_readers
from robo_rl.apps.nodes.ros.network import network_notice, network_variables
from robo_rl.apps.nodes.supervise import Supervisor, namespace_lock
from robo_rl.conf.up import UpConfig
from robo_rl.core.text.commands import command

COMMANDING = {"action_head", "quad_policy", "teleop"}  # nodes that send commands to the filter
# Settings of sets.
ARGUMENTS = (
    "bundle",
    "robot",
    "driver",
    "controller",
    "output",
    "device",
    "device_settings",
    "leader",
    "level",
    "hover",
    "ground",
    "takeoff",
    "max_tilt_rad",
    "max_speed_m_s",
    "fence_m",
    "arm",
    "goal",
    "instruction",
    "camera",
    "camera_name",
    "cameras",
    "scene",
    "senses",
    "transport",
    "calibration",
    "record",
    "realtime",
    "remote",
    "heartbeat_s",
)


def main(config: UpConfig) -> int:
    """Run the set until it is stopped, or one of its nodes ends."""
    ignore_lost_readers()
    chosen = load_set(config.set)
    arguments = {name: getattr(config, name) for name in ARGUMENTS}
    texts = {name: _text(value) for name, value in arguments.items() if value is not None}
    namespace_of(config.namespace)
    bus = choose(config.bus)
    check_installed(bus)  # reports what is missing once, before anything starts
    common = [f"bus={bus}", f"namespace={config.namespace}"]
    network = network_variables(config.network, bus, os.environ)
    words = chosen.commands(texts)
    checked = subprocess.run(
        [sys.executable, "-m", "robo_rl.apps.nodes.preflight", json.dumps(words)], check=False
    )
    if checked.returncode:
        return checked.returncode
    commands = {name: child_command("robo_rl.apps.node", [*given, *common]) for name, given in words.items()}
    with namespace_lock(domain_id(None), config.namespace):
        print(f"up: {chosen.about} Nodes: {', '.join(commands)}. Ctrl-C stops them.", flush=True)
        if notice := network_notice(network):
            print(f"up: {notice}", flush=True)
        if not COMMANDING & words.keys():
            print(f"up: none of these nodes commands the robot{_wants(chosen)}.", flush=True)
        for name, given in words.items():
            if "arm=false" in given:
                armed_by = command(f"call {name}/arm", namespace=config.namespace or None)
                print(f"up: nothing moves before the filter is armed: {armed_by}, or arm=true.", flush=True)
        say = partial(print, flush=True)
        return Supervisor(commands, say, _key_reader(words), network).run(config.seconds)


def _key_reader(words: Mapping[str, Sequence[str]]) -> str | None:
    """Node that reads the keys of this terminal."""
    return "teleop" if "device=keyboard" in words.get("teleop", ()) else None


def _wants(chosen: NodeSet) -> str:
    """First argument of the set that starts a commanding node."""
    commanding = [member.when for member in chosen.members if member.node in COMMANDING and member.when]
    return f"; {commanding[0]}=... starts one that does" if commanding else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
