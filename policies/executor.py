"""Chunk executor: history stacking, chunk queues, re-planning and reset, per lane.

Training, evaluation and the robot all run a policy through this class, so that they behave alike. One control
step is `due` -> `plan` -> `peek` -> `advance`; `act` does all of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, LaneIds, NoiseSource, Obs
from robo_rl.core.shapes import Float


class ChunkExecutor:
    """Runs one policy in n lanes.

    execute: number of actions executed from a chunk before the next is planned (Ta); None: the policy's own.
    ensemble: None, or the decay m of a temporal ensemble: a chunk is planned every step, and the executed
        action is the weighted mean of all chunks for this step. The oldest has weight 1, each newer one
        exp(-m) times the one before (Zhao et al. 2023, "Learning Fine-Grained Bimanual Manipulation",
        algorithm 2).
    """

    def __init__(
        self, policy: ChunkPolicy, num_envs: int, *, execute: int | None = None, ensemble: float | None = None
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
        self.num_envs = num_envs
        self.decision = torch.zeros(num_envs, dtype=torch.long)  # chunks planned so far in this episode
        self._history: Obs = {}
        self._lanes = torch.arange(num_envs)
        self._left = torch.zeros(num_envs, dtype=torch.long)  # actions left in the queue; 0: a plan is due
        self._at = torch.zeros(num_envs, dtype=torch.long)  # index of the next action in its chunk
        self._chunk = torch.zeros(num_envs, policy.chunk, policy.action_spec.dim)
        self._sum = torch.zeros_like(self._chunk)  # temporal ensemble: weighted sum of future actions
        self._weight = torch.zeros(num_envs, policy.chunk)

    def reset(self, obs: Obs, lane_ids: LaneIds | None = None) -> None:
        """Start an episode in these lanes: the history repeats the first observation and the queue is empty.

        obs: (n, *shape), all lanes; only `lane_ids` are read.
        """
        lane_ids = self._lanes if lane_ids is None else lane_ids
        for key, value in obs.items():
            if key not in self._history:
                self._history[key] = value.unsqueeze(1).repeat_interleave(self.policy.obs_steps, 1)
            else:
                self._history[key][lane_ids] = value[lane_ids].unsqueeze(1)
        self._left[lane_ids] = 0
        self._at[lane_ids] = 0
        self.decision[lane_ids] = 0
        self._sum[lane_ids] = 0
        self._weight[lane_ids] = 0

    def observe(self, obs: Obs, lane_ids: LaneIds | None = None) -> None:
        """Append the newest observation of these lanes, (n, *shape), and drop the oldest one."""
        for key, value in obs.items():
            stack = self._history[key]
            shifted = torch.cat([stack[:, 1:], value.unsqueeze(1)], dim=1)
            if lane_ids is None:
                self._history[key] = shifted
            else:
                stack[lane_ids] = shifted[lane_ids]

    def history(self, lane_ids: LaneIds | None = None) -> Obs:
        """Stacked observations (b, To, *shape), newest last; for all lanes a view, not a copy."""
        return {key: value if lane_ids is None else value[lane_ids] for key, value in self._history.items()}

    def due(self) -> LaneIds:
        """Lanes that must be planned before the next action: those with an empty queue; all with a temporal
        ensemble.
        """
        return self._lanes if self.ensemble is not None else torch.nonzero(self._left == 0).flatten()

    def plan(self, lane_ids: LaneIds, noise: Float[Tensor, "k Tp a"]) -> Float[Tensor, "k Tp a"]:
        """Sample a chunk for these lanes and queue it. Returns the chunk, in [-1, 1]."""
        with torch.no_grad():
            chunk = self.policy.sample(self.history(lane_ids), noise)
        self.queue(lane_ids, chunk)
        return chunk

    def queue(self, lane_ids: LaneIds, chunk: Float[Tensor, "k Tp a"]) -> None:
        """Put a chunk in the queues of these lanes; counts as one decision."""
        self._chunk[lane_ids] = chunk
        self._left[lane_ids] = self.execute
        self._at[lane_ids] = 0
        self.decision[lane_ids] += 1
        if self.ensemble is not None:
            # The newest chunk has weight 1 and older weights grow by exp(m): the same ratios without
            # underflow.
            growth = math.exp(self.ensemble)
            self._sum[lane_ids] = self._sum[lane_ids] * growth + chunk
            self._weight[lane_ids] = self._weight[lane_ids] * growth + 1.0

    def peek(self, lane_ids: LaneIds | None = None) -> Float[Tensor, "k a"]:
        """Next action of these lanes (default: all), in [-1, 1], before `refine`."""
        lane_ids = self._lanes if lane_ids is None else lane_ids
        if self.ensemble is not None:
            return self._sum[lane_ids, 0] / self._weight[lane_ids, :1]
        return self._chunk[lane_ids, self._at[lane_ids]]

    def advance(self) -> None:
        """Remove the executed actions from the queues."""
        self._left -= 1
        self._at += 1
        if self.ensemble is not None:
            self._sum = torch.cat([self._sum[:, 1:], torch.zeros_like(self._sum[:, :1])], dim=1)
            self._weight = torch.cat([self._weight[:, 1:], torch.zeros_like(self._weight[:, :1])], dim=1)

    def act(self, noise: NoiseSource) -> Float[Tensor, "n a"]:
        """One control step of all lanes: the refined action, in [-1, 1]."""
        lane_ids = self.due()
        if len(lane_ids):
            self.plan(lane_ids, noise.draw(lane_ids, self.decision[lane_ids]))
        with torch.no_grad():
            action = self.policy.refine(self.history(), self.peek())
        self.advance()
        return action

    def state_dict(self) -> dict[str, Any]:
        """Tensors that restore the executor to this instant."""
        state = {f"history.{key}": value for key, value in self._history.items()}
        names = ("decision", "_left", "_at", "_chunk", "_sum", "_weight")
        return {
            key: value.clone()
            for key, value in (state | {name: getattr(self, name) for name in names}).items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name in ("decision", "_left", "_at", "_chunk", "_sum", "_weight"):
            setattr(self, name, state[name].clone())
        prefix = "history."
        self._history = {k.removeprefix(prefix): v.clone() for k, v in state.items() if k.startswith(prefix)}
