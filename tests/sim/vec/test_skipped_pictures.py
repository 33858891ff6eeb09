"""Pictures that no plan reads are not drawn, and nothing else changes."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch
from torch import Tensor

from policies.base.flow import Flow, FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.protocols import VecEnv, picture_skipping
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import sense_of
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.replay import Replay
from robo_rl.eval.rollout import eval_seeds, evaluate
from robo_rl.nets.denoiser import MlpDenoiserConfig
from robo_rl.nets.image_encoder import ImageEncoderConfig
from robo_rl.rl.collect import Collector
from sim.registry import make_env

pytest.importorskip("metaworld", reason="needs the extra [metaworld]")
renderer = pytest.importorskip("sim.render.renderer", reason="needs the extra [sim]")

ENVS = {
    "metaworld": "metaworld/peg-insert-side-v3:cameras=corner3+gripperPOV,state=robot,image_size=16",
    "arm": "arm/reach:cameras=view+front,state=robot,image_size=16",
    "suite": "metaworld/mt6",
}
EXECUTED = 8


def policy_for(env: VecEnv, obs_steps: int) -> GenerativePolicy:
    """A policy of the environment's pictures and state, with random weights."""
    torch.manual_seed(0)
    spec = env.spec.for_policies()
    normalizer = Normalizer.fit({"state": torch.rand(64, *spec.obs["state"].shape)})
    config = GenerativeConfig(
        obs_steps=obs_steps,
        chunk=16,
        execute=EXECUTED,
        net=MlpDenoiserConfig(width=16, depth=1),
        image=ImageEncoderConfig(widths=(4, 4)),
    )
    return GenerativePolicy(spec, normalizer, config, Flow(FlowConfig(steps=2))).eval()


class Drawings:
    """Counts pictures, in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, draw = 0, renderer.MujocoRenderer._draw

        def counted(this: object) -> None:
            self.count += 1
            draw(this)

        monkeypatch.setattr(renderer.MujocoRenderer, "_draw", counted)

    def take(self) -> int:
        count, self.count = self.count, 0
        return count


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> Drawings:
    return Drawings(monkeypatch)


def actions_of_evaluation(name: str, obs_steps: int, workers: int = 0) -> Tensor:
    """Actions of all steps (t, n, a)."""
    with closing(make_env(name, 2, workers, max_episode_steps=20)) as env:
        taken: list[Tensor] = []
        step = env.step
        env.step = lambda action: (taken.append(action), step(action))[1]  # type: ignore[method-assign]
        noise = EpisodeNoise((16, env.spec.action.dim))
        evaluate(env, policy_for(env, obs_steps), ChunkExecutor, noise, eval_seeds(0, 3))
    return torch.stack(taken)


@pytest.mark.parametrize(
    ("kind", "obs_steps"),
    [("metaworld", 1), ("arm", 1), ("arm", 3), pytest.param("suite", 1, marks=pytest.mark.long)],
)
def test_evaluation_acts_the_same_and_draws_less(
    kind: str, obs_steps: int, drawings: Drawings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan reads the newest To of 8 observations. Resets and ends of episodes are drawn as well."""
    skipping = actions_of_evaluation(ENVS[kind], obs_steps)
    drawn = drawings.take()
    monkeypatch.setattr("robo_rl.eval.rollout.picture_skipping", lambda env: None)
    assert torch.equal(skipping, actions_of_evaluation(ENVS[kind], obs_steps))
    assert drawn < {1: 0.35, 3: 0.6}[obs_steps] * drawings.take()


def test_workers_skip_the_same_pictures() -> None:
    """Only actions are compared: pictures of other processes are not counted here."""
    name = ENVS["metaworld"]
    assert torch.equal(actions_of_evaluation(name, 2), actions_of_evaluation(name, 2, workers=1))


def test_a_step_keeps_old_pictures_and_a_last_one_does_not() -> None:
    """The state is new in every step, and pictures are at the end of an episode and after it."""
    with closing(make_env(ENVS["metaworld"], 2, max_episode_steps=3)) as env:
        skipping = picture_skipping(env)
        assert skipping is not None
        before = env.reset(EpisodeSeeds("skip"))
        pictures = [key for key, array in env.spec.obs.items() if sense_of(key, array) == "image"]
        action = torch.ones(2, env.spec.action.dim)
        skipping.skip_pictures(torch.tensor([True, False]))
        obs = env.step(action)[0]
        assert not torch.equal(obs["state"][0], before["state"][0])
        for key in pictures:
            assert torch.equal(obs[key][0], before[key][0])
        assert any(not torch.equal(obs[key][1], before[key][1]) for key in pictures)
        drawn = env.step(action)[0]  # the wish is for one step
        assert any(not torch.equal(drawn[key][0], before[key][0]) for key in pictures)
        skipping.skip_pictures(torch.tensor([True, True]))
        first, *_, info = env.step(action)
        assert info["final_mask"].all()
        for seen in (first, info["final_obs"]):
            assert any(not torch.equal(seen[key][0], drawn[key][0]) for key in pictures)


def session(env: VecEnv, method: str, obs_steps: int) -> TuningSession:
    words = [
        f"method={method}",
        "out=.",
        "method.env_steps=1000",
        "method.base_steps=80",
        "method.mix.demo=0",
        "method.mix.online=1",
    ]
    config = load_config(
        "finetune", [*words, "method.learner.hidden=[8]", "method.learner.batch=8"], FinetuneVerb
    )
    made = build_session(config.method, policy_for(env, obs_steps), env, seed=0, demos=None)
    seeds = EpisodeSeeds(made.seed_root)
    lanes = [next(seeds) for _ in range(env.num_envs)]
    made.tuner.collector.reset(env.reset(EpisodeSeeds(made.seed_root)), torch.tensor(lanes))
    return made


def run_to(env_steps: int, method: str) -> TuningSession:
    """Session after this many steps of two lanes, whose episodes of 20 steps time out."""
    with closing(make_env(ENVS["arm"], 2, max_episode_steps=20)) as env:
        made = session(env, method, obs_steps=2)
        while made.tuner.env_steps < env_steps:
            made.tuner.advance()
    return made


def stored(made: TuningSession) -> dict[str, Tensor]:
    assert isinstance(made.tuner.collector, Collector)
    replay = made.tuner.collector.writer.store
    assert isinstance(replay, Replay)
    return replay.state_dict()


def test_steering_stores_and_learns_the_same(drawings: Drawings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Features of decisions, also those after a time-out, and the weights learned from them."""
    skipping = run_to(120, "steering")
    drawn = drawings.take()
    monkeypatch.setattr("robo_rl.rl.collect.picture_skipping", lambda env: None)
    drawing = run_to(120, "steering")
    assert drawn < 0.6 * drawings.take()
    found = stored(skipping)
    for name, value in stored(drawing).items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=0, equal_nan=True)
    for one, other in zip(skipping.policy.parameters(), drawing.policy.parameters(), strict=True):  # type: ignore[attr-defined]
        assert torch.equal(one, other)


def test_a_correction_at_every_step_reads_every_picture(drawings: Drawings) -> None:
    """Two cameras, and the first observation of each episode."""
    run_to(120, "residual")
    assert drawings.take() >= 2 * 120
