"""The simulated arm: contract, physics, expert, and agreement with the robot's description."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hardware.description import load_description
from hardware.kinematics import forward_kinematics
from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.arms.arm6.body import HOME_RAD, JOINTS, SimulatedArm
from sim.arms.arm6.expert import ArmExpert, inverse_kinematics
from sim.arms.arm6.lanes import ArmLanes
from sim.registry import make_env, make_expert
from sim.vec.conformance import check_vec_env


def test_contract() -> None:
    check_vec_env(make_env("arm6/reach", 3, max_episode_steps=15))


def test_description_matches_the_model() -> None:
    """Names, ranges and every link: the kinematics of the description and MuJoCo's agree on 50 poses."""
    robot, body = load_description("sim_arm"), SimulatedArm()
    assert robot.names == JOINTS
    np.testing.assert_allclose(robot.column("low_rad"), body.low_rad)
    np.testing.assert_allclose(robot.column("high_rad"), body.high_rad)
    forward, rng = forward_kinematics(robot), np.random.default_rng(0)
    for _ in range(50):
        pose = rng.uniform(body.low_rad, body.high_rad)
        body.place(pose)
        np.testing.assert_allclose(forward(pose)[-1], body.tool_m(), atol=1e-9)


def test_it_holds_against_gravity() -> None:
    """Gravity is compensated: after two seconds the arm has not moved."""
    body = SimulatedArm()
    body.advance(2.0)
    np.testing.assert_allclose(body.read()[0], HOME_RAD, atol=1e-3)


def test_servos_arrive_and_hardly_swing() -> None:
    """A step of 0.1 rad: reached after 0.8 s, with an overshoot of at most a tenth."""
    body = SimulatedArm()
    goal = np.array(HOME_RAD) + 0.1
    body.command(goal)
    passed = []
    for _ in range(100):
        body.advance(0.01)
        passed.append(body.read()[0] - HOME_RAD)
    np.testing.assert_allclose(passed[80], 0.1, atol=0.01)
    assert np.max(passed) < 0.11


def test_time_is_not_lost_between_steps() -> None:
    """Seven times 3 ms with an engine of 2 ms steps: 21 ms are 10 steps, the rest is kept."""
    body = SimulatedArm()
    for _ in range(7):
        body.advance(0.003)
    assert body.data.time == pytest.approx(0.020)
    body.advance(0.001)
    assert body.data.time == pytest.approx(0.022)


def test_the_goal_is_shown_from_the_first_picture_on() -> None:
    """The ball of pictures is at the episode's goal before the first step."""
    lane = ArmLanes("reach")()
    for seed in (5, 9):
        state = lane.reset(seed)["state"]
        np.testing.assert_allclose(lane._body.data.body("goal").xpos, state[12:], atol=1e-6)


def test_the_expert_solves_it() -> None:
    """At least 95 %, and most also with noise 0.1."""
    assert solved(0.0) >= 0.95
    assert solved(0.1) >= 0.8


def solved(noise: float, lanes: int = 20) -> float:
    """Success rate of one episode per lane."""
    env, expert = make_env("arm6/reach", lanes), make_expert("arm6/reach", noise)
    seeds = EpisodeSeeds(("expert test", 0))
    first = EpisodeSeeds(("expert test", 0))
    obs, episode = env.reset(seeds), torch.tensor([next(first) for _ in range(lanes)])
    for step in range(env.spec.max_episode_steps):
        obs, _, _, _, info = env.step(expert.act(obs, episode, torch.full((lanes,), step)))
    return float(info["success"].float().mean())


def test_inverse_kinematics_put_the_tool_on_the_goal() -> None:
    body = SimulatedArm()
    body.place(np.add(HOME_RAD, [0.7, -0.3, 0.4, 0.0, 0.0, 0.0]))
    goal = body.tool_m()
    body.place(inverse_kinematics(SimulatedArm(), goal))
    np.testing.assert_allclose(body.tool_m(), goal, atol=2e-4)


def test_mistakes_are_refused() -> None:
    with pytest.raises(UnknownNameError, match="arm6/reach"):
        make_env("arm6/push", 1)
    with pytest.raises(ConfigError, match="noise is -1"):
        ArmExpert("reach", -1.0)
