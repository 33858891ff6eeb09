"""Chunk executor: history stacking, memory of decisions, chunk queues, re-planning and reset, per lane.

Training, evaluation and the robot all run a policy through this class, so that they behave alike. One control
step is `due` -> `plan` -> `peek` -> `advance`; `act` does all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from policies.decision_memory import DecisionMemory
from robo_rl.core.conditioning import MEMORY, Condition, memory_shape, moment_of, sample_with_moment
from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import ChunkPolicy, LaneIds, NoiseSource, Obs, reads_every_step
from robo_rl.core.shapes import Bool, Float

_SAVED = ("decision", "_left", "_at", "_chunk", "_sum", "_weight")  # attributes in checkpoints
Refine = Callable[[Obs, Tensor], Tensor]  # (history, planned actions) -> actions


class ChunkExecutor:
    """Runs one policy in n lanes.

    execute: number of actions executed from a chunk before the next is planned (Ta); None: the policy's own.
    ensemble: None, or the decay m of a temporal ensemble: a chunk is planned every step, and the executed
        action is the weighted mean of all chunks for this step. The oldest has weight 1, each newer one
        exp(-m) times the one before (Zhao et al. 2023, "Learning Fine-Grained Bimanual Manipulation",
        algorithm 2).
    device: of the policy and of all tensors. masked: form of `due`, see `Lanes`.
    """

    def __init__(
        self,
        policy: ChunkPolicy,
        num_envs: int,
        *,
        execute: int | None = None,
        ensemble: float | None = None,
        device: torch.device | str = "cpu",
        masked: bool | None = None,
    ) -> None:
        self.policy = policy
        self.execute = policy.execute if execute is None else execute
        if not 1 <= self.execute <= policy.chunk:
            raise ConfigError(
                f"execute={self.execute} must lie in [1, {policy.chunk}], the policy's chunk length."
            )
        # Weights grow by exp(m) per step that a chunk stays in the mean; float32 holds exp(88).
        if ensemble is not None and not abs(ensemble) * (policy.chunk - 1) <= 80.0:
            raise ConfigError(f"ensemble={ensemble} cannot be used, expected: a decay near 0, such as 0.01.")
        self.ensemble = ensemble
        shape = memory_shape(policy)
        if shape is not None and (self.execute != policy.execute or ensemble is not None):
            raise ConfigError(
                f"The policy remembers decisions that are {policy.execute} steps apart, found "
                f"execute={self.execute} and ensemble={ensemble}. Leave both out, or train it with another "
                "execute."
            )
        self._memory = None if shape is None else DecisionMemory(shape, num_envs, device)
        self.num_envs = num_envs
        self.lanes = Lanes.all(num_envs, device, masked=masked)
        count = torch.zeros(num_envs, dtype=torch.long, device=device)
        self.decision = count.clone()  # chunks planned so far in this episode
        self._history: Obs = {}
        self._left = count.clone()  # actions left in the queue; 0: a plan is due
        self._at = count.clone()  # index of the next action in its chunk
        self._chunk = torch.zeros(num_envs, policy.chunk, policy.action_spec.dim, device=device)
        self._sum = torch.zeros_like(self._chunk)  # temporal ensemble: weighted sum of future actions
        self._weight = torch.zeros(num_envs, policy.chunk, device=device)

    def reset(self, obs: Obs, lanes: Lanes | LaneIds | None = None) -> None:
        """Start an episode in these lanes: the history repeats the first observation, and queue and memory
        are empty.

        obs: (n, *shape), all lanes; only `lanes` are read.
        """
        lanes = self._chosen(lanes)
        for key, value in obs.items():
            if key not in self._history:
                self._history[key] = value.unsqueeze(1).repeat_interleave(self.policy.obs_steps, 1)
            else:
                lanes.write(self._history[key], lanes.read(value).unsqueeze(1))
        for counter in (self._left, self._at, self.decision):
            lanes.write(counter, 0)
        if self._memory is not None:
            self._memory.reset(lanes)
        if self.ensemble is not None:
            lanes.write(self._sum, 0.0)
            lanes.write(self._weight, 0.0)

    def replan(self, lanes: Lanes) -> None:
        """Drop what is left of these lanes' chunks, e.g. because another policy has acted: a plan is due."""
        lanes.write(self._left, 0)

    def observe(self, obs: Obs) -> None:
        """Append the newest observation of all lanes, (n, *shape), and drop the oldest one."""
        for key, value in obs.items():
            self._history[key] = torch.cat([self._history[key][:, 1:], value.unsqueeze(1)], dim=1)
        if self._memory is not None:
            self._memory.observe()

    def history(self, lanes: Lanes | LaneIds | None = None) -> Obs:
        """Stacked observations (k, To, *shape), newest last; for all lanes a view, not a copy.

        For a policy with a memory, also what it made of the decisions at earlier observations.
        """
        chosen = self._chosen(lanes)
        stacked = {key: chosen.read(value) for key, value in self._history.items()}
        return stacked if self._memory is None else {**stacked, MEMORY: chosen.read(self._memory.rows)}

    def due(self) -> Lanes:
        """Lanes that must be planned before the next action: those with an empty queue; all with a temporal
        ensemble.
        """
        return self.lanes if self.ensemble is not None else self.lanes.where(self._left == 0)

    def plan(
        self, lanes: Lanes, noise: Float[Tensor, "k Tp a"], condition: Condition | None = None
    ) -> Float[Tensor, "k Tp a"]:
        """Sample a chunk for these lanes and queue it. Returns the chunk, in [-1, 1].

        condition: that of these lanes' observations (`conditioning.encode`); None: it is made here.
        """
        with torch.no_grad():
            if condition is not None:
                chunk = self.policy.sample_from(condition, noise)
                moment = None if self._memory is None else moment_of(condition)
            elif self._memory is not None:
                chunk, moment = sample_with_moment(self.policy, self.history(lanes), noise)
            else:
                chunk, moment = self.policy.sample(self.history(lanes), noise), None
        if self._memory is not None and moment is not None:
            self._memory.decide(lanes, moment)
        self.queue(lanes, chunk)
        return chunk

    def queue(self, lanes: Lanes, chunk: Float[Tensor, "k Tp a"], *, replaces: bool = False) -> None:
        """Put a chunk in the queues of these lanes. It counts as one decision, unless it replaces the chunk
        of the last one.
        """
        lanes.write(self._chunk, chunk)
        lanes.write(self._left, self.execute)
        lanes.write(self._at, 0)
        if not replaces:
            lanes.add(self.decision, 1)
        if self.ensemble is not None:
            # The newest chunk has weight 1 and older weights grow by exp(m): the same ratios without
            # underflow.
            growth = math.exp(self.ensemble)
            lanes.write(self._sum, lanes.read(self._sum) * growth + chunk)
            lanes.write(self._weight, lanes.read(self._weight) * growth + 1.0)

    def peek(self, lanes: Lanes | LaneIds | None = None) -> Float[Tensor, "k a"]:
        """Next action of these lanes (default: all), in [-1, 1], before `refine`."""
        lanes = self._chosen(lanes)
        if self.ensemble is not None:
            return lanes.read(self._sum)[:, 0] / lanes.read(self._weight)[:, :1]
        # Unselected rows may be at the end of their queue.
        at = lanes.read(self._at).clamp(max=self.policy.chunk - 1)
        return self._chunk[lanes.ids, at]

    def advance(self) -> None:
        """Remove the executed actions from the queues."""
        self._left -= 1
        self._at += 1
        if self.ensemble is not None:
            self._sum = torch.cat([self._sum[:, 1:], torch.zeros_like(self._sum[:, :1])], dim=1)
            self._weight = torch.cat([self._weight[:, 1:], torch.zeros_like(self._weight[:, :1])], dim=1)

    def unread(self, ahead: int = 0) -> Bool[Tensor, " n"]:
        """Lanes whose next observation no plan will read: it is older than the history of the next one.

        ahead: 1 before the `advance` of the action that leads to this observation, 0 after it. Nowhere for a
        policy that reads every observation.
        """
        unread = self._left - ahead >= self.policy.obs_steps
        if self.ensemble is not None or reads_every_step(self.policy):
            unread = torch.zeros_like(unread)
        return unread

    def _chosen(self, lanes: Lanes | LaneIds | None) -> Lanes:
        if lanes is None:
            return self.lanes
        return lanes if isinstance(lanes, Lanes) else Lanes.of(lanes)

    def act(self, noise: NoiseSource, refine: Refine | None = None) -> Float[Tensor, "n a"]:
        """One control step of all lanes: the refined action, in [-1, 1].

        refine: in place of the policy's own; None: that.
        """
        if lanes := self.due():
            self.plan(lanes, noise.draw(lanes.ids, lanes.read(self.decision)))
        with torch.no_grad():
            action = (refine or self.policy.refine)(self.history(), self.peek())
        self.advance()
        return action

    def state_dict(self) -> dict[str, Any]:
        """Tensors that restore the executor to this instant."""
        state = {f"history.{key}": value for key, value in self._history.items()}
        state |= {name: getattr(self, name) for name in _SAVED}
        if self._memory is not None:
            state |= self._memory.state_dict()
        return {key: value.clone() for key, value in state.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        device, prefix = self.lanes.ids.device, "history."
        for name in _SAVED:
            setattr(self, name, state[name].to(device, copy=True))
        if self._memory is not None:
            self._memory.load_state_dict(dict(state))
        self._history = {
            key.removeprefix(prefix): value.to(device, copy=True)
            for key, value in state.items()
            if key.startswith(prefix)
        }
