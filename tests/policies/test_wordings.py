"""Varied instructions in training: the task stays, the sentence changes, and resuming is exact."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch

from policies.training.wordings import RewordedWindows, reworded, varies
from policies.vla.config import VlaConfig
from robo_rl.core.text.instruction import INSTRUCTION, MOST_BYTES, padded, to_bytes, to_text

ALIKE = ("open the tap", "turn on the tap")
WORDINGS = {**dict.fromkeys(ALIKE, ALIKE), "wait": ("wait",)}


class Told:
    """Batches that are always told the same two instructions."""

    def __len__(self) -> int:
        return 10

    def batches(self, batch_size: int, seed: int, start: int, stop: int, *_: Any) -> Iterator[Any]:
        text = torch.stack([torch.from_numpy(to_bytes(each).copy())[None] for each in (ALIKE[0], "wait")])
        for _step in range(start, stop):
            yield {INSTRUCTION: text, "state": torch.zeros(2, 1, 3)}, torch.zeros(2, 4, 2)


def texts(source: Any, start: int, stop: int) -> list[list[str]]:
    batches = source.batches(2, 0, start, stop, torch.device("cpu"))
    return [[to_text(row[0].numpy()) for row in obs[INSTRUCTION]] for obs, _ in batches]


def test_every_wording_of_the_task_is_told_and_no_other() -> None:
    config = VlaConfig(word_dropout=0.0, word_insertions=0)
    told = texts(RewordedWindows(Told(), WORDINGS, config), 0, 20)
    assert {first for first, _ in told} == set(ALIKE)
    assert {second for _, second in told} == {"wait"}


def test_batches_are_a_function_of_the_update() -> None:
    """A run that continues at update 7 is told what it would have been told."""
    source = RewordedWindows(Told(), WORDINGS, VlaConfig())
    assert texts(source, 0, 12)[7:] == texts(source, 7, 12)


def test_known_words_keep_their_order_between_inserted_ones() -> None:
    rng = np.random.default_rng(0)
    config = VlaConfig(rewording=0.0, word_dropout=0.0, word_insertions=4)
    said = [reworded(ALIKE[0], WORDINGS, config, rng).split() for _ in range(200)]
    assert all(
        [word for word in each if word in ("open", "the", "tap")] == ["open", "the", "tap"] for each in said
    )
    assert {len(each) for each in said} == {3, 4, 5, 6, 7}
    assert len({each.index("open") for each in said}) > 3


def test_dropped_words_are_replaced() -> None:
    rng = np.random.default_rng(0)
    config = VlaConfig(rewording=0.0, word_dropout=0.25, word_insertions=0)
    said = [reworded("open it", {}, config, rng).split() for _ in range(1000)]
    assert all(len(each) == 2 for each in said)
    assert 0.2 < np.mean([each[0] != "open" for each in said]) < 0.3


def test_an_instruction_stays_within_its_size() -> None:
    rng = np.random.default_rng(0)
    full = "x" * MOST_BYTES
    assert {reworded(full, {}, VlaConfig(word_dropout=0.0), rng) for _ in range(20)} == {full}


def test_all_off_changes_nothing() -> None:
    config = VlaConfig(rewording=0.0, word_dropout=0.0, word_insertions=0)
    assert not varies(config)
    assert varies(VlaConfig())
    source = RewordedWindows(Told(), WORDINGS, config)
    assert list(islice(texts(source, 0, 3), 3)) == [[ALIKE[0], "wait"]] * 3


def test_recorded_text_without_words_stays() -> None:
    """`to_bytes` would refuse it in the middle of a training."""
    config = VlaConfig(rewording=0.0, word_dropout=0.0, word_insertions=0)
    text = torch.from_numpy(padded("...").copy())[None]
    assert torch.equal(RewordedWindows(Told(), {}, config)._reworded(text, 0), text)
