"""Networks beyond the MLP: formulas by hand, heads in one product, saving, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.nets.actor import ActorConfig, GaussianActor, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.deep.layers import HeadDense, HeadNorm, orthogonal
from robo_rl.nets.deep.network import DEEP_NETWORKS, InputNorm, make_deep
from robo_rl.nets.deep.simba_v2 import Scale, SphereBlock, unit
from robo_rl.nets.deep.xqc import HeadBatchNorm, batch_statistics
from robo_rl.nets.support import Quantiles

NAMES = sorted(DEEP_NETWORKS)


def move(net: torch.nn.Module) -> None:
    """Change all parameters a little, so that gains, shifts and outputs matter."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def test_layer_norm_by_hand() -> None:
    """(1, 3) has mean 2 and deviation 1: normalised (-1, 1), times 2 plus 1 gives (-1, 3)."""
    norm = HeadNorm(1, 2)
    with torch.no_grad():
        norm.gain.fill_(2.0)
        norm.shift.fill_(1.0)
    torch.testing.assert_close(norm(torch.tensor([[[1.0, 3.0]]])), torch.tensor([[[-1.0, 3.0]]]))


def test_orthogonal_start() -> None:
    """W W^T = gain^2 I for the shorter side, for each head; heads differ."""
    weight = orthogonal(2, 3, 5, gain=2.0)
    torch.testing.assert_close(weight @ weight.mT, 4.0 * torch.eye(3).expand(2, -1, -1))
    assert not torch.equal(weight[0], weight[1])


def test_bronet_is_its_formula() -> None:
    """h = relu(norm(dense x)); h + norm(dense(relu(norm(dense h)))) twice; dense h: by torch's functions."""
    net = make_deep("bronet", 3, [4, 4], 2, heads=1)
    move(net)
    parts = dict(net.named_parameters())

    def dense(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, parts[f"{name}.weight"][0].T, parts[f"{name}.bias"][0, 0])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(x, (4,), parts[f"{name}.gain"][0, 0], parts[f"{name}.shift"][0, 0], eps=1e-6)

    x = torch.randn(6, 3)
    h = norm("norm", dense("dense", x)).relu()
    for i in range(2):
        inner = norm(f"blocks.{i}.norm1", dense(f"blocks.{i}.dense1", h)).relu()
        h = h + norm(f"blocks.{i}.norm2", dense(f"blocks.{i}.dense2", inner))
    torch.testing.assert_close(net(x.unsqueeze(0))[0], dense("output", h))


@pytest.mark.parametrize("name", NAMES)
def test_heads_in_one_product_equal_single_heads(name: str) -> None:
    """Two heads give what two networks of one head with the same weights give; the first head alone too."""
    critic = CriticEnsemble(5, [8, 8], heads=2, network=name, support=Quantiles(3))
    move(critic)
    x, action = torch.randn(7, 3), torch.randn(7, 2)
    both = critic.outputs(x, action)
    assert both.shape == (2, 7, 3)
    for k in range(2):
        single = CriticEnsemble(5, [8, 8], heads=1, network=name, support=Quantiles(3))
        single.load_state_dict({key: value[k : k + 1] for key, value in critic.state_dict().items()})
        torch.testing.assert_close(single.outputs(x, action)[0], both[k])
    torch.testing.assert_close(critic(x, action, heads=1), critic(x, action)[:1])


@pytest.mark.parametrize("name", NAMES)
def test_critics_are_rebuilt_from_their_config(name: str) -> None:
    critic = CriticEnsemble(3, [8, 8], heads=2, network=name, support=Quantiles(4), margin=0.5)
    again = CriticEnsemble(**critic.config())
    again.load_state_dict(critic.state_dict())
    x, action = torch.randn(4, 2), torch.randn(4, 1)
    assert torch.equal(again(x, action), critic(x, action))
    assert again.config() == critic.config()


@pytest.mark.parametrize("kind", ["gaussian", "deterministic"])
def test_a_bronet_actor_starts_at_zero_and_is_rebuilt(kind: str) -> None:
    """u = 0 and s = init_std at the start and after `restart`; `start_at` sets the first action."""
    config = ActorConfig(kind, 3, 2, (8,), init_std=0.5, network="bronet", log_std_min=-10.0)
    actor, x = make_actor(config), torch.randn(4, 3)
    assert actor(x).eq(0.0).all()
    if isinstance(actor, GaussianActor):
        torch.testing.assert_close(actor.distribution(x)[1].exp(), torch.full((4, 2), 0.5))
    move(actor)
    again = make_actor(ActorConfig.from_json(actor.config.to_json()))
    again.load_state_dict(actor.state_dict())
    assert torch.equal(again(x), actor(x))
    assert actor(x).ne(0.0).all()
    actor.restart()
    assert actor(x).eq(0.0).all()
    actor.start_at(torch.tensor([0.5, -0.5]))
    torch.testing.assert_close(actor(x), torch.tensor([[0.5, -0.5]]).expand(4, -1))


def test_quantiles_by_hand() -> None:
    """Four quantiles have the levels 1/8, 3/8, 5/8 and 7/8, and Q is their mean."""
    four = Quantiles(4)
    assert four.levels("cpu").tolist() == [0.125, 0.375, 0.625, 0.875]
    assert four.mean(torch.tensor([1.0, 2.0, 3.0, 6.0])).item() == 3.0


