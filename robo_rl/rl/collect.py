"""Collection of experience: steps a vector environment and stores every decision.

The base policy plans, and an action map turns the actor's output into what is executed. One control step is
`begin` (decide, start the simulators) and `finish` (read the outcome). The loop updates the learner in
between, while worker processes simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, ChainMap, LatentMap
from robo_rl.core.conditioning import Condition, encode
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import (
    Indices,
    Obs,
    PlanningExecutor,
    ResumableNoise,
    VecEnv,
    picture_skipping,
)
from robo_rl.core.shapes import Bool, Float
from robo_rl.rl.decision_writer import DecisionWriter, Store
from robo_rl.rl.observed import BaseFeatures, LaneObservations, Observations
from robo_rl.rl.progress.shaping import PotentialShaping
from robo_rl.rl.running import CollectedEpisode, RewardTransform, RunningDecisions, RunningEpisodes
from robo_rl.rl.takeover import Takeover

Act = Callable[[Tensor, Tensor], Tensor]  # (features, ctx) -> u
Learn = Callable[[float], None]  # does the updates that belong to so many steps of all lanes
Phase = Literal["offline", "base", "burn_in", "online"]
READ_EVERY = 50  # control steps between two reads of the results of episodes from a GPU


@runtime_checkable
class Experience(Protocol):
    """Source of decisions: lanes of this process (`Collector`), or actors in other processes.

    reward: the transform of the task's reward, which knows the largest one so far.
    """

    env_steps: int
    reward: RewardTransform

    @property
    def num_lanes(self) -> int:
        """Number of parallel environments, of all processes together."""
        ...

    def collect(
        self, phase: Phase, act: Act | None, store: Store, learn: Learn | None
    ) -> list[CollectedEpisode]:
        """Put more decisions into `store` and let the learner do the updates that belong to them.

        Returns the episodes that ended. act: policy of a local collector; None: the base alone. learn: None
        in phases without updates. `env_steps` may stay the same, where nothing has arrived yet.
        """
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class BasePlans:
    """Queues of planned actions and noise of the base policy in every lane.

    others: noise of further draws, all draws of a plan in one; None: there are none.
    """

    def __init__(
        self, executor: PlanningExecutor, noise: ResumableNoise, others: ResumableNoise | None = None
    ) -> None:
        self.executor, self.noise, self.others = executor, noise, others

    def reset(self, obs: Obs, lanes: Lanes, episode_seeds: Indices) -> None:
        """Start an episode in these lanes. obs: (n, *shape), all lanes. episode_seeds: of all lanes."""
        self.executor.reset(obs, lanes)
        self.noise.reset(self.executor.lanes.ids, episode_seeds)
        if self.others is not None:
            self.others.reset(self.executor.lanes.ids, episode_seeds)

    def draw(self, lanes: Lanes) -> Float[Tensor, "k Tp a"]:
        """Initial noise of the base for the next plan of these lanes."""
        return self.noise.draw(lanes.ids, lanes.read(self.executor.decision))

    def plan_due(self, among: Bool[Tensor, " n"] | None = None, condition: Condition | None = None) -> None:
        """Plan with the base's own noise in those lanes (default: all) whose queue is empty.

        condition: that of all lanes; None: it is made here.
        """
        due = self.executor.due()
        if among is not None:
            due = due.where(due.read(among))
        if due:
            self.executor.plan(due, self.draw(due), None if condition is None else due.read(condition))

    def plan_candidates(
        self, lanes: Lanes, noise: Float[Tensor, "k Tp a"], condition: Condition | None
    ) -> tuple[Float[Tensor, "k Tp a"], Float[Tensor, "k n actions"]]:
        """(chunk from this noise, which is queued, executed parts of that chunk and of all further draws)."""
        policy, decision = self.executor.policy, lanes.read(self.executor.decision)
        chunk = self.executor.plan(lanes, noise, condition)
        executed = self.executed_part(chunk).unsqueeze(1)
        if self.others is None:
            return chunk, executed
        drawn = self.others.draw(lanes.ids, decision).view(len(chunk), -1, *noise.shape[1:])
        known = encode(policy, self.executor.history(lanes)) if condition is None else condition
        rows = torch.arange(len(chunk), device=chunk.device).repeat_interleave(drawn.shape[1])
        more = self.executed_part(policy.sample_from(known[rows], drawn.flatten(0, 1)))
        return chunk, torch.cat([executed, more.view(len(chunk), -1, executed.shape[-1])], dim=1)

    def load_noise(self, state: dict[str, list[int]]) -> None:
        """Restore the state of the noise, that of further draws included."""
        self.noise.load_state_dict(state)
        if self.others is not None:
            self.others.load_state_dict(state)

    def action(self, lanes: Lanes | None = None) -> Float[Tensor, "k a"]:
        """First action of the queue, with the per-step correction of a base that has one."""
        return self.executor.policy.refine(self.executor.history(lanes), self.executor.peek(lanes))

    def executed_part(self, chunk: Float[Tensor, "k Tp a"]) -> Float[Tensor, "k actions"]:
        """The first Ta actions of a chunk, flattened."""
        return chunk[:, : self.executor.execute].flatten(1)


class Collector:
    """Steps the lanes of one environment and stores their decisions.

    observations: what actor and critics see; None: the base's features. others: noise of a `CandidateMap`'s
    further draws. takeover: leaves the first steps of episodes to the base; None: the actor always acts.
    shaping: of the stored rewards; None: they are the task's.
    """

    def __init__(
        self,
        env: VecEnv,
        executor: PlanningExecutor,
        noise: ResumableNoise,
        action_map: ActionMap,
        gamma: float,
        store: Store,
        interventions: Store | None = None,
        reward: RewardTransform | None = None,
        observations: Observations | None = None,
        others: ResumableNoise | None = None,
        takeover: Takeover | None = None,
        shaping: PotentialShaping | None = None,
    ) -> None:
        self.env, self.map, self.takeover = env, action_map, takeover
        self.observations = BaseFeatures(executor) if observations is None else observations
        self.base = BasePlans(executor, noise, others)
        self.writer = DecisionWriter(store, gamma, interventions, shaping)
        self.reward = reward or RewardTransform()
        shape = (executor.execute, env.spec.action.dim)
        width = shape[1] if action_map.timescale == "step" else shape[0] * shape[1]
        self._lanes = executor.lanes
        self.decisions = RunningDecisions(self._lanes, shape, width)
        self.episodes = RunningEpisodes(self._lanes)
        self.env_steps = 0
        planned = action_map.timescale == "chunk" or not self.observations.reads_pictures
        self._skipping = picture_skipping(env) if planned and not self._lanes.masked else None

    def reset(self, obs: Obs, episode_seeds: Indices) -> None:
        """Start every lane after a reset of the environment. Call once, before the first `begin`."""
        self._start(obs, self._lanes, episode_seeds)
        self.observations.start(obs, self._lanes)

    def _start(self, obs: Obs, lanes: Lanes, episode_seeds: Indices) -> None:
        self.base.reset(obs, lanes, episode_seeds)
        if self.takeover is not None:
            seeds = torch.as_tensor(episode_seeds, dtype=torch.long, device=lanes.ids.device)
            self.takeover.reset(lanes, lanes.read(seeds))

    @property
    def num_lanes(self) -> int:
        """Number of parallel environments."""
        return self.env.num_envs

    def collect(
        self, phase: Phase, act: Act | None, store: Store, learn: Learn | None
    ) -> list[CollectedEpisode]:
        """One control step of all lanes; the learner works while the simulators do."""
        self.writer.store = store
        self.begin(act)
        if learn is not None:
            learn(1.0)
        self.finish()
        return self.drain_when_due()

    @property
    def running(self) -> Bool[Tensor, " n"]:
        """Mask of lanes with a decision that is being executed and not stored yet."""
        return self.decisions.has_pending.clone()

    @torch.no_grad()
    def begin(self, act: Act | None) -> None:
        """Choose the actions of all lanes and start the step. `act` None executes the base alone."""
        if self.map.timescale == "step":
            self._decide_step(act)
            action = self.decisions.pending["critic_action"]
        else:
            self._decide_chunk(act)
            action = self.base.action()
        self._action = action
        if self._skipping is not None:
            self._skipping.skip_pictures(self._unread())
        self.env.step_async(self.env.spec.action.denormalize(action))

    def _unread(self) -> Bool[Tensor, " n"]:
        """Lanes whose next observation is in no history that is read: a plan's or that of a time-out."""
        executor = self.base.executor
        last = self.env.spec.max_episode_steps - executor.policy.obs_steps
        return executor.unread(ahead=1) & (self.episodes.length < last)

    def _decide_step(self, act: Act | None) -> None:
        seen = self.observations.see(self._lanes)
        self.base.plan_due(condition=seen.condition)
        action = self.base.action()
        ctx = action[:, : self.map.ctx_dim]
        u = self._ask(act, seen.features, ctx, self._lanes)
        self._open(self._lanes, seen, ctx, u, action if u is None else self.map.to_critic(u, ctx))

    def _ask(self, act: Act | None, features: Tensor, ctx: Tensor, lanes: Lanes) -> Tensor | None:
        """u of these lanes: 0 where the base still acts. None: the base acts everywhere."""
        if act is None:
            return None
        u = act(features, ctx)
        if self.takeover is None:
            return u
        base = lanes.read(self.takeover.base_acts(self.episodes.length))
        return torch.where(base.unsqueeze(1), 0.0, u)

    def _decide_chunk(self, act: Act | None) -> None:
        base, lanes = self.base, self.base.executor.due()
        if not lanes:
            return
        seen, noise = self.observations.see(lanes), base.draw(lanes)
        features = seen.features
        if isinstance(self.map, LatentMap):
            ctx = noise.flatten(1)[:, : self.map.ctx_dim]
            u = self._ask(act, features, ctx, lanes)
            steered = noise if u is None else self.map.to_noise(u, ctx)
            chunk = base.executor.plan(lanes, steered, seen.condition)
            self._open(lanes, seen, ctx, u, steered.flatten(1), chunk)
            return
        if isinstance(self.map, ChainMap) and act is not None:
            u = act(features, noise.flatten(1))  # the chain is the plan: the base samples no other
            chunk = self.map.to_chunk(u)
            base.executor.queue(lanes, chunk)
            self._open(lanes, seen, noise.flatten(1)[:, :0], u, base.executed_part(chunk), chunk)
            return
        chunk, executed = base.plan_candidates(lanes, noise, seen.condition)
        # a copy, because the chunk is corrected in place below
        ctx = executed.flatten(1)[:, : self.map.ctx_dim].clone()
        u = self._ask(act, features, ctx, lanes)
        if u is not None:
            ta = base.executor.execute
            chunk[:, :ta] = self.map.to_critic(u, ctx).view(len(lanes), ta, -1)
            base.executor.queue(lanes, chunk, replaces=True)
        self._open(lanes, seen, ctx, u, base.executed_part(chunk), chunk)

    def _open(
        self,
        lanes: Lanes,
        seen: LaneObservations,
        ctx: Tensor,
        u: Tensor | None,
        critic_action: Tensor,
        chunk: Tensor | None = None,
    ) -> None:
        """Store the previous decision of these lanes and start the next one. `u` None: base alone."""
        pending = lanes.read(self.decisions.has_pending)
        if ready := lanes.where(pending):
            after = {name: lanes.rows(value, pending) for name, value in (seen.kept | {"ctx": ctx}).items()}
            if self.decisions.pending:
                self._store(ready, self.decisions.entry(ready, after))
        u = ctx.new_zeros(len(lanes), self.map.dim) if u is None else u
        values = seen.kept | {"ctx": ctx, "u": u, "critic_action": critic_action}
        self.decisions.start(lanes, values, chunk)

    def _store(self, lanes: Lanes, entry: dict[str, Tensor]) -> None:
        # the critic learns the value of the executed action, not of the requested one
        if not isinstance(self.map, LatentMap):
            entry["critic_action"] = entry["action"]
        self.writer.write(lanes, entry)

    @torch.no_grad()
    def finish(self) -> None:
        """Wait for the simulators and record the outcome. Ended episodes are kept for `episodes.drain`."""
        obs, reward, terminated, truncated, info = self.env.step_wait()
        executed = self._executed(info)
        self._mark_interventions(info)
        self.base.executor.advance()
        self.decisions.step(executed, self.reward.apply(reward), self.writer.gamma)
        self.episodes.step(reward)
        self.env_steps += self.env.num_envs
        self.base.executor.observe(info["final_obs"])
        self.observations.add(info["final_obs"])
        over = terminated | truncated
        ended = self._lanes.where(over)
        if not ended:
            return
        seen = self.observations.see(ended)
        after = seen.kept | {"ctx": self._final_ctx(ended, over, seen.condition)}
        entry = self.decisions.entry(ended, after, ended.read(terminated), ended.read(truncated))
        outcome = {name: ended.read(info[name]) for name in ("episode_seed", "success")}
        self._store(ended, entry | outcome)
        ended.write(self.decisions.has_pending, False)
        self._start(obs, ended, info["next_seed"])
        self.observations.start(obs, ended)
        self.episodes.end(ended, info)

    def drain_when_due(self) -> list[CollectedEpisode]:
        """Episodes that ended and were not returned yet; on a GPU only at every `READ_EVERY`-th step."""
        steps = self.env_steps // self.env.num_envs
        return [] if self._lanes.masked and steps % READ_EVERY else self.episodes.drain()

    def _executed(self, info: Mapping[str, Any]) -> Float[Tensor, "n a"]:
        if "executed_action" in info:
            return self.env.spec.action.normalize(info["executed_action"]).clamp(-1.0, 1.0)
        return self._action.clamp(-1.0, 1.0)

    def _mark_interventions(self, info: Mapping[str, Any]) -> None:
        if "intervened" not in info:
            return
        started = self.episodes.new_interventions(info["intervened"])
        if self.reward.before_intervention is not None and started:
            self.writer.store.set_last_reward(started, self.reward.punish())
        self.decisions.mark_human(info["intervened"])

    def _final_ctx(
        self, lanes: Lanes, over: Bool[Tensor, " n"], condition: Condition | None
    ) -> Float[Tensor, "k c"]:
        """Context of the actor at the last observation, which bootstrapping after a time-out needs."""
        if not self.map.ctx_dim:
            return torch.zeros(len(lanes), 0, device=lanes.ids.device)
        if self.map.timescale == "step":
            self.base.plan_due(over)
            return self.base.action(lanes)
        noise = self.base.draw(lanes)
        if isinstance(self.map, LatentMap):
            return noise.flatten(1)
        return self.base.plan_candidates(lanes, noise, condition)[1].flatten(1)

    def state_dict(self) -> dict[str, Any]:
        """State of running decisions, executor and noise, from which a resumed run continues."""
        return {
            "running": self.decisions.state_dict() | self.episodes.state_dict(),
            "pending": {name: value.clone() for name, value in self.decisions.pending.items()},
            "executor": self.base.executor.state_dict(),
            "noise": self.base.noise.state_dict(),
            "takeover": None if self.takeover is None else self.takeover.steps.clone(),
            "env_steps": self.env_steps,
            "reward_max": self.reward.largest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.decisions.load_state_dict(state["running"])
        self.episodes.load_state_dict(state["running"])
        device = self._lanes.ids.device
        self.decisions.pending = {
            name: value.to(device, copy=True) for name, value in state["pending"].items()
        }
        self.base.executor.load_state_dict(state["executor"])
        self.base.load_noise(state["noise"])
        if self.takeover is not None:
            self.takeover.steps.copy_(state["takeover"])
        self.env_steps, self.reward.largest = int(state["env_steps"]), float(state["reward_max"])
