"""requirements.lock pins all requirements, is closed, and is installed, so that no test is skipped."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from robo_rl.core.packages import PACKAGES
from tests.pins import as_locked, declared, locked

TESTS = Path(__file__).resolve().parent
LEFT_OUT = (
    "gpu",
    "robosuite",
    "envpool",
)  # extras that the lock does not bring: tests that need them are skipped where it was installed
ROBOT_EXTRAS = ("robot", "dds", "ur", "xarm", "crazyflie", "px4")
ROS = {
    "ament_index_python.packages",
    "control_msgs",
    "launch_pytest",
    "rclpy",
    "ros2cli",
    "ros2launch",
    "tf2_msgs",
}  # come with ROS 2, which no lock can bring
OURS = ("robo_rl", "policies", "sim", "hardware")
MADE_FROM_IT = (
    0.9  # of the lock: an environment that has more was made from it, and lacks what it lacks by accident
)
IMPORT = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(f"{name}: {error!r}")
"""


def test_lock_satisfies_the_metadata() -> None:
    """Every extra except the excluded ones is in the lock, inside the stated range; the second OpenCV is
    not.
    """
    pins = locked()
    assert "opencv-python" not in pins
    for extra, wanted in declared().items():
        for requirement in wanted:
            if extra not in LEFT_OUT and (requirement.marker is None or requirement.marker.evaluate()):
                assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_lock_is_closed() -> None:
    """All dependencies of locked packages are locked: `--no-deps` installs nothing else (OpenCV of gym-pusht
    aside).
    """
    pins = locked()
    if sys.version_info < (3, 11):
        pytest.skip("the lock is for Python 3.11 and 3.12")
    for name in as_locked():
        for requirement in map(Requirement, metadata.distribution(name).requires or []):
            needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
            cuda = requirement.name.startswith(("nvidia", "cuda", "triton"))
            if needed and not cuda and canonicalize_name(requirement.name) != "opencv-python":
                assert canonicalize_name(requirement.name) in pins, f"{name} needs {requirement}"


@cache
def providers() -> dict[str, list[str]]:
    """Module -> the installed packages that provide it. Reads the files of all packages: once is enough."""
    return dict(metadata.packages_distributions())


@cache
def skipped_without() -> dict[str, str]:
    """Module -> a test file that is skipped without it, by its calls of `importorskip`."""
    found: dict[str, str] = {}
    for path in sorted(TESTS.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip":
                assert isinstance(node.args[0], ast.Constant), (
                    f"{path.name}: importorskip of what cannot be read here"
                )
                found.setdefault(str(node.args[0].value), path.name)
    return found


def distribution_of(module: str) -> str:
    """Canonical name of the package that provides `import module`."""
    top = module.split(".")[0]
    known = {package.module: package.distribution for package in PACKAGES}
    installed = providers().get(top, [top])[0]
    return canonicalize_name(known.get(top, installed))


def test_lock_has_all_optional_packages_of_the_tests() -> None:
    """Tests that need a package outside the lock would be skipped everywhere, unnoticed."""
    pins = locked()
    meant = {package.module for package in PACKAGES if package.extra in LEFT_OUT}
    for module, file in skipped_without().items():
        if module not in ROS and module.split(".")[0] not in meant | set(OURS):
            pybullet = module == "pybullet" and sys.version_info >= (3, 12)  # it has no wheel there
            assert pybullet or distribution_of(module) in pins, f"{file} is skipped without {module}"


def test_an_environment_made_from_the_lock_has_lost_nothing() -> None:
    """What tests are skipped without, and what robots need, can be imported, if the lock was installed at
    all.

    Python 3.10 with [robot] alone is no such environment: there the skips are meant.
    """
    pins, there = locked(), as_locked()
    if len(there) < MADE_FROM_IT * len(pins):
        pytest.skip(
            f"not made from requirements.lock: {len(there)} of its {len(pins)} packages are here as pinned"
        )
    robots = {package.module for package in PACKAGES if package.extra in ROBOT_EXTRAS}
    assert {distribution_of(module) for module in robots} <= set(pins)
    modules = sorted(robots | {module for module in skipped_without() if distribution_of(module) in pins})
    assert {
        "cyclonedds",
        "rosbags",
        "rtde_control",
        "xarm.core.config.x_config",
        "cflib",
        "pymavlink",
    } <= set(modules)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT, *modules], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lost = [line for line in done.stdout.splitlines() if line.split(":")[0] in modules]
    assert not lost, f"lost, run `make setup` again: {lost}"
