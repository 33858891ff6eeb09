"""Bundles shared by test files, because an export takes seconds."""

from __future__ import annotations

import pytest

from policies.deploy.bundle import Bundle
from policies.deploy.bundle_writer import write_bundle
from tests.policies.small import ENV, SMALL_ENV, SmallResidual, flow_policy


@pytest.fixture(scope="session")
def button_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Bundle of the flow policy of `small.py`; read-only, copy it before changes."""
    training = {"data": "20 demonstrations", "method": "flow", "seed": 0}
    measured = {"k": 97, "n": 100, "success": 0.97, "wilson95": [0.92, 0.99]}
    folder = tmp_path_factory.mktemp("bundles") / "button"
    return write_bundle(
        folder, flow_policy(), ENV, name="button", noise="gaussian", training=training, measured=measured
    )


@pytest.fixture(scope="session")
def residual_bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Bundle with a second graph, an image and unequal action limits; read-only."""
    folder = tmp_path_factory.mktemp("bundles") / "residual"
    return write_bundle(folder, SmallResidual(), SMALL_ENV, name="residual", noise="zero", training={})
