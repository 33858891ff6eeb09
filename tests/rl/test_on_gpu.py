"""What a GPU must share with the CPU: the noise of an episode, and exact continuation of a stopped run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.device_world import DeviceWorld, first_seeds, world_spec
from policies.base.generative import GenerativePolicy
from policies.base.noise import EpisodeNoise
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import TensorWindows
from policies.vla.policy import VlaPolicy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.compose import TuningSession, build_session
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.lanes import Lanes
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.nets.optim.graphs import GraphCache
from tests.policies.small import flow_policy
from tests.policies.small_vla import SIDES, TP, seen, small_vla

pytestmark = pytest.mark.gpu
LANES, DEVICE = 5, "cuda"
SETTINGS = [
    "method.learner.hidden=[16]", "method.learner.batch=16", "method.base_steps=60", "method.burn_in=10",
    "method.mix.demo=0", "method.mix.online=1", "method.utd=0.2", "method.env_steps=100000",
]  # fmt: skip


def test_an_episode_has_the_same_noise_on_both_devices() -> None:
    """Keyed by seed and decision; the logarithm and the cosine may round differently."""
    drawn = []
    for device in ("cpu", DEVICE):
        lanes = Lanes.all(64, device)
        noise = EpisodeNoise((16, 6), device=device)
        noise.reset(lanes.ids, 1000 + lanes.ids)
        drawn.append(noise.draw(lanes.ids, lanes.ids % 7).cpu())
    torch.testing.assert_close(drawn[0], drawn[1], rtol=1e-5, atol=1e-5)


def session(method: str, graphs: str) -> tuple[TuningSession, DeviceWorld]:
    """A run on the GPU after the reset of its environment."""
    base, env = flow_policy(world_spec()).to(DEVICE), DeviceWorld(LANES, device=DEVICE)
    config = load_config("finetune", [f"method={method}", "out=.", *SETTINGS], FinetuneVerb).method
    made = build_session(config, base, env, seed=0, demos=None, device=DEVICE, masked=True, graphs=graphs)
    seeds = made.seed_root
    made.tuner.collector.reset(env.reset(EpisodeSeeds(seeds)), first_seeds(seeds, LANES))
    return made, env


@pytest.mark.parametrize("graphs", ["auto", "off"])
@pytest.mark.parametrize("method", ["residual", "steering"])
def test_a_stopped_run_continues_to_the_same_bits(method: str, graphs: str, tmp_path: Path) -> None:
    """Stopped after 150 steps of all lanes and continued in new objects, or not stopped."""
    (made, env), (again, other) = session(method, graphs), session(method, graphs)
    for _ in range(150):
        made.tuner.advance()
    save_state(tmp_path, {"tuner": made.tuner.state_dict(), "env": env.snapshot()})
    state = load_state(tmp_path)
    other.restore(state["env"])
    again.tuner.load_state_dict(state["tuner"])
    for each in (made, again):
        for _ in range(100):
            each.tuner.advance()
    expected, found = (each.tuner.learner.actor.state_dict() for each in (made, again))
    assert all(torch.equal(value, found[key]) for key, value in expected.items())


@pytest.mark.parametrize("stop_at", [2, 12])
def test_training_as_a_graph_gives_the_bits_of_single_operations(stop_at: int) -> None:
    """Also when it is stopped, before or after the capture, and continued in a new trainer."""
    windows = TensorWindows({"state": torch.rand(40, 2, 2)}, torch.rand(40, 4, 1) * 2.0 - 1.0)
    _, expected, found = trained(lambda: flow_policy(world_spec()), windows, stop_at)
    assert all(torch.equal(value, found[key]) for key, value in expected.items())


def test_training_of_a_vla_as_a_graph_equals_single_operations() -> None:
    """Up to rounding: gradients of convolutions and embeddings are sums in any order, and AdamW turns the
    smallest of them into full steps. On a CPU, noise of 1e-3 in the gradients changes the weights by 0.19 of
    what training changes, and a graph that kept its first batch or noise would change them by more than 1.
    """
    windows = TensorWindows(seen(*[*SIDES] * 10), torch.rand(20, TP, 2) * 2.0 - 1.0)
    start, expected, found = (
        torch.cat([value.flatten() for value in weights.values()]).double()
        for weights in trained(small_vla, windows, 12)
    )
    assert (found - expected).abs().mean() < 0.3 * (expected - start).abs().mean()


def trained(
    policy: Callable[[], GenerativePolicy | VlaPolicy], windows: TensorWindows, stop_at: int
) -> tuple[dict[str, torch.Tensor], ...]:
    """Weights at the start, after single operations, and after a graph that was stopped and continued."""
    recipe = BaseTrainConfig(steps=30, batch_size=8, warmup_steps=5, log_every=100)

    def trainer(graphs: bool) -> BaseTrainer[Any]:
        torch.manual_seed(0)
        made = BaseTrainer(policy().train().requires_grad_(True).to(DEVICE), windows, recipe)
        if not graphs:
            made._graphs = GraphCache()
        return made

    single, graph = trainer(False), trainer(True)
    start = copy.deepcopy(single.policy.state_dict())
    while not single.done:
        single.advance()
    while graph.step < stop_at:
        graph.advance()
    again = trainer(True)
    again.load_state_dict(copy.deepcopy(graph.state_dict()))
    while not again.done:
        again.advance()
    return start, single.result().state_dict(), again.result().state_dict()
