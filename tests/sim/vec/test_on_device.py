"""Environments on a run's device: seeds ahead of time, copies, and restarts by mask."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from robo_rl.core.errors import EnvError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.host_reads import HostReads
from sim.registry import make_env
from sim.vec.on_device import CopiedEnv, DeviceEnv, copied_env, env_on, same_device
from sim.vec.seed_queue import REFILL_EVERY, SeedQueue
from sim.vec.workers import WorkerVecEnv
from tests.rl.worlds import TargetLane

CPU = torch.device("cpu")


def test_lanes_take_seeds_in_order_across_refills() -> None:
    """Random ends over three refills: the seeds that a host would have handed out, in lane order."""
    seeds, root = EpisodeSeeds(("queue",)), ("queue",)
    running = torch.tensor([next(seeds) for _ in range(4)])
    expected, following = running.clone(), EpisodeSeeds(root, 4)
    queue, rng = SeedQueue(seeds, 4, CPU), torch.Generator().manual_seed(0)
    for _ in range(3 * REFILL_EVERY + 7):
        ended = torch.rand(4, generator=rng) < 0.4
        for lane in ended.nonzero()[:, 0].tolist():
            expected[lane] = next(following)
        running = queue.take(ended, running)
        assert torch.equal(running, expected)
    assert queue.synchronise().count == following.count


def test_all_lanes_may_end_at_every_step() -> None:
    """The queue holds enough for the worst case."""
    seeds = EpisodeSeeds(("all",))
    queue, running, every = SeedQueue(seeds, 3, CPU), torch.zeros(3, dtype=torch.long), torch.ones(3).bool()
    found = []
    for _ in range(2 * REFILL_EVERY):
        running = queue.take(every, running)
        found += running.tolist()
    again = EpisodeSeeds(("all",))
    assert found == [next(again) for _ in found]


def test_seeds_that_cannot_be_looked_ahead_of_are_refused() -> None:
    """A plain iterator would lose the seeds that were fetched and not taken."""
    with pytest.raises(EnvError, match="EpisodeSeeds"):
        SeedQueue(iter([1, 2, 3]), 1, CPU)


def test_an_environment_of_the_host_is_copied() -> None:
    """The same results as without the copy; on the CPU there is none."""
    plain, other = WorkerVecEnv(TargetLane, 2), WorkerVecEnv(TargetLane, 2)
    assert env_on(plain, CPU) is plain
    assert not isinstance(plain, DeviceEnv)
    copied = CopiedEnv(other, CPU)
    assert torch.equal(
        plain.reset(EpisodeSeeds("copy"))["state"], copied.reset(EpisodeSeeds("copy"))["state"]
    )
    for _ in range(9):
        first, second = plain.step(torch.ones(2, 1)), copied.step(torch.ones(2, 1))
        assert torch.equal(first[0]["state"], second[0]["state"])
        assert torch.equal(first[4]["final_obs"]["state"], second[4]["final_obs"]["state"])
        assert all(torch.equal(first[i], second[i]) for i in (1, 2, 3))
    snapshot = copied.snapshot()
    assert torch.equal(copied.restore(snapshot)["state"], first[0]["state"])
    copied.close()
    plain.close()


def test_an_evaluation_never_keeps_results_on_the_device() -> None:
    """Its seeds are a list that ends; looking ahead in them is refused."""

    class OnGpu(WorkerVecEnv):
        device = torch.device("cuda:0")

        def keep_on_device(self) -> bool:
            raise AssertionError("an evaluation must not ask for it")

    env = OnGpu(TargetLane, 2)
    assert isinstance(copied_env(env, torch.device("cuda")), CopiedEnv)
    assert copied_env(env, CPU) is env
    env.close()


def test_the_first_gpu_has_two_names() -> None:
    """Engines name it "cuda:0", users "cuda": results must not be copied because of that."""
    assert same_device(torch.device("cuda:0"), torch.device("cuda"))
    assert not same_device(torch.device("cuda:1"), torch.device("cuda"))
    assert not same_device(CPU, torch.device("cuda"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "ranges",
    ["obs_delay: [0, 0]", "obs_delay: [0, 2]", "mass: [0.5, 2.0]\nkp: [0.8, 1.2]\nfriction: [0.5, 2.0]"],
)
def test_worlds_that_restart_by_mask_have_the_same_episodes(ranges: str, tmp_path: Path) -> None:
    """MuJoCo Warp on its CPU device: results and seeds equal those of restarts one by one, without a read."""
    pytest.importorskip("mujoco_warp", reason="needs the extra [gpu]")
    file = tmp_path / "ranges.yaml"
    file.write_text(ranges)
    name = f"arm/reach:engine=mjwarp,randomise={file}"
    made = [make_env(name, 3, device="cpu", max_episode_steps=7) for _ in range(2)]
    host, resident = made
    assert resident.keep_on_device()  # type: ignore[attr-defined]
    assert torch.equal(*(env.reset(EpisodeSeeds("mask"))["state"] for env in made))
    rng = torch.Generator().manual_seed(0)
    for step in range(2 * REFILL_EVERY + 3):
        action = torch.rand(3, host.spec.action.dim, generator=rng) * 0.2 - 0.1
        expected = host.step(action)
        with HostReads().watching() as found:
            got = resident.step(action)
        # The engine looks at its counts of contacts in pinned memory, once a copy has arrived there.
        reads = [read for read in found.reads if "mjwarp/engine.py" not in read]
        assert step % REFILL_EVERY in (0, REFILL_EVERY - 1) or not reads, reads
        torch.testing.assert_close(got[0]["state"], expected[0]["state"])
        for key in ("final_mask", "success", "episode_seed", "next_seed"):
            assert torch.equal(got[4][key], expected[4][key]), key
        torch.testing.assert_close(got[4]["final_obs"]["state"], expected[4]["final_obs"]["state"])
    snapshot = resident.snapshot()
    following = [resident.step(torch.zeros(3, host.spec.action.dim)) for _ in range(9)]
    resident.restore(snapshot)
    again = [resident.step(torch.zeros(3, host.spec.action.dim)) for _ in range(9)]
    for one, other in zip(following, again, strict=True):
        torch.testing.assert_close(one[0]["state"], other[0]["state"])
        assert torch.equal(one[4]["next_seed"], other[4]["next_seed"])
    wrong = torch.full((3, host.spec.action.dim), torch.nan)
    with pytest.raises(EnvError, match="not finite"):
        [resident.step(wrong) for _ in range(REFILL_EVERY + 1)]
