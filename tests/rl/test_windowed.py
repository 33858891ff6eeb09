"""First-order updates on a device: the gradient of ordinary ones, no read by the host, and exact resume."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from policies.flight.policy import FlightPolicy
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.eval.host_reads import HostReads
from robo_rl.nets.optim.graphs import WARM_UP, CudaGraph, GraphCache
from robo_rl.rl.differentiable.first_order import FirstOrder, FirstOrderConfig
from robo_rl.rl.differentiable.windowed import WindowedFirstOrder
from sim.engines.quad.craft import load_craft
from sim.engines.quad.layout import Spread
from sim.flight.flights import Flights
from sim.flight.masked_flights import MaskedFlights
from sim.flight.vec_env import flight_spec
from sim.tasks.flight.hover import HoverTask
from sim.tasks.flight.observation import FlightSenses
from tests.rl import test_graphs

CRAFT, SENSES, CPU = load_craft("cf2x_l2f"), FlightSenses(history=2), torch.device("cpu")
SHORT = HoverTask(train_steps=4)  # flights that end within a window


def policy_for(task: HoverTask, senses: FlightSenses) -> FlightPolicy:
    torch.manual_seed(0)
    return FlightPolicy(flight_spec(task, senses), (16,), None, 2.0 * CRAFT.hover_speed - 1.0)


def learner(
    task: HoverTask = SHORT,
    senses: FlightSenses = SENSES,
    *,
    updates: int = 6,
    spread: Spread | None = None,
    device: torch.device = CPU,
    graphs: GraphCache | None = None,
    eager: bool = True,
) -> WindowedFirstOrder:
    config = FirstOrderConfig(updates=updates, horizon=5)
    flights = MaskedFlights(CRAFT, task, senses, 8, 3, steps=5, device=device, spread=spread, eager=eager)
    return WindowedFirstOrder(policy_for(task, senses).to(device), flights, config, graphs)


def weights(made: WindowedFirstOrder | FirstOrder) -> Tensor:
    return torch.cat([p.detach().flatten() for p in made.policy.parameters()])


def test_the_update_is_that_of_first_order() -> None:
    """The same flights, without noise and restarts: one gradient, found by autograd and by walking back."""
    task, senses = HoverTask(), replace(SENSES, noise=False)
    ours, flights = learner(task, senses), Flights(CRAFT, task, senses, 8, 3, eager=True)
    theirs = FirstOrder(policy_for(task, senses), flights, ours.config)
    for name in ("state", "memory", "external", "obs"):
        setattr(flights, name, getattr(ours.env, name).clone())
    ours.env.age.zero_()  # type: ignore[attr-defined]
    flights.age.zero_()
    for _ in range(2):
        logs, expected = ours.update(), theirs.update()
        for name in ("train/cost", "train/grad_norm"):
            torch.testing.assert_close(logs[name], expected[name], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(weights(ours), weights(theirs), rtol=1e-4, atol=1e-5)


def test_flights_that_end_are_replaced_and_pass_no_gradient_on() -> None:
    """After the fourth step all lanes hold waiting starts, whose aircraft differ, and their age is 0."""
    made = learner(spread=Spread(0.1, 0.1, 0.1, 0.1, 0.1))
    env = made.env
    assert isinstance(env, MaskedFlights)
    env.prepare()
    env.begin()
    env.age = torch.zeros_like(env.age)
    waiting = env._fresh
    over = torch.stack([env.step(torch.zeros(4, 8))[1] for _ in range(4)])
    assert over.sum(1).tolist() == [0.0, 0.0, 0.0, 8.0]
    assert torch.equal(torch.cat([env.state, env.memory, env.obs, env.external, env.params]), waiting)
    assert not env.age.any()
    none = env.step_back(torch.zeros(8), torch.ones_like(env.obs))
    assert not none.any(), "the action before the restart cannot change what comes after it"


def test_an_update_reads_nothing_from_the_device() -> None:
    """Every tensor is made on a named device, and the host asks for no value."""
    made = learner(updates=40)
    made.update()
    with HostReads().watching() as found:
        for _ in range(3):
            made.update()
    assert not found.reads, found.reads
    assert not found.strays, found.strays


def test_a_replayed_update_equals_a_run_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording of the operations of one update, run again on its tensors: nothing that lasts may move."""
    kept: list[Tensor] = []
    monkeypatch.setattr(test_graphs, "PERSISTENT", kept)
    graphs = GraphCache(test_graphs.Recording)
    made, alone = learner(updates=12, graphs=graphs), learner(updates=12)
    first = copy.deepcopy(alone.state_dict())
    for update in range(12):
        if update == WARM_UP:  # the next update is captured
            env, moments = made.env, made.optimizer.state.values()
            assert isinstance(env, MaskedFlights)
            kept += [*made.policy.parameters(), *env._kept.values(), made._wrong]
            kept += [value for state in moments for value in state.values()]
        logs, expected = made.update(), alone.update()
        torch.testing.assert_close(logs, expected, rtol=0.0, atol=0.0)
    assert len(graphs._graphs) == 1
    assert torch.equal(weights(made), weights(alone))
    for each in (made, alone):  # a checkpoint is loaded: the graph stays valid
        each.load_state_dict(first)
        each.update()
    assert torch.equal(weights(made), weights(alone))


