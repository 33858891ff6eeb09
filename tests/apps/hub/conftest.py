"""What is pushed: a dataset, a run and a bundle."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import robo_rl as rr

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A dataset, a run trained on it and a bundle: `data`, `run`, `bundle`."""
    folder = tmp_path_factory.mktemp("made")
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(EXAMPLES))
    from point_env import record

    record(folder / "data", episodes=3)
    rr.train(data=folder / "data", out=folder / "run", steps=4, chunk=4, execute=2)
    rr.evaluate(folder / "run", episodes=4, num_workers=0)
    rr.export(folder / "run", out=folder / "bundle")
    yield folder
    patch.undo()
