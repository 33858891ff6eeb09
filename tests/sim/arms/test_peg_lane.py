"""The recording cell as the environment arm6/peg."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
import mujoco

from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.seeding import EpisodeSeeds
from sim.arms.arm6.body import JOINTS
from sim.arms.arm6.camera import ArmCamera
from sim.arms.arm6.peg import PegTask
from sim.arms.arm6.peg_cell import CAMERAS, HEIGHT_M, START_RAD, PegCell
from sim.arms.arm6.peg_lane import PegLanes
from sim.registry import make_env, make_expert
from sim.vec.conformance import check_vec_env

BLIND = PegLanes(cameras="none")


def test_contract() -> None:
    with closing(make_env("arm6/peg:cameras=none", 3, max_episode_steps=15)) as env:
        check_vec_env(env)


def test_contract_with_pictures() -> None:
    """Lanes share a renderer; each sees its own block."""
    with closing(make_env("arm6/peg:image_size=32", 2, max_episode_steps=6)) as env:
        check_vec_env(env, steps=16)


def test_pictures_are_those_of_the_recording_app() -> None:
    """To the last bit: a policy that was trained on recordings sees the same here."""
    lane = PegLanes()()
    obs, cell = lane.reset(3), PegCell()
    cell.body.data.mocap_pos[:] = lane._body.data.mocap_pos
    mujoco.mj_kinematics(cell.body.model, cell.body.data)
    for name in CAMERAS:
        picture = ArmCamera(cell.body, name, 128).rgb()
        np.testing.assert_array_equal(picture, obs[f"image.{name}"])
        assert picture.std() > 10.0
    lane.close()


@pytest.mark.parametrize("lanes", [PegLanes(), PegLanes(cameras="wrist", image_size=64, control_hz=10.0)])
def test_the_name_makes_the_same_contract_again(lanes: PegLanes) -> None:
    """A dataset and a policy keep the name."""
    with closing(make_env(lanes.spec.name, 1)) as env:
        assert env.spec == lanes.spec


def test_the_expert_inserts_the_peg() -> None:
    """In each of 12 episodes, in 5 s; also with noise."""
    for noise, least in ((0.0, 12), (0.5, 11)):
        with closing(make_env("arm6/peg:cameras=none", 12, max_episode_steps=100)) as env:
            expert, seeds = make_expert("arm6/peg", noise), EpisodeSeeds(("test",))
            obs, first = env.reset(seeds), torch.zeros(12, dtype=torch.bool)
            running, step = torch.ones(12, dtype=torch.bool), torch.zeros(12, dtype=torch.int64)
            for t in range(100):
                action = expert.act(obs, torch.arange(12), step + t)
                obs, reward, terminated, truncated, info = env.step(action)
                first |= running & info["success"]
                assert torch.equal(info["success"] & running, terminated & running)  # success ends it
                assert torch.equal(reward[running] > 0.0, terminated[running])
                running &= ~(terminated | truncated)
        assert int(first.sum()) >= least, noise


def test_success_is_a_tip_deep_in_the_hole() -> None:
    """Not over it, not beside the block, and not just inside."""
    task, block_m = PegTask(), np.array([0.4, 0.1])
    for tip_m, success in (
        ((0.4, 0.1, HEIGHT_M - 0.051), True),
        ((0.4, 0.1, HEIGHT_M - 0.049), False),
        ((0.4, 0.1, HEIGHT_M + 0.02), False),
        ((0.5, 0.1, 0.01), False),
    ):
        assert task.success(np.array(tip_m), block_m) is success
        assert task.reward(np.array(tip_m), block_m, dense=False) == float(success)
    # 3 cm and 4 cm aside, 2 cm above the depth of success
    tip_m = np.array([0.43, 0.14, HEIGHT_M - 0.03])
    assert task.reward(tip_m, block_m, dense=True) == pytest.approx(-0.05 - 0.02)


def test_a_far_target_is_approached_at_the_speed_of_the_joints() -> None:
    """As behind the safety filter: 2 rad/s, so 0.1 rad of command in a step of 50 ms, however far it is."""
    lane = BLIND()
    lane.reset(0)
    lane.step(turned(2.0))
    lane.step(turned(2.0))
    assert lane._delayed.newest_rad[0] == pytest.approx(0.2)
    lane.step(turned(0.15))
    assert lane._delayed.newest_rad[0] == pytest.approx(0.15)


def turned(base_rad: float) -> NDArray[np.float32]:
    """Action with the base at this angle."""
    return np.array([base_rad, *START_RAD[1:]], np.float32)


@pytest.mark.parametrize(("delay_s", "steps"), [(0.05, 1), (0.1, 2)])
def test_commands_arrive_after_the_latency(delay_s: float, steps: int) -> None:
    """With a latency of whole steps the arm moves as without one, so many steps later."""
    now, late = BLIND(), BLIND()
    now.reset(0)
    now._delayed.reset(0.0)
    late.reset(0)
    late._delayed.reset(delay_s)
    angles_rad = (0.1, 0.2, 0.1, -0.1, 0.0)
    moved = [now.step(turned(angle_rad))[0]["state"] for angle_rad in angles_rad]
    delayed = [late.step(turned(angle_rad))[0]["state"] for angle_rad in angles_rad]
    np.testing.assert_allclose(delayed[:steps], np.tile(START_RAD, (steps, 1)), atol=1e-6)
    np.testing.assert_allclose(delayed[steps:], moved[:-steps], atol=1e-5)


def test_a_part_of_a_period_delays_as_well() -> None:
    """Further on its way without a delay than with one of 7 ms, and with that than with one of 15 ms."""
    ways_rad = list[float]()
    for delay_s in (0.0, 0.007, 0.015):
        lane = BLIND()
        lane.reset(0)
        lane._delayed.reset(delay_s)
        ways_rad.append(float(lane.step(turned(0.1))[0]["state"][0]))
    assert ways_rad[0] > ways_rad[1] > ways_rad[2] > 0.0


def test_each_episode_has_its_own_latency() -> None:
    """Uniform, a function of the seed, at most the option's; 0 switches it off."""
    lane, without = PegLanes(cameras="none", latency_ms=60.0)(), PegLanes(cameras="none", latency_ms=0.0)()

    def latency_s(seed: int) -> float:
        lane.reset(seed)
        return (len(lane._delayed._on_the_way) - 1) * lane._command_s + lane._delayed._part_s

    drawn = np.array([latency_s(seed) for seed in range(200)])
    assert 0.0 <= drawn.min() < 0.003
    assert 0.057 < drawn.max() <= 0.06
    assert latency_s(7) == drawn[7]
    without.reset(7)
    assert (len(without._delayed._on_the_way), without._delayed._part_s) == (1, 0.0)


def test_blocks_cover_the_field_and_joints_are_the_arms() -> None:
    """Unlike the app's, places are independent: a seed has its own."""
    lane = BLIND()
    places = np.array([lane.reset(seed)["privileged.block"] for seed in range(200)])
    assert np.abs(places - [0.42, 0.0]).max() <= 0.05
    assert (places.std(0) > 0.025).all()  # uniform: 0.029
    state = lane.reset(0)["state"]
    np.testing.assert_allclose(state, START_RAD, atol=1e-6)
    assert lane.spec.obs["state"].unit == "rad: " + ", ".join(JOINTS)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("cameras=frontt", "Did you mean 'front'"),
        ("image_size=4", "8 to 1024"),
        ("velocities=2", "true or false"),
        ("control_hz=0", "1 to 100"),
        ("latency_ms=-1", "0 to 1000"),
        ("engine=mjwarp", "Unknown option of arm6 environments"),
    ],
)
def test_wrong_options_are_refused(options: str, says: str) -> None:
    with pytest.raises(RoboRLError, match=says):
        make_env(f"arm6/peg:{options}", 1)


def test_a_wrong_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="noise is -1"):
        make_expert("arm6/peg", -1.0)
