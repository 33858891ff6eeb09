"""Cost of starting a robot node: CPU time and memory of a new process until the node is built.

    python benchmarks/node_start.py                  # every node that needs no robot
    python benchmarks/node_start.py --only recorder

The process imports, reads its settings and builds the node on a DDS bus in its own domain. The figures are
the median over several processes, after a first one that compiles the bytecode, as it is in an installed
package. `robot_driver` is left out, because building it connects to a robot.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # bundles are made by helpers of the tests

from common import emit, parser

from hardware.description import load_description
from tests.hardware.bundles import arm_bundle, arm_env, quad_bundle

DOMAIN = "98"
PROGRAM = """
import sys, time
from robo_rl.apps import node
from robo_rl.apps.nodes.node_table import node_settings
name, words = sys.argv[1], sys.argv[2:]
made, bus = node.start(name, node_settings(name, [*words, "bus=dds"]))
peak_kb = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(time.process_time(), int(peak_kb) / 1024, "torch" in sys.modules, flush=True)
made.finish()
bus.close()
"""
NODES = {
    "safety_filter": ["safety_filter", "robot=sim_arm"],
    "flight_filter": ["flight_filter", "level=motors", "bundle={folder}/hover"],
    "teleop": ["teleop", "robot=sim_arm", "device=keyboard"],
    "camera": ["camera", "source=pattern"],
    "recorder": ["recorder", "out={folder}/recordings"],
    "task": ["task", "goal=[0.3,0,0.3]"],
    "diagnostics": ["diagnostics"],
    "action_head": ["action_head", "robot=sim_arm"],
    "action_head_single_step": ["action_head", "robot=sim_arm", "bundle={folder}/single"],
    "arm_policy": ["arm_policy", "robot=sim_arm", "bundle={folder}/chunks"],
}


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--only", choices=sorted(NODES), help="one of the nodes")
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_bundles(Path(folder))
        for name in [args.only] if args.only else NODES:
            words = [word.format(folder=folder) for word in NODES[name]]
            measure(words, folder)  # compiles the bytecode
            runs = [measure(words, folder) for _ in range(2 if args.quick else 7)]
            torch = any(loaded for _, _, loaded in runs)
            emit(
                f"node/{name}/start_cpu_s", median(cpu_s for cpu_s, _, _ in runs), "cpu-s", torch_loaded=torch
            )
            emit(f"node/{name}/rss_mb", median(rss_mb for _, rss_mb, _ in runs), "MB", torch_loaded=torch)


def write_bundles(folder: Path) -> None:
    """Small untrained bundles for the simulated arm, and one for hovering."""
    env = arm_env(load_description("sim_arm").names)
    arm_bundle(folder / "chunks", env=env)
    arm_bundle(folder / "single", 1, 1, env)
    quad_bundle(folder / "hover")


def measure(words: list[str], folder: str) -> tuple[float, float, bool]:
    """(CPU seconds, MB of resident memory, whether torch was imported) of one new process."""
    environment = os.environ | {"ROS_DOMAIN_ID": DOMAIN, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    terminal, end = pty.openpty()  # terminal of teleoperation by keyboard
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], stdin=end, stdout=subprocess.PIPE, text=True, check=True,
        env=environment,
    ).stdout.splitlines()[-1].split()  # fmt: skip
    os.close(terminal)
    os.close(end)
    return float(found[0]), float(found[1]), found[2] == "True"


if __name__ == "__main__":
    main()
