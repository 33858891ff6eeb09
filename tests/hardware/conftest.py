"""Fixtures shared by the tests of the robot side."""

from __future__ import annotations

import pytest

from policies.deploy.bundle import Bundle
from tests.hardware.bundles import arm_bundle, quad_bundle, rates_bundle


@pytest.fixture(scope="session")
def chunks(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle with chunks of 16 actions, of which 8 are executed, for the arm of `arms.py`."""
    return arm_bundle(tmp_path_factory.mktemp("chunks") / "bundle")


@pytest.fixture(scope="session")
def single(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of single actions, for the same arm."""
    return arm_bundle(tmp_path_factory.mktemp("single") / "bundle", chunk=1, execute=1)


@pytest.fixture(scope="session")
def hover(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A flight bundle that hovers."""
    return quad_bundle(tmp_path_factory.mktemp("hover") / "bundle")


@pytest.fixture(scope="session")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A flight bundle that hovers by thrust and body rates."""
    return rates_bundle(tmp_path_factory.mktemp("rates") / "bundle")
