"""Random shifts of images, the augmentation of DrQ-v2 (Yarats et al. 2021, section 3.1), by whole pixels."""

from __future__ import annotations

import torch
from torch import Tensor

from robo_rl.core.shapes import Int, UInt8


def random_shift(images: UInt8[Tensor, "b h w c"], shift: Int[Tensor, "b 2"]) -> UInt8[Tensor, "b h w c"]:
    """Each image moved by its own (down, right) pixels; the border is repeated.

    Equal to padding by p and cropping at (p - down, p - right), for any p of at least |shift|. The caller
    draws the shifts, uniform in [-4, 4] in the paper, and the same for all frames of a window.
    """
    _, h, w, _ = images.shape
    rows = (torch.arange(h, device=images.device) - shift[:, :1]).clamp(0, h - 1)
    columns = (torch.arange(w, device=images.device) - shift[:, 1:]).clamp(0, w - 1)
    each = torch.arange(len(images), device=images.device)
    return images[each[:, None, None], rows[:, :, None], columns[:, None, :]]
