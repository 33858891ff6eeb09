"""Collection: step a vector environment with a base policy under an action map and store every decision.

One control step is `begin` (decide, start the simulators) and `finish` (read the outcome): the loop updates
the learner in between, while worker processes simulate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from robo_rl.core.action_map import ActionMap, LatentMap
from robo_rl.core.protocols import Obs, PlanningExecutor, ResumableNoise, VecEnv

Rows = Int[Tensor, " k"]
Act = Callable[[Tensor, Tensor], Tensor]  # (features, ctx) -> u


@runtime_checkable
class Store(Protocol):
    """Where decisions go: a replay, or the roll-out of an on-policy learner, which also reads `u`."""

    def add(self, rows: Rows, values: Mapping[str, Tensor], gamma: float) -> None: ...
    def set_last_reward(self, rows: Rows, reward: float) -> None: ...


@dataclass(frozen=True, slots=True)
class CollectedEpisode:
    """One finished episode."""

    seed: int
    success: bool
    steps: int
    total_reward: float


class Collector:
    """Drives the lanes of one environment. `store` is where decisions go; the loop changes it between
    phases.
    """

    def __init__(
        self,
        env: VecEnv,
        executor: PlanningExecutor,
        noise: ResumableNoise,
        action_map: ActionMap,
        gamma: float,
        store: Store,
    ) -> None:
        self.env, self.executor, self.noise, self.map, self.gamma, self.store = (
            env,
            executor,
            noise,
            action_map,
            gamma,
            store,
        )
        self.interventions: Store | None = None  # intervened steps are stored here as well
        self.intervention_reward: float | None = (
            None  # RLIF: the reward just before an intervention; step-wise maps
        )
        self.reward_scale, self.reward_bias = 1.0, 0.0  # learned reward = scale * reward + bias, every step
        self.env_steps = 0
        self.reward_max = 0.0  # largest |learned reward| of a step so far
        n, a, ta = env.num_envs, env.spec.action.dim, executor.execute
        self._lanes = torch.arange(n)
        self._width = a if action_map.timescale == "step" else a * ta
        self._pending: dict[str, Tensor] = {}  # the running decision of every lane
        self._has_pending = torch.zeros(n, dtype=torch.bool)
        self._taken = torch.zeros(n, ta, a)  # actions executed since the decision, then those still planned
        self._steps = torch.zeros(n, dtype=torch.long)  # of the running decision
        self._reward = torch.zeros(n)
        self._human = torch.zeros(n)
        self._intervened = torch.zeros(n, dtype=torch.bool)  # at the last step
        self._length = torch.zeros(n, dtype=torch.long)  # of the running episode
        self._return = torch.zeros(n)

    def reset(self, obs: Obs, episode_seeds: Sequence[int]) -> None:
        """The environment was reset: start every lane. Call once, before the first `begin`."""
        self.executor.reset(obs)
        self.noise.reset(self._lanes.tolist(), episode_seeds)

    @property
    def running(self) -> Bool[Tensor, " n"]:
        """Lanes with a decision under way that is not stored yet."""
        return self._has_pending.clone()

    @torch.no_grad()
    def begin(self, act: Act | None) -> None:
        """Decide for every lane and start the step. `act` None executes the base alone."""
        if self.map.timescale == "step":
            self._decide_step(act)
        else:
            self._decide_chunk(act)
        action = self._base_action() if self.map.timescale == "chunk" else self._pending["critic_action"]
        self._action = action
        self.env.step_async(self.env.spec.action.denormalize(action))

    def _decide_step(self, act: Act | None) -> None:
        self._plan_base(self.executor.due())
        features = self.executor.policy.features(self.executor.history())
        base = self._base_action()
        ctx = base[:, : self.map.ctx_dim]
        u = None if act is None else act(features, ctx)
        self._open(self._lanes, features, ctx, u, base if u is None else self.map.to_critic(u, ctx))

    def _base_action(self, rows: Rows | None = None) -> Float[Tensor, "k a"]:
        """What the queue holds next, corrected where the base corrects single steps itself."""
        return self.executor.policy.refine(self.executor.history(rows), self.executor.peek(rows))

    def _decide_chunk(self, act: Act | None) -> None:
        rows = self.executor.due()
        if not len(rows):
            return
        features = self.executor.policy.features(self.executor.history(rows))
        noise = self.noise.draw(rows.tolist(), self.executor.decision[rows].tolist())
        if isinstance(self.map, LatentMap):
            ctx = noise.flatten(1)[:, : self.map.ctx_dim]
            u = None if act is None else act(features, ctx)
            steered = noise if u is None else self.map.to_noise(u, ctx)
            chunk = self.executor.plan(rows, steered)
            self._open(rows, features, ctx, u, steered.flatten(1), chunk)
        else:
            chunk = self.executor.plan(rows, noise)
            ctx = chunk[:, : self.executor.execute].flatten(1).clone()  # what is corrected in place below
            u = None if act is None else act(features, ctx)
            if u is not None:
                ta = self.executor.execute
                chunk[:, :ta] = self.map.to_critic(u, ctx).view(len(rows), ta, -1)
                self.executor.queue(rows, chunk)
                self.executor.decision[rows] -= 1  # planning and correcting a chunk is one decision
            self._open(rows, features, ctx, u, chunk[:, : self.executor.execute].flatten(1), chunk)

    def _plan_base(self, rows: Rows) -> None:
        if len(rows):
            self.executor.plan(rows, self.noise.draw(rows.tolist(), self.executor.decision[rows].tolist()))

    def _open(
        self,
        rows: Rows,
        features: Tensor,
        ctx: Tensor,
        u: Tensor | None,
        critic_action: Tensor,
        chunk: Tensor | None = None,
    ) -> None:
        """Close the decision that was running in these lanes and open the next one. `u` None is the base
        alone.

        An episode may end inside a chunk. The actions that it cut off stay in the replay as they were
        planned: critics are asked about whole chunks, and would not know one that was filled up with zeros.
        """
        ready = self._has_pending[rows]
        if ready.any():
            self._store(rows[ready], features[ready], ctx[ready])
        u = torch.zeros(len(rows), self.map.dim) if u is None else u
        opened = {"obs": features, "ctx": ctx, "u": u, "critic_action": critic_action}
        if not self._pending:
            self._pending = {
                name: torch.zeros(self.env.num_envs, value.shape[1]) for name, value in opened.items()
            }
        for name, value in opened.items():
            if len(rows) == self.env.num_envs:
                self._pending[name] = value.clone()
            else:
                self._pending[name][rows] = value
        self._has_pending[rows] = True
        self._steps[rows], self._reward[rows], self._human[rows] = 0, 0.0, 0.0
        if chunk is not None:
            self._taken[rows] = chunk[:, : self.executor.execute]

    def _store(
        self,
        rows: Rows,
        next_obs: Tensor,
        next_ctx: Tensor,
        terminated: Tensor | None = None,
        truncated: Tensor | None = None,
    ) -> None:
        no = torch.zeros(len(rows), dtype=torch.bool)
        values = {name: value[rows] for name, value in self._pending.items()} | {
            "action": self._taken[rows].flatten(1)[:, : self._width],
            "reward": self._reward[rows],
            "steps": self._steps[rows],
            "next_obs": next_obs,
            "next_ctx": next_ctx,
            "demo": self._human[rows],
            "terminated": no if terminated is None else terminated,
            "truncated": no if truncated is None else truncated,
            "cut": no,
        }
        if not isinstance(self.map, LatentMap):  # the critic judges what was executed, not what was asked for
            values["critic_action"] = values["action"]
        self.store.add(rows, values, self.gamma)
        human = self._human[rows] > 0
        if self.interventions is not None and human.any():
            # Only intervened steps go in, so an entry need not be followed by its successor: cut after each.
            only = {name: value[human] for name, value in values.items()}
            only["cut"] = torch.ones_like(only["cut"])
            self.interventions.add(rows[human], only, self.gamma)

    @torch.no_grad()
    def finish(self) -> list[CollectedEpisode]:
        """Wait for the simulators, book the outcome, and return the episodes that ended."""
        obs, reward, terminated, truncated, info = self.env.step_wait()
        executed = self._executed(info)
        self._mark_interventions(info)
        self.executor.advance()
        self._taken[self._lanes, self._steps] = executed
        learned = self.reward_scale * reward + self.reward_bias
        self._reward += self.gamma ** self._steps.float() * learned
        self._steps += 1
        self._length += 1
        self._return += reward
        self.reward_max = max(self.reward_max, float(learned.abs().max()))
        self.env_steps += self.env.num_envs
        self.executor.observe(info["final_obs"])
        ended = torch.nonzero(terminated | truncated).flatten()
        if not len(ended):
            return []
        return self._end(ended, obs, terminated, truncated, info)

    def _executed(self, info: Mapping[str, Any]) -> Float[Tensor, "n a"]:
        if "executed_action" in info:
            return self.env.spec.action.normalize(info["executed_action"]).clamp(-1.0, 1.0)
        return self._action.clamp(-1.0, 1.0)

    def _mark_interventions(self, info: Mapping[str, Any]) -> None:
        if "intervened" not in info:
            return
        now = info["intervened"]
        started = torch.nonzero(now & ~self._intervened & (self._length > 0)).flatten()
        if self.intervention_reward is not None and len(started):
            self.store.set_last_reward(started, self.intervention_reward)
            self.reward_max = max(self.reward_max, abs(self.intervention_reward))
        self._human = torch.maximum(self._human, now.float())
        self._intervened = now.clone()

    def _end(
        self, ended: Rows, obs: Obs, terminated: Tensor, truncated: Tensor, info: Mapping[str, Any]
    ) -> list[CollectedEpisode]:
        features = self.executor.policy.features(self.executor.history(ended))
        self._store(ended, features, self._final_ctx(ended), terminated[ended], truncated[ended])
        episodes = [
            CollectedEpisode(
                int(info["episode_seed"][i]),
                bool(info["success"][i]),
                int(self._length[i]),
                float(self._return[i]),
            )
            for i in ended.tolist()
        ]
        self._has_pending[ended] = False
        self._length[ended], self._return[ended], self._intervened[ended] = 0, 0.0, False
        self.executor.reset(obs, ended)
        self.noise.reset(ended.tolist(), info["next_seed"][ended].tolist())
        return episodes

    def _final_ctx(self, rows: Rows) -> Float[Tensor, "k c"]:
        """What the actor would have seen at the last observation: needed where a time-out is bootstrapped."""
        if not self.map.ctx_dim:
            return torch.zeros(len(rows), 0)
        if self.map.timescale == "step":
            self._plan_base(rows[torch.isin(rows, self.executor.due())])
            return self._base_action(rows)
        noise = self.noise.draw(rows.tolist(), self.executor.decision[rows].tolist())
        if isinstance(self.map, LatentMap):
            return noise.flatten(1)
        return self.executor.plan(rows, noise)[:, : self.executor.execute].flatten(1)

    def state_dict(self) -> dict[str, Any]:
        """Everything about the running decisions, so that a resumed run continues them."""
        names = ("_has_pending", "_taken", "_steps", "_reward", "_human", "_intervened", "_length", "_return")
        return {
            "running": {name: getattr(self, name).clone() for name in names},
            "pending": {name: value.clone() for name, value in self._pending.items()},
            "executor": self.executor.state_dict(),
            "noise": self.noise.state_dict(),
            "env_steps": self.env_steps,
            "reward_max": self.reward_max,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, value in state["running"].items():
            setattr(self, name, value.clone())
        self._pending = {name: value.clone() for name, value in state["pending"].items()}
        self.executor.load_state_dict(state["executor"])
        self.noise.load_state_dict(state["noise"])
        self.env_steps, self.reward_max = int(state["env_steps"]), float(state["reward_max"])
