"""A recording cell in virtual time; a browser and a live cell for tests of the pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.apps.recording.cell import RecordingCell
    from tests.apps.recording.live import LiveCell

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def cell(tmp_path: Path) -> RecordingCell:
    """The recording app's node between a small arm and the safety filter, with its dataset in `data`."""
    from tests.apps.recording.cell import make_cell

    return make_cell(tmp_path / "data", task="push the button")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    playwright = pytest.importorskip("playwright.sync_api", reason="the browser test needs playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed on this machine")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveCell]:
    """A cell with its page; an error of the page's scripts fails the test."""
    pytest.importorskip("uvicorn", reason="the page needs the extra app: pip install '.[app]'")
    from tests.apps.recording.live import live_cell

    with live_cell(tmp_path / "data", task="push the button") as cell:
        yield cell
    assert cell.faults == []
