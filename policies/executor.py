"""The chunk executor: history stacking, chunk queues, re-planning and reset, per environment.

Training, evaluation and the robot all drive a policy through this class, so that they behave alike. One
control step is `due` -> `plan` -> `peek` -> `advance`; `act` does all of it in one call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, NoiseSource, Obs
from robo_rl.core.shapes import Float, Int

Rows = Int[Tensor, " k"]


class ChunkExecutor:
    """Runs one policy in n lanes.

    execute: actions taken from a chunk before the next is planned (Ta); the policy's own value when None.
    ensemble: None, or the decay m of a temporal ensemble: a chunk is planned every step, and the executed
        action is the weighted mean of all chunks for this instant, the oldest weighted 1 and each newer one
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
        # A lane's weights grow by exp(m) each step that a chunk stays in the mean: float32 holds exp(88).
        if ensemble is not None and not abs(ensemble) * (policy.chunk - 1) <= 80.0:
            raise ConfigError(f"ensemble={ensemble} cannot be used, expected: a decay near 0, such as 0.01.")
        self.ensemble = ensemble
        self.num_envs = num_envs
        self.decision = torch.zeros(num_envs, dtype=torch.long)  # chunks planned so far in this episode
        self._history: Obs = {}
        self._lanes = torch.arange(num_envs)
        self._left = torch.zeros(num_envs, dtype=torch.long)  # actions still queued; 0 asks for a plan
        self._at = torch.zeros(num_envs, dtype=torch.long)  # position of the next action in its chunk
        self._chunk = torch.zeros(num_envs, policy.chunk, policy.action_spec.dim)
        self._sum = torch.zeros_like(self._chunk)  # temporal ensemble: weighted sum of the actions ahead
        self._weight = torch.zeros(num_envs, policy.chunk)

    def reset(self, obs: Obs, rows: Rows | None = None) -> None:
        """Start an episode in these lanes: the history repeats the first observation and the queue is empty.

        obs: (n, *shape), all lanes; only `rows` are read.
        """
        rows = self._lanes if rows is None else rows
        for key, value in obs.items():
            if key not in self._history:
                self._history[key] = value.unsqueeze(1).repeat_interleave(self.policy.obs_steps, 1)
            else:
                self._history[key][rows] = value[rows].unsqueeze(1)
        self._left[rows] = 0
        self._at[rows] = 0
        self.decision[rows] = 0
        self._sum[rows] = 0
        self._weight[rows] = 0

    def observe(self, obs: Obs, rows: Rows | None = None) -> None:
        """Push the newest observation of these lanes, (n, *shape); the oldest one drops out."""
        for key, value in obs.items():
            stack = self._history[key]
            shifted = torch.cat([stack[:, 1:], value.unsqueeze(1)], dim=1)
            if rows is None:
                self._history[key] = shifted
            else:
                stack[rows] = shifted[rows]

    def history(self, rows: Rows | None = None) -> Obs:
        """Stacked observations (b, To, *shape), newest last; for all lanes a view, not a copy."""
        return {key: value if rows is None else value[rows] for key, value in self._history.items()}

    def due(self) -> Rows:
        """Lanes to be planned before the next action: empty queues, or all with a temporal ensemble."""
        return self._lanes if self.ensemble is not None else torch.nonzero(self._left == 0).flatten()

    def plan(self, rows: Rows, noise: Float[Tensor, "k Tp a"]) -> Float[Tensor, "k Tp a"]:
        """Sample a chunk for these lanes and queue it. Returns the chunk, in [-1, 1]."""
        with torch.no_grad():
            chunk = self.policy.sample(self.history(rows), noise)
        self.queue(rows, chunk)
        return chunk

    def queue(self, rows: Rows, chunk: Float[Tensor, "k Tp a"]) -> None:
        """Put a chunk in the queues of these lanes; counts as one decision."""
        self._chunk[rows] = chunk
        self._left[rows] = self.execute
        self._at[rows] = 0
        self.decision[rows] += 1
        if self.ensemble is not None:
            # The newest chunk weighs 1 and older ones grow by exp(m): the same ratios, and nothing
            # underflows.
            growth = math.exp(self.ensemble)
            self._sum[rows] = self._sum[rows] * growth + chunk
            self._weight[rows] = self._weight[rows] * growth + 1.0

    def peek(self, rows: Rows | None = None) -> Float[Tensor, "k a"]:
        """Action at the head of the queue of these lanes (all by default), in [-1, 1], before `refine`."""
        rows = self._lanes if rows is None else rows
        if self.ensemble is not None:
            return self._sum[rows, 0] / self._weight[rows, :1]
        return self._chunk[rows, self._at[rows]]

    def advance(self) -> None:
        """Drop the actions at the heads, which were executed."""
        self._left -= 1
        self._at += 1
        if self.ensemble is not None:
            self._sum = torch.cat([self._sum[:, 1:], torch.zeros_like(self._sum[:, :1])], dim=1)
            self._weight = torch.cat([self._weight[:, 1:], torch.zeros_like(self._weight[:, :1])], dim=1)

    def act(self, noise: NoiseSource) -> Float[Tensor, "n a"]:
        """One control step for all lanes: the refined action, in [-1, 1]."""
        rows = self.due()
        if len(rows):
            self.plan(rows, noise.draw(rows.tolist(), self.decision[rows].tolist()))
        with torch.no_grad():
            action = self.policy.refine(self.history(), self.peek())
        self.advance()
        return action

    def state_dict(self) -> dict[str, Any]:
        """Tensors that restore this executor to this instant."""
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
