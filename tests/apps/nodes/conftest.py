"""A bundle for the simulated arm."""

from __future__ import annotations

from contextlib import closing

import pytest

from policies.deploy.bundle import Bundle
from sim.registry import make_env
from tests.hardware.bundles import arm_bundle


@pytest.fixture(scope="session")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """An untrained bundle for the simulated arm."""
    with closing(make_env("arm6/reach", 1)) as env:
        return arm_bundle(tmp_path_factory.mktemp("reach") / "bundle", env=env.spec)
