"""Flights for learners that take rewards: rows are drones, and the critic may see what no sensor tells.

    obs = [what the policy sees | true position, rotation, velocity, rates; push; rotors; last action,
    integral]

The first part is noisy and remembers actions, the second is the truth with the disturbance of the episode:
the asymmetric critic of Learning to Fly in Seconds (28 numbers), and what our cost and policy remember.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from robo_rl.core.tensor_env import TensorStep
from robo_rl.core.views import ALL, Views
from sim.engines.quad.craft import GRAVITY_M_S2
from sim.engines.quad.layout import ROTOR
from sim.flight.command import column
from sim.flight.flights import Flights
from sim.flight.memory import layout
from sim.tasks.flight.hover_reward import GROUPS, HoverReward
from sim.tasks.flight.observation import observe

TORQUE_M = 1e-4  # a torque counts as large at this many weights times a metre
FORCE_SHARE = 0.05  # ... a force at this share of the weight


class FlightTensorEnv:
    """`flights` without gradient, as `TensorEnv`. scale: (o,) what brings the policy's observation to about one.

    asymmetric: the critic sees the truth; else what the actor sees.
    """

    num_parts = len(GROUPS)

    def __init__(
        self, flights: Flights, reward: HoverReward, scale: Float[Tensor, " o"], asymmetric: bool
    ) -> None:
        self.flights, self.reward, self.num, self.lesson = flights, reward, flights.num, 0
        self._scale, self._front = scale.unsqueeze(1), torch.tensor(flights.task.scales[0]).unsqueeze(1)
        self._asymmetric = asymmetric
        weight_n, seen = flights.craft.mass_kg * GRAVITY_M_S2, len(scale)
        self._push = torch.tensor([FORCE_SHARE] * 3 + [TORQUE_M] * 3).mul(weight_n).reciprocal().unsqueeze(1)
        self._hover = column(flights.command.hover, flights.obs)
        self._rotor = 2.0 * flights.craft.hover_speed - 1.0
        self._memory = layout(flights.task, flights.senses, flights.realism).seen
        self.views = Views(slice(0, seen), slice(seen, None)) if asymmetric else ALL
        self.obs = self._rows(flights.obs)

    def restart(self) -> None:
        self.flights.restart()
        self.obs = self._rows(self.flights.obs)

    @torch.no_grad()
    def step(self, action: Float[Tensor, "n 4"]) -> TensorStep:
        flights, columns = self.flights, action.T.contiguous()
        cost, ended = flights.fly_on(columns)
        parts = self.reward.parts(flights.state, columns, cost, self._hover)
        final, terminated = self._rows(flights.obs), flights.terminated
        flights.renew(ended)
        self.obs = self._rows(flights.obs) if ended.any() else final
        return TensorStep(final, self.reward_of(parts, terminated), parts, terminated, ended & ~terminated)

    def harden(self) -> None:
        self.lesson += 1

    def reward_of(
        self, parts: Float[Tensor, "... 4"], terminated: Bool[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        return self.reward.reward(parts, terminated, self.lesson)

    def _rows(self, obs: Float[Tensor, "o n"]) -> Float[Tensor, "n f"]:
        shown = obs * self._scale
        if not self._asymmetric:
            return shown.T.contiguous()
        flights = self.flights
        memory = (
            flights.memory[self._memory] * self._scale[18:]
        )  # what it remembers stands behind the 18 it senses
        truth = torch.cat([
            observe(flights.state, None) * self._front,
            flights.external[:6] * self._push,
            2.0 * flights.state[ROTOR] - 1.0 - self._rotor,
            memory[:4] - self._hover if flights.senses.history else memory[:0],
            memory[4 * flights.senses.history :],
        ])  # fmt: skip
        return torch.cat([shown, truth]).T.contiguous()

    def state_dict(self) -> dict[str, Any]:
        return {"flights": self.flights.state_dict(), "lesson": self.lesson}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.flights.load_state_dict(state["flights"])
        self.lesson = int(state["lesson"])
        self.obs = self._rows(self.flights.obs)
