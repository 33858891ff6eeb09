"""Annotations with shapes cost a robot nothing: without jaxtyping they are the class of the array."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["jaxtyping"] = None  # as on a robot, where it is not installed
from numpy import ndarray
from robo_rl.core.shapes import Float
assert Float[ndarray, "b a"] is ndarray
import robo_rl.apps.node, robo_rl.apps.nodes.builders, policies.deploy.runner, hardware.nodes.safety_filter
"""


def test_robot_programs_need_no_jaxtyping() -> None:
    """Nodes, runner and drivers import in a Python without it."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


def test_checked_runs_see_the_shapes() -> None:
    """`make shapes` imports jaxtyping first, so every annotation is one of jaxtyping's."""
    code = "import jaxtyping; from robo_rl.core.shapes import Float; assert Float is jaxtyping.Float"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
