"""Scripted expert of `drone/seek`: flies to the place in front of the told ball and stays there.

That place is a single point, 0.5 m before the ball along the heading, so that a policy that imitates the
expert comes back when it drifts. The expert does not turn: during most of the flight the ball is at the side,
and frames show how words and directions belong together. Where the ball is not in the picture, the expert
flies backwards until it is: a policy without a memory can do the same, as it need not know where the ball is.

    e = ball - (0.5 m, 0, 0),   v = min(1.5 / s * |e|, 0.8 m/s) * e / |e|,
    u = max(|ball_y|, |ball_z|) / ball_x (1 at the edge of the picture),   w = clip((u - 0.75) / 0.15, 0, 1),
    action = clip(((1 - w) * v + w * (-0.8 m/s, 0, 0), 0) + noise * range * N(0, I))
"""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.keyed_random import keyed_normal
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import derive_seed
from robo_rl.core.shapes import Float, Int
from sim.flight.seek.task import STOP_M
from sim.flight.seek.vec_env import ACTION, EXPERT_STATE
from sim.flight.seek.words import TASKS

_APPROACH = 1.5  # 1/s
_FASTEST_M_S = 0.8
_EDGE, _BLEND = 0.75, 0.15  # half pictures: backing off begins at _EDGE, is complete at _EDGE + _BLEND
_STREAM = 2  # stream of an episode's random numbers; the environment uses others


class SeekExpert:
    """Reads `privileged.state`. noise: standard deviation in units of the normalised action, independent in
    each step.
    """

    def __init__(self, task: str, noise: float = 0.0, seed: int = 0) -> None:
        if task not in TASKS:
            raise UnknownNameError("drone task", task, TASKS)
        if not 0.0 <= noise < float("inf"):
            raise ConfigError(
                f"noise is {noise}; expected a standard deviation of 0 or more, in units of the action."
            )
        self._noise, self._key = noise, derive_seed("expert", seed)

    def act(self, obs: Obs, episode_seed: Int[Tensor, " n"], step: Int[Tensor, " n"]) -> Float[Tensor, "n 4"]:
        ball = obs[EXPERT_STATE]
        error_m = ball - ball.new_tensor([STOP_M, 0.0, 0.0])
        far_m = error_m.norm(dim=1, keepdim=True).clamp(min=1e-6)
        speed = (_APPROACH * far_m).clamp(max=_FASTEST_M_S)
        direct = torch.cat([speed * error_m / far_m, torch.zeros_like(far_m)], dim=1)
        ahead, aside = ball[:, :1], ball[:, 1:].abs().amax(dim=1, keepdim=True)
        share = ((aside / ahead.clamp(min=1e-3) - _EDGE) / _BLEND).clamp(0.0, 1.0)
        backwards = direct.new_tensor([-_FASTEST_M_S, 0.0, 0.0, 0.0])
        action = ACTION.normalize(torch.lerp(direct, backwards.expand_as(direct), share))
        if self._noise > 0.0:
            action = action + self._noise * keyed_normal(episode_seed ^ self._key, step, 4, _STREAM).T
        return ACTION.denormalize(action.clamp(-1.0, 1.0))
