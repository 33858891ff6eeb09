"""The repository root is a ROS 2 package: pip's colcon finds it as ament_python, and builds it both ways."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_project import ROOT, tracked

pytest.importorskip("colcon_ros", reason="colcon is not installed: pip install 'robo-rl[dev]'")


def run(workspace: Path, *words: str) -> str:
    """Run a command in the workspace as in a user's shell, without this checkout on the path."""
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "AMENT_PREFIX_PATH")
    }
    environment |= {
        "COLCON_HOME": str(workspace / "home"),
        "PATH": f"{Path(sys.executable).parent}:{environment['PATH']}",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(words, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A colcon workspace with a copy of the package."""
    for path in tracked():
        target = tmp_path / "src" / "robo_rl" / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    return tmp_path


def test_colcon_sees_a_ros_package(workspace: Path) -> None:
    """Not as plain Python, to which colcon falls back silently: `ros2 launch` would then not find the
    package.
    """
    assert run(workspace, "colcon", "list").split() == ["robo_rl", "src/robo_rl", "(ros.ament_python)"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", [(), ("--symlink-install",)], ids=["copied", "linked"])
def test_colcon_installs_the_files_of_ros(workspace: Path, mode: tuple[str, ...]) -> None:
    """The marker, package.xml, launch files and the command; in a shell that sourced it, modules start by
    -m.
    """
    run(workspace, "colcon", "build", *mode)
    prefix = workspace / "install" / "robo_rl"
    assert (prefix / "share/ament_index/resource_index/packages/robo_rl").exists()
    assert (prefix / "share/robo_rl/package.xml").exists()
    names = {path.name for path in (prefix / "share/robo_rl/launch").iterdir()}
    assert names == {path.name for path in (ROOT / "launch").glob("*.launch.py")}
    assert all(path.is_symlink() == bool(mode) for path in (prefix / "share/robo_rl/launch").iterdir())
    assert os.access(prefix / "lib/robo_rl/robo-rl", os.X_OK)
    script = '. install/local_setup.sh && echo "$AMENT_PREFIX_PATH" && cd / && {} -m robo_rl.apps.node && {}'
    where = (
        f"{sys.executable} -c 'import robo_rl.apps.nodes.node_sets as m; print(m.__file__, m.set_names())'"
    )
    lines = run(workspace, "sh", "-c", script.format(sys.executable, where)).splitlines()
    assert lines[0].split(":")[0] == str(prefix)
    assert "safety_filter" in "".join(lines[1:-1])
    assert lines[-1].startswith(str(workspace))
    assert "arm_sim" in lines[-1]
