"""A vision-language-action policy on a device: neither its prefix nor its sampling reads it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from policies.vla.policy import VlaPolicy
from robo_rl.core.conditioning import empty_memory
from robo_rl.eval.host_reads import HostReads
from tests.policies.small_vla import SIDES, drawn, seen, small_vla, token_vla

POLICIES: dict[str, Callable[[], VlaPolicy]] = {
    "flow": small_vla,
    "points": lambda: small_vla(spatial=1.0),
    "memory": lambda: small_vla(memory=2),
    "experts": lambda: small_vla(experts=[[1], [0]]),
    "tokens": token_vla,
}


@pytest.mark.parametrize("name", POLICIES)
@torch.no_grad()
def test_encoding_and_sampling_read_nothing(name: str) -> None:
    """Texts of different lengths, as on a GPU; and the prefix is that of texts cut to the longest."""
    policy = POLICIES[name]()
    obs = {**seen(*SIDES), **empty_memory(policy, rows=2)}
    cut = policy.sample_from(policy.encode(obs), drawn(2))
    policy.backbone.cut_words = False
    with HostReads().watching() as found:
        chunk = policy.sample_from(policy.encode(obs), drawn(2))
    assert not found.reads, dict(found.reads)
    torch.testing.assert_close(chunk, cut, atol=1e-4, rtol=1e-4)
