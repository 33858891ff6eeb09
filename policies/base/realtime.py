"""Real-time chunking: a new chunk that goes on where the one before still runs (Black, Galliker, Levine 2025,
"Real-Time Execution of Action Chunking Flow Policies", arXiv 2506.07339).

While a chunk is inferred the robot plays on with the old one. Its next `certain` actions will have been
executed when the new chunk comes; those up to `known` are known and may still change; the rest is new. The
old actions Y guide the walk of the flow (their eq. 2 to 5, in our time t = 1 - tau from noise to action, A =
x - t v, J = dA / dx):

    velocity of the action  u + min(beta, ((1 - t)^2 s^2 + t^2) / ((1 - t) t s^2)) J^T (W (Y - A))
    W_i = 1 for i < certain;   c (e^c - 1) / (e - 1), c = (known - i) / (known - certain + 1), up to known;   0 behind

Pulling A at every step, through the network, makes the new actions agree with the old ones and not only the
old ones come out again: inpainting. With nothing known the walk is the policy's own, bit for bit.

s is the standard deviation that actions are taken to have. The paper has 1; ours lie in [-1, 1] with about
0.5 (ACTION_STD), and correlated Gaussian actions of that size come out as they are distributed. A policy that
ignores its noise, as `prediction=sample` learns to from few demonstrations, has nothing that could be guided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from policies.base.flow import ACTION_STD, Flow
from policies.base.generative import GenerativePolicy
from policies.base.process import Net
from policies.tuned.residual import ResidualPolicy
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float

BETA = 5.0  # largest weight of the guidance; with fewer steps than that, their number


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of the chunk before: `action` (b, Tp, a) in [-1, 1], of which the first `known` count.

    The first `certain` of them are executed before the new chunk can come.
    """

    action: Float[Tensor, "b Tp a"]
    certain: int
    known: int

    def __post_init__(self) -> None:
        if not 0 <= self.certain <= self.known <= self.action.shape[1]:
            raise ConfigError(
                f"Kept actions need 0 <= certain <= known <= {self.action.shape[1]}, found "
                f"certain={self.certain} and known={self.known}."
            )


def weights(chunk: int, certain: int, known: int) -> Float[Tensor, " Tp"]:
    """How strictly each action of the chunk is held to the old one, eq. 5."""
    i = torch.arange(chunk, dtype=torch.float32)
    c = ((known - i) / (known - certain + 1)).clamp(0.0, 1.0)
    soft = c * torch.expm1(c) / torch.expm1(torch.ones(()))
    return torch.where(i < certain, torch.ones(()), soft)


def guided_walk(
    process: Flow,
    net: Net,
    cond: Float[Tensor, "b c"],
    noise: Float[Tensor, "b Tp a"],
    kept: Kept,
    steps: int | None = None,
    beta: float = BETA,
) -> Float[Tensor, "b Tp a"]:
    """As `policies.base.chain.walk`, pulled towards what is kept."""
    steps = process.steps if steps is None else steps
    transitions = process.transitions(steps, device=noise.device)
    hold = weights(noise.shape[1], kept.certain, kept.known).to(noise).view(1, -1, 1)
    x, dt = noise, 1.0 / steps
    most = min(beta, float(steps))  # a stronger pull would carry one step of 1 / steps beyond the old action
    for k in range(steps):
        t = float(transitions.times[k])
        with torch.enable_grad():
            here = x.detach().requires_grad_(True)
            ahead = transitions.stats(net(here, transitions.time(k, here), cond), here, k)[0]
            action = here - t * (here - ahead) / dt  # where this velocity leads; ahead = here - dt v
            (pull,) = torch.autograd.grad(action, here, (hold * (kept.action - action)).detach())
        rest = 1.0 - t
        spread = (rest * ACTION_STD) ** 2 + t**2
        strength = most if rest <= 0.0 else min(most, spread / (rest * t * ACTION_STD**2))
        x = ahead.detach() + dt * strength * pull
    return x.clamp(-1.0, 1.0)


class RealtimePolicy:
    """A policy of `sample`, with what is kept of the chunk before as a second argument."""

    def __init__(self, policy: Any) -> None:
        self._base = flow_base(policy)

    def sample(self, obs: Obs, noise: Float[Tensor, "b Tp a"], kept: Kept | None) -> Float[Tensor, "b Tp a"]:
        base = self._base
        if kept is None or kept.known == 0:
            return base.sample(obs, noise)
        with torch.no_grad():
            features = base.features(obs)
        process = base.process
        assert isinstance(process, Flow)
        return guided_walk(process, base.net, features, noise, kept)


def flow_base(policy: Any) -> GenerativePolicy:
    """The flow policy whose chunks a policy plays. Raises CheckpointError for one that cannot be guided."""
    kind = getattr(policy, "kind", "?")
    while isinstance(policy, ResidualPolicy) and policy.map.timescale == "step":
        policy = policy.base  # it corrects each action when it is executed, and leaves the chunks as they are
    if not isinstance(policy, GenerativePolicy) or not isinstance(policy.process, Flow):
        raise CheckpointError(
            f"Real-time chunking guides the chunks of a flow policy, and a policy of kind '{kind}' has none "
            "that are its own. Leave realtime out: late chunks are handed over all the same."
        )
    return policy
