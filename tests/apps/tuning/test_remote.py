"""Fine-tuning with actors, without Ray: the actors run in this process, in a random order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from policies.registry import SavedPolicy
from robo_rl.apps.tuning import remote
from robo_rl.apps.tuning.remote import check_launcher, remote_session, write_actors
from robo_rl.apps.tuning.rewards.progress import read_progress
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.progress.model import fit_progress
from robo_rl.rl.scale.actor import load_weights, weights_of
from robo_rl.rl.scale.remote_collector import RemoteCollector
from robo_rl.runs.run_dir import PROGRESS, RunDir
from sim.vec.intervention import InterventionConfig
from tests.apps.tuning.small_methods import dataset
from tests.policies.small import flow_policy
from tests.rl.scale.inline_fleet import InlineFleet
from tests.rl.tuners import Human
from tests.rl.worlds import SPEC, make_env

LANES = 2


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy task under every environment name, with its human."""
    monkeypatch.setattr(remote, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    monkeypatch.setattr("robo_rl.apps.tuning.compose.has_expert", lambda *_: True)
    monkeypatch.setattr("robo_rl.apps.tuning.compose.make_expert", lambda *_: Human())


def method(**changes: Any) -> MethodConfig:
    settings: dict[str, Any] = {
        "name": "residual",
        "env_steps": 400,
        "base_steps": 100,
        "burn_in": 10,
        "utd": 0.5,
        "replay_capacity": 4000,
        "map": MapConfig("residual"),
        "learner": LearnerConfig(hidden=[8], batch=8, actor="deterministic", gate=True, n_step=3),
    }
    return MethodConfig(**settings | changes)


def session(
    chosen: MethodConfig,
    *,
    seed: int = 0,
    deaths: float = 0.0,
    said: Callable[[str], None] = print,
    demos: EpisodeStore | None = None,
    run: Path | None = None,
    **changes: Any,
) -> tuple[FineTuner, RemoteCollector, InlineFleet]:
    """A learner with three actors, which are not started."""
    small: dict[str, Any] = {
        "num_envs": LANES,
        "actors": 3,
        "block_steps": 7,
        "env": "toy",
        "launcher": "ray",
    }
    config = FinetuneVerb(out="unused", method=chosen, **small | changes)
    base: SavedPolicy = flow_policy(SPEC)
    fleets: list[InlineFleet] = []

    def open_fleet(build: Any) -> InlineFleet:
        fleets.append(InlineFleet(build, seed, deaths))
        return fleets[-1]

    made = remote_session(
        config, chosen, base, SPEC, open_fleet, None, demos=demos, dense_reward=False, logger=None, say=said,
        run=run,
    )  # fmt: skip
    assert isinstance(made.tuner, FineTuner)
    assert isinstance(made.tuner.collector, RemoteCollector)
    return made.tuner, made.tuner.collector, fleets[0]


def finish(tuner: FineTuner, collector: RemoteCollector) -> None:
    collector.start()
    for _ in range(5000):
        if tuner.done:
            return
        tuner.advance()
    raise AssertionError("the run does not end")


def test_actors_shape_rewards_by_the_model_of_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy task pays 1 where it terminates; the rest of a stored reward is 0.5 (gamma Phi' - Phi)."""
    monkeypatch.setattr(fit_progress, "__defaults__", (20,))
    demos = dataset(tmp_path, SPEC, [True, True])
    chosen = method(progress_weight=0.5, mix=MixConfig(online=0.5, demo=0.5))
    tuner, collector, _ = session(chosen, demos=demos, run=tmp_path, said=lambda _: None)
    collector.start()
    while collector.env_steps < 80:
        tuner.advance()
    model, _ = read_progress(tmp_path / PROGRESS)
    for replay, count in ((tuner.mix["online"], 70), (tuner.mix["demo"], 10)):
        rows = torch.arange(replay.slots) < replay.head.unsqueeze(1)
        data = {name: value[rows] for name, value in replay.data.items()}
        after = chosen.learner.gamma * model(data["next_obs"]).masked_fill(data["terminated"], 0.0)
        expected = data["terminated"].float() + 0.5 * (after - model(data["obs"]))
        torch.testing.assert_close(data["reward"], expected)
        assert len(expected) >= count


METHODS = {
    "residual": method(),
    "residual of chunks": method(map=MapConfig("residual", per_chunk=True)),
    "steering": method(map=MapConfig("steering"), learner=LearnerConfig(hidden=[8], batch=8)),
    "anchors": method(mix=MixConfig(online=0.5, base=0.5)),
    "rlif": method(
        reward_source="interventions",
        intervene="expert",
        intervention=InterventionConfig(),
        mix=MixConfig(online=0.5, intervention=0.5),
    ),
}


@pytest.mark.parametrize("name", METHODS)
def test_updates_and_steps_are_those_of_a_run_without_actors(name: str) -> None:
    """Whoever is slow, and although actors die: the env steps that were asked for, the updates that belong to
    the online ones, old weights within the bound, and no decision twice.
    """
    said: list[str] = []
    tuner, collector, fleet = session(METHODS[name], seed=3, deaths=0.06, said=said.append)
    finish(tuner, collector)
    waiting, schedule = collector.waiting, collector.schedule
    assert 400 <= tuner.env_steps < 400 + LANES
    online = sum(grant.steps for _, grant in fleet.ran if grant.phase == "online") * LANES
    base = sum(grant.steps for _, grant in fleet.ran if grant.phase == "base") * LANES
    assert (base, online) == (100, tuner.env_steps - 100)
    assert tuner.learner.updates == online // 2
    assert waiting.most_behind <= schedule.bound == 6
    assert fleet.died
    assert len(fleet.died) == schedule.replaced == len(said)
    assert "at most 28 steps are lost" in " ".join(said) or "at most 14 steps" in " ".join(said)
    replays = [store for kind, store in collector.replays.items() if kind in ("online", "base")]
    executed = sum(int(store.data["steps"].sum()) for store in replays)
    # What is missing are decisions that were running when an actor died or the run ended, or a phase.
    assert 400 - 3 * LANES * 2 * (len(fleet.died) + 2) <= executed <= tuner.env_steps


def test_with_turns_the_result_does_not_depend_on_timing() -> None:
    """staleness=0: the same weights, bit for bit, whatever order the actors finish in."""
    results = []
    for seed in (0, 1):
        tuner, collector, _ = session(METHODS["residual"], seed=seed, staleness=0)
        finish(tuner, collector)
        assert collector.waiting.most_behind == 0
        results.append(tuner)
    one, other = results
    for name, net in one.learner.weights().items():
        for key, value in net.items():
            assert torch.equal(value, other.learner.weights()[name][key]), (name, key)
    assert torch.equal(one.mix["online"].data["obs"], other.mix["online"].data["obs"])


def test_actors_act_with_the_learner_s_newest_weights() -> None:
    """What an actor loads is what the learner has, critics of the gate included."""
    tuner, _, _ = session(METHODS["residual"])
    other, _, _ = session(METHODS["residual"], env="toy")
    with torch.no_grad():
        for parameter in (*tuner.learner.actor.parameters(), *tuner.learner.critic.parameters()):
            parameter.add_(torch.rand_like(parameter))
    load_weights(other.learner, weights_of(tuner.learner))
    obs, ctx = torch.rand(5, 4), torch.rand(5, 1)
    assert torch.equal(tuner.learner.act(obs, ctx, explore=False), other.learner.act(obs, ctx, explore=False))


@pytest.mark.parametrize(
    "chosen",
    [
        method(
            name="qc", map=MapConfig("candidates", candidates=4), learner=LearnerConfig(hidden=[8], batch=8)
        ),
        method(
            name="expo",
            map=MapConfig("candidates", candidates=4, edit=0.1),
            learner=LearnerConfig(hidden=[8], batch=8),
        ),
        method(name="fql", map=MapConfig("head"), learner=LearnerConfig(hidden=[8], batch=8)),
        method(
            name="bro",
            guard_window=0,
            learner=LearnerConfig(
                hidden=[8], batch=8, critic_loss="quantile", atoms=5, optimism=True, lr_actor=1e-2
            ),
        ),
    ],
    ids=lambda each: each.name,
)
def test_actors_explore_as_the_learner_does(chosen: MethodConfig) -> None:
    """Also with critics that choose, a head that is ready, or an explorer: from equal noise, equal u."""
    tuner, collector, _ = session(chosen)
    collector.start()
    while tuner.learner.updates < 20:
        tuner.advance()
    other, _, _ = session(chosen, seed=1)
    load_weights(other.learner, weights_of(tuner.learner))
    obs, ctx = torch.rand(50, 4), torch.rand(50, tuner.learner.map.ctx_dim) * 2.0 - 1.0
    if chosen.name == "fql":
        ctx = torch.rand(50, 4)
    drawn = []
    for learner in (tuner.learner, other.learner):
        learner.generator.manual_seed(7)
        drawn.append(learner.act(obs, ctx, explore=True))
    assert torch.equal(*drawn)


def test_a_resumed_run_counts_no_step_twice_and_continues_no_lost_episode() -> None:
    """The learner dies at some instant: its successor has the replay of the checkpoint, new actors and new
    seeds, and ends at the same number of steps and updates.
    """
    tuner, collector, first = session(METHODS["residual"], seed=1)
    collector.start()
    while tuner.env_steps < 200:
        tuner.advance()
    state, steps = tuner.state_dict(), tuner.env_steps
    for _ in range(5):
        tuner.advance()  # lost with the process
    again, continued, second = session(METHODS["residual"], seed=2)
    again.load_state_dict(state)
    assert again.env_steps == steps
    finish(again, continued)
    assert 400 <= again.env_steps < 400 + LANES
    granted = sum(grant.steps for _, grant in second.ran) * LANES
    assert granted == again.env_steps - steps
    assert again.learner.updates == (again.env_steps - 100) // 2
    assert int(again.mix["online"].data["cut"].sum()) > 0
    assert first is not second


def test_checkpoints_belong_to_their_number_of_actors() -> None:
    tuner, _, _ = session(METHODS["residual"])
    other, _, _ = session(METHODS["residual"], actors=2)
    with pytest.raises(CheckpointError, match="with 3 actors, expected 2"):
        other.load_state_dict(tuner.state_dict())


def test_what_the_actors_did_is_saved(tmp_path: Path) -> None:
    tuner, collector, _ = session(METHODS["residual"], deaths=0.05)
    finish(tuner, collector)
    with RunDir.create(tmp_path / "run", FinetuneVerb(out="x")) as run:
        said = write_actors(collector, run)
    assert said.startswith("3 actors: waited for the learner ")
    assert (tmp_path / "run" / "actors.json").exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"launcher": "none"}, "actors and ray_address are settings of launcher=ray"),
        ({"launcher": "none", "actors": 1, "ray_address": "auto"}, "actors and ray_address"),
        ({"method": replace(method(), name="auto")}, r"method=auto \(the default\) runs several methods"),
        ({"method": replace(method(), name="resip", algorithm="ppo")}, "method=resip learns from the newest"),
        (
            {"method": replace(method(), name="dppo", algorithm="denoising")},
            "method=dppo learns from the newest",
        ),
        ({"record": "all"}, "record=all writes one dataset"),
        ({"method": method(replay_capacity=11), "actors": 3}, "too small for 3 actors with 4 environments"),
    ],
)
def test_settings_that_do_not_go_with_the_launcher_are_refused(changes: dict[str, Any], words: str) -> None:
    base: dict[str, Any] = {"out": "x", "launcher": "ray", "actors": 2, "num_envs": 4, "method": method()}
    with pytest.raises(ConfigError, match=words):
        check_launcher(FinetuneVerb(**base | changes))
