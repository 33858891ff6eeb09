"""What the tests of the robot side share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hardware.domains import free_domain


@pytest.fixture
def domain(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A DDS domain of this test's own, also for the processes that it starts."""
    with free_domain() as number:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(number))
        monkeypatch.delenv("ROBO_RL_INTERFACE", raising=False)
        monkeypatch.delenv("ROS_DISTRO", raising=False)
        yield number
