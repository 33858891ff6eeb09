"""A bundle for the simulated arm, and ROS' launch without ROS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policies.deploy.bundle import Bundle
from robo_rl.apps.nodes import ros_launch
from sim.registry import make_env
from tests.apps.nodes.fake_launch import install
from tests.hardware.bundles import arm_bundle


@pytest.fixture(scope="session")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """An untrained bundle for the simulated arm."""
    with closing(make_env("arm6/reach", 1)) as env:
        return arm_bundle(tmp_path_factory.mktemp("reach") / "bundle", env=env.spec)


@pytest.fixture
def fake_ros(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The fake launch without the check of the nodes, and locks of namespaces in a folder of this test."""
    install(monkeypatch)
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ros_launch, "_LOCKS", locks := [])
    monkeypatch.setattr(ros_launch, "_check", lambda commands, context: [])  # these bundles do not exist
    yield
    for lock in locks:
        lock.close()
