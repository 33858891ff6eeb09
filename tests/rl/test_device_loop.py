"""The loop on a device: no read by the host, no tensor elsewhere, for every kind of method."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from benchmarks.device_world import DeviceWorld, first_seeds
from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.action_map import ActionMap, DirectMap, LatentMap, ResidualMap
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.data.replay import Replay
from robo_rl.eval.host_reads import HostReads
from robo_rl.rl.collect import Collector
from robo_rl.rl.loop import FinetuneConfig, FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.off_policy.config import LearnerConfig
from robo_rl.rl.off_policy.learner import OffPolicyLearner
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, widths

LANES = 5
METHODS: dict[str, tuple[ActionMap, dict[str, Any]]] = {
    "sac": (DirectMap(1), {}),
    "td3": (DirectMap(1), {"actor": "deterministic", "explore_min_scale": 0.1, "explore_correlation": 0.5}),
    "residual": (ResidualMap(1, 0.5), {"gate": True, "n_step": 3}),
    "residual of chunks": (ResidualMap(1, 0.5, 2), {"return_floor": True}),
    "steering": (LatentMap(4, 1, 1.5), {"norm_bound": 0.1}),
    "gaussian steering": (LatentMap(4, 1, 1.5, "gaussian"), {"auto_alpha": True}),
    "conservative": (ResidualMap(1, 0.5), {"conservative": 1.0, "target_draws": 3}),
}


def tuner_of(action_map: ActionMap, settings: dict[str, Any], masked: bool = True) -> FineTuner:
    """A tuner after a reset, in the form for a GPU."""
    base, env = flow_policy(SPEC), DeviceWorld(LANES)
    learner = LearnerConfig(**{"hidden": [16], "batch": 16} | settings)
    store = Replay(600, LANES, widths(action_map))
    executor = ChunkExecutor(base, LANES, masked=masked)
    collector = Collector(env, executor, EpisodeNoise((base.chunk, 1)), action_map, learner.gamma, store)
    collector.reset(env.reset(EpisodeSeeds(("device",))), first_seeds(("device",), LANES))
    config = FinetuneConfig(
        env_steps=100_000, base_steps=60, burn_in=10, guard_window=0, utd=0.2, learner=learner
    )
    off_policy = OffPolicyLearner(4, action_map, learner, generator("learner", 0))
    mix = ReplayMix({"online": store}, {"online": 1.0})
    return FineTuner(config, collector, off_policy, mix, generator("replay", 0))


@pytest.mark.parametrize("name", METHODS)
def test_the_hot_loop_reads_nothing_from_the_device(name: str) -> None:
    """Collection, replay and updates, with episodes that end: between two reads of the results, none."""
    action_map, settings = METHODS[name]
    tuner = tuner_of(action_map, settings)
    while tuner.phase != "online" or tuner.env_steps % (50 * LANES):
        tuner.advance()  # the first batches ask whether there are any data
    tuner.advance()
    with HostReads().watching() as found:
        for _ in range(48):
            assert tuner.advance() == []
    assert not found.reads, dict(found.reads)
    assert not found.strays, dict(found.strays)
    assert tuner.advance(), "episodes ended and are reported at the next read"


def test_what_reads_the_device_is_counted() -> None:
    """Each of these waits for a GPU."""
    x = torch.arange(3.0, device="cpu")
    reads = {
        "item": lambda: x[0].item(),
        "bool": lambda: bool(x[0] > 0),
        "float": lambda: float(x.sum()),
        "mask": lambda: x[x > 1],
        "assigned mask": lambda: x.__setitem__(x > 1, 0.0),
        "nonzero": lambda: torch.nonzero(x),
        "tolist": lambda: x.tolist(),
        "numpy": lambda: x.numpy(),
        "cpu": lambda: x.cpu(),
    }
    for name, read in reads.items():
        with HostReads().watching() as found:
            read()
        assert found.reads, name
    with HostReads().watching() as found:
        torch.zeros(3)
        torch.zeros_like(x)
        x[x.long()] + x.sum()
    assert (found.reads.total(), found.strays.total()) == (0, 1)


@pytest.mark.parametrize("name", ["residual", "steering"])
def test_the_masked_loop_learns_what_the_other_one_learns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without exploration the two forms see the same batches: the same weights after 100 steps, up to
    rounding.
    """
    action_map, settings = METHODS[name]
    made = []
    for masked in (False, True):
        tuner = tuner_of(action_map, settings | {"norm_bound": 0.0}, masked)
        act = tuner.learner.act
        monkeypatch.setattr(
            tuner.acting, "explore", lambda obs, ctx, _, act=act: act(obs, ctx, explore=False)
        )
        for _ in range(100):
            tuner.advance()
        made.append(tuner)
    one, other = made
    for first, second in zip(one.learner.actor.parameters(), other.learner.actor.parameters(), strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


def test_the_world_of_these_tests_continues_from_a_snapshot() -> None:
    """The same states and seeds again, and a picture with both marks."""
    world = DeviceWorld(LANES, 2)
    world.reset(EpisodeSeeds(("world",)))
    action = torch.full((LANES, 2), 1.5)
    for _ in range(9):
        world.step(action)
    snapshot = world.snapshot()
    following = [world.step(action) for _ in range(9)]
    world.restore(snapshot)
    for expected in following:
        found = world.step(action)
        assert torch.equal(found[0]["state"], expected[0]["state"])
        assert torch.equal(found[4]["next_seed"], expected[4]["next_seed"])
    assert world.render().shape == (2, 64, 3)
    assert (world.render() == 255).any()
