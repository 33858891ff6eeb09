"""Encoders that learn: what is replayed, who trains them, and that a run stays exact and on its device."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.device_world import first_seeds
from policies.base.noise import EpisodeNoise
from policies.checkpoint import load_policy, save_policy
from policies.executor import ChunkExecutor
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.replay import Batch
from robo_rl.eval.host_reads import HostReads
from robo_rl.nets.gradients import stack
from robo_rl.nets.optim.graphs import WARM_UP, GraphCache
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.off_policy.batch_encoder import BatchEncoder
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.update_runner import UpdateRunner
from tests.rl import test_graphs
from tests.rl.picture_world import LANES, METHODS, SPEC, PictureWorld, base, base_of, begin, observed, session


def tuner_of(made: Any) -> FineTuner:
    assert isinstance(made.tuner, FineTuner)
    return made.tuner


def online(name: str, masked: bool | None = None) -> FineTuner:
    """A tuner that has begun to learn."""
    made, env = session(METHODS[name], masked)
    begin(made, env)
    tuner = tuner_of(made)
    while tuner.phase != "online" or tuner.learner.updates < 6:
        tuner.advance()
    return tuner


def weights(learner: OffPolicyLearner) -> dict[str, Tensor]:
    return {f"{net}.{k}": v for net, state in learner.weights().items() for k, v in state.items()}


def moved(before: dict[str, Tensor], after: dict[str, Tensor], net: str) -> bool:
    names = [name for name in before if name.startswith(f"{net}.")]
    return any(not torch.equal(before[name], after[name]) for name in names)


# -- what is replayed


class Watching(PictureWorld):
    """Keeps what every lane showed: (observation, observation after the step), in order."""

    def __init__(self) -> None:
        super().__init__(LANES)
        self.steps: list[tuple[Tensor, Tensor, Tensor]] = []

    def step_wait(self) -> Any:
        before = self._state.clone()
        result = super().step_wait()
        after = torch.cat([before[:, :1], result[4]["final_obs"]["state"]], dim=1)
        self.steps.append((before, after, result[2] | result[3]))
        return result


@pytest.mark.parametrize("masked", [False, True])
def test_replayed_pictures_are_those_that_were_seen(masked: bool) -> None:
    """One step per decision: picture and next picture of every stored decision, also at the end of an
    episode, where the next one is the last of the episode and not the first of the following one.
    """
    config = METHODS["td3"]
    made, _ = session(config, masked)
    tuner, world = tuner_of(made), Watching()
    tuner.collector.env = world  # type: ignore[attr-defined]
    begin(made, world)
    while tuner.env_steps < 60:
        tuner.advance()
    store = tuner.mix["online"]
    ended = torch.stack([over for _, _, over in world.steps])
    assert ended.any(), "some episodes are over"
    assert store.frames is not None
    for lane in range(LANES):
        for decision in range(int(store.head[lane])):
            before, after, _ = world.steps[decision]
            at = torch.tensor([lane])
            for name, state in (("frame", before), ("next_frame", after)):
                found = store.frames.windows(at, store.data[name][lane, decision : decision + 1])
                expected = observed(state)["image.view"][lane]
                assert torch.equal(found["image.view"][0, -1], expected), (lane, decision, name)


def test_both_forms_replay_the_same() -> None:
    """The batches of the form for a GPU equal those of the form for the host."""
    batches = []
    for masked in (False, True):
        made, env = session(METHODS["residual of chunks"], masked)
        begin(made, env)
        while (tuner := tuner_of(made)).env_steps < 48:
            tuner.advance()
        batches.append(tuner.runner.sample())
    for name in Batch.__slots__:
        found, other = (getattr(batch, name) for batch in batches)
        for one, two in zip(flat(found), flat(other), strict=True):
            torch.testing.assert_close(one, two, equal_nan=True, msg=name)


def flat(value: Any) -> list[Tensor]:
    return list(value.values()) if isinstance(value, dict) else [value]


# -- who trains the encoder


def test_only_the_critics_train_the_encoder() -> None:
    """The critics' step moves it; the actor's step does not, nor does it move the frozen base."""
    made, env = session(METHODS["residual"])
    begin(made, env)
    tuner = tuner_of(made)
    frozen = copy.deepcopy(made.policy.base.state_dict())  # type: ignore[attr-defined]
    while tuner.env_steps < 48:
        tuner.advance()
    learner, batch = tuner.learner, tuner.runner.sample()
    assert learner.encoder is not None
    before = weights(learner)
    encoded = learner.encoder(batch)
    assert encoded.obs.requires_grad
    assert not encoded.next_obs.requires_grad
    loss = learner._judged(encoded, torch.zeros(16, 1)).sum()
    gradients = torch.autograd.grad(loss, list(learner.encoder.module.parameters()))
    assert all(gradient.abs().sum() > 0.0 for gradient in gradients)
    learner.burn_in(batch, monte_carlo=False)
    after = weights(learner)
    assert moved(before, after, "encoder")
    assert not moved(before, after, "actor")
    while not tuner.done:
        tuner.advance()
    assert moved(after, weights(learner), "actor")
    for name, value in made.policy.base.state_dict().items():  # type: ignore[attr-defined]
        assert torch.equal(value, frozen[name]), name


@pytest.mark.parametrize("name", ["residual", "sac"])
def test_an_actor_alone_leaves_the_encoder(name: str) -> None:
    """With a critic's rate of 0 the actor learns and the encoder stays."""
    config = copy.deepcopy(METHODS[name])
    config.learner.lr_critic, config.learner.gate = 0.0, False
    made, env = session(config)
    begin(made, env)
    tuner = tuner_of(made)
    before = weights(tuner.learner)
    while not tuner.done:
        tuner.advance()
    after = weights(tuner.learner)
    assert moved(before, after, "actor")
    assert not moved(before, after, "encoder")


