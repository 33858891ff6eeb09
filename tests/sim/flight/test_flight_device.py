"""Flights on a run's device: restarts by mask, no read by the host, and no tensor on another device."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import EnvError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.host_reads import HostReads
from sim.flight.vec_env import QuadVecEnv
from sim.registry import make_env
from sim.vec.on_device import CopiedEnv, DeviceEnv, MovableEnv, env_on
from sim.vec.seed_queue import REFILL_EVERY

NAMES = ["quad/hover", "quad/hover:level=rates", "quad/figure8", "quad/waypoints", "quad/race"]
META = torch.device("meta")


def flights(name: str, num: int = 3, **options: Any) -> QuadVecEnv:
    env = make_env(name, num, compiled=False, **options)
    assert isinstance(env, QuadVecEnv)
    return env


@pytest.mark.parametrize("name", NAMES)
def test_flights_that_restart_by_mask_have_the_same_episodes(name: str) -> None:
    """Results and seeds equal those of restarts lane by lane, and no step reads the device."""
    host, resident = (flights(name, max_episode_steps=7) for _ in range(2))
    assert resident.keep_on_device()
    first, second = (env.reset(EpisodeSeeds("mask"))["state"] for env in (host, resident))
    assert torch.equal(first, second)
    rng = torch.Generator().manual_seed(0)
    low, high = (torch.tensor(x) for x in (host.spec.action.low, host.spec.action.high))
    for step in range(REFILL_EVERY + 3):
        action = low + (high - low) * torch.rand(3, 4, generator=rng)
        expected = host.step(action)
        with HostReads().watching() as found:
            got = resident.step(action)
        if step % REFILL_EVERY not in (0, REFILL_EVERY - 1):
            assert not found.reads, found.reads
            assert not found.strays, found.strays
        torch.testing.assert_close(got[0]["state"], expected[0]["state"], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got[1], expected[1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(got[4]["final_obs"]["state"], expected[4]["final_obs"]["state"],
                                   rtol=1e-4, atol=1e-4)  # fmt: skip
        assert torch.equal(got[2], expected[2])
        assert torch.equal(got[3], expected[3])
        for key in ("final_mask", "success", "episode_seed", "next_seed"):
            assert torch.equal(got[4][key], expected[4][key]), key


def test_a_snapshot_of_resident_flights_continues_with_the_same_seeds() -> None:
    """The seeds that wait on the device are given back to the iterator."""
    env = flights("quad/hover", max_episode_steps=4)
    env.keep_on_device()
    env.reset(EpisodeSeeds("snapshot"))
    still = torch.zeros(3, 4)
    for _ in range(6):
        env.step(still)
    snapshot = env.snapshot()
    following = [env.step(still) for _ in range(9)]
    env.restore(snapshot)
    for one, other in zip(following, [env.step(still) for _ in range(9)], strict=True):
        assert torch.equal(one[0]["state"], other[0]["state"])
        assert torch.equal(one[4]["next_seed"], other[4]["next_seed"])


def test_actions_that_are_not_finite_are_reported_at_the_next_look() -> None:
    """The host cannot see them at once."""
    env = flights("quad/hover")
    env.keep_on_device()
    env.reset(EpisodeSeeds("wrong"))
    wrong = torch.full((3, 4), torch.nan)
    with pytest.raises(EnvError, match="not finite"):
        [env.step(wrong) for _ in range(REFILL_EVERY + 1)]


class Queue:
    """Seeds without a host: those of ended lanes grow by one."""

    def __init__(self) -> None:
        self.seeds = self

    def take(self, ended: Tensor, running: Tensor) -> Tensor:
        return torch.where(ended, running + 1, running)

    def clipped(self, action: Tensor, spec: Any) -> Tensor:
        return action

    def note(self, *_: object) -> None: ...


@pytest.mark.parametrize("name", NAMES)
def test_every_tensor_of_a_step_is_on_the_device_of_the_run(name: str) -> None:
    """On a second device without memory: a tensor made elsewhere, and a read by the host, would raise."""
    env = flights(name)
    assert env.move_to(META)
    assert env.keep_on_device()
    env._seeds, env._restarts = EpisodeSeeds("meta"), Queue()  # type: ignore[assignment]
    obs, reward, terminated, truncated, info = env.step(torch.zeros(3, 4, device=META))
    tensors = [obs["state"], reward, terminated, truncated, info["final_obs"]["state"], env.measured(),
               env.reference()]  # fmt: skip
    tensors += [value for value in info.values() if isinstance(value, Tensor)]
    assert {x.device.type for x in tensors} == {"meta"}


def test_a_run_moves_flights_to_its_device() -> None:
    """`finetune env=quad/hover device=cuda` needs no copies; another engine's flights are copied."""
    env = flights("quad/hover")
    assert isinstance(env, MovableEnv)
    assert isinstance(env, DeviceEnv)
    assert env_on(env, META) is env
    assert env.device == META


def test_flights_in_another_engine_are_copied() -> None:
    """PyBullet computes on the CPU."""
    pytest.importorskip("pybullet")
    env = flights("quad/hover:engine=pybullet", 1)
    assert isinstance(env_on(env, META), CopiedEnv)
    assert env.device.type == "cpu"
