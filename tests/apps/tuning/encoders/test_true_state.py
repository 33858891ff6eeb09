"""Residuals that see the simulator's true state: they start as their base, pictures are read by plans alone,
and a robot cannot get them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from policies.base.noise import EpisodeNoise
from policies.checkpoint import check_compatible, load_policy, save_policy
from policies.executor import ChunkExecutor
from policies.tuned.privileged import PrivilegedPolicy, TrueState, check_measurable, true_spec
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.apps.tuning.encoders.true_state import check_privileged, fitted
from robo_rl.apps.tuning.training_lanes import recorded_lanes
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ArraySpec
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.rl.mix import MixConfig
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.takeover import Takeover
from robo_rl.runs.demonstrators import HybridDemonstrator, PolicyDemonstrator, TakeoverDemonstrator
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.workers import WorkerVecEnv
from tests.policies.small_vla import SIDES, SPEC, TP, SidesLane, small_vla

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")

KNOWN = replace(SPEC, obs={**SPEC.obs, "privileged.side": ArraySpec((1,), unit="1: right")})
RIGHT = np.array([1.0, 0.0], np.float32)
METHOD = MethodConfig(
    name="residual_lanes", algorithm="off_policy", privileged=True, env_steps=48, base_steps=24, burn_in=2,
    replay_capacity=60, guard_window=0, map=MapConfig(kind="residual"), mix=MixConfig(online=0.5, demo=0.5),
    learner=LearnerConfig(actor="deterministic", hidden=[16], batch=8, gate=True),
)  # fmt: skip


DRAWN: list[int] = []  # lanes append the step of each picture


@dataclass
class KnowingLane(SidesLane):
    """The sides, with the told one as a number that only the simulator knows. It need not draw pictures."""

    def __post_init__(self) -> None:
        self.spec, self.unread = KNOWN, False

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        obs, reward, terminated, truncated, success = super().step(action)
        if self.unread and not (terminated or truncated):
            obs = {key: each for key, each in obs.items() if not key.startswith("image.")}
        else:
            DRAWN.append(self._steps)
        return obs, reward, terminated, truncated, success

    def _obs(self) -> LaneObs:
        return super()._obs() | {"privileged.side": np.array([SIDES[self._told]], np.float32)}


def knowing_env(lanes: int = 3) -> WorkerVecEnv:
    return WorkerVecEnv(KnowingLane, lanes)


@pytest.fixture
def demos(tmp_path: Path) -> EpisodeStore:
    """One demonstration of four steps to the right, with the true state."""
    writer, lane = DatasetWriter.create(tmp_path / "data", KNOWN), KnowingLane()
    with writer.episode(task="right", seed=1) as episode:
        obs = [lane.reset(1)]
        for _ in range(4):
            episode.add(obs[-1], RIGHT, reward=0.0)
            obs.append(lane.step(RIGHT)[0])
        episode.commit(success=True, final_obs=obs[-1])
    return EpisodeStore(tmp_path / "data")


@contextmanager
def session(demos: EpisodeStore, method: MethodConfig = METHOD) -> Iterator[tuple[TuningSession, Any, Any]]:
    base = small_vla()
    with closing(knowing_env()) as env:
        yield build_session(method, base, env, seed=0, demos=demos, say=lambda _: None), env, base


def begin(made: TuningSession, env: Any) -> EpisodeSeeds:
    seeds, first = EpisodeSeeds(made.seed_root), EpisodeSeeds(made.seed_root)
    made.tuner.collector.reset(env.reset(seeds), [next(first) for _ in range(3)])  # type: ignore[union-attr]
    return seeds


def test_the_start_is_the_base_and_learning_leaves_it(demos: EpisodeStore) -> None:
    """Promise 1 on whole episodes; after a few updates of the actor they differ."""
    noise = EpisodeNoise((TP, 2), 1.0)
    with session(demos) as (made, env, base), closing(knowing_env()) as arena:
        assert isinstance(made.policy, PrivilegedPolicy)
        results = [
            evaluate(arena, each, ChunkExecutor, noise, eval_seeds(0, 6)) for each in (made.policy, base)
        ]
        assert results[0].length == results[1].length
        assert results[0].returns == results[1].returns
        begin(made, env)
        while not made.tuner.done:
            made.tuner.advance()
        seen = {key: value.unsqueeze(1) for key, value in env.reset(EpisodeSeeds(("x", 0))).items()}
        planned = torch.zeros(3, 2)
        u = made.policy.actor.act(made.policy.features(seen), planned)
        assert u.abs().max() > 0.0
        assert torch.equal(base.refine(seen, planned), planned)


def test_only_plans_read_pictures(demos: EpisodeStore) -> None:
    """Every row of the prefix belongs to a plan, and lanes draw none for the steps between two plans."""
    with session(demos) as (made, env, base):
        begin(made, env)
        rows, planned = list[int](), list[int]()
        base.backbone.register_forward_hook(lambda net, given, out: rows.append(len(out[2])))
        executor: Any = made.tuner.collector.base.executor  # type: ignore[union-attr]
        plan = executor.plan

        def counted(lanes: Any, *rest: Any) -> Any:
            planned.append(len(lanes))
            return plan(lanes, *rest)

        executor.plan = counted
        DRAWN.clear()
        while not made.tuner.done:
            made.tuner.advance()
        assert sum(rows) == sum(planned) < made.tuner.env_steps
        assert set(DRAWN) == {2, 4, 6}  # a plan every two steps, and the end of an episode


def test_a_stopped_run_equals_an_unstopped_one(demos: EpisodeStore, tmp_path: Path) -> None:
    """Promise 7, in the middle of a chunk."""
    weights = []
    for stop in (False, True):
        with session(demos) as (made, env, _):
            seeds = begin(made, env)
            for _ in range(11):
                made.tuner.advance()
            if not stop:
                while not made.tuner.done:
                    made.tuner.advance()
                weights.append(made.tuner.learner.weights())
                continue
            save_state(tmp_path / "state", {"tuner": made.tuner.state_dict(), "env": env.snapshot()})
        with session(demos) as (made, env, _):
            state = load_state(tmp_path / "state")
            env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))
            made.tuner.load_state_dict(state["tuner"])
            while not made.tuner.done:
                made.tuner.advance()
            weights.append(made.tuner.learner.weights())
    for part, tensors in weights[0].items():
        assert all(torch.equal(value, weights[1][part][key]) for key, value in tensors.items()), part


def test_demonstrations_are_stored_by_their_true_state(demos: EpisodeStore) -> None:
    """Position and clock range over 0 ... 2 and 0 ... 4 / 6; the side never changes and is only centred."""
    with session(demos) as (made, _, _):
        stored = made.tuner.mix["demo"].data  # type: ignore[union-attr]
        want = torch.stack([torch.tensor([0.0, 0.5 * t - 1.0, 0.0, 0.5 * t - 1.0]) for t in range(5)])
        assert list(made.policy.encoder.spec) == ["privileged.side", "state"]  # type: ignore[attr-defined]
        torch.testing.assert_close(stored["obs"][0], want[:4])
        torch.testing.assert_close(stored["next_obs"][0], want[1:])
        assert stored["ctx"].abs().max() > 0.0  # the base's own actions


def test_a_saved_policy_corrects_alike(demos: EpisodeStore, tmp_path: Path) -> None:
    with session(demos) as (made, env, _):
        begin(made, env)
        while not made.tuner.done:
            made.tuner.advance()
        save_policy(tmp_path / "policy", made.policy)
        again = load_policy(tmp_path / "policy")
        seen = {key: value.unsqueeze(1) for key, value in env.reset(EpisodeSeeds(("x", 0))).items()}
        action = torch.rand(3, 2)
        assert torch.equal(again.refine(seen, action), made.policy.refine(seen, action))
        with pytest.raises(CheckpointError, match=r"needs observation 'privileged\.side'"):
            check_compatible(again, SPEC)
        with pytest.raises(ConfigError, match=r"A bundle needs .* also reads \['privileged\.side'\]"):
            check_measurable(again, "A bundle")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"map": MapConfig(kind="steering")}, "residuals of single steps"),
        ({"map": MapConfig(kind="residual", per_chunk=True)}, "residuals of single steps"),
        ({"encoder": "learned"}, "residuals of single steps"),
        ({"progress_weight": 1.0}, "method.progress_weight=0"),
    ],
)
def test_other_methods_refuse_it(demos: EpisodeStore, change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_privileged(replace(METHOD, **change), demos.path)


def test_what_is_missing_is_named(demos: EpisodeStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="privileged=true needs demos="):
        check_privileged(METHOD, None)
    DatasetWriter.create(tmp_path / "plain", SPEC)
    with pytest.raises(
        ConfigError, match=r"true state, which .*plain does not hold.*collect privileged=true"
    ):
        session(EpisodeStore(tmp_path / "plain")).__enter__()
    with closing(WorkerVecEnv(SidesLane, 3)) as env, pytest.raises(ConfigError, match="fake/sides has only"):
        build_session(METHOD, small_vla(), env, seed=0, demos=demos, say=lambda _: None)


@pytest.mark.parametrize("known", [True, False])
def test_records_hold_the_true_state_if_the_demonstrations_do(
    demos: EpisodeStore, tmp_path: Path, known: bool
) -> None:
    """So that both can be merged."""
    run: Any = SimpleNamespace(episodes=tmp_path / "episodes")
    with closing(knowing_env()) as env:
        recorded_lanes(FinetuneVerb(out=""), env, KNOWN, demos if known else None, run, fresh=True, say=print)
    assert ("privileged.side" in EpisodeStore(run.episodes).spec.obs) is known


def test_the_base_acts_until_the_policy_takes_over(demos: EpisodeStore) -> None:
    """A correction of 0.2 in every direction, which begins at each lane's own step."""

    class Constant(torch.nn.Module):
        def act(self, features: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
            return torch.ones_like(base)

    with session(demos) as (made, env, base):
        policy: Any = made.policy
        policy.gate, policy.actor = None, Constant()
        noise, takeover = EpisodeNoise((TP, 2), 0.0), Takeover(3, 4)
        driver = HybridDemonstrator(policy, base, noise, takeover)
        obs = env.reset(EpisodeSeeds(("x", 0)))
        driver.start(range(3), [0, 1, 2], obs)
        assert 0 <= takeover.steps.min() <= takeover.steps.max() <= 4
        takeover.steps[:] = torch.tensor([0, 1, 9])
        alone = ChunkExecutor(base, 3)
        alone.reset(obs)
        for step in range(3):
            planned = base.action_spec.normalize(driver.act())
            own = alone.act(noise)
            corrected = (planned - own).abs().amax(dim=1) > 1e-3
            assert corrected.tolist() == driver.intervened().tolist() == [True, step >= 1, False]
            driver.observe(obs)
            alone.observe(obs)


def test_a_teacher_plans_anew_when_it_takes_over_from_another_policy(demos: EpisodeStore) -> None:
    """Both plan chunks, at different steps: at the takeover what is left of the teacher's is dropped."""
    with session(demos) as (made, env, base):
        policy: Any = made.policy
        noise, takeover = EpisodeNoise((TP, 2), 0.0), Takeover(3, 4)
        teacher = ChunkExecutor(policy, 3)
        driver = TakeoverDemonstrator(
            PolicyDemonstrator(ChunkExecutor(base, 3), noise), PolicyDemonstrator(teacher, noise), takeover
        )
        obs = env.reset(EpisodeSeeds(("x", 0)))
        driver.start(range(3), [0, 1, 2], obs)
        takeover.steps[:] = torch.tensor([0, 1, 9])
        for step in range(2):
            driver.act()
            assert driver.intervened().tolist() == [True, step >= 1, False]
            driver.observe(obs)
        assert teacher.decision.tolist() == [1, 2, 1]


def test_the_numbers_are_in_the_order_of_their_names() -> None:
    spec = true_spec(KNOWN.obs)
    assert list(spec) == ["privileged.side", "state"]
    encoder = TrueState(spec)
    seen = {"state": torch.tensor([[[1.0, 2.0, 3.0]]]), "privileged.side": torch.tensor([[[4.0]]])}
    assert encoder(seen).tolist() == [[4.0, 1.0, 2.0, 3.0]]
    assert TrueState.from_json(json.loads(json.dumps(encoder.to_json()))).spec == spec


def test_the_scale_is_that_of_the_episodes(demos: EpisodeStore) -> None:
    center, scale = fitted(["state"], demos).statistics()["state"]
    torch.testing.assert_close(center, torch.tensor([0.5, 0.0, 2.0 / 6.0]))
    torch.testing.assert_close(scale, torch.tensor([0.5, 1.0, 2.0 / 6.0]))
