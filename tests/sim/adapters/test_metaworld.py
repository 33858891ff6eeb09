from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.adapters.metaworld import MetaWorldLane, MetaWorldLanes, quaternion_of
from sim.adapters.metaworld_expert import MetaWorldExpert
from sim.adapters.metaworld_success import SCREENS
from sim.adapters.metaworld_tasks import TASKS
from sim.registry import make_env
from tests.sim.adapters.metaworld_package import package_env, package_reset

# Few, but of every kind: free object, live views in the package, two objects, scene objects that are moved,
# contacts.
SOME_TASKS = (
    "peg-insert-side-v3",
    "basketball-v3",
    "stick-push-v3",
    "drawer-close-v3",
    "bin-picking-v3",
    "hammer-v3",
)


def make_lane(task: str, reward: str) -> MetaWorldLane:
    return MetaWorldLanes(task, reward=reward, max_episode_steps=500, terminate_on_success=False)()


def spoil(lane: MetaWorldLane) -> None:
    """Leave state of other episodes in the simulator."""
    rng = np.random.default_rng(0)
    for seed in (1, 2):
        lane.reset(seed)
        for _ in range(5):
            lane.step(rng.uniform(-1, 1, 4).astype(np.float32))


def compare_with_package(task: str, steps: int) -> None:
    """Our lanes, after other episodes, and the package's new environment."""
    sparse, dense = make_lane(task, "sparse"), make_lane(task, "dense")
    spoil(sparse)
    spoil(dense)
    env, obs = package_reset(task, seed=11)
    np.testing.assert_array_equal(sparse.reset(11)["state"], obs)
    np.testing.assert_array_equal(dense.reset(11)["state"], obs)
    expert = MetaWorldExpert(task, noise=0.1)
    for step in range(steps):
        state = {"state": torch.from_numpy(obs[None].astype(np.float32))}
        action = expert.act(state, torch.tensor([11]), torch.tensor([step])).numpy()[0]
        obs, reward, _, _, info = env.step(action)
        for lane, expected in ((sparse, info["success"]), (dense, reward / 10.0)):
            found, lane_reward, terminated, _, success = lane.step(action)
            np.testing.assert_array_equal(found["state"], obs)
            assert (lane_reward, terminated, success) == (expected, False, bool(info["success"]))


@pytest.mark.parametrize("task", SOME_TASKS)
def test_results_are_bit_identical_to_the_package(task: str) -> None:
    """The fast step omits work without effect on observation, dense reward and success."""
    compare_with_package(task, steps=25)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_all_tasks_are_bit_identical_until_solved(task: str) -> None:
    """All 50, long enough for the expert to reach the goal; a weaker expert needs more seeds."""
    compare_with_package(task, steps=250)


@pytest.mark.parametrize("task", SOME_TASKS)
def test_success_screening_passes_every_success(task: str) -> None:
    """Targets around the object: wherever the package reports success, the screening must not exclude it."""
    check_screen(task, tries=60)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_success_screening_of_all_tasks(task: str) -> None:
    """The stick must be in the gripper or the mug, which no target achieves: see the test above."""
    assert check_screen(task, tries=400) > 0 or task in ("stick-pull-v3", "stick-push-v3")


def check_screen(task: str, tries: int) -> int:
    """Number of states that the package counts as solved; the screening must pass all of them."""
    env, obs = package_reset(task, seed=5)
    successes = 0
    rng, action = np.random.default_rng(1), np.zeros(4, np.float32)
    anchors = [
        obs[4:7],
        obs[11:14],
        env.tcp_center.copy(),
        env.data.site_xpos[rng.integers(env.model.nsite)].copy(),
    ]
    if task in ("peg-insert-side-v3", "assembly-v3"):
        anchors.append(env.data.site("pegHead" if "peg-insert" in task else "RoundNut").xpos.copy())
    for i in range(tries):
        obs[6] = rng.uniform(0.28, 0.32) if task == "basketball-v3" else obs[6]  # its hoop hangs at 0.3 m
        env._target_pos = anchors[i % len(anchors)] + rng.uniform(-1, 1, 3) * rng.uniform(0.0, 0.15)
        if "NailSlideJoint" in joint_names(env):
            env.data.joint("NailSlideJoint").qpos[0] = rng.uniform(0.08, 0.1)
        if "LeverAxis" in joint_names(env):
            env.data.joint("LeverAxis").qpos[0] = -rng.uniform(1.3, 1.8)
        try:
            solved = env.evaluate_state(obs, action)[1]["success"]
        except ValueError:  # the package's reward cannot work with a target so near to where things started
            continue
        assert SCREENS[task](env, obs) or not solved
        successes += bool(solved)
    return successes


