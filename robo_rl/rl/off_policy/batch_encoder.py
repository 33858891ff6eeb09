"""Features of sampled pictures, by an encoder that learns from the critics' loss alone (DrQ-v2, Yarats et al.
2021, 2107.09645).

    batch of states and pictures ─► random shifts ─► features: with a gradient at the decision, without one
    at the next observation

As in DrQ-v2 there is no target encoder: the target networks see the current encoder's features.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from robo_rl.core.protocols import Obs, PictureEncoder
from robo_rl.core.shapes import UInt8
from robo_rl.data.replay import Batch
from robo_rl.nets.image_encoder import random_shift


class BatchEncoder:
    """Replaces a batch's pictures by features.

    module: the encoder, a `PictureEncoder`. shift_px: largest shift of a picture in each direction; the draws
    come from `generator`, one for each sample and camera, the same for all frames of a window.
    """

    def __init__(self, module: nn.Module, shift_px: int, generator: torch.Generator) -> None:
        assert isinstance(module, PictureEncoder)
        self.module, self.encoder = module, module
        self.shift_px, self.generator = shift_px, generator

    def __call__(self, batch: Batch) -> Batch:
        """The batch with randomly shifted pictures as features. The loss's gradient reaches the encoder
        through `obs`, and not through `next_obs`.
        """
        obs = self.encoder.encode(batch.obs, self._shifted(batch.pictures))
        with torch.no_grad():
            next_obs = self.encoder.encode(batch.next_obs, self._shifted(batch.next_pictures))
        return replace(batch, obs=obs, next_obs=next_obs, pictures={}, next_pictures={})

    @torch.no_grad()
    def as_seen(self, batch: Batch) -> Batch:
        """The batch with features of the pictures as they are."""
        obs = self.encoder.encode(batch.obs, batch.pictures)
        next_obs = self.encoder.encode(batch.next_obs, batch.next_pictures)
        return replace(batch, obs=obs, next_obs=next_obs, pictures={}, next_pictures={})

    def _shifted(self, pictures: Obs) -> Obs:
        return {key: self._shift(pictures[key]) for key in self.encoder.image_keys}

    def _shift(self, windows: UInt8[Tensor, "b t h w c"]) -> UInt8[Tensor, "b t h w c"]:
        if self.shift_px == 0:
            return windows
        b, t = windows.shape[:2]
        most, device = self.shift_px, windows.device
        shift = torch.randint(-most, most + 1, (b, 2), generator=self.generator, device=device)
        flat = random_shift(windows.flatten(0, 1), shift.repeat_interleave(t, 0))
        moved: Tensor = flat.unflatten(0, (b, t))
        return moved


def without_encoder(batch: Batch) -> Batch:
    """The batch with features that carry no gradient to the encoder, as the actor sees them."""
    return replace(batch, obs=batch.obs.detach())
