"""Fine-tuning loop: storage of data, refused settings, and messages on failures."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from robo_rl.core.action_map import DirectMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.data.replay import Replay
from robo_rl.rl.loop import FinetuneConfig, FineTuner
from robo_rl.rl.mix import ReplayMix
from tests.rl.worlds import make_tuner, small_config, widths

MAP = ResidualMap(1, 0.2)


def with_anchors(config: FinetuneConfig) -> tuple[FineTuner, Any]:
    """A tuner whose mix has a separate buffer for the base's transitions."""
    tuner, env, _ = make_tuner(MAP, config)
    stores = {"online": tuner.mix["online"], "base": Replay(600, 3, widths(MAP))}
    tuner.mix = tuner.runner.mix = ReplayMix(stores, {"online": 0.5, "base": 0.5})
    return tuner, env


def test_base_transitions_stay_apart_as_anchors() -> None:
    """DAWN: transitions of the base alone go into their own buffer from the first step, those of training
    into the other.
    """
    tuner, env = with_anchors(small_config())
    while tuner.phase == "base":
        tuner.advance()
    assert len(tuner.mix["base"]) > 50
    assert len(tuner.mix["online"]) == 0
    kept = len(tuner.mix["base"])
    while not tuner.done:
        tuner.advance()
    env.close()
    assert len(tuner.mix["base"]) == kept
    assert len(tuner.mix["online"]) > 50


def test_log_has_the_diagnostics() -> None:
    """Saturation, size of the correction, Q of base and actor, |Q| relative to the largest return."""
    lines: list[dict[str, Any]] = []

    class Log:
        def log(self, step: int, values: Any) -> None:
            lines.append(dict(values))

    tuner, env, _ = make_tuner(MAP, small_config(actor="deterministic"), logger=Log())
    while not tuner.done:
        tuner.advance()
    env.close()
    last = next(line for line in reversed(lines) if "critic/q" in line)
    assert {
        "actor/saturation",
        "actor/u_rms",
        "critic/q_base",
        "critic/q_actor",
        "critic/q_abs_max",
    } <= last.keys()
    if tuner.collector.reward.largest > 0.0:
        assert last["critic/q_over_limit"] == pytest.approx(
            float(last["critic/q_abs_max"]) * (1.0 - 0.99), rel=1e-4
        )


def test_diverged_values_are_reported_once() -> None:
    """|Q| of 500 where rewards of 1 at gamma 0.99 give at most 100: the critics diverge."""
    said: list[str] = []
    tuner, env, _ = make_tuner(MAP, small_config())
    env.close()
    tuner.say, tuner.collector.reward.largest = said.append, 1.0
    tuner._last = {"critic/q_abs_max": torch.tensor(99.0)}
    assert tuner._diagnosis()["critic/q_over_limit"] == pytest.approx(0.99)
    tuner._last = {"critic/q_abs_max": torch.tensor(500.0)}
    tuner._diagnosis()
    tuner._diagnosis()
    assert len(said) == 1
    assert "|Q| = 500" in said[0]
    assert "(1 - gamma) = 100" in said[0]
    tuner.config.progress_weight, tuner.warned = 10.0, False
    assert tuner._diagnosis()["critic/q_over_limit"] == pytest.approx(500.0 / 110.0)
    assert "progress_weight = 110" in said[1]


def test_a_metric_that_is_not_finite_does_not_break_the_checkpoint(tmp_path: Any) -> None:
    """A run that diverges must still be saved and resumed: its last loss is NaN."""
    from robo_rl.core.files.state_io import load_state, save_state

    tuner, env, _ = make_tuner(MAP, small_config())
    tuner._last = {"critic/loss": torch.tensor(float("nan"))}
    save_state(tmp_path, tuner.state_dict())
    tuner.load_state_dict(load_state(tmp_path))
    env.close()
    assert torch.isnan(tuner._last["critic/loss"])


def test_guard_without_good_weights_restores_the_base() -> None:
    """The base itself: u = 0, with a message."""
    said: list[str] = []
    tuner, env, _ = make_tuner(MAP, small_config())
    env.close()
    tuner.say = said.append
    torch.nn.init.normal_(tuner.learner.actor.net[-1].weight)
    assert tuner.guard is not None
    for _ in range(40):
        tuner.guard.add(True, of_base=True)
        tuner.guard.add(False)
    tuner._check()
    assert tuner.learner.act(torch.randn(5, 4), torch.zeros(5, 1), explore=False).eq(0.0).all()
    assert "restoring the start" in said[0]


def test_the_guard_can_be_switched_off() -> None:
    """guard_window = 0: no guard, and the state is still saved and restored."""
    config = small_config()
    config.guard_window = 0
    tuner, env, _ = make_tuner(MAP, config)
    while not tuner.done:
        tuner.advance()
    tuner.load_state_dict(tuner.state_dict())
    env.close()
    assert tuner.reverts == 0


@pytest.mark.parametrize(("utd", "updates"), [(0.0, 0), (0.5, 30), (2.0, 120)])
def test_updates_follow_environment_steps(utd: float, updates: int) -> None:
    """60 online steps at an update-to-data ratio of 0, 1/2 and 2."""
    config = small_config()
    config.utd = utd
    tuner, env, _ = make_tuner(MAP, config)
    while not tuner.done:
        tuner.advance()
    env.close()
    assert tuner.learner.updates == updates


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"env_steps": 60}, "leaves no steps for learning"),
        ({"replay_capacity": 0}, "replay_capacity"),
        ({"utd": -1.0}, "utd"),
    ],
)
def test_phases_that_cannot_be_are_refused(change: dict[str, Any], words: str) -> None:
    """env_steps includes the base's steps: 60 of 60 used to run past the requested number."""
    config = small_config()
    for name, value in change.items():
        setattr(config, name, value)
    with pytest.raises(ConfigError, match=words):
        FineTuner(config, None, None, None, torch.Generator())  # type: ignore[arg-type]


def test_empty_replay_is_refused() -> None:
    """No base steps, no demonstrations: one sentence at the first update."""
    config = small_config()
    config.base_steps = config.burn_in = 0
    tuner, env, _ = make_tuner(DirectMap(1), config)
    with pytest.raises(ConfigError, match="base_steps"):
        tuner.advance()
    env.close()