def joint_names(env: object) -> list[str]:
    model = env.model  # type: ignore[attr-defined]
    return [model.joint(i).name for i in range(model.njnt)]


@pytest.mark.parametrize("task", SOME_TASKS)
def test_an_episode_depends_on_its_seed_and_actions_only(task: str) -> None:
    """State of earlier episodes must not leak: resume and paired evaluation depend on it."""
    rng = np.random.default_rng(3)
    actions = rng.uniform(-1, 1, (15, 4)).astype(np.float32)
    runs = []
    for spoiled in (False, True):
        lane = make_lane(task, "dense")
        if spoiled:
            spoil(lane)
        first = lane.reset(7)["state"].copy()
        runs.append(
            [first, *[np.append(result[0]["state"], result[1]) for result in map(lane.step, actions)]]
        )
    for a, b in zip(*runs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_seeds_differ() -> None:
    """A reset that ignored its seed would pass every purity test."""
    lane = MetaWorldLanes("peg-insert-side-v3")()
    assert not np.array_equal(lane.reset(1)["state"], lane.reset(2)["state"])


def test_quaternions_are_scipys() -> None:
    """SciPy's general code is 100 times slower; ours must give equal bits, in all four branches and at half
    turns.
    """
    from scipy.spatial.transform import Rotation

    half_turns = [
        np.diag(signs).astype(float) for signs in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
    ]
    for matrix in [*Rotation.random(500, rng=0).as_matrix(), *half_turns]:
        np.testing.assert_array_equal(quaternion_of(matrix), Rotation.from_matrix(matrix).as_quat())


def test_sparse_reward_ends_the_episode() -> None:
    """Reward 1 in the step that solves the task, which terminates: no bootstrap, so values are in [0, 1]."""
    env = make_env("metaworld/reach-v3", 1)
    expert = MetaWorldExpert("reach-v3")
    obs, rewards = env.reset(EpisodeSeeds("sparse")), []
    for step in range(env.spec.max_episode_steps):
        obs, reward, terminated, _, info = env.step(
            expert.act(obs, torch.zeros(1).long(), torch.tensor([step]))
        )
        rewards.append(reward.item())
        if terminated:
            break
    assert rewards == [0.0] * (len(rewards) - 1) + [1.0]
    assert info["success"].item()


def test_the_goal_is_visible() -> None:
    """The package hides the goal by default (zeros), so a policy could only guess."""
    obs = MetaWorldLanes("peg-insert-side-v3")().reset(0)["state"]
    assert np.abs(obs[36:39]).max() > 0.1


def test_task_list_equals_the_package() -> None:
    """The names are a list, so listing them imports no simulator."""
    from metaworld.env_dict import ALL_V3_ENVIRONMENTS

    assert set(TASKS) == set(ALL_V3_ENVIRONMENTS) == set(SCREENS)


def test_impossible_options_are_refused() -> None:
    """The package raises after 500 steps, within an episode."""
    with pytest.raises(ConfigError, match="at most 500"):
        MetaWorldLanes("reach-v3", max_episode_steps=501)
    with pytest.raises(UnknownNameError, match="Did you mean 'sparse'"):
        MetaWorldLanes("reach-v3", reward="spars")
    with pytest.raises(UnknownNameError, match="Did you mean 'reach-v3'"):
        MetaWorldLanes("reech-v3")


def test_reference_is_the_plain_package_environment() -> None:
    """The oracle must be the package's plain environment, not our adapter."""
    assert type(package_env("reach-v3")).step.__module__.startswith("metaworld")


def test_closed_lane_frees_its_simulator() -> None:
    """20 MB each: they must be freed without waiting for garbage collection."""
    lane = make_lane("reach-v3", "sparse")
    simulator = weakref.ref(lane._env)
    gc.disable()
    try:
        lane.close()
        del lane
        assert simulator() is None
    finally:
        gc.enable()
