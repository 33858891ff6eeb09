"""Network calls of an action head: single-step decisions and residual corrections.

Torch is imported only for residual bundles and for those with Gaussian noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy import ndarray

from hardware.loop.head import Decide
from hardware.loop.observation import Seen
from policies.deploy.bundle import Bundle
from policies.deploy.graph import BoundGraph
from robo_rl.core.errors import CheckpointError
from robo_rl.core.shapes import Float

if TYPE_CHECKING:
    from policies.base.noise import EpisodeNoise


def decider(bundle: Bundle) -> Decide | None:
    """The bundle's single-step decisions or residual corrections; None for a bundle of chunks alone.

    Raises CheckpointError for one that no head can run.
    """
    if fault := head_fault(bundle):
        raise CheckpointError(fault)
    if bundle.chunk == 1:
        return SingleStep(bundle)
    return None if bundle.graph(1) is None else Residual(bundle)


def head_fault(bundle: Bundle) -> str:
    """Why no head can run the bundle; empty if it can, or if arm_policy alone decides."""
    if bundle.prefix is None or (bundle.chunk > 1 and bundle.graph(1) is None):
        return ""
    return (
        f"The bundle {bundle.folder} decides every step from pictures and words, but action_head has no "
        "prefix network: only arm_policy runs it, for chunks. Train chunks of more than one action, and "
        "correct entire ones (method.map.per_chunk=true)."
    )


class SingleStep:
    """Decisions of a bundle whose chunk is one action."""

    needs_chunks = False

    def __init__(self, bundle: Bundle, seed: int = 0) -> None:
        if bundle.chunk != 1:
            raise CheckpointError(
                f"The bundle {bundle.folder} decides {bundle.chunk} actions at once, and a head decides one. "
                "Distil it (robo-rl distill), or run it as arm_policy."
            )
        sample, refine = bundle.graph(0), bundle.graph(1)
        assert sample is not None
        self._sample = BoundGraph(sample, "chunk")
        self._refine = None if refine is None else BoundGraph(refine, "refined")
        self._zero = np.zeros((1, bundle.env.action.dim), np.float32)
        self._low, self._high = (
            np.array(limit, np.float32) for limit in (bundle.env.action.low, bundle.env.action.high)
        )
        self._noise = None if bundle.noise == "zero" else _noise(bundle, seed)
        self._decision = 0

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]:
        """The clipped action. Arrays only: at 1 kHz, tensors cost more than one small network."""
        noise = self._zero if self._noise is None else self._noise.draw([0], [self._decision]).numpy()[0]
        self._decision += 1
        decided = self._clipped(self._sample(stacked | {"noise": noise})[0])
        return decided if self._refine is None else self._clipped(self._refine(stacked | {"action": decided}))

    def _clipped(self, decided: Float[ndarray, " a"]) -> Float[ndarray, " a"]:
        kept: Float[ndarray, " a"] = np.minimum(np.maximum(decided, self._low), self._high)
        return kept


class Residual:
    """Corrections of a residual bundle, one per step; its chunks come from arm_policy."""

    needs_chunks = True

    def __init__(self, bundle: Bundle) -> None:
        if bundle.graph(1) is None:
            raise CheckpointError(
                f"The bundle {bundle.folder} corrects nothing: play its chunks without a head."
            )
        from policies.deploy.runner import OnnxPolicy

        self._policy = OnnxPolicy(bundle, "cpu")

    def __call__(self, stacked: Seen, action: Float[ndarray, " a"] | None) -> Float[ndarray, " a"]:
        import torch

        assert action is not None
        obs = {key: torch.from_numpy(value).unsqueeze(0) for key, value in stacked.items()}
        spec = self._policy.action_spec
        normal = spec.normalize(torch.from_numpy(action.astype(np.float32)).unsqueeze(0))
        refined: Float[ndarray, " a"] = spec.denormalize(self._policy.refine(obs, normal))[0].numpy()
        return refined


def _noise(bundle: Bundle, seed: int) -> EpisodeNoise:
    from policies.deploy.runner import bundle_noise

    noise = bundle_noise(bundle)
    noise.reset([0], [seed])
    return noise
