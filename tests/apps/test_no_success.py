"""The verbs in an environment that gives returns and never reports whether an episode succeeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from robo_rl.apps import collect, train
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.data.episodes.reader import EpisodeStore
from tests.apps.conftest import collect_config, train_config

ENV = "gym/Pendulum-v1"


class Swings:
    """Demonstrator whose torque depends on the lane and the step alone."""

    def __init__(self, lanes: int) -> None:
        self._step, self._lanes = 0, lanes

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        pass

    def observe(self, obs: Obs) -> None:
        self._step += 1

    def act(self) -> Tensor:
        lane = torch.arange(self._lanes).unsqueeze(1)
        return 2.0 * torch.sin(0.3 * self._step + lane)

    def intervened(self) -> None:
        return None


def swing(out: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> int:
    """Collect episodes of `Swings`."""
    config = collect_config(out, env=ENV, num_envs=2, max_episode_steps=15, **changes)
    with monkeypatch.context() as patch:
        patch.setattr(collect, "make_demonstrator", lambda config, env: Swings(config.num_envs))
        return collect.main(config)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pendulum"
    with pytest.MonkeyPatch.context() as patch:
        assert swing(folder, patch, keep="all") == 0
    return folder


@pytest.fixture(scope="module")
def base(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that was trained on `data`."""
    folder = tmp_path_factory.mktemp("runs") / "base"
    assert train.main(train_config(data, folder)) == 0
    return folder


def test_success_of_collected_episodes_is_unknown(data: Path, base: Path) -> None:
    """The next command that collect prints, train, learns from all of them: none is marked as failed."""
    assert [episode.success for episode in EpisodeStore(data)] == [None] * 3
    assert (base / "policy").is_dir()


def test_keeping_successes_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as it is clear that no episode gets a label, and not after ten times the episodes."""
    with pytest.raises(ConfigError, match=r"in none of 20 episodes whether it succeeded.*Give keep=all"):
        swing(tmp_path / "data", monkeypatch)
    with pytest.raises(ConfigError, match=r"in none of 3 episodes whether it succeeded.*Give keep=all"):
        swing(tmp_path / "data", monkeypatch, attempts=3)
