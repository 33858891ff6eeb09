"""Both forms of `Lanes`, for modules whose tests all run in each.

form = pytest.fixture(scope="module", autouse=True, params=FORMS)(in_each_form)
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

FORMS = ["taken out", "masked"]  # of the host and of a GPU
FORM = {"masked": False}  # the present one


def in_each_form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Set the form of the selections of lanes for a run of the module's tests."""
    FORM["masked"] = request.param == "masked"
    yield
    FORM["masked"] = False
