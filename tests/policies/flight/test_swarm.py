"""Swarm policies: invariant to order, unaffected by absent objects, and with a cost independent of the
swarm's size.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from policies.checkpoint import load_policy, save_policy
from policies.flight.swarm import SwarmPolicy
from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from sim.engines.quad.craft import load_craft
from sim.flight.swarm.swarm import Swarm
from sim.tasks.swarm.terms import CYLINDER_SIZE, NEIGHBOUR_SIZE, SwarmSenses
from sim.tasks.swarm.world import SwarmWorld

SENSES = SwarmSenses(neighbours=4, cylinders=3, history=1)
KINDS = ((4, NEIGHBOUR_SIZE), (3, CYLINDER_SIZE))


def made(seed: int = 0, **sizes: int) -> SwarmPolicy:
    torch.manual_seed(seed)
    spec = EnvSpec(
        "quad/swarm", {"state": ArraySpec((SENSES.obs_size,))}, ActionSpec((-1.0,) * 4, (1.0,) * 4), 10, 100.0
    )
    policy = SwarmPolicy(spec, KINDS, **sizes)
    torch.nn.init.normal_(policy.last.weight)  # it starts near zero: any difference would be lost
    return policy


def looked(num: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    """(own rows, 4 drones, 3 cylinders), all present; objects are (rows, count, n)."""
    generator = torch.Generator().manual_seed(1)
    own = torch.randn(SENSES.own_size, num, generator=generator)
    drones = torch.randn(NEIGHBOUR_SIZE, 4, num, generator=generator)
    cylinders = torch.randn(CYLINDER_SIZE, 3, num, generator=generator)
    drones[-1], cylinders[-1] = drones[-1].abs(), cylinders[-1].abs()
    return own, drones, cylinders


def joined(own: Tensor, drones: Tensor, cylinders: Tensor) -> Tensor:
    return torch.cat([own, drones.flatten(0, 1), cylinders.flatten(0, 1)])


def test_order_of_neighbours_has_no_effect() -> None:
    """Any permutation within a kind gives the same commands; exchanging the goal does not."""
    policy, (own, drones, cylinders) = made(), looked()
    expected = policy.columns(joined(own, drones, cylinders))
    found = policy.columns(joined(own, drones[:, [2, 0, 3, 1]], cylinders[:, [1, 2, 0]]))
    torch.testing.assert_close(found, expected, rtol=0.0, atol=1e-6)
    assert (policy.columns(joined(own.flip(0), drones, cylinders)) - expected).abs().max() > 1e-2


def test_absent_objects_have_no_effect() -> None:
    """Nearness 0: the object's other rows have no effect; with nearness they do."""
    policy, (own, drones, cylinders) = made(), looked()
    drones[-1, 1] = 0.0
    expected = policy.columns(joined(own, drones, cylinders))
    drones[:-1, 1] = 7.0
    torch.testing.assert_close(policy.columns(joined(own, drones, cylinders)), expected, rtol=0.0, atol=1e-6)
    drones[-1, 1] = 0.5
    assert (policy.columns(joined(own, drones, cylinders)) - expected).abs().max() > 1e-2
    alone = policy.columns(joined(own, 0.0 * drones, 0.0 * cylinders))
    assert alone.isfinite().all()


@pytest.mark.parametrize("drones", [8, 16, 32])
def test_cost_per_drone_is_constant(drones: int) -> None:
    """The same observation and exactly as many multiplications per drone, whatever the size of the swarm."""
    swarm = Swarm(load_craft("cf2x_l2f"), SwarmWorld(drones=drones), SENSES, 1, 0, gradient=False, eager=True)
    assert swarm.obs.shape == (SENSES.obs_size, drones)
    policy = made()
    with FlopCounterMode(display=False) as counter:
        policy.columns(swarm.obs)
    with FlopCounterMode(display=False) as single:
        policy.columns(swarm.obs[:, :1])
    assert counter.get_total_flops() == drones * single.get_total_flops()


def test_it_starts_from_hovering() -> None:
    """The last layer starts near zero with the hover bias, so all commands are near it."""
    torch.manual_seed(0)
    spec = made().env
    action = SwarmPolicy(spec, KINDS, hover=0.3).columns(joined(*looked()))
    assert (action - 0.3).abs().max() < 0.15


def test_a_saved_policy_is_the_same_policy(tmp_path: Path) -> None:
    """Kind, sizes and weights come back from a folder."""
    policy, obs = made(width=32, token=8, heads=2), joined(*looked())
    save_policy(tmp_path, policy)
    found = load_policy(tmp_path)
    assert isinstance(found, SwarmPolicy)
    assert found.columns(obs).equal(policy.columns(obs))
    noise = torch.zeros(5, 1, 4)
    assert found.sample({"state": obs.T.unsqueeze(1)}, noise)[:, 0].T.equal(policy.columns(obs))


def test_heads_must_divide_the_token() -> None:
    """The message gives a valid value."""
    with pytest.raises(ConfigError, match="multiple of heads"):
        made(token=10, heads=4)
