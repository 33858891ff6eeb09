"""A barely trained base of the fastest task, with its demonstrations."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.apps.tuning.barely_trained import reach_base


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(demonstrations, base policy) of the fastest task."""
    return reach_base(tmp_path_factory.mktemp("finetune"), width=32)