def test_a_step_on_the_sphere_by_hand() -> None:
    """Half of the way from (1, 0) to (0, 1) is (0.5, 0.5), back on the sphere (0.707, 0.707)."""
    block = SphereBlock(1, 2, share=0.5)
    block.dense2.forward = lambda x: torch.tensor([[[0.0, 3.0]]])  # type: ignore[method-assign]
    found = block(torch.tensor([[[1.0, 0.0]]]))
    torch.testing.assert_close(found, torch.full((1, 1, 2), math.sqrt(0.5)))
    assert unit(torch.zeros(2)).eq(0.0).all()


def test_scales_start_at_their_factor_and_learn_at_their_own_rate() -> None:
    """A factor of 0.5 kept as 0.25: the output is 0.5 x, and a change of the parameter counts twice."""
    scale = Scale(1, 1, first=0.5, size=0.25)
    assert scale(torch.full((1, 1, 1), 3.0)).item() == 1.5
    with torch.no_grad():
        scale.factor.add_(0.25)
    assert scale(torch.full((1, 1, 1), 3.0)).item() == 3.0


def test_simba_v2_is_its_formula() -> None:
    """Embedding, LERP block and predictor, written with plain tensors."""
    net = make_deep("simba_v2", 3, [4], 2, heads=1)
    w = {name: value[0] for name, value in net.named_parameters()}

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.div(x, x.norm(dim=-1, keepdim=True))

    x = torch.randn(6, 3)
    gain = math.sqrt(2.0 / 4.0)
    h = norm(norm(torch.cat([x, torch.full((6, 1), 3.0)], dim=1)) @ w["dense.weight"] * gain)
    inner = (h @ w["blocks.0.dense1.weight"] * gain / 2.0).relu() + 1e-8
    h = norm(h + 0.5 * (norm(inner @ w["blocks.0.dense2.weight"]) - h))
    out = h @ w["predictors.0.dense1.weight"] @ w["predictors.0.dense2.weight"]
    torch.testing.assert_close(net(x.unsqueeze(0))[0], out)
    assert w["blocks.0.dense1.weight"].shape == (4, 16)


def test_mean_and_deviation_have_predictors_of_their_own() -> None:
    """Two parts of two outputs: the first predictor gives the first two."""
    net = make_deep("simba_v2", 3, [4], 4, heads=1, parts=2)
    x = torch.randn(1, 5, 3)
    before = net(x)
    with torch.no_grad():
        net.get_submodule("predictors.1").get_parameter("bias").add_(1.0)
    torch.testing.assert_close(net(x) - before, torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(1, 5, -1))


def test_batch_norm_by_hand() -> None:
    """Rows 1 and 3: mean 2, variance 1. Outside of learning the running statistics count: first 0 and 1."""
    norm, x = HeadBatchNorm(1, 1), torch.tensor([[[1.0], [3.0]]])
    small = 1.0 / math.sqrt(1.001)
    torch.testing.assert_close(norm(x), x * small)
    with batch_statistics(norm, keep=False):
        torch.testing.assert_close(norm(x), torch.tensor([[[-1.0], [1.0]]]) * small)
    assert norm.mean.item() == 0.0
    with batch_statistics(norm, keep=True):
        norm(x)
    assert norm.mean.item() == pytest.approx(0.02)  # one hundredth of the way
    assert norm.variance.item() == pytest.approx(1.0)
    torch.testing.assert_close(norm(x), (x - 0.02) * small)


def test_xqc_is_its_formula() -> None:
    """Batch norm, then dense, batch norm and relu per layer, then dense: with torch's batch norm."""
    net = make_deep("xqc", 3, [4, 5], 2, heads=1)
    w = {name: value[0] for name, value in net.named_parameters()}
    x = torch.randn(6, 3)

    def norm(h: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(h, None, None, training=True, eps=1e-3)

    h = norm(x)
    for i in range(2):
        h = norm(h @ w[f"layers.{i}.weight"]).relu()
    with batch_statistics(net, keep=False):
        torch.testing.assert_close(net(x.unsqueeze(0))[0], h @ w["output.weight"])


def test_inputs_are_normalised_by_the_statistics() -> None:
    """(5 - 1) / 2 = 2 for the feature; the action has no statistics."""
    norm = InputNorm(2)
    norm.set(torch.tensor([1.0]), torch.tensor([2.0]))
    assert norm(torch.tensor([5.0, 5.0])).tolist() == [2.0, 5.0]
    critic = CriticEnsemble(2, [8], heads=2, network="simba_v2", normalize=True)
    x, action = torch.randn(6, 1), torch.randn(6, 1)
    plain = critic((x - 1.0) / 2.0, action)
    assert critic.input_norm is not None
    critic.input_norm.set(torch.tensor([1.0]), torch.tensor([2.0]))
    torch.testing.assert_close(critic(x, action), plain)


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="bronet"):
        make_deep("bronett", 3, [4], 1, 1)
    with pytest.raises(ConfigError, match="must be equal"):
        make_deep("bronet", 3, [4, 8], 1, 1)
    with pytest.raises(ConfigError, match="at least 2"):
        Quantiles(1)
    dense = HeadDense(2, 3, 4)
    assert dense(torch.ones(1, 5, 3)).shape == (1, 5, 4)