def test_building_changes_nothing_that_is_learned() -> None:
    """Updates that only serve to build and capture are taken back: weights, moments and random numbers."""
    built, plain = learner(updates=20), learner(updates=20)
    built.build()
    assert built.updates == 0
    for made in (built, plain):
        made.update()
        made.update()
    assert torch.equal(weights(built), weights(plain))


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    """Saved after two updates, continued in a new learner."""
    whole, first, second = (learner() for _ in range(3))
    for _ in range(2):
        first.update()
    save_state(tmp_path, first.state_dict())
    second.load_state_dict(load_state(tmp_path))
    for _ in range(6):
        whole.update()
    for _ in range(4):
        second.update()
    assert second.done
    assert torch.equal(weights(whole), weights(second))


def test_a_gradient_that_is_not_finite_is_reported_at_the_next_look() -> None:
    """Also when a checkpoint is asked for, which must not store ruined weights."""
    made = learner()
    with torch.no_grad():
        next(made.policy.parameters()).fill_(torch.nan)
    made.update()
    with pytest.raises(RoboRLError, match=r"not finite. Lower lr"):
        made.state_dict()


def test_a_cost_to_go_is_learned_on_the_cpu() -> None:
    """method=shac has no form for a device."""
    flights = MaskedFlights(CRAFT, SHORT, SENSES, 4, 0, steps=5, device=CPU, eager=True)
    with pytest.raises(ConfigError, match="device=cpu"):
        WindowedFirstOrder(policy_for(SHORT, SENSES), flights, FirstOrderConfig(value=True))


@pytest.mark.slow
def test_masked_flights_learn_to_hover() -> None:
    """As ordinary ones: the cost of the last steps is that of hovering, and no flight leaves the box."""
    senses, task = FlightSenses(), HoverTask()
    policy = FlightPolicy(flight_spec(task, senses), (64, 64), None, 2.0 * CRAFT.hover_speed - 1.0)
    flights = MaskedFlights(CRAFT, task, senses, 128, 0, steps=32, device=CPU)
    made = WindowedFirstOrder(policy, flights, FirstOrderConfig(updates=300))
    costs = [float(made.update()["train/cost"]) for _ in range(300)]
    assert sum(costs[-20:]) < 0.3 * sum(costs[:20])
    assert float(made.update()["train/ended"]) <= 128 * 32 / 200


@pytest.mark.gpu
def test_captured_updates_on_the_gpu_equal_single_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU: compiled kernels, a CUDA graph, and the same weights up to rounding."""
    monkeypatch.setenv("ROBO_RL_CACHE", str(tmp_path))
    made = []
    for graphs in (GraphCache(CudaGraph), None):
        each = learner(HoverTask(), updates=40, device=torch.device("cuda"), graphs=graphs, eager=False)
        for _ in range(WARM_UP + 5):
            each.update()
        made.append(weights(each))
    torch.testing.assert_close(made[0], made[1], rtol=1e-4, atol=1e-5)
