"""Gymnasium-Robotics, robosuite and EnvPool under the contract: their values, our endings, one seed per
episode.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, MissingDependencyError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds, derive_seed
from sim import registry
from sim.adapters.flat import flat, named
from sim.registry import list_envs, make_env
from sim.vec.conformance import check_vec_env
from sim.vec.options import score

ROBOTICS = (
    "FetchPush-v4",
    "HandManipulateBlock-v1",
    "AdroitHandDoor-v1",
    "FrankaKitchen-v1",
    "PointMaze_UMaze-v3",
)


@pytest.mark.parametrize("task", ROBOTICS)
def test_gymnasium_robotics_keeps_the_contract(task: str) -> None:
    pytest.importorskip("gymnasium_robotics", reason="needs the extra [gymrobotics]")
    check_vec_env(make_env(f"gymrobotics/{task}", 2, max_episode_steps=6), steps=14)


@pytest.mark.parametrize("task", ["Lift", "Door"])
def test_robosuite_keeps_the_contract(task: str) -> None:
    pytest.importorskip("robosuite", reason="needs the extra [robosuite]")
    check_vec_env(make_env(f"robosuite/{task}", 2, max_episode_steps=4), steps=9)


@pytest.mark.parametrize("task", ["FetchPush-v4", "MetaWorld/PickPlace-v3"])
def test_envpool_keeps_the_contract(task: str) -> None:
    pytest.importorskip("envpool", reason="needs the extra [envpool]")
    check_vec_env(make_env(f"envpool/{task}", 2, max_episode_steps=6), steps=14)


def test_numbers_are_gymnasium_robotics_own() -> None:
    """Same seed and actions as a plain gymnasium.make: same observations and rewards."""
    pytest.importorskip("gymnasium_robotics", reason="needs the extra [gymrobotics]")
    env = make_env("gymrobotics/FetchPush-v4", 1, reward="dense")  # registers the package's environments
    obs = env.reset(EpisodeSeeds("plain"))
    import gymnasium

    plain = gymnasium.make("FetchPush-v4")
    expected, _ = plain.reset(seed=derive_seed("plain", 0))
    rng = np.random.default_rng(0)
    for _ in range(10):
        whole = np.concatenate([expected[key] for key in ("achieved_goal", "desired_goal", "observation")])
        torch.testing.assert_close(obs["state"][0].numpy(), whole.astype(np.float32), rtol=0, atol=0)
        action = rng.uniform(-1, 1, 4).astype(np.float32)
        expected, reward, *_ = plain.step(action)
        obs, our_reward, _, _, _ = env.step(torch.from_numpy(action)[None])
        assert our_reward.item() == np.float32(reward)
    plain.close()
    assert env.spec.control_hz == 25.0
    assert env.spec.obs["state"].unit == "achieved_goal 3, desired_goal 3, observation 25"


def reached(name: str) -> Any:
    """The last step of an episode in which the gripper goes straight to the goal: (reward, terminated,
    info).
    """
    env = make_env(name, 1)
    state = env.reset(EpisodeSeeds("reached"))["state"]
    for _ in range(50):
        move = torch.cat([10.0 * (state[:, 3:6] - state[:, :3]), torch.zeros(1, 1)], 1)
        obs, reward, terminated, truncated, info = env.step(move.clamp(-1.0, 1.0))
        state = obs["state"]
        if bool(info["final_mask"].any()):
            break
    return reward, terminated, truncated, info


def test_success_ends_an_episode_and_pays_once() -> None:
    """FetchReach, which itself never terminates, ends when its `is_success` is true."""
    pytest.importorskip("gymnasium_robotics", reason="needs the extra [gymrobotics]")
    reward, terminated, truncated, info = reached("gymrobotics/FetchReach-v4")
    assert (reward.item(), terminated.item(), truncated.item()) == (1.0, True, False)
    assert info["success"].item()


def test_envpools_success_ends_an_episode() -> None:
    """The same for EnvPool's port."""
    pytest.importorskip("envpool", reason="needs the extra [envpool]")
    reward, terminated, _, info = reached("envpool/FetchReach-v4")
    assert (reward.item(), terminated.item(), info["success"].item()) == (1.0, True, True)


def test_robosuite_restores_the_numpy_generator() -> None:
    """Its draws depend on the episode's seed only, and no other random state changes; a lifted cube is a
    success.
    """
    pytest.importorskip("robosuite", reason="needs the extra [robosuite]")
    from sim.adapters.robosuite import RobosuiteLanes

    np.random.seed(3)  # noqa: NPY002
    expected = np.random.rand()  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    lane = RobosuiteLanes("Lift")()
    first = lane.reset(11)["state"].copy()
    assert np.random.rand() == expected  # noqa: NPY002
    np.testing.assert_array_equal(lane.reset(11)["state"], first)
    assert not np.array_equal(lane.reset(12)["state"], first)
    zero = np.zeros(7, np.float32)
    assert lane.step(zero)[4] is False
    sim = lane._env.sim
    pose = np.array(sim.data.get_joint_qpos("cube_joint0"))
    sim.data.set_joint_qpos("cube_joint0", pose + np.array([0, 0, 0.3, 0, 0, 0, 0]))
    _, reward, terminated, _, success = lane.step(zero)
    assert (reward, terminated, success) == (1.0, True, True)
    lane.close()


@pytest.mark.parametrize(("suite", "package"), [("robosuite", "robosuite"), ("envpool", "envpool")])
def test_missing_packages_are_reported(monkeypatch: pytest.MonkeyPatch, suite: str, package: str) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == package else object())
    name = next(name for name in list_envs() if name.startswith(f"{suite}/"))
    with pytest.raises(MissingDependencyError, match=rf"pip install 'robo-rl\[{suite}\]'"):
        make_env(name, 1)


def test_mistakes_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="robosuite/Lift"):
        make_env("robosuite/Lft", 1)
    pytest.importorskip("gymnasium_robotics", reason="needs the extra [gymrobotics]")
    with pytest.raises(UnknownNameError, match="FetchPush-v4"):
        make_env("gymrobotics/FetchPsh-v4", 1)
    with pytest.raises(UnknownNameError, match="sparse"):
        make_env("gymrobotics/FetchPush-v4", 1, reward="spars")


def test_envpool_mistakes_are_refused() -> None:
    pytest.importorskip("envpool", reason="needs the extra [envpool]")
    with pytest.raises(UnknownNameError, match="FetchPush-v4"):
        make_env("envpool/FetchPsh-v4", 1)
    with pytest.raises(ConfigError, match="reward=dense"):
        make_env("envpool/HalfCheetah-v5", 1)
    with pytest.raises(ConfigError, match="control rate"):
        make_env("envpool/Acrobot-v1", 1, reward="dense")


def test_scores_and_layouts() -> None:
    """Sparse: 1 at success, which terminates by default. Dense: the package's reward and endings."""
    assert score("sparse", None, -1.0, False, True) == (1.0, True)
    assert score("sparse", False, -1.0, False, True) == (1.0, False)
    assert score("dense", None, 3.5, False, True) == (3.5, False)
    assert score("dense", True, 3.5, False, True) == (3.5, True)
    assert score("sparse", None, 3.5, True, False) == (0.0, True)
    obs = {"b": np.array([2.0]), "a": {"y": np.array([1.0]), "x": np.array([0.0])}}
    assert flat(obs).tolist() == [0.0, 1.0, 2.0]
    assert named(obs) == "a 2, b 1"