def test_shifts_are_drawn_from_the_run_and_differ_between_samples() -> None:
    """The same generator gives the same features; without a shift they are those of the policy itself."""
    made, env = session(METHODS["residual"])
    begin(made, env)
    tuner = tuner_of(made)
    while tuner.env_steps < 48:
        tuner.advance()
    batch, module = tuner.runner.sample(), tuner.learner.encoder.module  # type: ignore[union-attr]
    one, two, three = (
        BatchEncoder(module, px, torch.Generator().manual_seed(seed))(batch)
        for px, seed in ((2, 0), (2, 0), (2, 1))
    )
    assert torch.equal(one.obs, two.obs)
    assert not torch.equal(one.obs, three.obs)
    assert not torch.equal(one.obs, one.next_obs)
    plain = BatchEncoder(module, 0, torch.Generator())(batch)
    seen = tuner.learner.encoder.as_seen(batch)  # type: ignore[union-attr]
    torch.testing.assert_close(plain.obs.detach(), seen.obs)


# -- promises


@pytest.mark.parametrize("name", ["residual", "residual of chunks", "steering"])
def test_evaluation_at_step_zero_equals_the_base(name: str) -> None:
    """Promise 1: the same actions and rewards, bit for bit; at zero noise for steering from zero."""
    made, _ = session(METHODS[name])
    actions, rewards = flown(made.policy, made.noise_scale)
    expected, paid = flown(base(), 0.0 if name == "steering" else 1.0)
    assert torch.equal(actions, expected)
    assert torch.equal(rewards, paid)


def flown(policy: Any, scale: float) -> tuple[Tensor, Tensor]:
    """Actions and rewards of 30 steps."""
    env, root = PictureWorld(), ("flown",)
    executor, noise = ChunkExecutor(policy, LANES), EpisodeNoise((4, 1), scale)
    obs, results = env.reset(EpisodeSeeds(root)), []
    executor.reset(obs)
    noise.reset(range(LANES), first_seeds(root, LANES))
    for _ in range(30):
        action = executor.act(noise)
        obs, reward, _, _, info = env.step(SPEC.action.denormalize(action))
        results.append((action, reward))
        executor.observe(info["final_obs"])
        ended = torch.nonzero(info["final_mask"]).flatten()
        executor.reset(obs, ended)
        noise.reset(ended, info["next_seed"][ended])
    return torch.stack([action for action, _ in results]), torch.stack([reward for _, reward in results])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("stop_at", [24, 75])
