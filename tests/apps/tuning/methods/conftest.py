"""Demonstrations of the toy task."""

from __future__ import annotations

import numpy as np
import pytest

from robo_rl.data.store import DatasetWriter, EpisodeStore
from tests.rl.worlds import LIMIT, SPEC


@pytest.fixture(scope="session")
def demos(tmp_path_factory: pytest.TempPathFactory) -> EpisodeStore:
    """Two successes of three steps."""
    folder = tmp_path_factory.mktemp("demos") / "target"
    writer = DatasetWriter.create(folder, SPEC)
    for target in (2.5, 3.5):
        with writer.episode(task="reach", seed=0) as episode:
            for step in range(3):
                state = np.array([target, 1.0 + step], np.float32)
                episode.add({"state": state}, np.array([LIMIT], np.float32), reward=0.0)
            episode.commit(success=True, final_obs={"state": np.array([target, 4.0], np.float32)})
    return EpisodeStore(folder)
