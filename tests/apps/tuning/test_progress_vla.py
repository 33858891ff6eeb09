"""A reward for progress of a vision-language-action policy: its model reads the pooled features."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.apps.tuning.compose import build_session
from robo_rl.apps.tuning.rewards.progress import read_progress
from robo_rl.conf.finetune import MethodConfig
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.rl.on_policy.tuner import PpoTuner
from robo_rl.rl.progress.model import fit_progress
from robo_rl.runs.run_dir import PROGRESS
from tests.apps.tuning.test_vla_methods import METHODS, TOKENS, begin
from tests.policies.small_vla import SPEC, seen, sides_env, token_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

WEIGHT = 0.5


@pytest.fixture
def demos(tmp_path: Path) -> EpisodeStore:
    """Two episodes of five steps, with pictures and words."""
    writer = DatasetWriter.create(tmp_path / "data", SPEC)
    for number in range(2):
        frames = [
            {key: value[0, 0].numpy() for key, value in seen("right", seed=6 * number + t).items()}
            for t in range(6)
        ]
        with writer.episode() as episode:
            for frame in frames[:5]:
                episode.add(frame, torch.full((2,), 0.5).numpy())
            episode.commit(success=True, final_obs=frames[5])
    return EpisodeStore(tmp_path / "data")


def rolled_out(method: MethodConfig, demos: EpisodeStore, run: Path) -> Any:
    """(rollout, columns that critics see) after seven control steps."""
    with closing(sides_env()) as env:
        made = build_session(method, token_vla(), env, seed=0, demos=demos, say=lambda _: None, run=run)
        begin(made, env)
        for _ in range(7):
            made.tuner.advance()
        assert isinstance(made.tuner, PpoTuner)
        return made.tuner.rollout, made.tuner.learner.views.critic


def test_ppo_on_tokens_is_rewarded_for_progress(
    demos: EpisodeStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored row holds the prefix too; the potential is that of its first columns."""
    monkeypatch.setattr(fit_progress, "__defaults__", (20,))
    plain, columns = rolled_out(METHODS[TOKENS], demos, tmp_path)
    shaped, _ = rolled_out(replace(METHODS[TOKENS], progress_weight=WEIGHT), demos, tmp_path)
    model, report = read_progress(tmp_path / PROGRESS)
    assert report.episodes == 2
    one, other = plain.data, shaped.data
    stored = torch.arange(one["reward"].shape[1]) < plain.count.unsqueeze(1)
    now, after = (model(one[name][stored][:, columns]) for name in ("obs", "next_obs"))
    added = WEIGHT * (one["discount"][stored] * after.masked_fill(one["terminated"][stored], 0.0) - now)
    torch.testing.assert_close(other["reward"][stored], one["reward"][stored] + added)
    assert one["obs"].shape[-1] > len(model.mean)
    assert stored.sum() >= 6
