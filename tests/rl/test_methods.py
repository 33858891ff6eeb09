"""What is special to each published method, beyond the values in its config: one or two tests each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from policies.direct import DirectPolicy
from policies.executor import ChunkExecutor
from policies.noise import EpisodeNoise
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, Obs, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.state_io import load_state, save_state
from robo_rl.data.replay import Batch, Replay
from robo_rl.rl.collect import Collector
from robo_rl.rl.config import LearnerConfig
from robo_rl.rl.demos import demo_replay
from robo_rl.rl.finetune import FinetuneConfig, FineTuner
from robo_rl.rl.losses import conservative_loss
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.noise_aliased import NoiseAliasedLearner
from robo_rl.rl.off_policy import OffPolicyLearner
from sim.intervention import Intervened, by_distance
from tests.policies.small import flow_policy
from tests.rl.worlds import LIMIT, SPEC, make_env, widths

LANES = 3


class Demo:
    """Three steps to the right, then the target is reached."""

    frames, success = 3, True
    action = np.full((3, 1), LIMIT, np.float32)
    reward, terminated = np.ones(3, np.float32), np.array([False, False, True])

    def obs(self, key: str) -> np.ndarray:
        return np.array([[4.0, 1.0], [4.0, 2.0], [4.0, 3.0], [4.0, 4.0]], np.float32)


def build(
    action_map: ActionMap,
    base: ChunkPolicy,
    env: VecEnv | None = None,
    stores: tuple[str, ...] = ("online",),
    **config: Any,
) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    """A tuner over the toy task; `fractions`, `learner` and the settings of FinetuneConfig are keywords."""
    fractions = config.pop("fractions", {"online": 1.0})
    learner_settings = LearnerConfig(**{"hidden": [16], "batch": 16} | config.pop("learner", {}))
    settings = FinetuneConfig(**{"env_steps": 120, "base_steps": 30, "burn_in": 0, "guard_window": 0} | config)
    settings.learner = learner_settings
    env = make_env(LANES) if env is None else env
    size = widths(action_map)
    if base.obs_steps == 1:
        size |= {"obs": 2, "next_obs": 2}
    made = {name: Replay(2400, LANES, size) for name in stores if name != "demo"}
    if "demo" in stores:
        made["demo"] = demo_replay([Demo(), Demo()], base, action_map, size, learner_settings.gamma)
    learner = OffPolicyLearner(size["obs"], action_map, learner_settings, generator("learner", 0))
    noise = EpisodeNoise((base.chunk, 1))
    collector = Collector(env, ChunkExecutor(base, LANES), noise, action_map, learner_settings.gamma, made["online"])
    collector.interventions = made.get("intervention")
    seeds, first = EpisodeSeeds(("methods", 0)), EpisodeSeeds(("methods", 0))
    collector.reset(env.reset(seeds), [next(first) for _ in range(LANES)])
    return FineTuner(settings, collector, learner, ReplayMix(made, fractions), generator("replay", 0)), env, seeds


def direct(env: VecEnv | None = None, **config: Any) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    return build(DirectMap(1), DirectPolicy(SPEC).eval(), env, **config)


def stored(store: Replay, name: str) -> Tensor:
    """(k, ...) of all lanes."""
    return torch.cat([store.data[name][lane, : int(head)] for lane, head in enumerate(store.head)])


def batch(size: int = 32, obs: int = 4, width: int = 1, **changes: Tensor) -> Batch:
    rng = torch.Generator().manual_seed(2)
    action = torch.rand(size, width, generator=rng) * 2.0 - 1.0
    values = {
        "obs": torch.randn(size, obs, generator=rng), "ctx": torch.zeros(size, 0), "critic_action": action,
        "action": action, "reward": torch.zeros(size), "discount": torch.zeros(size),
        "next_obs": torch.randn(size, obs, generator=rng), "next_ctx": torch.zeros(size, 0),
        "mc_return": torch.zeros(size), "return_floor": torch.full((size,), torch.nan), "demo": torch.zeros(size),
    }  # fmt: skip
    return Batch(**(values | changes))


# ResFiT


def test_resfit_warms_up_with_the_base_and_uniform_noise_of_its_own_size() -> None:
    """warmup_noise 2 at scale 0.1: executed - base is uniform in +-0.2, beyond what the residual itself may do."""
    tuner, env, _ = build(ResidualMap(1, 0.1), flow_policy(SPEC), base_steps=900, env_steps=901, warmup_noise=2.0)
    while tuner.phase == "base":
        tuner.advance()
    env.close()
    executed, base = stored(tuner.mix["online"], "critic_action"), stored(tuner.mix["online"], "ctx")
    noise = (executed - base)[base.abs() < 0.8]  # where no limit cuts it
    assert noise.abs().max() <= 0.2 + 1e-6
    assert abs(noise.std() - 0.2 / math.sqrt(3.0)) < 0.01
    assert noise.abs().max() > 0.19


def test_resfit_explores_and_smooths_in_units_of_its_scale() -> None:
    """explore_std 0.5 of u at scale 0.1 is N(0, 0.05) of an action."""
    cfg = LearnerConfig(actor="deterministic", hidden=[16], explore_std=0.5)
    learner = OffPolicyLearner(4, ResidualMap(1, 0.1), cfg, generator("x"))
    ctx = torch.zeros(4000, 1)
    action = learner.map.to_critic(learner.act(torch.randn(4000, 4), ctx, explore=True), ctx)
    assert abs(action.std() - 0.05) < 0.008  # a little less: u is cut at +-1


# DAWN


def test_dawn_keeps_the_bases_own_transitions_as_anchors() -> None:
    """They never mix with what training executes, are not pushed out, and make their fraction of every batch."""
    fractions = {"online": 0.75, "base": 0.25}
    tuner, env, _ = build(ResidualMap(1, 0.2), flow_policy(SPEC), stores=("online", "base"), fractions=fractions)
    while tuner.phase == "base":
        tuner.advance()
    anchors = stored(tuner.mix["base"], "critic_action")
    assert torch.equal(anchors, stored(tuner.mix["base"], "ctx"))  # u = 0: the base alone
    assert len(tuner.mix["online"]) == 0
    while not tuner.done:
        tuner.advance()
    env.close()
    assert torch.equal(anchors, stored(tuner.mix["base"], "critic_action"))
    assert len(tuner.mix["online"]) > 0
    data = tuner._sample()
    known = {row.tobytes() for row in stored(tuner.mix["base"], "obs").numpy()}
    assert sum(row.tobytes() in known for row in data.obs[-4:].numpy()) == 4  # 25 % of 16, behind the others


# DSRL, LP-DS


def test_rewards_are_learned_shifted() -> None:
    """DSRL's r - 1: a chunk of two steps without success is worth -1 - gamma; the log keeps the task's own return."""
    tuner, env, _ = build(LatentMap(4, 1, 1.5), flow_policy(SPEC), base_steps=100, learner={"gamma": 0.9})
    tuner.collector.reward_bias = -1.0
    returns = []
    while tuner.phase == "base":
        returns += [episode.total_reward for episode in tuner.advance()]
    env.close()
    store = tuner.mix["online"]
    reward, steps, ended = (stored(store, name) for name in ("reward", "steps", "terminated"))
    assert torch.allclose(reward[(steps == 2) & ~ended], torch.tensor(-1.9))
    assert torch.allclose(reward[(steps == 2) & ended], torch.tensor(-1.0))  # -1 + gamma (1 - 1)
    assert set(returns) <= {0.0, 1.0}
    assert tuner.collector.reward_max == 1.0


def test_steering_stays_within_its_magnitude() -> None:
    """Whatever the actor puts out: |noise| <= 1.5 online; before, it is the base's own N(0, 1)."""
    tuner, env, _ = build(LatentMap(4, 1, 1.5), flow_policy(SPEC), base_steps=300, env_steps=600)
    while not tuner.done:
        tuner.advance()
    env.close()
    noise = tuner.mix["online"].data["critic_action"]
    first, last = (
        noise[:, :20],
        torch.stack([lane[int(h) - 20 : int(h)] for lane, h in zip(noise, tuner.mix["online"].head, strict=True)]),
    )
    assert first.abs().max() > 1.5
    assert last.abs().max() <= 1.5


