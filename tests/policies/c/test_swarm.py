"""Swarm policies as C, including attention, compared with torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from policies.c import export as c_export
from policies.c.swarm import verify_c_swarm, write_c_swarm
from policies.flight.swarm import SwarmPolicy
from robo_rl.core.errors import CheckpointError
from tests.policies.flight.test_swarm import SENSES, joined, looked, made

needs_c = pytest.mark.skipif(not any(map(shutil.which, c_export.COMPILERS)), reason="no C compiler")
NOTE = {"craft": "cf2x_l2f"}


def sharp(**sizes: int) -> SwarmPolicy:
    """Weights of five times the usual size: sharp attention, which would reveal errors of the softmax."""
    policy = made(**sizes)
    with torch.no_grad():
        policy.query.weight *= 5.0
        for thing in policy.things:
            thing.get_parameter("weight").mul_(5.0)
    return policy


@needs_c
@pytest.mark.parametrize(
    "sizes", [{}, {"width": 8, "token": 4, "heads": 1}, {"width": 5, "token": 6, "heads": 3}]
)
def test_c_equals_torch(sizes: dict[str, int], tmp_path: Path) -> None:
    """1,000 random observations, half of the objects absent; any width, token size and number of heads."""
    policy, path = sharp(**sizes), tmp_path / "swarm.h"
    export = write_c_swarm(path, "swarm", policy, joined(*looked()).T, NOTE)
    assert verify_c_swarm(path, "swarm", policy) < 1e-5
    assert f"{export.macs} multiply-accumulates, {export.flash_bytes} bytes of flash" in path.read_text()
    assert "malloc" not in path.read_text()
    assert "double" not in path.read_text()


def test_multiply_adds_and_bytes(tmp_path: Path) -> None:
    """By hand, width 8, token 4: own, query, per kind context and objects with keys, logits and values,
    hidden, last.
    """
    export = write_c_swarm(tmp_path / "s.h", "s", sharp(width=8, token=4, heads=2), joined(*looked()).T, NOTE)
    things = 4 * (7 * 8 + 8) + 3 * (3 * 8 + 8)
    assert export.macs == SENSES.own_size * 8 + 8 * 4 + 2 * 8 * 8 + things + 12 * 8 + 8 * 4


@needs_c
def test_another_policy_and_a_broken_answer_are_refused(tmp_path: Path) -> None:
    """A header with other weights, or with one wrong sign in attention, is refused."""
    policy, path = sharp(), tmp_path / "swarm.h"
    write_c_swarm(path, "swarm", policy, joined(*looked()).T, NOTE)
    with pytest.raises(CheckpointError, match="other weights"):
        verify_c_swarm(path, "swarm", made(seed=1))
    path.write_text(path.read_text().replace("share = expf(logit", "share = expf(-logit"))
    with pytest.raises(CheckpointError, match=r"self test|differs from torch"):
        verify_c_swarm(path, "swarm", policy)
