"""Networks beyond the MLP: formulas by hand, heads in one product, saving, and what is refused."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.nets.actor import ActorConfig, GaussianActor, make_actor
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.nets.deep.layers import HeadDense, HeadNorm, orthogonal
from robo_rl.nets.deep.network import DEEP_NETWORKS, make_deep
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


def test_what_makes_no_network_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="bronet"):
        make_deep("bronett", 3, [4], 1, 1)
    with pytest.raises(ConfigError, match="must be equal"):
        make_deep("bronet", 3, [4, 8], 1, 1)
    with pytest.raises(ConfigError, match="at least 2"):
        Quantiles(1)
    dense = HeadDense(2, 3, 4)
    assert dense(torch.ones(1, 5, 3)).shape == (1, 5, 4)