@pytest.mark.parametrize("rows", [3, 32])
def test_learning_leaves_the_wandering_of_the_lanes_alone(rows: int) -> None:
    """Critics draw u for batches too; three lanes that wander must not go on with noise of a batch, nor start anew."""
    cfg = LearnerConfig(hidden=[16], actor="deterministic", explore_correlation=0.9)
    learner = NoiseAliasedLearner(4, LatentMap(4, 1, 1.5), cfg, generator("x"), flow_policy(SPEC))
    learner.act(torch.randn(3, 4), torch.zeros(3, 0), explore=True)
    before = learner._wander.clone()
    learner.update(batch(rows, width=2))
    assert torch.equal(learner._wander, before)


def test_noise_aliased_targets_are_soft_where_asked() -> None:
    """DSRL-NA's published backup adds the entropy to Q_A's target: -alpha log pi, discounted."""
    base, data = flow_policy(SPEC), batch(width=2, discount=torch.full((32,), 0.9))
    targets = []
    for soft in (False, True):
        cfg = LearnerConfig(hidden=[16], alpha=0.5, entropy_in_target=soft)
        learner = NoiseAliasedLearner(4, LatentMap(4, 1, 1.5), cfg, generator("x"), base)
        targets.append(learner._target(data)[0])
    x, rng = data.next_obs, generator("x")
    learner = NoiseAliasedLearner(4, LatentMap(4, 1, 1.5), cfg, rng, base)
    _, log_prob = learner.actor.sample(x, learner._normal(len(x)))  # type: ignore[union-attr]
    torch.testing.assert_close(targets[1] - targets[0], -0.9 * 0.5 * log_prob)


