"""Action experts for parts of the action, such as arm and hand, over one prefix.

Expert i gives the network's output in the dimensions D_i of the action, by weights of its own. It reads the
noisy chunk in all dimensions: the velocity that a flow learns is E[noise - action | x_t, observation], in
which arm and hand depend on each other. Experts that read D_i alone would draw both independently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from policies.vla.cond import Cond
from policies.vla.expert import ActionExpert, ExpertSizes
from robo_rl.core.errors import ConfigError
from robo_rl.core.shapes import Float, Int64
from robo_rl.core.text.setting_changes import as_typed

Parts = Sequence[Sequence[int]]  # dimensions of the action of each expert


class Experts(nn.Module):
    """net(x (b, Tp, a), t (b,), cond) -> (b, Tp, a), each dimension by its expert. sizes: of every expert."""

    order: Int64[Tensor, " a"]  # place of each dimension in the experts' outputs side by side

    def __init__(self, parts: Parts, action_dim: int, chunk: int, sizes: ExpertSizes) -> None:
        super().__init__()
        self.state_dim = sizes.state
        self.experts = nn.ModuleList(
            [ActionExpert(action_dim, chunk, sizes, outputs=len(part)) for part in parts]
        )
        order = torch.tensor([dim for part in parts for dim in part]).argsort()
        self.register_buffer("order", order, persistent=False)

    def forward(
        self, x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"], cond: Cond
    ) -> Float[Tensor, "b Tp a"]:
        each = [expert(x, t, cond) for expert in self.experts]
        return torch.cat(each, dim=-1).index_select(-1, self.order)


class PaddedExpert(nn.Module):
    """net(x (b, Tp, a), t (b,), cond) -> (b, Tp, a) by an expert of wider actions, which embodiments share.

    The further dimensions of x are zeros, and those of the output are cut off.
    """

    def __init__(self, inner: ActionExpert, widest: int) -> None:
        super().__init__()
        self.inner, self.widest = inner, widest

    @property
    def state_dim(self) -> int:
        return self.inner.state_dim

    def forward(
        self, x: Float[Tensor, "b Tp a"], t: Float[Tensor, " b"], cond: Cond
    ) -> Float[Tensor, "b Tp a"]:
        dim = x.shape[-1]
        out: Tensor = self.inner(F.pad(x, (0, self.widest - dim)), t, cond)
        return out[..., :dim]


def make_expert(parts: Parts, action_dim: int, chunk: int, sizes: ExpertSizes) -> ActionExpert | Experts:
    """One expert of all dimensions for at most one part."""
    if len(parts) > 1:
        return Experts(parts, action_dim, chunk, sizes)
    return ActionExpert(action_dim, chunk, sizes)


def check_experts(parts: Parts, action_dim: int) -> None:
    """Raise ConfigError unless there are no parts, or each dimension is in one of them."""
    if not parts:
        return
    times, known = Counter(dim for part in parts for dim in part), range(action_dim)
    faults = {
        "in no expert": [dim for dim in known if not times[dim]],
        "named more than once": sorted(dim for dim in times if times[dim] > 1),
        "no dimension of the action": sorted(set(times) - set(known)),
    }
    reasons = [f"{', '.join(map(str, dims))}: {what}" for what, dims in faults.items() if dims]
    reasons += ["an expert has none"] if not all(parts) else []
    if reasons:
        raise ConfigError(
            f"policy.experts={as_typed(parts)} must name each dimension of the action, 0 to "
            f"{action_dim - 1}, once; found {'; '.join(reasons)}."
        )
