"""Composition of a fine-tuning run from action map, learner, replay buffers, base and simulator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from policies.base.generative import GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.best_of import BestOfPolicy
from policies.tuned.direct import DirectPolicy
from policies.tuned.one_step import JumpHead, OneStepPolicy
from policies.tuned.privileged import PrivilegedPolicy, TrueState
from policies.tuned.residual import ResidualPolicy
from policies.tuned.steered import SteeredPolicy
from policies.vla.packed import PackedPolicy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.denoising import chain_head, token_head, tunable
from robo_rl.apps.tuning.encoders.pictures import LearnedPictures, learned_pictures
from robo_rl.apps.tuning.encoders.true_state import true_state
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.rewards.progress import ProgressRun
from robo_rl.apps.tuning.stores import (
    base_noise,
    build_stores,
    feature_dim,
    reward_transform,
    store_widths,
    stored_base,
    views_of,
    with_fitting_replay,
    with_given_demos,
    with_packed_replay,
)
from robo_rl.conf.finetune import ON_POLICY, MethodConfig
from robo_rl.core.action_map import ActionMap, CandidateMap, ChainMap, LatentMap, ResidualMap
from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.seeding import generator
from robo_rl.core.spec import sense_of
from robo_rl.core.views import Views
from robo_rl.data.replay import Replay
from robo_rl.data.store import EpisodeStore
from robo_rl.nets.optim.graphs import update_graphs
from robo_rl.rl.collect import Collector
from robo_rl.rl.decision_writer import Store
from robo_rl.rl.denoising.draws import DrawHead
from robo_rl.rl.denoising.head import ChainHead
from robo_rl.rl.denoising.tokens import TokenHead
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.observed import LearnedFeatures, Observations, StateFeatures
from robo_rl.rl.off_policy.batch_encoder import BatchEncoder
from robo_rl.rl.off_policy.candidates import CandidateLearner
from robo_rl.rl.off_policy.flow_q import FlowQLearner
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from robo_rl.rl.on_policy.groups import check_groups
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import Rollout
from robo_rl.rl.on_policy.tuner import PpoTuner
from robo_rl.rl.progress.shaping import PotentialShaping
from robo_rl.rl.takeover import Takeover
from sim.registry import has_expert, make_expert, skilled
from sim.vec.intervention import Intervened, by_distance

Tuner = FineTuner | PpoTuner
RECORDED = "method=calql_offline method.reward_source=interventions demos=<dataset>"
FURTHER_DRAWS = 1_000  # stream of their noise, apart from the base's own


@dataclass(frozen=True)
class TuningSession:
    """Objects of a run: the tuner, and the policy that shares its weights."""

    tuner: Tuner
    policy: SavedPolicy
    noise_scale: float  # scale of the policy's initial noise in evaluation and deployment
    seed_root: tuple[str, int]


def build_session(
    method: MethodConfig,
    base: SavedPolicy,
    env: VecEnv,
    *,
    seed: int,
    demos: EpisodeStore | None,
    dense_reward: bool = False,
    logger: Logger | None = None,
    say: Callable[[str], None] = print,
    device: torch.device | str = "cpu",
    masked: bool | None = None,
    graphs: str = "auto",
    run: Path | None = None,
) -> TuningSession:
    """A run that is ready to start. Raises ConfigError or CheckpointError if base, map and data do not fit
    together.

    dense_reward: the environment gives a reward at every step, so demonstrations are used with their recorded
    rewards. device: of the base, the environment's tensors, and all that is made here.
    masked: form of selections of lanes, see `Lanes`; None: the device's own. graphs: see `update_graphs`.
    run: folder that keeps the model of progress; None: it is not kept.
    """
    method = with_given_demos(method, demos is not None)
    action_map = build_map(method.map, base)
    check_together(method, action_map, base)
    acting = stored_base(method, base, env.spec.name)
    pictures, hidden = learned_pictures(method, base, device), true_state(method, env.spec, demos, device)
    if pictures is not None and pictures.sentence:
        say(pictures.sentence)
    if hidden is not None:
        features = hidden.dim
    else:
        features = feature_dim(acting, env.spec, device) if pictures is None else pictures.encoder.dim
    kept = features if pictures is None else pictures.states_dim
    progress = ProgressRun(run, seed, say)
    parts = Parts(
        method=method, base=base, acting=acting, env=env, map=action_map, features=features,
        pictures=pictures, true_state=hidden, widths=store_widths(base, kept, action_map),
        rng=generator("learner", seed, device=device),
        draws=generator("replay", seed, device=device),
        demos=demos, dense_reward=dense_reward, logger=logger, say=say, device=device, masked=masked,
        graphs=graphs, shaping=progress.shaping(method, base, acting, views_of(acting), demos, device),
    )  # fmt: skip
    tuner, policy = FAMILIES[method.algorithm](parts)
    return TuningSession(tuner, policy, deployed_noise(method), ("train", seed))


def deployed_noise(method: MethodConfig) -> float:
    """Scale of the initial noise in evaluation and deployment."""
    return base_noise(method) if method.deploy_noise is None else method.deploy_noise


def build_collector(
    method: MethodConfig,
    base: SavedPolicy | PackedPolicy,
    env: VecEnv,
    action_map: ActionMap,
    store: Store,
    interventions: Store | None,
    device: torch.device | str = "cpu",
    masked: bool | None = None,
    pictures: LearnedPictures | None = None,
    shaping: PotentialShaping | None = None,
    hidden: TrueState | None = None,
) -> Collector:
    """Collector of a method over the lanes of this environment."""
    executor = ChunkExecutor(base, env.num_envs, device=device, masked=masked)
    noise = EpisodeNoise((base.chunk, base.action_spec.dim), base_noise(method), device=device)
    gamma, reward = method.learner.gamma, reward_transform(method)
    seen: Observations | None = None if hidden is None else StateFeatures(executor, hidden)
    if pictures is not None:
        assert isinstance(store, Replay)
        assert store.frames is not None
        seen = LearnedFeatures(executor, pictures.encoder, store.frames)
    others = None
    if isinstance(action_map, CandidateMap):
        shape = ((action_map.count - 1) * base.chunk, base.action_spec.dim)
        others = EpisodeNoise(shape, 1.0, FURTHER_DRAWS, device=device)
    takeover = None
    if method.takeover > 0.0:
        takeover = Takeover(env.num_envs, round(method.takeover * env.spec.max_episode_steps), device)
    return Collector(
        env, executor, noise, action_map, gamma, store, interventions, reward, seen, others, takeover, shaping
    )


@dataclass(frozen=True)
class Parts:
    """What a family of methods is composed from."""

    method: MethodConfig
    base: SavedPolicy
    acting: SavedPolicy | PackedPolicy  # the base with the features that are stored, see `stored_base`
    env: VecEnv
    map: ActionMap
    features: int  # width of the stored ones, or of those that an encoder makes which learns
    pictures: LearnedPictures | None  # None: no pictures are stored
    true_state: TrueState | None  # None: actor and critics see what the base's encoder makes
    widths: dict[str, int]
    rng: torch.Generator  # of the learner
    draws: torch.Generator  # of the replay
    demos: EpisodeStore | None
    dense_reward: bool
    logger: Logger | None
    say: Callable[[str], None]
    device: torch.device | str
    masked: bool | None
    graphs: str  # see `update_graphs`
    shaping: PotentialShaping | None  # of the rewards; None: they are the task's

    @property
    def views(self) -> Views:
        """Stored features that actor and critics see."""
        return views_of(self.acting)

    def collector(
        self, base: SavedPolicy | PackedPolicy, store: Store, interventions: Store | None = None
    ) -> Collector:
        """Collection with this base into this store."""
        return build_collector(
            self.method, base, self.env, self.map, store, interventions, self.device, self.masked,
            self.pictures, self.shaping, self.true_state,
        )  # fmt: skip


def build_off_policy(parts: Parts) -> tuple[Tuner, SavedPolicy]:
    """SAC or TD3 over an action map; for algorithm=noise_aliased with the base in its critics."""
    method, base = parts.method, parts.base
    if isinstance(parts.acting, PackedPolicy):
        method = with_packed_replay(method, base, parts.features, parts.demos, parts.say)
    elif parts.pictures is None:
        method = with_fitting_replay(method, parts.env.num_envs)
    stores = build_stores(
        method, parts.acting, parts.env.num_envs, parts.widths, parts.map, parts.demos, parts.dense_reward,
        parts.device, parts.pictures, parts.shaping, parts.true_state,
    )  # fmt: skip
    collector = parts.collector(parts.acting, stores["online"], stores.get("intervention"))
    learner = build_learner(method, parts.acting, parts.features, parts.map, parts.rng, parts.pictures)
    mix = ReplayMix(stores, vars(method.mix))
    captured = update_graphs(torch.device(parts.device), parts.graphs, (parts.rng, parts.draws))
    tuner = FineTuner(method, collector, learner, mix, parts.draws, parts.logger, parts.say, captured)
    return tuner, deployed(base, learner, parts.map, parts.pictures, parts.true_state)


def build_learner(
    method: MethodConfig,
    base: SavedPolicy | PackedPolicy,
    features: int,
    action_map: ActionMap,
    rng: torch.Generator,
    pictures: LearnedPictures | None = None,
) -> OffPolicyLearner:
    """The off-policy learner of a method. base: the one whose features are stored."""
    if method.map.kind == "head":
        assert isinstance(base, GenerativePolicy)
        assert isinstance(action_map, ChainMap)
        head = JumpHead(base)
        return FlowQLearner(features, action_map, method.learner, rng, head, base, views_of(base))
    if isinstance(action_map, CandidateMap):
        return CandidateLearner(features, action_map, method.learner, rng, views_of(base))
    aliased = base if method.algorithm == "noise_aliased" else None
    encoder = None if pictures is None else BatchEncoder(pictures.encoder, method.shift_px, rng)
    return OffPolicyLearner(
        features, action_map, method.learner, rng, views_of(base), aliased, encoder=encoder
    )


def build_ppo(parts: Parts) -> tuple[Tuner, SavedPolicy]:
    """PPO of a Gaussian actor over an action map."""
    method = parts.method
    learner = PpoLearner(parts.features, parts.map, method.learner, method.ppo, parts.rng)
    return on_policy_tuner(parts, parts.base, learner), deployed(parts.base, learner, parts.map)


def build_denoising(parts: Parts) -> tuple[Tuner, SavedPolicy]:
    """PPO of the base's own denoising network, or of its decoder of tokens. The policy is the base with new
    weights.
    """
    assert isinstance(parts.map, ChainMap)
    method = parts.method
    policy = tunable(parts.base, method.denoising.guidance, parts.rng)
    if any(sense_of(key, array) != "state" for key, array in policy.obs_spec.items()):
        parts.say("The encoder of pictures, words and points stays: only the network of actions learns.")
    acting = stored_base(method, policy, parts.env.spec.name)
    assert isinstance(acting, GenerativePolicy | PackedPolicy)
    head: ChainHead | DrawHead | TokenHead
    if method.map.kind == "tokens":
        assert isinstance(policy, VlaPolicy)
        assert isinstance(acting, PackedPolicy)
        head = token_head(policy, method.denoising, method.ppo.clip, acting)
    else:
        seen = parts.views.critic_width(parts.features)
        head = chain_head(policy, seen, method.denoising, method.ppo.clip, parts.rng, parts.map.draws, acting)
    learner = PpoLearner(parts.features, parts.map, method.learner, method.ppo, parts.rng, parts.views, head)
    return on_policy_tuner(parts, acting, learner), policy


def on_policy_tuner(parts: Parts, base: SavedPolicy | PackedPolicy, learner: PpoLearner) -> PpoTuner:
    """Rollouts of this base and learner."""
    method = parts.method
    groups, slots = method.groups, method.ppo.rollout
    draws = isinstance(parts.map, ChainMap) and parts.map.draws > 0
    growing = method.denoising.progressive > 0.0 and method.denoising.random_step == "none"
    check_groups(groups, normalized=method.ppo.normalize_reward, draws=draws, growing=growing)
    if groups.size:
        slots *= 2  # one round of decisions may wait for the rest of their groups
    widths = parts.widths | {"u": parts.map.dim}
    rollout = Rollout(parts.env.num_envs, slots, widths, parts.device, grouped=groups.size > 0)
    collector = parts.collector(base, rollout)
    return PpoTuner(method, method.ppo, collector, learner, rollout, parts.logger, groups, parts.say)


FAMILIES: dict[str, Callable[[Parts], tuple[Tuner, SavedPolicy]]] = {  # method.algorithm -> its composition
    "off_policy": build_off_policy,
    "noise_aliased": build_off_policy,
    "ppo": build_ppo,
    "denoising": build_denoising,
}


def with_interventions(method: MethodConfig, name: str, env: VecEnv, seed: int) -> VecEnv:
    """The training environment, with the expert of `method.intervene` as a human who can take over."""
    check_interventions(method, name)
    if method.intervene == "none":
        return env
    config = method.intervention
    human = make_expert(name, config.noise, seed, env)
    return Intervened(
        env, human, by_distance(config.distance), error=config.error, steps=config.steps, seed=seed
    )


def check_interventions(method: MethodConfig, name: str) -> None:
    """Raise ConfigError for a method that learns from interventions if nobody intervenes in the environment
    `name`, and for one that would credit what a human does to its own choice.

    A method that learns from a dataset alone takes the interventions that were recorded in it.
    """
    recorded = method.mix.demo > 0.0 and method.mix.online == 0.0 and method.mix.intervention == 0.0
    learns = method.reward_source == "interventions" or method.mix.intervention > 0.0
    if learns and not recorded and method.intervene == "none":
        raise ConfigError(
            f"method={method.name} learns from interventions: set method.intervene=expert, or learn "
            f"from recorded ones alone: {RECORDED}."
        )
    noise = method.map.kind == "steering" and method.algorithm == "off_policy"
    if method.intervene != "none" and (noise or method.algorithm in ON_POLICY):
        raise ConfigError(
            f"method={method.name} learns the value of what it chose itself, not of what a human did: set "
            "method.intervene=none, or choose residual, rlif or dsrl_na."
        )
    if method.intervene != "none" and not has_expert(name):
        instead = f"Learn from recorded interventions: {RECORDED}" if learns else "Set method.intervene=none"
        raise ConfigError(
            f"method.intervene=expert needs a scripted expert, which '{name}' does not have; only "
            f"{', '.join(skilled())} tasks have one. {instead}."
        )


def deployed(
    base: SavedPolicy,
    learner: OffPolicyLearner | PpoLearner,
    action_map: ActionMap,
    pictures: LearnedPictures | None = None,
    hidden: TrueState | None = None,
) -> SavedPolicy:
    """Policy that executes the learner's actor, or with `deploy_target` its target actor; it shares the
    learner's weights.
    """
    encoder = None if pictures is None else pictures.encoder
    actor = learner.deployed_actor if isinstance(learner, OffPolicyLearner) else learner.actor
    if isinstance(learner, FlowQLearner):
        assert isinstance(base, GenerativePolicy)
        return OneStepPolicy(base, learner.actor)
    if isinstance(action_map, LatentMap):
        return SteeredPolicy(base, actor, action_map, encoder)
    if isinstance(action_map, CandidateMap):
        assert isinstance(learner, OffPolicyLearner)
        return BestOfPolicy(base, learner.gate, action_map, actor)
    if isinstance(action_map, ResidualMap):
        gate = learner.gate if isinstance(learner, OffPolicyLearner) and learner.cfg.gate else None
        if hidden is not None:
            return PrivilegedPolicy(base, actor, action_map, gate, hidden)
        return ResidualPolicy(base, actor, action_map, gate, encoder)
    assert isinstance(base, DirectPolicy)
    return DirectPolicy(base.env, base.normalizer, actor, encoder)