def test_target_entropy_counts_per_dimension() -> None:
    """RLPD's -d / 2: with -0.5 and two dimensions alpha is pushed by log pi - 1."""
    cfg = LearnerConfig(hidden=[16], alpha=1.0, auto_alpha=True, target_entropy=-0.5, lr_actor=0.1)
    learner = OffPolicyLearner(4, DirectMap(2), cfg, generator("x"))
    for log_prob, up in ((0.9, False), (1.1, True)):
        before = float(learner.log_alpha.detach())
        learner.dual_opt.state.clear()  # type: ignore[union-attr]
        learner._dual_step(torch.zeros(8, 2), batch(8, width=2), torch.full((8,), log_prob), {})
        assert (float(learner.log_alpha.detach()) > before) == up


# Policy Decorator


def test_policy_decorator_lets_the_residual_in_bit_by_bit() -> None:
    """Chance t / H per decision: none at first, all from H on; the rest is the base to the bit."""
    tuner, env, _ = build(
        ResidualMap(1, 0.5, steps=2), flow_policy(SPEC), base_steps=3, env_steps=2400, ramp_steps=1600, utd=0.0
    )
    shares = []
    while not tuner.done:
        tuner.advance()
    env.close()
    store = tuner.mix["online"]
    for lane in range(LANES):
        count = int(store.head[lane])
        changed = (store.data["critic_action"] != store.data["ctx"])[lane, :count].any(-1).float()
        shares.append([float(part.mean()) for part in changed.tensor_split(6)])
    share = np.mean(shares, axis=0)  # sixths of 2,400 steps; saturated bases hide a few
    assert share[0] < 0.3
    assert np.all(np.diff(share[:4]) > 0.0)
    assert np.all(share[4:] > 0.85)


def test_a_chunk_residual_sees_the_bases_chunk_not_its_own() -> None:
    """The stored context is what the base planned, though the queue is corrected in place."""
    tuner, env, _ = build(ResidualMap(1, 0.5, steps=2), flow_policy(SPEC), base_steps=3, env_steps=200, utd=0.0)
    seen: list[Tensor] = []
    plain = tuner.learner.act

    def act(obs: Tensor, ctx: Tensor, explore: bool) -> Tensor:
        seen.extend(ctx.clone())
        return plain(obs, ctx, explore)

    tuner.learner.act = act  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    given = {row.numpy().tobytes() for row in seen}
    store = tuner.mix["online"]
    contexts = [row for lane in range(LANES) for row in store.data["ctx"][lane, 2 : int(store.head[lane])]]
    assert len(contexts) > 50
    assert all(row.numpy().tobytes() in given for row in contexts)


# SAC, TD3, RLPD


def test_learning_from_nothing_begins_with_uniform_actions() -> None:
    """The warm-up of SAC, TD3 and RLPD covers the whole range evenly."""
    tuner, env, _ = direct(base_steps=1500, env_steps=1501)
    while tuner.phase == "base":
        tuner.advance()
    env.close()
    actions = stored(tuner.mix["online"], "action")
    assert abs(actions.mean()) < 0.06
    assert abs(actions.std() - 1.0 / math.sqrt(3.0)) < 0.03
    assert actions.abs().max() > 0.98


