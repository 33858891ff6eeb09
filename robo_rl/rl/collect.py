"""Collection: step a vector environment with a base policy under an action map and store every decision.

One control step is `begin` (decide, start the simulators) and `finish` (read the outcome): the loop updates
the learner in between, while worker processes simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from robo_rl.core.action_map import ActionMap, LatentMap
from robo_rl.core.protocols import Obs, PlanningExecutor, ResumableNoise, Rows, VecEnv
from robo_rl.core.shapes import Bool, Float
from robo_rl.rl.running import CollectedEpisode, LearnedReward, RunningDecisions, RunningEpisodes

Act = Callable[[Tensor, Tensor], Tensor]  # (features, ctx) -> u


@runtime_checkable
class Store(Protocol):
    """Where decisions go: a replay, or the roll-out of an on-policy learner, which also reads `u`."""

    def add(self, rows: Rows, values: Mapping[str, Tensor], gamma: float) -> None: ...
    def set_last_reward(self, rows: Rows, reward: float) -> None: ...


class DecisionWriter:
    """Writes finished decisions into stores.

    store: takes every decision; the loop changes it between phases. interventions: takes those of a human as
    well.
    """

    def __init__(self, store: Store, gamma: float, interventions: Store | None = None) -> None:
        self.store, self.gamma, self.interventions = store, gamma, interventions

    def write(self, rows: Rows, values: Mapping[str, Tensor]) -> None:
        """Store one decision in each of these lanes."""
        self.store.add(rows, values, self.gamma)
        human = values["demo"] > 0
        if self.interventions is not None and human.any():
            # Only intervened steps go in, so an entry need not be followed by its successor: cut after each.
            only = {name: value[human] for name, value in values.items()}
            only["cut"] = torch.ones_like(only["cut"])
            self.interventions.add(rows[human], only, self.gamma)


class BasePlans:
    """The base policy in every lane: its queue of planned actions and its noise."""

    def __init__(self, executor: PlanningExecutor, noise: ResumableNoise) -> None:
        self.executor, self.noise = executor, noise

    def reset(self, obs: Obs, rows: Rows, episode_seeds: Sequence[int]) -> None:
        """Start an episode in these lanes. obs: (n, *shape), all lanes."""
        self.executor.reset(obs, rows)
        self.noise.reset(rows.tolist(), episode_seeds)

    def features(self, rows: Rows | None = None) -> Float[Tensor, "k f"]:
        """What actor and critics see of these lanes, all by default."""
        return self.executor.policy.features(self.executor.history(rows))

    def draw(self, rows: Rows) -> Float[Tensor, "k Tp a"]:
        """The base's own noise for the next plan of these lanes."""
        return self.noise.draw(rows.tolist(), self.executor.decision[rows].tolist())

    def plan_due(self, rows: Rows | None = None) -> None:
        """Plan by the base's own noise where a queue is empty, in these lanes (all by default)."""
        due = self.executor.due()
        if rows is not None:
            due = rows[torch.isin(rows, due)]
        if len(due):
            self.executor.plan(due, self.draw(due))

    def action(self, rows: Rows | None = None) -> Float[Tensor, "k a"]:
        """The action at the head of the queue, corrected where the base corrects single steps itself."""
        return self.executor.policy.refine(self.executor.history(rows), self.executor.peek(rows))

    def executed_part(self, chunk: Float[Tensor, "k Tp a"]) -> Float[Tensor, "k actions"]:
        """The first Ta actions of a chunk, flattened."""
        return chunk[:, : self.executor.execute].flatten(1)

    def replace(self, rows: Rows, chunk: Float[Tensor, "k Tp a"]) -> None:
        """Correct the chunk that was just planned in these lanes; both together are one decision."""
        self.executor.queue(rows, chunk)
        self.executor.decision[rows] -= 1


