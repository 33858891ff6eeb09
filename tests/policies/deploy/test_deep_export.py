"""Actors with deep networks as files and as graphs, with the statistics that they learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from policies.deploy.export import export_policy
from policies.deploy.graph import OnnxGraph
from policies.tuned.direct import DirectPolicy
from robo_rl.core.action_map import DirectMap
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import generator
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl import test_bro, test_simba_v2, test_xqc
from tests.rl.tuners import batch
from tests.rl.worlds import SPEC


@pytest.mark.long
@pytest.mark.parametrize(
    "settings", [test_bro.SMALL, test_simba_v2.SMALL, test_xqc.SMALL], ids=["bro", "simba_v2", "xqc"]
)
def test_file_and_graph_act_like_the_actor(settings: dict[str, Any], tmp_path: Path) -> None:
    """After updates, with statistics of mean 2: the file acts equally, the graph within 1e-5 of the range."""
    made = OffPolicyLearner(2, DirectMap(1), LearnerConfig(**settings), generator("export"))
    seen = batch(64, obs=2)
    if made.scales is not None:
        ended = torch.zeros(64, dtype=torch.bool)
        values = {"reward": seen.reward, "steps": torch.ones(64), "terminated": ended, "truncated": ended}
        made.scales.add(64, Lanes.all(64), {"obs": 2.0 + 3.0 * seen.obs, **values})
    for _ in range(4):
        made.update(seen)
    policy = DirectPolicy(SPEC, actor=made.actor).eval()
    again = DirectPolicy.from_config(policy.config()).eval()
    again.load_state_dict(policy.state_dict())
    obs, noise = {"state": 2.0 + torch.randn(33, 1, 2)}, torch.zeros(33, 1, 1)
    expected = policy.action_spec.denormalize(policy.sample(obs, noise)).detach()
    assert expected.std() > 0.0
    assert torch.equal(again.action_spec.denormalize(again.sample(obs, noise)), expected)
    export_policy(again, tmp_path / "bundle")
    found = OnnxGraph(tmp_path / "bundle" / "policy.onnx", "policy.onnx").run(
        {**obs, "noise": noise}, "chunk"
    )
    torch.testing.assert_close(found, expected, atol=4e-5, rtol=0.0)