def test_rlpd_moves_its_actor_once_per_twenty_critic_updates() -> None:
    """UTD 20 with actor_delay 20: one environment step is 20 critic updates, 1 actor update; half of all are demos."""
    tuner, env, _ = direct(
        stores=("online", "demo"), fractions={"online": 0.5, "demo": 0.5}, utd=20, base_steps=6, env_steps=9,
        learner={"actor_delay": 20, "heads": 10, "actor_reduce": "mean"},
    )  # fmt: skip
    moves = []
    plain = tuner.learner._actor_step
    tuner.learner._actor_step = lambda data: (moves.append(data.demo.mean()), plain(data))[1]  # type: ignore[method-assign]
    while not tuner.done:
        tuner.advance()
    env.close()
    assert tuner.learner.updates == 3 * 20
    assert moves == [0.5] * 3


# Cal-QL, WSRL


def test_conservative_term_by_hand() -> None:
    """One state, one dimension: log(2 e^1 + e^3 + e^2) - Q, the actor's 2nd action lifted from 0 to the return 2."""
    loss, _ = conservative_loss(
        q=torch.tensor([[0.5]]),
        q_random=torch.tensor([[[1.0]]]),
        q_actor=torch.tensor([[[3.0, 0.0]]]),
        log_prob=torch.zeros(1, 2),
        mc_return=torch.tensor([2.0]),
        dim=1,
    )
    expected = math.log(2.0 * math.exp(1.0) + math.exp(3.0) + math.exp(2.0)) - 0.5
    assert loss.item() == pytest.approx(expected)


def test_an_unknown_return_bounds_nothing() -> None:
    """NaN: plain CQL, and a finite gradient."""
    q_actor = torch.zeros(2, 3, 4, requires_grad=True)
    args = (torch.zeros(2, 3), torch.zeros(2, 3, 4), q_actor, torch.zeros(3, 4))
    loss, _ = conservative_loss(*args, mc_return=torch.full((3,), torch.nan), dim=2)
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.item() == pytest.approx(2 * math.log(4 * 4 + 4))
    assert q_actor.grad is not None
    assert torch.isfinite(q_actor.grad).all()


def test_learning_offline_distrusts_actions_that_nobody_tried() -> None:
    """All data at a = 0.5, return 1: the conservative critic ranks it first; the plain one need not tell them apart."""
    ones, at = torch.ones(64), torch.full((64, 1), 0.5)
    data = batch(64, reward=ones, mc_return=ones, critic_action=at, action=at)
    cfg = LearnerConfig(hidden=[32], conservative=1.0, lr_critic=3e-3, lr_actor=0.0, alpha=0.0)
    learner = OffPolicyLearner(4, DirectMap(1), cfg, generator("x"))
    for _ in range(150):
        info = learner.update(data)
    values = [float(learner.critic(data.obs, torch.full((64, 1), a)).mean().detach()) for a in (-0.9, 0.5)]
    assert values[1] > values[0] + 0.3
    assert torch.isfinite(info["critic/conservative_gap"])


def test_offline_learning_takes_demonstrations_alone_and_no_step() -> None:
    """Before the first step there are only demonstrations; then steps begin; both parts are resumed exactly."""
    settings: dict[str, Any] = {
        "stores": ("online", "demo"), "fractions": {"online": 0.5, "demo": 0.5}, "offline_updates": 50,
        "learner": {"conservative": 1.0, "conservative_actions": 2},
    }  # fmt: skip
    tuner, env, _ = direct(**settings)
    assert tuner.phase == "offline"
    tuner.advance(most_updates=30)
    assert (tuner.learner.updates, tuner.env_steps, tuner.phase) == (30, 0, "offline")
    assert tuner._sample().demo.min() == 1.0
    tuner.advance(most_updates=30)
    assert (tuner.learner.updates, tuner.phase) == (50, "base")
    env.close()
    with pytest.raises(ConfigError, match="demonstrations"):
        direct(offline_updates=1)


def test_stopped_while_offline_and_resumed_equals_never_stopped(tmp_path: Path) -> None:
    """The offline updates made so far are part of the state."""
    settings: dict[str, Any] = {
        "stores": ("online", "demo"), "fractions": {"online": 0.5, "demo": 0.5}, "offline_updates": 20, "env_steps": 60,
    }  # fmt: skip
    whole, env, _ = direct(**settings)
    while not whole.done:
        whole.advance(most_updates=7)
    env.close()
    half, env, seeds = direct(**settings)
    half.advance(most_updates=7)
    save_state(tmp_path, {"tuner": half.state_dict(), "env": env.snapshot()})
    env.close()
    other, env, _ = direct(**settings)
    state = load_state(tmp_path)
    env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))  # type: ignore[call-arg]
    other.load_state_dict(state["tuner"])
    while not other.done:
        other.advance(most_updates=7)
    env.close()
    assert torch.equal(whole.learner._critic_flat, other.learner._critic_flat)
    assert torch.equal(whole.learner._actor_flat, other.learner._actor_flat)


