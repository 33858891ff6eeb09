"""Sources of actions for recorded or shown episodes: a scripted expert, a user's own function, or a trained
policy with its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import corrects_steps
from policies.tuned.privileged import PrivilegedPolicy
from policies.tuned.residual import ResidualPolicy
from policies.vocabulary import unread_sentence
from robo_rl.conf.schema import CollectConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.keyed_random import keyed_normal
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import ChunkPolicy, Obs, VecEnv
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Bool
from robo_rl.core.spec import ActionSpec, EnvSpec, sense_of
from robo_rl.rl.takeover import Takeover
from robo_rl.runs.device import pick_device
from robo_rl.runs.loaded_policy import LoadedPolicy, open_policy, unread_in
from sim.adapters.own_function import Function, OwnFunction, find_function
from sim.registry import has_expert, make_expert, skilled
from sim.vec.expert import Expert


@runtime_checkable
class Demonstrator(Protocol):
    """Source of actions for all lanes, with an interface like `policies.executor.ChunkExecutor`."""

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        """Start episodes in these lanes. obs: (n, *shape), all lanes."""
        ...

    def observe(self, obs: Obs) -> None:
        """Pass the newest observation of all lanes."""
        ...

    def act(self) -> Tensor:
        """(n, a) actions in the units of the environment."""
        ...

    def intervened(self) -> Bool[Tensor, " n"] | None:
        """Lanes whose newest action corrects that of a base; None where there is no base."""
        ...


class ExpertDemonstrator:
    """A scripted expert. begin: called with the lanes in which an episode begins."""

    def __init__(
        self, expert: Expert, num_envs: int, begin: Callable[[Sequence[int]], None] = lambda lanes: None
    ) -> None:
        self._expert, self._begin, self._obs = expert, begin, dict[str, Tensor]()
        self._seed, self._step = (
            torch.zeros(num_envs, dtype=torch.long),
            torch.zeros(num_envs, dtype=torch.long),
        )

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        self._obs = obs
        self._begin(lane_ids)
        self._seed[list(lane_ids)] = torch.tensor(list(seeds))
        self._step[list(lane_ids)] = 0

    def observe(self, obs: Obs) -> None:
        self._obs = obs
        self._step += 1

    def act(self) -> Tensor:
        return self._expert.act(self._obs, self._seed, self._step)

    def intervened(self) -> None:
        return None


class NoisyFunction:
    """An `Expert` by a user's function, with white noise on its actions. Objects of a class may keep state.

    noise: standard deviation as a share of half the range of an action, keyed by (seed, episode seed, step).
    """

    def __init__(self, function: OwnFunction, spec: ActionSpec, noise: float, seed: int) -> None:
        self._own, self._spec, self._noise = function, spec, noise
        self._key = derive_seed("expert", seed)

    def act(self, obs: Obs, seed: Tensor, step: Tensor) -> Tensor:
        action = self._own.act(obs)
        if self._noise == 0.0:
            return action
        low, high = action.new_tensor(self._spec.low), action.new_tensor(self._spec.high)
        noise = keyed_normal(seed ^ self._key, step, self._spec.dim).T
        return torch.minimum(torch.maximum(action + self._noise * (high - low) / 2.0 * noise, low), high)


class PolicyDemonstrator:
    """A trained policy with its noise, optionally scaled."""

    def __init__(self, executor: ChunkExecutor, noise: EpisodeNoise) -> None:
        self._executor, self._noise = executor, noise

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        self._executor.reset(obs, torch.tensor(list(lane_ids)))
        self._noise.reset(lane_ids, seeds)

    def observe(self, obs: Obs) -> None:
        self._executor.observe(obs)

    def act(self) -> Tensor:
        return self._executor.policy.action_spec.denormalize(self._executor.act(self._noise))

    def replan(self, lanes: Bool[Tensor, " n"]) -> None:
        """Plan anew in these lanes before the next action."""
        self._executor.replan(self._executor.lanes.where(lanes))

    def intervened(self) -> None:
        return None


class HybridDemonstrator:
    """A policy that corrects single steps of its base, from a random step of every episode on (PLD).

    Its successes begin as those of the base, so that the base learns from them what to do where it goes.
    """

    def __init__(
        self, policy: SavedPolicy, base: SavedPolicy, noise: EpisodeNoise, takeover: Takeover
    ) -> None:
        self._policy, self._base, self._noise, self._takeover = policy, base, noise, takeover
        lanes = len(takeover.steps)
        self._executor = ChunkExecutor(policy, lanes)
        self._step = torch.zeros(lanes, dtype=torch.long)

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        lanes = torch.tensor(list(lane_ids))
        self._executor.reset(obs, lanes)
        self._noise.reset(lane_ids, seeds)
        self._takeover.reset(Lanes.of(lanes), seeds)
        self._step[lanes] = 0

    def observe(self, obs: Obs) -> None:
        self._executor.observe(obs)
        self._step += 1

    def act(self) -> Tensor:
        return self._policy.action_spec.denormalize(self._executor.act(self._noise, self._refine))

    def intervened(self) -> Bool[Tensor, " n"]:
        return ~self._takeover.base_acts(self._step)

    def _refine(self, obs: Obs, action: Tensor) -> Tensor:
        base = self._takeover.base_acts(self._step).unsqueeze(1)
        return torch.where(base, self._base.refine(obs, action), self._policy.refine(obs, action))


class TakeoverDemonstrator:
    """A teacher that takes over from another policy at a random step of every episode (DAgger).

    Its successes begin where that policy goes, so that the policy learns from them what to do there.
    """

    def __init__(self, first: PolicyDemonstrator, teacher: Demonstrator, takeover: Takeover) -> None:
        self._first, self._teacher, self._takeover = first, teacher, takeover
        self._step = torch.zeros(len(takeover.steps), dtype=torch.long)

    def start(self, lane_ids: Sequence[int], seeds: Sequence[int], obs: Obs) -> None:
        for each in (self._first, self._teacher):
            each.start(lane_ids, seeds, obs)
        lanes = torch.tensor(list(lane_ids))
        self._takeover.reset(Lanes.of(lanes), seeds)
        self._step[lanes] = 0

    def observe(self, obs: Obs) -> None:
        for each in (self._first, self._teacher):
            each.observe(obs)
        self._step += 1

    def act(self) -> Tensor:
        if isinstance(self._teacher, PolicyDemonstrator):
            self._teacher.replan(self._step == self._takeover.steps)
        first = self._takeover.base_acts(self._step).unsqueeze(1)
        return torch.where(first, self._first.act(), self._teacher.act())

    def intervened(self) -> Bool[Tensor, " n"]:
        return ~self._takeover.base_acts(self._step)


COLLECT_WITHOUT = (
    "Give a function or class of your own, obs -> action, by expert=<module>:<name> "
    "(docs/own-robot-task-engine.md, 'Demonstrations by your own script'). Or record a trained policy by "
    "policy=<run>, your own data by DatasetWriter in Python (examples/own_dataset.py) or `robo-rl data "
    "import`, or learn without demonstrations: robo-rl finetune env={env} method=sac{encoder} out=runs/sac"
)


def make_demonstrator(
    config: CollectConfig, env: VecEnv, without: str = COLLECT_WITHOUT, expert: Function | None = None
) -> Demonstrator:
    """Policy of `config.policy`; without one, the user's function, or else the scripted expert. With
    `takeover`, another one acts first.

    without: what to do instead for an environment without expert, for the message of the ConfigError.
    expert: the function itself; None: that of `config.expert`, if given.
    """
    if config.policy is not None and config.expert is not None:
        raise ConfigError(
            f"policy={config.policy} and expert={config.expert} cannot both act: leave one of them out."
        )
    if config.takeover_from is not None and config.takeover == 0.0:
        raise ConfigError("takeover_from= names who acts first: set takeover=, e.g. takeover=0.5.")
    if config.takeover > 0.0 and config.takeover_from is None:
        return _hybrid(config, env)
    teacher = (
        _acting(config, config.policy, env)
        if config.policy is not None
        else _expert(config, env, without)
        if config.expert is None
        else _function(config, env, expert or find_function(config.expert))
    )
    if config.takeover_from is None:
        return teacher
    return TakeoverDemonstrator(
        _acting(config, config.takeover_from, env, "takeover_from"), teacher, _takeover(config, env)
    )


def _function(config: CollectConfig, env: VecEnv, function: Function) -> ExpertDemonstrator:
    """A user's function as the expert."""
    own = OwnFunction(function, env.spec)
    expert = NoisyFunction(own, env.spec.action, config.noise or 0.0, config.seed)
    return ExpertDemonstrator(expert, config.num_envs, own.begin)


