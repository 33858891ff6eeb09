"""Registration of a test's own Gymnasium environments."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import pytest


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    """Name of an environment of the class in `request.param`, with episodes of 8 steps."""
    gymnasium.register("ForATest-v0", request.param, max_episode_steps=8)
    yield "gym/ForATest-v0"
    gymnasium.registry.pop("ForATest-v0")