def test_wsrl_warms_up_with_the_loaded_policy_frozen() -> None:
    """The first steps are the actor's own (here: far to the right), nothing learns, and the guard falls back to it."""
    tuner, env, _ = direct(warmup="actor", base_steps=60, learner={"init_std": 0.05}, guard_window=5)
    with torch.no_grad():
        tuner.learner.actor.net[-1].get_parameter("bias")[0] = 3.0
    tuner.keep_weights()
    before = tuner.learner.weights()
    while tuner.phase == "base":
        tuner.advance()
    assert stored(tuner.mix["online"], "action").min() > 0.9
    after = tuner.learner.weights()
    assert all(torch.equal(after[net][key], value) for net, state in before.items() for key, value in state.items())
    while not tuner.done:
        tuner.advance()
    env.close()
    tuner.learner.load_weights(tuner._good)
    assert tuner.learner.actor.net[-1].get_parameter("bias")[0].item() != 0.0


# RLIF


class Human:
    """Moves towards the target."""

    def act(self, obs: Obs, episode_seed: Tensor, step: Tensor) -> Tensor:
        target, position = obs["state"].unbind(1)
        return LIMIT * (target - position).clamp(-1.0, 1.0).unsqueeze(1)


def watched(seed: int = 1) -> Intervened:
    return Intervened(make_env(LANES), Human(), by_distance(0.8), error=0.1, steps=2, seed=seed)


def rlif(**config: Any) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    """RLIF as the composition sets it up: the task's reward hidden, -1 before a hand takes over."""
    tuner, env, seeds = direct(
        watched(), stores=("online", "intervention"), fractions={"online": 0.5, "intervention": 0.5}, **config
    )
    tuner.collector.reward_scale, tuner.collector.intervention_reward = 0.0, -1.0
    return tuner, env, seeds


def decisions(store: Replay) -> Iterator[tuple[int, int]]:
    """(lane, slot) of all."""
    for lane, head in enumerate(store.head.tolist()):
        for slot in range(head):
            yield lane, slot


def test_rlif_learns_from_nothing_but_interventions() -> None:
    """-1 exactly on the step before a hand takes over in the same episode, 0 elsewhere, though the task was solved."""
    tuner, env, _ = rlif(base_steps=30, env_steps=450)
    successes = 0
    while not tuner.done:
        successes += sum(episode.success for episode in tuner.advance())
    env.close()
    assert successes > 10
    store, data, punished = tuner.mix["online"], tuner.mix["online"].data, 0
    for lane, slot in decisions(store):
        ended = bool(data["terminated"][lane, slot] | data["truncated"][lane, slot])
        last = slot == int(store.head[lane]) - 1
        hands = (
            not ended
            and not last
            and not data["demo"][lane, slot]
            and data["demo"][lane, min(slot + 1, store.slots - 1)]
        )
        if last and not ended:
            continue  # what followed is not stored yet
        assert data["reward"][lane, slot] == (-1.0 if hands else 0.0), (lane, slot)
        punished += bool(hands)
    assert punished > 10
    assert stored(tuner.mix["intervention"], "demo").min() == 1.0


def test_rlif_is_resumed_exactly_in_the_middle_of_an_intervention(tmp_path: Path) -> None:
    """Who has control is part of the environment's snapshot."""
    whole, env, _ = rlif(env_steps=150)
    while not whole.done:
        whole.advance()
    env.close()
    half, env, seeds = rlif(env_steps=150)
    while half.env_steps < 40 or not bool((env._left > 0).any()):  # type: ignore[attr-defined]
        half.advance()
    save_state(tmp_path, {"tuner": half.state_dict(), "env": env.snapshot()})
    env.close()
    other, env, _ = rlif(env_steps=150)
    state = load_state(tmp_path)
    env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))  # type: ignore[call-arg]
    other.load_state_dict(state["tuner"])
    while not other.done:
        other.advance()
    env.close()
    assert torch.equal(whole.learner._critic_flat, other.learner._critic_flat)
    assert torch.equal(stored(whole.mix["online"], "reward"), stored(other.mix["online"], "reward"))