def _encoder_of(env: EnvSpec) -> str:
    """Setting with which learning from scratch reads the pictures of an environment; empty without any."""
    seen = (sense_of(key, spec) for key, spec in env.obs.items())
    return " method.encoder=learned" if "image" in seen else ""


def _expert(config: CollectConfig, env: VecEnv, without: str) -> ExpertDemonstrator:
    """Scripted expert of the environment. Raises ConfigError if it has none."""
    name = config.env or env.spec.name
    if not has_expert(name):
        known = ", ".join(skilled())
        raise ConfigError(
            f"There is no scripted expert for '{name}'; only {known} tasks have one. "
            f"{without.format(env=name, encoder=_encoder_of(env.spec))}"
        )
    return ExpertDemonstrator(make_expert(name, config.noise or 0.0, config.seed, env), config.num_envs)


def _acting(config: CollectConfig, path: str, env: VecEnv, given: str = "policy") -> PolicyDemonstrator:
    """A trained policy. `noise` scales its initial noise, unless it is that of an expert's actions."""
    device = torch.device("cpu") if config.takeover > 0.0 else pick_device(config.device)
    actor = _fitting(path, device, env, given)
    scale = actor.noise if config.noise is None or config.policy is None else config.noise
    return PolicyDemonstrator(ChunkExecutor(actor.policy, config.num_envs), _noise(actor.policy, scale))