class Collector:
    """Drives the lanes of one environment and writes what was decided."""

    def __init__(
        self,
        env: VecEnv,
        executor: PlanningExecutor,
        noise: ResumableNoise,
        action_map: ActionMap,
        gamma: float,
        store: Store,
        interventions: Store | None = None,
        reward: LearnedReward | None = None,
    ) -> None:
        self.env, self.map = env, action_map
        self.base = BasePlans(executor, noise)
        self.writer = DecisionWriter(store, gamma, interventions)
        self.reward = reward or LearnedReward()
        shape = (executor.execute, env.spec.action.dim)
        width = shape[1] if action_map.timescale == "step" else shape[0] * shape[1]
        self.decisions = RunningDecisions(env.num_envs, shape, width)
        self.episodes = RunningEpisodes(env.num_envs)
        self.env_steps = 0
        self._lanes = torch.arange(env.num_envs)

    def reset(self, obs: Obs, episode_seeds: Sequence[int]) -> None:
        """Start every lane after a reset of the environment. Call once, before the first `begin`."""
        self.base.reset(obs, self._lanes, episode_seeds)

    @property
    def running(self) -> Bool[Tensor, " n"]:
        """Lanes with a decision under way that is not stored yet."""
        return self.decisions.has_pending.clone()

    @torch.no_grad()
    def begin(self, act: Act | None) -> None:
        """Decide for every lane and start the step. `act` None executes the base alone."""
        if self.map.timescale == "step":
            self._decide_step(act)
            action = self.decisions.pending["critic_action"]
        else:
            self._decide_chunk(act)
            action = self.base.action()
        self._action = action
        self.env.step_async(self.env.spec.action.denormalize(action))

    def _decide_step(self, act: Act | None) -> None:
        self.base.plan_due()
        features = self.base.features()
        action = self.base.action()
        ctx = action[:, : self.map.ctx_dim]
        u = None if act is None else act(features, ctx)
        self._open(self._lanes, features, ctx, u, action if u is None else self.map.to_critic(u, ctx))

    def _decide_chunk(self, act: Act | None) -> None:
        base, rows = self.base, self.base.executor.due()
        if not len(rows):
            return
        features, noise = base.features(rows), base.draw(rows)
        if isinstance(self.map, LatentMap):
            ctx = noise.flatten(1)[:, : self.map.ctx_dim]
            u = None if act is None else act(features, ctx)
            steered = noise if u is None else self.map.to_noise(u, ctx)
            chunk = base.executor.plan(rows, steered)
            self._open(rows, features, ctx, u, steered.flatten(1), chunk)
            return
        chunk = base.executor.plan(rows, noise)
        ctx = base.executed_part(chunk).clone()  # what is corrected in place below
        u = None if act is None else act(features, ctx)
        if u is not None:
            ta = base.executor.execute
            chunk[:, :ta] = self.map.to_critic(u, ctx).view(len(rows), ta, -1)
            base.replace(rows, chunk)
        self._open(rows, features, ctx, u, base.executed_part(chunk), chunk)

    def _open(
        self,
        rows: Rows,
        features: Tensor,
        ctx: Tensor,
        u: Tensor | None,
        critic_action: Tensor,
        chunk: Tensor | None = None,
    ) -> None:
        """Store the decision that was running in these lanes and start the next one. `u` None: base alone."""
        ready = self.decisions.has_pending[rows]
        if ready.any():
            self._store(rows[ready], self.decisions.entry(rows[ready], (features[ready], ctx[ready])))
        u = torch.zeros(len(rows), self.map.dim) if u is None else u
        values = {"obs": features, "ctx": ctx, "u": u, "critic_action": critic_action}
        self.decisions.start(rows, values, chunk)

    def _store(self, rows: Rows, entry: dict[str, Tensor]) -> None:
        if not isinstance(self.map, LatentMap):  # the critic judges what was executed, not what was asked for
            entry["critic_action"] = entry["action"]
        self.writer.write(rows, entry)

    @torch.no_grad()
    def finish(self) -> list[CollectedEpisode]:
        """Wait for the simulators, record the outcome, and return the episodes that ended."""
        obs, reward, terminated, truncated, info = self.env.step_wait()
        executed = self._executed(info)
        self._mark_interventions(info)
        self.base.executor.advance()
        self.decisions.step(executed, self.reward.of(reward), self.writer.gamma)
        self.episodes.step(reward)
        self.env_steps += self.env.num_envs
        self.base.executor.observe(info["final_obs"])
        ended = torch.nonzero(terminated | truncated).flatten()
        if not len(ended):
            return []
        after = self.base.features(ended), self._final_ctx(ended)
        self._store(ended, self.decisions.entry(ended, after, terminated[ended], truncated[ended]))
        self.decisions.has_pending[ended] = False
        self.base.reset(obs, ended, info["next_seed"][ended].tolist())
        return self.episodes.end(ended, info)

    def _executed(self, info: Mapping[str, Any]) -> Float[Tensor, "n a"]:
        if "executed_action" in info:
            return self.env.spec.action.normalize(info["executed_action"]).clamp(-1.0, 1.0)
        return self._action.clamp(-1.0, 1.0)

    def _mark_interventions(self, info: Mapping[str, Any]) -> None:
        if "intervened" not in info:
            return
        rows, punished = self.episodes.taken_over(info["intervened"]), self.reward.before_intervention
        if punished is not None and len(rows):
            self.writer.store.set_last_reward(rows, punished)
            self.reward.largest = max(self.reward.largest, abs(punished))
        self.decisions.mark_human(info["intervened"])

    def _final_ctx(self, rows: Rows) -> Float[Tensor, "k c"]:
        """What the actor would have seen at the last observation: needed where a time-out is bootstrapped."""
        if not self.map.ctx_dim:
            return torch.zeros(len(rows), 0)
        if self.map.timescale == "step":
            self.base.plan_due(rows)
            return self.base.action(rows)
        noise = self.base.draw(rows)
        if isinstance(self.map, LatentMap):
            return noise.flatten(1)
        return self.base.executed_part(self.base.executor.plan(rows, noise))

    def state_dict(self) -> dict[str, Any]:
        """Everything about the running decisions, so that a resumed run continues them."""
        return {
            "running": self.decisions.state_dict() | self.episodes.state_dict(),
            "pending": {name: value.clone() for name, value in self.decisions.pending.items()},
            "executor": self.base.executor.state_dict(),
            "noise": self.base.noise.state_dict(),
            "env_steps": self.env_steps,
            "reward_max": self.reward.largest,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.decisions.load_state_dict(state["running"])
        self.episodes.load_state_dict(state["running"])
        self.decisions.pending = {name: value.clone() for name, value in state["pending"].items()}
        self.base.executor.load_state_dict(state["executor"])
        self.base.noise.load_state_dict(state["noise"])
        self.env_steps, self.reward.largest = int(state["env_steps"]), float(state["reward_max"])
