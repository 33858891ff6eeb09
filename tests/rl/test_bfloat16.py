"""Updates whose matrix products round to bfloat16 on a CPU: exact products of rounded numbers, and nearly the
updates of float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.action_map import DirectMap
from robo_rl.core.seeding import generator
from robo_rl.nets.gradients import compiled
from robo_rl.nets.gradients.compiled import CompiledStack, has_tiles
from robo_rl.nets.gradients.layer import Layer, Parameters, Scratch
from robo_rl.nets.gradients.stack import AnyStack, Stack, make_stack
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.rl.test_targets import batch

needs_tiles = pytest.mark.skipif(not has_tiles(), reason="this processor has no AMX")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Machine code is used on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def rounded(values: Tensor) -> Tensor:
    return values.bfloat16().float()


def one_layer(weight: Tensor) -> tuple[AnyStack, Tensor]:
    """(a linear layer without a bias, the place of its gradient). weight: (i, o), in any layout."""
    bias, place = torch.zeros(1, 1, weight.shape[1]), torch.full_like(weight, torch.nan)
    here, grads = Parameters(weight[None], bias), Parameters(place[None], torch.empty_like(bias))
    return make_stack([Layer(here, None, norm=False, grads=grads)], Scratch(True, bfloat16=True)), place


@needs_tiles
@pytest.mark.parametrize("shape", [(256, 64, 32), (37, 70, 45), (5, 3, 2), (48, 33, 17), (33, 100, 1)])
@pytest.mark.parametrize("flipped", [False, True])
def test_products_are_those_of_rounded_numbers(shape: tuple[int, int, int], flipped: bool) -> None:
    """Outputs, gradient of the weights and of the last inputs; also of tiles that are not full. One output is
    a sum of products in float32.
    """
    torch.manual_seed(0)
    rows, inputs, outputs = shape
    weight = torch.randn(outputs, inputs).t() if flipped else torch.randn(inputs, outputs)
    stack, place = one_layer(weight)
    assert isinstance(stack, CompiledStack)
    x, pull = torch.randn(rows, inputs), torch.randn(rows, outputs)
    near: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
    expected = rounded(x) @ rounded(weight) if outputs > 1 else x @ weight
    torch.testing.assert_close(stack.forward(x)[0], expected, **near)
    stack.backward(pull.clone()[None])
    torch.testing.assert_close(place, rounded(x).t() @ rounded(pull), **near)
    stack.forward(x)
    back = rounded(pull) @ rounded(weight).t()
    torch.testing.assert_close(stack.input_gradient(pull.clone()[None], 1), back[:, 1:], **near)


@needs_tiles
def test_ties_and_nan_are_rounded_as_in_torch() -> None:
    """Half of the last place goes to the even neighbour; NaN stays NaN, and infinity infinity."""
    numbers = torch.tensor([1.00390625, 1.01171875, -1.00390625, 3.3895314e38, 1e-40, torch.inf, torch.nan])
    stack, _ = one_layer(torch.eye(2)[:1])  # (1, 2): the number, and zero
    out = stack.forward(numbers[:, None])[0, :, 0]
    expected = rounded(numbers)
    expected[4] = 0.0  # AMX takes numbers below 1e-38 as zero
    assert torch.equal(out[:6], expected[:6])
    assert out[6].isnan()


def learner(precision: str, **settings: Any) -> OffPolicyLearner:
    values: dict[str, Any] = {"hidden": [64, 64], "lr_actor": 1e-3, "lr_critic": 1e-3, **settings}
    cfg = LearnerConfig(precision=precision, **values)
    return OffPolicyLearner(4, DirectMap(2), cfg, generator("bfloat16"))


@pytest.mark.parametrize("tiles", [pytest.param(True, marks=needs_tiles), False])
@pytest.mark.parametrize("kind", [{"actor": "deterministic"}, {"auto_alpha": True, "alpha": 0.1}])
def test_updates_are_nearly_those_of_float32(
    kind: dict[str, Any], tiles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In machine code, or by torch on other processors. Acting stays float32, and so does all else here."""
    full, told = learner("float32", **kind), contextlib.nullcontext()
    if not tiles:
        monkeypatch.setattr(compiled, "has_tiles", lambda: False)
        compiled._warn_of_no_tiles.cache_clear()
        told = pytest.warns(UserWarning, match="no AMX")
    with told:
        half = learner("bfloat16", **kind)
    obs, none = torch.randn(9, 4), torch.zeros(9, 0)
    assert torch.equal(full.act(obs, none, explore=False), half.act(obs, none, explore=False))
    data = batch(2)
    before = torch.get_float32_matmul_precision()
    start = full.critics.critic_opt.flat.clone()
    for _ in range(20):
        expected, info = full.update(data), half.update(data)
    assert torch.get_float32_matmul_precision() == before
    assert isinstance(half.critics._stack, Stack) is not tiles
    torch.testing.assert_close(info["critic/loss"], expected["critic/loss"], rtol=0.1, atol=0.0)
    moved = full.critics.critic_opt.flat - start
    apart = half.critics.critic_opt.flat - full.critics.critic_opt.flat
    assert apart.norm() < 0.3 * moved.norm()
    rounds = tiles or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert bool(apart.norm() > 1e-3 * moved.norm()) is rounds
