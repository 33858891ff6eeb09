"""Real-time chunking: each new chunk continues the one that is being executed (Black, Galliker, Levine 2025,
"Real-Time Execution of Action Chunking Flow Policies", arXiv 2506.07339).

The robot executes the previous chunk while the next one is inferred. Its next `frozen` actions will have been
executed when the new chunk arrives; actions up to `known` are known and may still change; the rest is new.
The old actions Y guide the path of the flow (eq. 2 to 5 of the paper, with our time t = 1 - tau from noise to
action, A = x - t v, J = dA / dx):

    velocity of the action  u + min(beta, ((1 - t)^2 s^2 + t^2) / ((1 - t) t s^2)) J^T (W (Y - A))
    W_i = 1 for i < frozen;   c (e^c - 1) / (e - 1), up to known;   0 after it
    c = (known - i) / (known - frozen + 1)

The guidance acts on A at every step, through the network, so that the new actions are consistent with the old
ones (inpainting). Without known actions the path is the policy's own, bit for bit.

s is the assumed standard deviation of actions. The paper has 1; here actions are in [-1, 1] with about 0.5
(ACTION_STD), and correlated Gaussian actions of that size keep their distribution. A policy that ignores its
noise, as `prediction=sample` learns from few demonstrations, cannot be guided.
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

BETA = 5.0  # largest weight of the guidance; at most the number of steps


@dataclass(frozen=True, slots=True)
class PreviousChunk:
    """Remaining actions of the previous chunk: (b, Tp, a) in [-1, 1], of which the first `known` are valid.

    The first `frozen` of them are executed before the new chunk arrives.
    """

    action: Float[Tensor, "b Tp a"]
    frozen: int
    known: int

    def __post_init__(self) -> None:
        if not 0 <= self.frozen <= self.known <= self.action.shape[1]:
            raise ConfigError(
                f"A previous chunk needs 0 <= frozen <= known <= {self.action.shape[1]}, found "
                f"frozen={self.frozen} and known={self.known}."
            )


def weights(chunk: int, frozen: int, known: int) -> Float[Tensor, " Tp"]:
    """Weight (Tp,) of the old action at each place of the chunk, eq. 5."""
    i = torch.arange(chunk, dtype=torch.float32)
    c = ((known - i) / (known - frozen + 1)).clamp(0.0, 1.0)
    soft = c * torch.expm1(c) / torch.expm1(torch.ones(()))
    return torch.where(i < frozen, torch.ones(()), soft)


def guided_sample(
    process: Flow,
    net: Net,
    cond: Float[Tensor, "b c"],
    noise: Float[Tensor, "b Tp a"],
    kept: PreviousChunk,
    steps: int | None = None,
    beta: float = BETA,
) -> Float[Tensor, "b Tp a"]:
    """`deterministic_sample`, guided towards the previous chunk."""
    steps = process.steps if steps is None else steps
    transitions = process.transitions(steps, device=noise.device)
    hold = weights(noise.shape[1], kept.frozen, kept.known).to(noise).view(1, -1, 1)
    x, dt = noise, 1.0 / steps
    most = min(beta, float(steps))  # a larger weight would overshoot the old action in one step of 1 / steps
    for k in range(steps):
        t = float(transitions.times[k])
        with torch.enable_grad():
            here = x.detach().requires_grad_(True)
            ahead = transitions.stats(net(here, transitions.time(k, here), cond), here, k)[0]
            action = here - t * (here - ahead) / dt  # endpoint of this velocity; ahead = here - dt v
            (pull,) = torch.autograd.grad(action, here, (hold * (kept.action - action)).detach())
        rest = 1.0 - t
        spread = (rest * ACTION_STD) ** 2 + t**2
        strength = most if rest <= 0.0 else min(most, spread / (rest * t * ACTION_STD**2))
        x = ahead.detach() + dt * strength * pull
    return x.clamp(-1.0, 1.0)


class RealtimePolicy:
    """A policy whose `sample` takes the previous chunk as a second argument."""

    def __init__(self, policy: Any) -> None:
        self._base = flow_base(policy)

    def sample(
        self, obs: Obs, noise: Float[Tensor, "b Tp a"], kept: PreviousChunk | None
    ) -> Float[Tensor, "b Tp a"]:
        base = self._base
        if kept is None or kept.known == 0:
            return base.sample(obs, noise)
        with torch.no_grad():
            features = base.features(obs)
        process = base.process
        assert isinstance(process, Flow)
        return guided_sample(process, base.net, features, noise, kept)


def flow_base(policy: Any) -> GenerativePolicy:
    """The flow policy whose chunks a policy executes. Raises CheckpointError if there is none."""
    kind = getattr(policy, "kind", "?")
    while isinstance(policy, ResidualPolicy) and policy.map.timescale == "step":
        policy = policy.base  # it corrects each action when it is executed and does not change chunks
    if not isinstance(policy, GenerativePolicy) or not isinstance(policy.process, Flow):
        raise CheckpointError(
            f"Real-time chunking needs a flow policy, found a policy of kind '{kind}'. Leave realtime out; "
            "chunks are then replaced without guidance."
        )
    return policy
