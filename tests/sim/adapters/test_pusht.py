from __future__ import annotations

import numpy as np
import pytest
import torch

from robo_rl.core.errors import UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.adapters.pusht import PushTLanes
from sim.registry import make_env

GOAL = (256.0, 256.0, np.pi / 4)


def place(lane: object, block: tuple[float, float, float]) -> None:
    """Place the block with the package's own reset option."""
    lane._env.reset(options={"reset_to_state": [40.0, 40.0, *block]})  # type: ignore[attr-defined]
    lane._env.block.angle = block[2]  # type: ignore[attr-defined]
    lane._env.block.position = block[:2]  # type: ignore[attr-defined]


def test_results_are_bit_identical_to_the_package() -> None:
    """Our step uses plain floats; positions, coverage and reward must equal the package's."""
    from gym_pusht.envs.pusht import PushTEnv

    lane, env = PushTLanes("state")(), PushTEnv("state")
    lane.reset(1)
    rng = np.random.default_rng(0)
    for seed in (4, 5):
        expected, _ = env.reset(seed=seed)
        np.testing.assert_array_equal(lane.reset(seed)["state"], expected)
        for _ in range(80):  # towards the block, so that it is pushed around
            action = np.clip(expected[2:4] + rng.normal(0, 60, 2), 0, 512).astype(np.float32)
            expected, reward, *_, info = env.step(action)
            obs, our_reward, *_ = lane.step(action)
            np.testing.assert_array_equal(obs["state"], expected)
            assert (our_reward, lane.info()[0]) == (reward, info["coverage"])


def test_a_block_on_the_goal_solves_the_task() -> None:
    """Coverage 1 gives dense reward 1 (clipped from 1 / 0.95), success and termination."""
    lane = PushTLanes("state")()
    lane.reset(0)
    place(lane, GOAL)
    _, reward, terminated, truncated, success = lane.step(np.array([40.0, 40.0], np.float32))
    assert (reward, terminated, truncated, success) == (1.0, True, False, True)
    assert lane.info()[0] == pytest.approx(1.0, abs=1e-3)


def test_dense_reward_is_coverage_over_the_threshold() -> None:
    """A block 30 px from the goal covers part of it: reward = coverage / 0.95; the sparse one is 0."""
    for reward_kind in ("dense", "sparse"):
        lane = PushTLanes("state", reward=reward_kind)()
        lane.reset(0)
        place(lane, (GOAL[0] + 30.0, GOAL[1], GOAL[2]))
        _, reward, terminated, _, success = lane.step(np.array([40.0, 40.0], np.float32))
        coverage, best = lane.info()
        assert 0.2 < coverage == best < 0.95
        assert not terminated
        assert not success
        assert reward == (pytest.approx(coverage / 0.95) if reward_kind == "dense" else 0.0)


def test_max_coverage_belongs_to_the_episode() -> None:
    """The score is the best coverage of an episode, which must not carry over to the next."""
    lane = PushTLanes("state")()
    lane.reset(0)
    place(lane, (GOAL[0] + 30.0, GOAL[1], GOAL[2]))
    lane.step(np.array([40.0, 40.0], np.float32))
    place(lane, (120.0, 120.0, 0.0))
    lane.step(np.array([40.0, 40.0], np.float32))
    coverage, best = lane.info()
    assert coverage == 0.0 < best
    lane.reset(1)
    lane.step(np.array([40.0, 40.0], np.float32))
    assert lane.info()[1] == lane.info()[0]


def test_coverage_is_per_lane_info() -> None:
    """Evaluation reads info["max_coverage"] (n,) on ended rows."""
    env = make_env("pusht/state", 3, max_episode_steps=2)
    env.reset(EpisodeSeeds("coverage"))
    for _ in range(2):
        *_, info = env.step(torch.full((3, 2), 256.0))
    assert info["final_mask"].all()
    assert info["coverage"].shape == info["max_coverage"].shape == (3,)


def test_observations_are_the_datasets() -> None:
    """The human data holds agent x, y, block x, y in px and an angle in [0, 2 pi), at 10 Hz, images of 96 x
    96.
    """
    state = PushTLanes("state")().reset(3)["state"]
    keypoints = PushTLanes("keypoints")().reset(3)["state"]
    pixels = PushTLanes("pixels")().reset(3)
    assert state.shape == (5,)
    assert (state >= 0).all()
    assert (state[:4] <= 512).all()
    assert state[4] < 2 * np.pi
    np.testing.assert_array_equal(keypoints[:2], state[:2])
    assert keypoints.shape == (18,)
    assert pixels["image.front"].shape == (96, 96, 3)
    np.testing.assert_array_equal(pixels["state"], state[:2])
    assert PushTLanes("state").spec.control_hz == 10.0


def test_unknown_observations_are_named() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'pixels'"):
        PushTLanes("pixel")
