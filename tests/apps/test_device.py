"""CPU threads of a training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from robo_rl.runs.device import set_cpu_threads


@pytest.fixture
def two_threads() -> Iterator[None]:
    """torch's own number of threads; restored to the tests' number afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("threads", "images", "taken"), [(0, False, 1), (0, True, 2), (1, True, 1), (3, False, 3), (3, True, 3)]
)
def test_number_of_threads(threads: int, images: bool, taken: int, two_threads: None) -> None:
    set_cpu_threads(threads, images)
    assert torch.get_num_threads() == taken


def test_training_on_states_uses_one_thread(dataset: Path, tmp_path: Path, two_threads: None) -> None:
    """The default; the setting may differ in a resumed run."""
    from robo_rl.apps import train
    from tests.apps.conftest import train_config

    assert train.main(train_config(dataset, tmp_path / "run", steps=4)) == 0
    assert torch.get_num_threads() == 1
    assert train.main(train_config(dataset, tmp_path / "run", steps=4, resume=True, threads=2)) == 0
    assert torch.get_num_threads() == 2
