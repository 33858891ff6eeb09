"""Whole numbers are stored as they are, or refused: NumPy would wrap them to others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy import ndarray

from robo_rl.core.errors import DataError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.formats.rows import EpisodeRows, matching
from robo_rl.data.store import DatasetWriter, EpisodeStore


def _env(dtype: str) -> EnvSpec:
    return EnvSpec("robot/count", {"count": ArraySpec((2,), dtype)}, ActionSpec((-1.0,), (1.0,)), 10, 10.0)


def _rows(values: ndarray) -> EpisodeRows:
    zeros = np.zeros(len(values), dtype=np.float32)
    return EpisodeRows({"count": values}, zeros[:, None], zeros, zeros > 0, zeros > 0)


@pytest.mark.parametrize(
    ("given", "stored", "values", "words"),
    [
        ("uint16", "uint8", [0, 4000], r"'count' holds 4000, but the dataset stores uint8: 0 to 255\."),
        ("int64", "int32", [2**40, 0], "'count' holds 1099511627776"),
        ("int64", "int32", [0, -(2**40)], "'count' holds -1099511627776"),
        ("uint64", "int64", [0, 2**63], "'count' holds 9223372036854775808"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(
    given: str, stored: str, values: list[int], words: str, tmp_path: Path
) -> None:
    """Depth of 4 m in millimetres would come back as 160 mm."""
    row = np.array(values, dtype=given)
    writer = DatasetWriter.create(tmp_path / "set", _env(stored), min_free_bytes=0, durable=False)
    with pytest.raises(DataError, match=words), writer.episode() as episode:
        episode.add({"count": row}, np.zeros(1, dtype=np.float32))
    with pytest.raises(DataError, match=words.replace("'count'", "'here: count'")):
        matching(_env(stored), _rows(row[None]), "here")


def test_numbers_that_fit_are_stored_in_the_type_of_the_dataset(tmp_path: Path) -> None:
    row = np.array([3, 255], dtype=np.uint16)
    writer = DatasetWriter.create(tmp_path / "set", _env("uint8"), min_free_bytes=0, durable=False)
    with writer.episode() as episode:
        episode.add({"count": row}, np.zeros(1, dtype=np.float32))
        episode.commit()
    assert EpisodeStore(tmp_path / "set").episode(0).obs("count").tolist() == [[3, 255]]
    found = matching(_env("uint8"), _rows(row.astype(np.int64)[None]), "here")
    assert (found.obs["count"].dtype, found.obs["count"].tolist()) == (np.uint8, [[3, 255]])
