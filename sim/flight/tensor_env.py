"""Flights as a `TensorEnv` for learners from rewards; the critic may observe the true state.

    obs = [policy's observation | true position, rotation, velocity, rates; disturbance; rotors; last action,
           integral]

The first part is noisy and contains past actions. The second is the input of the asymmetric critic of
Learning to Fly in Seconds (28 numbers: true state and disturbance of the episode), and the memory of our cost
and policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.shapes import Bool, Float
from robo_rl.core.tensor_env import TensorStep
from robo_rl.core.views import ALL, Views
from sim.engines.quad.craft import GRAVITY_M_S2
from sim.engines.quad.layout import ROTOR
from sim.flight.command import column
from sim.flight.flights import Flights
from sim.flight.memory import layout
from sim.tasks.flight.hover_reward import GROUPS, HoverReward
from sim.tasks.flight.observation import observe

TORQUE_M = 1e-4  # scale of a torque, as a fraction of the weight times one metre
FORCE_SHARE = 0.05  # scale of a force, as a fraction of the weight


class FlightTensorEnv:
    """`flights` without gradient as a `TensorEnv`.

    scale: (o,) factors that scale the policy's observation to about one. asymmetric: the critic observes the
    true state; otherwise the same as the actor.
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
        self.obs = self._inputs(flights.obs)

    def restart(self) -> None:
        """Start fresh flights of random ages."""
        self.flights.restart()
        self.obs = self._inputs(self.flights.obs)

    @torch.no_grad()
    def step(self, action: Float[Tensor, "n 4"]) -> TensorStep:
        flights, actions = self.flights, action.T.contiguous()
        cost, ended = flights.fly_on(actions)
        parts = self.reward.parts(flights.state, actions, cost, self._hover)
        final, terminated = self._inputs(flights.obs), flights.terminated
        flights.renew(ended)
        self.obs = self._inputs(flights.obs) if ended.any() else final
        return TensorStep(final, self.reward_of(parts, terminated), parts, terminated, ended & ~terminated)

    def advance_curriculum(self) -> None:
        """Move to the next lesson of the curriculum."""
        self.lesson += 1

    def reward_of(
        self, parts: Float[Tensor, "... 4"], terminated: Bool[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        return self.reward.reward(parts, terminated, self.lesson)

    def _inputs(self, obs: Float[Tensor, "o n"]) -> Float[Tensor, "n f"]:
        """Inputs of actor and critic (see `views`) from the policy's observation and the true state."""
        shown = obs * self._scale
        if not self._asymmetric:
            return shown.T.contiguous()
        flights = self.flights
        memory = flights.memory[self._memory] * self._scale[18:]  # observed behind the 18 sensed numbers
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
        self.obs = self._inputs(self.flights.obs)
