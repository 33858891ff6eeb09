"""The loop: phases, the guard, and exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from robo_rl.core.action_map import ActionMap, CandidateMap, ChainMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.guard import Guard
from robo_rl.rl.loop import FinetuneConfig, FineTuner
from robo_rl.rl.mix import MixConfig, ReplayMix
from robo_rl.rl.running import CollectedEpisode, episode_logs
from tests.rl.worlds import make_tuner, small_config, widths


class Log:
    def __init__(self) -> None:
        self.lines: list[tuple[int, dict[str, float]]] = []

    def log(self, step: int, values: Any) -> None:
        self.lines.append((step, {name: float(value) for name, value in values.items()}))


def test_phases_follow_each_other() -> None:
    """Base alone, burn-in without a step, then online with one update per step."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config())
    seen = []
    while not tuner.done:
        seen.append((tuner.phase, tuner.env_steps))
        tuner.advance()
    env.close()
    assert seen[0] == ("base", 0)
    assert ("burn_in", 60) in seen
    assert tuner.learner.updates == 60
    assert tuner.env_steps == 120


def test_actor_is_zero_until_the_end_of_burn_in() -> None:
    """Base collection and burn-in leave u = 0."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config(actor="deterministic"))
    before = tuner.learner.actor_opt.flat.clone()
    while tuner.phase != "online":
        tuner.advance()
    env.close()
    assert torch.equal(tuner.learner.actor_opt.flat, before)


@pytest.mark.parametrize(
    ("action_map", "settings"),
    [
        (
            ResidualMap(1, 0.2),
            {"actor": "deterministic", "gate": True, "n_step": 3, "explore_correlation": 0.9},
        ),
        (ResidualMap(1, 0.2), {"actor": "deterministic", "return_floor": True}),
        (ResidualMap(1, 0.2, steps=2), {"actor": "gaussian"}),
        (LatentMap(4, 1, 1.5), {"actor": "gaussian", "auto_alpha": True}),
        (LatentMap(4, 1, 1.5, "gaussian"), {"actor": "gaussian", "norm_bound": 0.5, "heads": 4}),
        (CandidateMap(1, 2, 3), {"expectile": 0.7}),
        (CandidateMap(1, 2, 3, 0.1), {"actor": "gaussian"}),
        (ChainMap(4, 1, 0, 2), {"actor_delay": 2}),
    ],
)
@pytest.mark.parametrize("stop_at", [30, 60, 90])
def test_stopped_and_resumed_equals_uninterrupted(
    tmp_path: Path, action_map: ActionMap, settings: dict[str, Any], stop_at: int
) -> None:
    """Promise 7, through files and fresh objects: weights, replay and logged values, to the last bit."""
    config, whole_log, first_log, second_log = small_config(**settings), Log(), Log(), Log()
    whole, env, _ = make_tuner(action_map, config, logger=whole_log)
    while not whole.done:
        whole.advance()
    env.close()

    first, env, seeds = make_tuner(action_map, config, logger=first_log)
    while first.env_steps < stop_at:
        first.advance()
    save_state(tmp_path, {"tuner": first.state_dict(), "env": env.snapshot(), "seeds": seeds.count})
    env.close()

    second, env, seeds = make_tuner(action_map, config, logger=second_log)
    state = load_state(tmp_path)
    env.restore(state["env"], EpisodeSeeds(seeds.root, int(state["seeds"])))
    second.load_state_dict(state["tuner"])
    while not second.done:
        second.advance()
    env.close()
    assert first_log.lines + second_log.lines == whole_log.lines
    assert torch.equal(whole.learner.actor_opt.flat, second.learner.actor_opt.flat)
    assert torch.equal(whole.learner.critics.critic_opt.flat, second.learner.critics.critic_opt.flat)
    for name, value in whole.mix["online"].data.items():
        assert torch.equal(value.nan_to_num(), second.mix["online"].data[name].nan_to_num())


def test_thousands_of_episodes_are_logged_as_their_means() -> None:
    """A line for each of up to 64 episodes, else one line: 100 episodes, of which 25 succeed in 40 steps."""
    episodes = [CollectedEpisode(i, i < 25, 40 if i < 25 else 100, float(i < 25)) for i in range(100)]
    assert [line["train/success"] for line in episode_logs(episodes[:26])] == [1.0] * 25 + [0.0]
    (mean,) = episode_logs(episodes)
    assert mean == {"train/success": 0.25, "train/episode_steps": 85.0, "train/return": 0.25}
    assert episode_logs([]) == []


def test_the_guard_by_hand() -> None:
    """Base 40/50 = 0.8; 8 of 20 pooled gives p = 48/70, error 0.123: 0.4 < 0.8 - 2 * 0.123 is bad."""
    guard = Guard(window=20, errors=2.0)
    for i in range(50):
        guard.add(i < 40, of_base=True)
    assert guard.verdict() == "unsure"
    for i in range(20):
        guard.add(i < 8)
    assert guard.verdict() == "bad"
    for _ in range(20):
        guard.add(True)
    assert guard.verdict() == "good"
    for i in range(20):
        guard.add(i < 14)
    assert guard.verdict() == "unsure"


def test_the_guard_judges_returns_where_no_success_is_reported() -> None:
    """Base -10 with deviation 1 in 50 episodes; 20 of -10.1 are good enough to go on, 20 of -12 are bad."""
    guard = Guard(window=20, errors=2.0)
    for i in range(50):
        guard.add(False, -10.0 + (-1.0) ** i, of_base=True, reported=False)
    for mean, verdict in ((-10.1, "unsure"), (-12.0, "bad"), (-9.0, "good")):
        for i in range(20):
            guard.add(False, mean + 0.1 * (-1.0) ** i, reported=False)
        assert guard.verdict() == verdict
    assert guard.in_words() == "have a mean return of -9, the base -10"
    again = Guard(window=20, errors=2.0)
    again.load_state_dict(guard.state_dict())
    assert (again.verdict(), again.base_mean) == ("good", guard.base_mean)


def test_a_guard_judges_success_where_only_success_is_reported() -> None:
    """An environment that names a success when it comes and no failure: failures are no returns of 300."""
    guard = Guard(window=20, errors=2.0)
    for i in range(50):
        guard.add(i < 25, 1.0 if i < 25 else 300.0, of_base=True, reported=i < 25)
    for i in range(20):
        guard.add(i < 18, 1.0 if i < 18 else 300.0, reported=i < 18)
    assert guard.verdict() == "good"
    assert guard.in_words() == "succeed 90 % of the time, the base 50 %"


def test_a_guard_of_an_older_checkpoint_knows_success_alone() -> None:
    guard = Guard(window=2, errors=2.0)
    guard.load_state_dict({"base_successes": 9, "base_episodes": 10, "recent": [False, False]})
    assert (guard.base_mean, guard.recent_mean, guard.verdict()) == (0.9, 0.0, "bad")


def test_guard_restores_the_last_good_weights() -> None:
    """Two standard errors below the base: the good weights are restored, with a message and in the log."""
    said: list[str] = []
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config(), logger=Log())
    env.close()
    tuner.say = said.append
    assert tuner.guard is not None
    for _ in range(40):
        tuner.guard.add(True, of_base=True)
        tuner.guard.add(True)
    tuner._check()
    good = tuner.learner.actor_opt.flat.clone()
    tuner.learner.actor_opt.flat.add_(1.0)
    for _ in range(40):
        tuner.guard.add(False)
    tuner._check()
    assert torch.equal(tuner.learner.actor_opt.flat, good)
    assert tuner.reverts == 1
    assert "last good weights" in said[0]


def test_batches_are_mixed_by_fraction() -> None:
    """3/4 online, 1/4 demonstrations; without demonstrations all online."""
    tuner, env, _ = make_tuner(ResidualMap(1, 0.2), small_config())
    for _ in range(10):
        tuner.advance()
    env.close()
    online = tuner.mix["online"]
    demo = type(online)(30, 1, widths(ResidualMap(1, 0.2)))
    mix = ReplayMix({"online": online, "demo": demo}, {"online": 0.75, "demo": 0.25})
    draw = {"gamma": 0.9, "n_step": 1, "timeout_is_failure": False}
    assert mix.sample(16, torch.Generator(), **draw).demo.sum() == 0
    one = {name: value[:1, 0] for name, value in online.data.items() if name != "mc_return"}
    demo.add(Lanes.all(1), one | {"demo": torch.ones(1)}, 0.9)
    assert mix.sample(16, torch.Generator(), **draw).demo.sum() == 4


@pytest.mark.wrong_types
@pytest.mark.parametrize(
    ("build", "word"),
    [
        (lambda: ReplayMix({}, {"online": 0.7}), "sum to 1"),
        (lambda: ReplayMix({}, vars(MixConfig())), "online"),
        (lambda: FineTuner(FinetuneConfig(base_steps=0), None, None, None, torch.Generator()), "base_steps"),  # type: ignore[arg-type]
        (
            lambda: FineTuner(FinetuneConfig(burn_in_target="x"), None, None, None, torch.Generator()),
            "mc | td",
        ),  # type: ignore[arg-type]
    ],
)
def test_settings_that_cannot_work_are_refused(build: Any, word: str) -> None:
    """One sentence that names the setting."""
    with pytest.raises(ConfigError, match=word):
        build()