def _hybrid(config: CollectConfig, env: VecEnv) -> HybridDemonstrator:
    """A policy with its base. Raises ConfigError for a policy that does not correct single steps of one."""
    if config.policy is None:
        raise ConfigError(
            "takeover= is for a policy with a base: give policy=; or takeover_from=, the policy that acts "
            "before the expert."
        )
    actor = _fitting(config.policy, torch.device("cpu"), env)
    policy = actor.policy
    if not isinstance(policy, ResidualPolicy | PrivilegedPolicy) or not corrects_steps(policy):
        raise ConfigError(
            f"takeover={config.takeover:g} leaves the first steps to the base of a policy that corrects "
            "single steps (method=residual, residual_lanes or pld), which this one is not. Leave it out, or "
            "give takeover_from=, the policy that acts first."
        )
    noise = _noise(policy, actor.noise if config.noise is None else config.noise)
    return HybridDemonstrator(policy, policy.base, noise, _takeover(config, env))


def _fitting(path: str, device: torch.device, env: VecEnv, given: str = "policy") -> LoadedPolicy:
    """A policy that fits the environment; prints a line if it does not know all words of its instruction."""
    actor = open_policy(path, device)
    actor.check(env.spec, given)
    if sentence := unread_sentence(actor.folder, unread_in(actor.folder, env.spec.name)):
        print(sentence)
    return actor


def _noise(policy: ChunkPolicy, scale: float) -> EpisodeNoise:
    return EpisodeNoise((policy.chunk, policy.action_spec.dim), scale)


def _takeover(config: CollectConfig, env: VecEnv) -> Takeover:
    return Takeover(config.num_envs, round(config.takeover * env.spec.max_episode_steps))