def test_stopped_and_resumed_equals_uninterrupted(name: str, stop_at: int, tmp_path: Path) -> None:
    """Promise 7, through files and fresh objects, with rings of frames that have turned."""
    config = copy.deepcopy(METHODS[name])
    config.replay_capacity = 60
    whole, env = session(config)
    begin(whole, env)
    while not whole.tuner.done:
        whole.tuner.advance()
    first, env = session(config)
    begin(first, env)
    while first.tuner.env_steps < stop_at:
        first.tuner.advance()
    save_state(tmp_path, {"tuner": first.tuner.state_dict(), "env": env.snapshot()})
    state = load_state(tmp_path)
    second, env = session(config)
    env.restore(state["env"])
    second.tuner.load_state_dict(state["tuner"])
    while not second.tuner.done:
        second.tuner.advance()
    found, expected = weights(tuner_of(second).learner), weights(tuner_of(whole).learner)
    for key, value in expected.items():
        assert torch.equal(value, found[key]), key
    rings = [tuner_of(made).mix["online"].frames for made in (whole, second)]
    assert all(torch.equal(rings[0].data[key], rings[1].data[key]) for key in rings[0].data)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", METHODS)
def test_the_hot_loop_reads_nothing_from_the_device(name: str) -> None:
    """Collection, frames, replay, encoder and updates in the form for a GPU."""
    config = copy.deepcopy(METHODS[name])
    config.env_steps, config.replay_capacity, config.utd = 100_000, 120, 0.2
    made, env = session(config, masked=True)
    begin(made, env)
    tuner = tuner_of(made)
    while tuner.phase != "online" or tuner.env_steps % (50 * LANES):
        tuner.advance()
    tuner.advance()
    with HostReads().watching() as found:
        for _ in range(48):
            assert tuner.advance() == []
    assert not found.reads, dict(found.reads)
    assert not found.strays, dict(found.strays)


@pytest.mark.parametrize("name", ["residual", "sac"])
def test_replays_of_updates_equal_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling of pictures, shifts, encoder and critics as one graph: the same bits as one by one."""
    monkeypatch.setattr(stack, "machine_code", lambda *_: None)  # a recording does not see it
    made = []
    for graphs in (GraphCache(test_graphs.Recording), GraphCache()):
        tuner = online(name)
        made.append(UpdateRunner(tuner.learner, tuner.mix, tuner.generator, graphs))
    captured, eager = made
    persistent = test_graphs.persistent(captured)
    test_graphs.PERSISTENT[:] = [*persistent, *captured.learner.encoder.module.state_dict().values()]  # type: ignore[union-attr]
    test_graphs.GENERATORS[:] = [captured.learner.generator, captured.generator]
    for _ in range(WARM_UP + 3):
        captured.update(4)
        for _ in range(4):
            eager.update(1)
    assert captured.graphs._graphs, "something was captured"
    found, expected = weights(captured.learner), weights(eager.learner)
    assert all(torch.equal(value, found[key]) for key, value in expected.items())


# -- the saved policy


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_policy_carries_its_encoder(name: str, tmp_path: Path) -> None:
    """After learning: the same actions from the file, which those of the base's encoder would not be."""
    made, env = session(METHODS[name])
    begin(made, env)
    while not made.tuner.done:
        made.tuner.advance()
    policy = made.policy
    save_policy(tmp_path, policy)
    again = load_policy(tmp_path)
    obs, noise = sight(policy.obs_steps), torch.randn(8, policy.chunk, 1)
    with torch.no_grad():
        chunk = policy.sample(obs, noise)
        assert torch.equal(chunk, again.sample(obs, noise))
        action = policy.refine(obs, chunk[:, 0])
        assert torch.equal(action, again.refine(obs, chunk[:, 0]))
        own = again.features(obs)[:, -policy.encoder.dim :]  # type: ignore[attr-defined]
        assert not torch.equal(own, base_of(METHODS[name]).features(obs))


def sight(obs_steps: int) -> dict[str, Tensor]:
    state = 1.0 + 3.0 * torch.rand(8, 2, generator=torch.Generator().manual_seed(3))
    seen = observed(state)
    return {key: value.unsqueeze(1).repeat_interleave(obs_steps, 1) for key, value in seen.items()}


def test_a_second_run_starts_from_the_learned_encoder() -> None:
    """A residual on a steered policy learns from the newest encoder of the stack."""
    made, env = session(METHODS["steering"])
    begin(made, env)
    while not made.tuner.done:
        made.tuner.advance()
    second, _ = session(METHODS["residual"], base=made.policy)
    learner = tuner_of(second).learner
    assert learner.encoder is not None
    newest = made.policy.encoder.state_dict()  # type: ignore[attr-defined]
    for key, value in learner.encoder.module.state_dict().items():
        assert torch.equal(value, newest[key]), key
