"""A run starts from the networks of an earlier one, or from the scales of its demonstrations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.apps.tuning.compose import TuningSession
from robo_rl.apps.tuning.warm_start import empty_policy, start_from
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import CheckpointError, ConfigError, DataError
from robo_rl.core.files.state_io import save_state
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.runs.run_dir import RunDir
from tests.apps.tuning.methods.toy_sessions import session, small
from tests.rl.worlds import SPEC


def finished_run(
    folder: Path,
    demos: EpisodeStore,
    monkeypatch: pytest.MonkeyPatch,
    *overrides: str,
    name: str = "calql_offline",
) -> TuningSession:
    """A run with one checkpoint, as written by the verb."""
    built, env, _ = session(small(name, *overrides), demos, monkeypatch)
    while not built.tuner.done:
        built.tuner.advance()
    run = RunDir.create(folder, FinetuneVerb(out=str(folder)))
    with run.new_checkpoint(built.tuner.env_steps) as checkpoint:
        save_state(checkpoint, {"tuner": built.tuner.state_dict()})
    env.close()
    return built


def test_init_loads_an_earlier_run(
    tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """WSRL loads actor, critics and temperature of the earlier run, not the moments of its optimisers."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch)
    alpha = earlier.tuner.learner.multipliers.log_alpha.item()
    assert alpha != 0.0
    built, env, _ = session(small("wsrl"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    one, other = earlier.tuner.learner, built.tuner.learner
    pairs = [(other.actor, one.actor), (other.target_actor, one.target_actor)]
    pairs += [(other.critic, one.critic), (other.critics.target, one.critics.target)]
    for ours, theirs in pairs:
        found, expected = ours.state_dict(), theirs.state_dict()
        assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert all(value.eq(0.0).all() for value in other.actor_opt.tensors())
    assert other.multipliers.log_alpha.item() == alpha
    fixed, env, _ = session(
        small("wsrl", "method.learner.auto_alpha=false", "method.learner.alpha=0.1"), demos, monkeypatch
    )
    env.close()
    start_from(fixed.tuner, str(tmp_path / "earlier"))
    assert fixed.tuner.learner.multipliers.alpha.item() == pytest.approx(0.1)


def test_init_loads_the_statistics_too(
    tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SimbaV2: the networks that are loaded saw observations by the earlier run's mean and deviation."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch, name="simba_v2")
    built, env, _ = session(small("simba_v2"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    scales = [made.tuner.learner.scales for made in (earlier, built)]
    assert scales[0].obs.count > 1.0
    assert torch.equal(scales[0].obs.mean, scales[1].obs.mean)
    norms = [made.tuner.learner.actor.input_norm for made in (earlier, built)]
    assert torch.equal(norms[0].mean, norms[1].mean)
    assert norms[0].mean.ne(0.0).any()


def test_init_loads_a_head(tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """FQL: the weights, and that the head acts in place of its base."""
    earlier = finished_run(tmp_path / "earlier", demos, monkeypatch, name="fql")
    built, env, _ = session(small("fql"), demos, monkeypatch)
    env.close()
    start_from(built.tuner, str(tmp_path / "earlier"))
    one, other = (made.tuner.learner.head for made in (earlier, built))
    assert other.ready
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["method.learner.hidden=[16]"], r"shape \(.*\), this method's"),
        (["method.learner.heads=2"], "has biases"),
    ],
)
def test_mismatched_init_is_refused(
    overrides: list[str], word: str, tmp_path: Path, demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found, what was expected, a remedy."""
    finished_run(tmp_path / "earlier", demos, monkeypatch)
    built, env, _ = session(small("wsrl", *overrides), demos, monkeypatch)
    env.close()
    with pytest.raises(CheckpointError, match=word):
        start_from(built.tuner, str(tmp_path / "earlier"))


@pytest.mark.parametrize(
    ("verb", "settings", "word"),
    [
        (
            "train",
            TrainConfig(data="d", out="o"),
            "a run of robo-rl train, .* init= accepts a run of robo-rl",
        ),
        ("finetune", FinetuneVerb(out="o", method=MethodConfig(algorithm="ppo")), "with PPO"),
        ("finetune", FinetuneVerb(out="o", method=MethodConfig(name="auto")), "residual/run"),
    ],
)
def test_init_from_another_kind_of_run_is_refused(
    verb: str,
    settings: Any,
    word: str,
    tmp_path: Path,
    demos: EpisodeStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its checkpoint is valid: the message names the kind and what init= accepts, and does not advise
    deletion.
    """
    monkeypatch.setattr("sys.argv", ["robo-rl", verb])
    run = RunDir.create(tmp_path / "other", settings)
    with run.new_checkpoint(1) as checkpoint:
        save_state(checkpoint, {"step": 1})
    built, env, _ = session(small("wsrl"), demos, monkeypatch)
    env.close()
    with pytest.raises(CheckpointError, match=word) as said:
        start_from(built.tuner, str(tmp_path / "other"))
    assert "elete" not in str(said.value)
    with pytest.raises(CheckpointError, match=word):
        empty_policy(SPEC, str(tmp_path / "other"), None)


def test_missing_or_unsupported_init_is_refused(demos: EpisodeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """WSRL without `init`, and PPO with one."""
    for name, init, word in (("wsrl", None, "give init="), ("resip", "runs/x", "off-policy")):
        built, env, _ = session(small(name), demos, monkeypatch)
        env.close()
        with pytest.raises(ConfigError, match=word):
            start_from(built.tuner, init)


def test_states_are_normalised_by_the_demonstrations(demos: EpisodeStore) -> None:
    """Learning from scratch with demonstrations scales states to [-1, 1]."""
    policy = empty_policy(SPEC, None, str(demos.path))
    states = torch.tensor([[[2.5, 1.0]], [[3.5, 4.0]]])
    torch.testing.assert_close(policy.features({"state": states}), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    torch.testing.assert_close(empty_policy(SPEC, None, None).features({"state": states}), states[:, 0])


def test_empty_demonstrations_are_refused(tmp_path: Path) -> None:
    """A dataset without episodes gives a sentence, not NumPy's error on concatenation."""
    DatasetWriter.create(tmp_path / "data", SPEC)
    with pytest.raises(DataError, match="holds no complete episode"):
        empty_policy(SPEC, None, str(tmp_path / "data"))
