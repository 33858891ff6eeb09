from __future__ import annotations

import torch
import torch.nn.functional as F

from robo_rl.nets.image_encoder import random_shift


def test_shift_equals_padding_and_cropping() -> None:
    """DrQ-v2: pad by 4 with the border's pixels, then crop to the original size."""
    rng = torch.Generator().manual_seed(0)
    images = torch.randint(256, (32, 9, 11, 3), generator=rng, dtype=torch.uint8)
    shift = torch.randint(-4, 5, (32, 2), generator=rng)
    padded = F.pad(images.permute(0, 3, 1, 2).float(), (4, 4, 4, 4), mode="replicate").permute(0, 2, 3, 1)
    for image, wide, (down, right) in zip(random_shift(images, shift), padded, shift.tolist(), strict=True):
        assert torch.equal(image.float(), wide[4 - down : 13 - down, 4 - right : 15 - right])


def test_no_shift_changes_nothing() -> None:
    images = torch.arange(24, dtype=torch.uint8).view(1, 2, 4, 3)
    assert torch.equal(random_shift(images, torch.zeros(1, 2, dtype=torch.long)), images)
