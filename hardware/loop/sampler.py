"""Sampling of a chunk in the inference process: by the exported graph, by a policy server, or by torch when
the last chunk guides it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from policies.base.realtime import PreviousChunk, RealtimePolicy, flow_base
from policies.checkpoint import load_policy
from policies.decision_memory import DecisionMemory
from policies.deploy.bundle import Bundle
from policies.deploy.graph import Device
from policies.deploy.runner import OnnxPolicy
from policies.remote.address import Address
from policies.remote.contract import bundle_contract
from policies.remote.policy import RemotePolicy
from robo_rl.core.conditioning import MEMORY
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float

# (obs, noise, frozen, known) -> normalised chunk (1, Tp, a); of the old one `known` actions count, `frozen`
# are fixed
Sampler = Callable[[Obs, Tensor, int, int], Tensor]


def graph_sampler(bundle: Bundle, device: Device, threads: int) -> Sampler:
    """Sampler that runs the exported graph and ignores the old chunk."""
    policy = OnnxPolicy(bundle, device, threads)
    if bundle.memory is not None:
        return RememberingSampler(policy, bundle.memory)
    return lambda obs, noise, frozen, known: policy.sample(obs, noise)


class RememberingSampler:
    """Sampler of a policy with a memory, which it holds. shape: of the memory."""

    def __init__(self, policy: OnnxPolicy, shape: tuple[int, int]) -> None:
        self._policy, self._memory = policy, DecisionMemory(shape, 1)
        self._lane = Lanes.all(1)

    def begin(self) -> None:
        """Start an episode: forget all decisions."""
        self._memory.reset(self._lane)

    def __call__(self, obs: Obs, noise: Tensor, frozen: int, known: int) -> Tensor:
        chunk, moment = self._policy.sample_with_moment({**obs, MEMORY: self._memory.rows}, noise)
        self._memory.decide(self._lane, moment)
        self._memory.observe()  # the next call has a new observation
        return chunk


def remote_sampler(bundle: Bundle, address: Address) -> Sampler:
    """Sampler that asks a policy server. A deadline without one in the address: the time that a chunk lasts.

    Raises CheckpointError for a server of another policy than the bundle's, RemoteError for one that cannot
    be used.
    """
    lasts_s = bundle.chunk / bundle.env.control_hz
    policy = RemotePolicy(replace(address, deadline_s=address.deadline_s or lasts_s))
    policy.check_is(bundle_contract(bundle))
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
