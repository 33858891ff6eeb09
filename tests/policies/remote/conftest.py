"""Policy servers of the tests in this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.policies.remote.serving import Start, servers


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a server of a `ServedPolicy`; all of them end with the test."""
    with servers() as begin:
        yield begin
