"""Spatial prompting of a vision-language-action policy: predicted points, their loss and their effect."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from policies.vla.config import VlaConfig
from policies.vla.pictures import cut
from policies.vla.policy import VlaPolicy
from policies.vla.spatial import in_crop, point_loss
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ArraySpec
from robo_rl.data.normalizer import Normalizer
from tests.policies.small_vla import CAMERAS, SPEC, TA, TP, WORDS, drawn, seen

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'robo-rl[vla]'")


def policy(spatial: float = 1.0, crop: float = 0.9) -> VlaPolicy:
    torch.manual_seed(0)
    config = VlaConfig(width=32, layers=2, heads=4, kv_heads=2, draws=1, spatial=spatial, crop=crop)
    made = VlaPolicy(SPEC, Normalizer({"state": (3,)}), config, TP, TA, WORDS)
    for parameter in made.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval()


def targets(rows: int) -> dict[str, torch.Tensor]:
    return {f"target.{key.partition('.')[2]}": torch.rand(rows, 1, 2) - 0.5 for key in CAMERAS}


def test_a_point_is_at_the_same_pixel_of_the_crop() -> None:
    """A white pixel of a picture of 20 x 30 pixels, found again in three crops of 16 x 20."""
    picture = torch.zeros(3, 20, 30, 3, dtype=torch.uint8)
    picture[:, 9, 14] = 255
    point = torch.tensor([2 * 14.5 / 30 - 1.0, 2 * 9.5 / 20 - 1.0]).expand(3, 2)
    for crop in (None, torch.tensor([[0.0, 0.0], [0.99, 0.3], [0.5, 0.99]])):
        parts = cut(picture, (16, 20), crop)
        found = in_crop(point, (20, 30), (16, 20), crop)
        for row in range(3):
            y, x = parts[row, :, :, 0].nonzero()[0].tolist()
            expected = torch.tensor([2 * (x + 0.5) / 20 - 1.0, 2 * (y + 0.5) / 16 - 1.0])
            torch.testing.assert_close(found[row], expected, atol=1e-5, rtol=0)


def test_the_loss_is_the_mean_square_over_coordinates_and_cameras() -> None:
    """Two cameras without crops: errors (0.3, 0.4) and (0, 0) give 0.25 / 4."""
    predicted = torch.tensor([[[0.3, 0.4], [0.1, 0.1]]])
    wanted = [torch.zeros(1, 2), torch.full((1, 2), 0.1)]
    loss = point_loss(predicted, wanted, [(8, 8)] * 2, [(8, 8)] * 2, None)
    torch.testing.assert_close(loss, torch.tensor([0.0625]))


def test_cameras_without_a_target_are_left_out_of_the_loss() -> None:
    """Errors (0.3, 0.4) of the second of three cameras give 0.25 / 2. No target: 0."""
    predicted, sides = torch.tensor([[[9.0, 9.0], [0.3, 0.4], [9.0, 9.0]]]), [(8, 8)] * 3
    loss = point_loss(predicted, [None, torch.zeros(1, 2), None], sides, sides, None)
    torch.testing.assert_close(loss, torch.tensor([0.125]))
    crop = torch.tensor([[[0.9, 0.9], [0.0, 0.0], [0.9, 0.9]]])
    cut_out = point_loss(predicted, [None, torch.zeros(1, 2), None], sides, [(4, 4)] * 3, crop)
    torch.testing.assert_close(cut_out, torch.tensor([(0.7**2 + 0.6**2) / 2]))  # the middle is at (1, 1)
    assert point_loss(predicted, [None] * 3, sides, sides, None).tolist() == [0.0]


def test_training_adds_the_weighted_error_of_the_points() -> None:
    """Same weights, same noise: losses of weights 0.5 and 2 differ by 1.5 times the error."""
    obs = seen("right", "go to the left side") | targets(2)
    chunk, noise, u = torch.rand(2, TP, 2), drawn(2), torch.rand(2)
    less, more = policy(0.5), policy(2.0)
    predicted = less.predicted_points(less.encode(obs))
    wanted = [obs[f"target.{key.partition('.')[2]}"][:, 0] for key in CAMERAS]
    error = point_loss(predicted, wanted, less.sides, [(29, 29)] * 2, None)
    difference = more.bc_loss(obs, chunk, noise, u) - less.bc_loss(obs, chunk, noise, u)
    torch.testing.assert_close(difference, 1.5 * error, atol=1e-5, rtol=1e-4)


def test_a_policy_of_one_robot_does_not_learn_without_targets() -> None:
    obs = dict(seen("right")) | targets(1)
    del obs["target.wrist"]
    with pytest.raises(KeyError, match=r"target\.wrist"):
        policy().bc_loss(obs, torch.zeros(1, TP, 2), drawn(1), torch.rand(1))


@torch.no_grad()
def test_actions_depend_on_the_points() -> None:
    """The same prefix with other points gives another chunk."""
    vla = policy()
    cond = vla.encode(seen("right"))
    assert vla.predicted_points(cond).shape == (1, len(CAMERAS), 2)
    other = replace(cond, state=cond.state + torch.tensor([0.0] * 3 + [0.5] * 4))
    assert (vla.sample_from(cond, drawn(1)) - vla.sample_from(other, drawn(1))).abs().max() > 1e-3


def test_points_are_learned_from_one_batch() -> None:
    """The error of two observations falls below a hundredth of its start."""
    vla = policy(crop=1.0).train()
    obs, chunk, noise = seen("right", "go to the left side") | targets(2), torch.zeros(2, TP, 2), drawn(2)
    optimizer = torch.optim.Adam(vla.parameters(), 3e-3)
    wanted = torch.stack([obs[f"target.{key.partition('.')[2]}"][:, 0] for key in CAMERAS], 1)
    errors = []
    for _ in range(60):
        errors.append(float((vla.predicted_points(vla.encode(obs)).detach() - wanted).square().mean()))
        loss = vla.bc_loss(obs, chunk, noise, torch.full((2,), 0.5)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert errors[-1] < 0.01 * errors[0]


def test_targets_are_in_datasets_and_not_in_policies() -> None:
    """A contract with places: datasets keep them, policies do not read them."""
    places = {f"target.{key.partition('.')[2]}": ArraySpec((2,)) for key in CAMERAS}
    spec = replace(SPEC, obs=SPEC.obs | places | {"privileged.state": ArraySpec((4,))})
    assert set(spec.for_datasets().obs) == set(SPEC.obs) | set(places)
    assert spec.for_policies().obs == SPEC.obs


def test_pretrained_weights_predict_no_points() -> None:
    with pytest.raises(ConfigError, match=r"policy\.spatial=1 needs policy\.backbone=tiny"):
        VlaPolicy(SPEC, Normalizer({"state": (3,)}), VlaConfig(backbone="models/vlm", spatial=1.0), TP, TA)
