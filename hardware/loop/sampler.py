"""Sampling of a chunk in the inference process: by the exported graph, or by torch when the last chunk guides
it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from policies.base.realtime import PreviousChunk, RealtimePolicy, flow_base
from policies.checkpoint import load_policy
from policies.deploy.bundle import Bundle
from policies.deploy.graph import Device
from policies.deploy.runner import OnnxPolicy
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float

# (obs, noise, frozen, known) -> normalised chunk (1, Tp, a); of the old one `known` actions count, `frozen`
# are fixed
Sampler = Callable[[Obs, Tensor, int, int], Tensor]


def graph_sampler(bundle: Bundle, device: Device, threads: int) -> Sampler:
    """Sampler that runs the exported graph and ignores the old chunk."""
    policy = OnnxPolicy(bundle, device, threads)
    return lambda obs, noise, frozen, known: policy.sample(obs, noise)


def check_guidable(bundle: Bundle) -> None:
    """Raise CheckpointError for a policy without guidable chunks, before a process is started for it."""
    flow_base(load_policy(bundle.folder))


def guided_sampler(bundle: Bundle, device: Device, old: Float[Tensor, "Tp a"]) -> Sampler:
    """Sampler for real-time chunking from the bundle's weights.

    old: last chunk in the units of the action, rewritten before each call. Raises CheckpointError for a
    policy whose chunks cannot be guided.
    """
    where = torch.device(
        "cuda" if device == "cuda" or (device == "auto" and torch.cuda.is_available()) else "cpu"
    )
    policy, spec = RealtimePolicy(load_policy(bundle.folder, where)), bundle.env.action

    def sample(obs: Obs, noise: Tensor, frozen: int, known: int) -> Tensor:
        kept = PreviousChunk(spec.normalize(old)[None].to(where), frozen, known) if known else None
        return policy.sample(
            {key: value.to(where) for key, value in obs.items()}, noise.to(where), kept
        ).cpu()

    return sample
