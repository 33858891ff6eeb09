"""Point encoders: invariant to order and repetition, not to positions."""

from __future__ import annotations

import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.nets.point_encoder import PointEncoder, PointEncoderConfig

TINY = PointEncoderConfig(widths=[16, 32], features=12)


def test_order_and_repetition_do_not_matter() -> None:
    torch.manual_seed(0)
    encoder = PointEncoder((40, 3), TINY)
    points = torch.rand(2, 40, 3)
    features = encoder(points)
    assert features.shape == (2, 12)
    torch.testing.assert_close(encoder(points[:, torch.randperm(40)]), features)
    torch.testing.assert_close(encoder(torch.cat([points, points[:, :7]], 1)), features)
    assert float((encoder(points + 0.1) - features).detach().abs().max()) > 1e-3


@pytest.mark.parametrize("shape", [(40,), (40, 2), (4, 40, 3)])
def test_invalid_point_cloud_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="point cloud"):
        PointEncoder(shape, TINY)
