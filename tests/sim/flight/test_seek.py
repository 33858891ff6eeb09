"""Fly to the ball that the instruction names: pictures, judgement, words, and an expert that succeeds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from robo_rl.eval.host_reads import HostReads
from sim.engines.quad.layout import POS, QUAT, VEL, start
from sim.flight.seek.task import (
    BALLS,
    HOLD_STEPS,
    MAX_STEPS_FROM_BALL,
    NEAR_M,
    RADIUS_M,
    STOP_M,
    STOPPED_M_S,
    TOUCH_M,
    heading_axes,
    score,
)
from sim.flight.seek.vec_env import SeekVecEnv
from sim.flight.seek.view import NOWHERE, front_camera, in_picture
from sim.flight.seek.words import COLOURS, NEW, TRAINING, WORDINGS, colour_number
from sim.registry import longest_instruction, make_env, make_expert, task_in, tasks_in
from sim.vec.conformance import check_vec_env
from sim.vec.seed_queue import REFILL_EVERY

PX = 64
WHITE_LIGHT = torch.tensor([[0.0], [0.0], [1.0]])
MAGENTA = torch.tensor([[1.0], [0.0], [1.0]])  # no part of the room has it


def craft_at(x: float, y: float, z: float, quat: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)) -> Tensor:
    state = start(1)
    state[POS, 0], state[QUAT, 0] = torch.tensor([x, y, z]), torch.tensor(quat)
    return state


def pixels_of_a_ball(state: Tensor, centre_m: tuple[float, float, float], size_px: int = PX) -> Tensor:
    """Mask (s, s) of the pixels that show a magenta ball."""
    balls = torch.tensor(centre_m).reshape(1, 3, 1)
    picture = front_camera(state, balls, MAGENTA[None], WHITE_LIGHT, RADIUS_M, size_px)[0].int()
    return (picture[..., 0] - picture[..., 1]) > 40


def test_the_environment_keeps_the_contract() -> None:
    """Every clause, by the name that the registry lists."""
    check_vec_env(make_env("drone/seek:image_size=8", 3, max_episode_steps=9), steps=20)


@pytest.mark.parametrize("far_m", [0.6, 1.0, 2.0, 3.0])
def test_a_ball_ahead_is_as_large_as_its_angle(far_m: float) -> None:
    """Its outline is at the angle asin(r / d) from the middle; pixels are tan of it."""
    size_px = 256
    seen = pixels_of_a_ball(craft_at(0.0, 0.0, 1.0), (far_m, 0.0, 1.0), size_px)
    radius_px = math.tan(math.asin(RADIUS_M / far_m)) * size_px / 2
    assert float(seen.sum()) == pytest.approx(math.pi * radius_px**2, rel=0.03)
    middle = ((size_px - 1) / 2, (size_px - 1) / 2)
    assert seen.nonzero().float().mean(0).tolist() == pytest.approx(middle, abs=0.1)


@pytest.mark.parametrize(
    ("quat", "centre_m"),
    [
        ((1.0, 0.0, 0.0, 0.0), (2.0, 0.6, 1.3)),
        ((math.cos(0.2), 0.0, 0.0, math.sin(0.2)), (2.0, 0.3, 0.8)),  # turned to the left
        ((math.cos(0.1), 0.0, math.sin(0.1), 0.0), (2.0, -0.4, 0.9)),  # nose down
        ((math.cos(0.2), math.sin(0.2), 0.0, 0.0), (2.0, 0.5, 1.2)),  # rolled to the right
    ],
)
def test_the_place_in_the_picture_is_where_the_ball_is_drawn(
    quat: tuple[float, ...], centre_m: tuple[float, float, float]
) -> None:
    """`target.front` and the picture agree at any attitude."""
    state = craft_at(0.0, 0.0, 1.0, quat)
    down, right = ((pixels_of_a_ball(state, centre_m).nonzero() + 0.5) / PX * 2.0 - 1.0).mean(0)
    x, y = in_picture(state, torch.tensor(centre_m).unsqueeze(1))
    assert (float(x), float(y)) == pytest.approx((float(right), float(down)), abs=0.02)


def test_turning_left_moves_the_ball_to_the_right_and_up_is_up() -> None:
    """Signs of both axes."""
    level = craft_at(0.0, 0.0, 1.0)
    left = craft_at(0.0, 0.0, 1.0, (math.cos(0.1), 0.0, 0.0, math.sin(0.1)))
    ahead, above = torch.tensor([[2.0], [0.0], [1.0]]), torch.tensor([[2.0], [0.0], [1.5]])
    assert float(in_picture(left, ahead)[0]) > 0.1
    assert float(in_picture(level, above)[1]) < -0.1


@pytest.mark.parametrize("centre_m", [(-2.0, 0.3, 1.0), (1.0, 1.1, 1.0), (1.0, 0.0, -0.1)])
def test_what_is_not_in_the_picture_has_no_place_in_it(centre_m: tuple[float, float, float]) -> None:
    """Behind, beside and below: one point outside, which a policy can tell from all places inside."""
    x, y = in_picture(craft_at(0.0, 0.0, 1.0), torch.tensor(centre_m).unsqueeze(1))
    assert (float(x), float(y)) == NOWHERE


def test_a_near_ball_hides_a_far_one_and_a_ball_behind_is_not_seen() -> None:
    state = craft_at(0.0, 0.0, 1.0)
    balls = torch.tensor([[3.0, 0.0, 1.0], [1.0, 0.0, 1.0]]).unsqueeze(2)
    colours = torch.stack([MAGENTA, torch.tensor([[0.0], [1.0], [0.0]])])
    for order in ([0, 1], [1, 0]):
        middle = front_camera(state, balls[order], colours[order], WHITE_LIGHT, RADIUS_M, 9)[0, 4, 4]
        assert middle[1] > middle[0]
    assert not pixels_of_a_ball(state, (-1.0, 0.0, 1.0)).any()


def test_pictures_do_not_depend_on_the_other_lanes() -> None:
    """Large batches are drawn in parts."""
    env = SeekVecEnv("seek", 5, image_size=512, compiled=False)
    whole = env.reset(EpisodeSeeds("parts"))["image.front"]
    for lane in (0, 4):
        one = SeekVecEnv("seek", 1, image_size=512, compiled=False)
        one.reset(iter([int(env.snapshot()["episode_seed"][lane])]))
        assert torch.equal(one._given()["image.front"][0], whole[lane])


@pytest.mark.parametrize(
    ("place_m", "speed_m_s", "success", "ended"),
    [
        ((2.0 - NEAR_M + 0.05, 0.0, 1.0), STOPPED_M_S - 0.05, True, True),
        ((2.0 - NEAR_M + 0.05, 0.0, 1.0), STOPPED_M_S + 0.05, False, False),  # too fast
        ((2.0 - NEAR_M - 0.05, 0.0, 1.0), 0.0, False, False),  # too far
        ((2.0 - TOUCH_M + 0.01, 0.0, 1.0), 0.0, False, True),  # touched
        ((2.0, 2.0 - NEAR_M + 0.05, 1.0), 0.0, False, True),  # stopped at another ball
        ((0.0, 0.0, 0.05), 0.0, False, True),  # on the floor
        ((-2.1, 0.0, 1.0), 0.0, False, True),  # outside
    ],
)
def test_judgement(place_m: tuple[float, float, float], speed_m_s: float, success: bool, ended: bool) -> None:
    balls = torch.tensor([[2.0, 0.0, 1.0], [2.0, 2.0, 1.0], [4.0, -2.0, 1.0]]).unsqueeze(2)
    state = craft_at(*place_m)
    state[VEL.start, 0] = speed_m_s
    stayed = HOLD_STEPS - 1 if place_m[1] < 1.0 else 1 - HOLD_STEPS  # negative: at another ball
    verdict = score(state, balls, torch.tensor([stayed]))
    assert (bool(verdict.success), bool(verdict.ended)) == (success, ended)


def test_time_at_two_balls_is_no_success() -> None:
    """The zones of two balls overlap: the count begins anew where the nearest ball changes."""
    balls = torch.tensor([[2.0, 0.0, 1.0], [2.0, 0.8, 1.0], [4.0, -2.0, 1.0]]).unsqueeze(2)
    state = craft_at(2.0 - TOUCH_M - 0.1, 0.39, 1.0)  # nearer to the told one
    for held, expected in ((1 - HOLD_STEPS, 1), (HOLD_STEPS - 1, HOLD_STEPS)):
        verdict = score(state, balls, torch.tensor([held]))
        assert int(verdict.held) == expected
        assert bool(verdict.success) == (expected == HOLD_STEPS)


def test_a_craft_has_to_stay_at_the_ball() -> None:
    """For `HOLD_STEPS`; a step in which it is too fast begins the count anew."""
    balls = torch.tensor([[2.0, 0.0, 1.0], [2.0, 2.0, 1.0], [4.0, -2.0, 1.0]]).unsqueeze(2)
    held, counts = torch.tensor([0]), list[int]()
    for step in range(2 * HOLD_STEPS):
        state = craft_at(2.0 - NEAR_M + 0.05, 0.0, 1.0)
        state[VEL.start, 0] = 1.0 if step == 5 else 0.0
        success, ended, held = score(state, balls, held)
        counts.append(int(held))
        assert bool(success) == bool(ended) == (int(held) >= HOLD_STEPS)
    assert counts[4:7] == [5, 0, 1]
    assert counts.index(HOLD_STEPS) == HOLD_STEPS + 5


def test_level_axes_follow_the_heading_alone() -> None:
    """Roll and pitch leave z up; a quarter turn to the left puts the world's y axis ahead."""
    turned = craft_at(0.0, 0.0, 1.0, (math.cos(math.pi / 4), 0.0, 0.0, math.sin(math.pi / 4)))
    assert torch.allclose(
        heading_axes(turned, torch.tensor([[0.0], [2.0], [3.0]])),
        torch.tensor([[2.0], [0.0], [3.0]]),
        atol=1e-6,
    )
    pitched = craft_at(0.0, 0.0, 1.0, (math.cos(0.2), 0.0, math.sin(0.2), 0.0))
    vector = torch.tensor([[1.0], [2.0], [3.0]])
    assert torch.allclose(heading_axes(pitched, vector), vector, atol=1e-6)


def test_longer_holds_are_an_option() -> None:
    """Episodes are as much longer, and the name of the environment says it."""
    usual, longer = SeekVecEnv("seek", 1), SeekVecEnv("seek", 1, hold_s=10.0)
    assert (usual.hold_steps, usual.spec.name) == (HOLD_STEPS, "drone/seek")
    assert (longer.hold_steps, longer.spec.name) == (200, "drone/seek:hold_s=10")
    assert longer.spec.max_episode_steps - usual.spec.max_episode_steps == 200 - HOLD_STEPS
    balls = torch.tensor([[2.0, 0.0, 1.0], [2.0, 2.0, 1.0], [4.0, -2.0, 1.0]]).unsqueeze(2)
    for hold_steps, success in ((200, False), (HOLD_STEPS, True)):
        verdict = score(craft_at(1.5, 0.0, 1.0), balls, torch.tensor([HOLD_STEPS - 1]), hold_steps)
        assert bool(verdict.success) == bool(verdict.ended) == success


@pytest.mark.parametrize("hold_s", [0.0, 0.01, -1.0, 1e9, math.nan, "long", True])
def test_impossible_holds_are_refused(hold_s: Any) -> None:
    with pytest.raises(ConfigError, match=r"hold_s is .*; expected 0\.05 to 600 seconds"):
        SeekVecEnv("seek", 1, hold_s=hold_s)


def test_a_hold_that_no_episode_has_time_for_is_refused() -> None:
    """Every episode would count as a failure, and the advice would be to train more."""
    with pytest.raises(ConfigError, match="hold_s=10 takes 200 steps and an episode has 150"):
        SeekVecEnv("seek", 1, hold_s=10.0, max_episode_steps=150)


def test_the_expert_comes_back_to_one_place() -> None:
    """Half a metre before the ball along the heading, from wherever a craft has drifted to."""
    env = SeekVecEnv("seek", 8, compiled=False, hold_s=600.0)
    expert = make_expert("drone/seek", noise=0.0, env=env)
    obs = env.reset(EpisodeSeeds("drift"))
    ball_m, turn = env._balls[0], torch.linspace(-1.0, 1.0, 8)  # around the ball
    env._state[POS] = ball_m - 0.6 * torch.stack([turn.cos(), turn.sin(), torch.zeros(8)])
    env._state[VEL] = 0.0
    obs = env._given()
    for step in range(100):
        obs = env.step(expert.act(obs, torch.arange(8), torch.full((8,), step)))[0]
    assert torch.allclose(obs["privileged.state"], torch.tensor([0.5, 0.0, 0.0]), atol=0.05)


@pytest.mark.long
def test_the_expert_succeeds_and_the_words_name_its_ball() -> None:
    """Where the told ball is, its picture has the told colour."""
    num = 24
    env = make_env("drone/seek", num)
    expert = make_expert("drone/seek", noise=0.15, env=env)
    obs = env.reset(EpisodeSeeds("expert"))
    words = [to_text(each.numpy()) for each in obs[INSTRUCTION]]
    told = [next(colour for colour in COLOURS if colour in text) for text in words]
    seen = [obs["image.front"][lane, at[1], at[0]] for lane, at in enumerate(places(obs))]
    for colour, pixel in zip(told, seen, strict=True):
        likeness = [
            torch.cosine_similarity(pixel.float(), torch.tensor(rgb), dim=0) for rgb in COLOURS.values()
        ]
        assert list(COLOURS)[int(torch.stack(likeness).argmax())] == colour
    seed, step = torch.arange(num), torch.zeros(num, dtype=torch.long)
    running, success = torch.ones(num, dtype=torch.bool), torch.zeros(num, dtype=torch.bool)
    while running.any():
        obs, reward, _, _, info = env.step(expert.act(obs, seed, step))
        first = running & info["final_mask"]
        assert torch.equal(reward[first], info["success"][first].float())
        for lane in first.nonzero()[:, 0].tolist():
            number = task_in("drone/seek", int(info["episode_seed"][lane]))
            assert number == int(info["task"][lane]) == list(COLOURS).index(told[lane])
        success |= first & info["success"]
        running &= ~first
        step += 1
    assert success.all()


def test_the_expert_flies_from_one_ball_to_another() -> None:
    """Backwards until it sees the told one. Nearly all start where another ball is and the told one is not
    seen, and they have more time.
    """
    num = 64
    env = make_env("drone/seek:from_ball=1", num, image_size=8)
    expert = make_expert("drone/seek", noise=0.0, env=env)
    obs = env.reset(EpisodeSeeds("from-ball"))
    assert env.spec.max_episode_steps == MAX_STEPS_FROM_BALL
    snapshot = env.snapshot()
    to_other_m = snapshot["balls"][1] - snapshot["state"][POS]
    assert torch.allclose(to_other_m.mean(1), torch.tensor([STOP_M, 0.0, 0.0]), atol=0.05)
    assert (to_other_m.norm(dim=0) < NEAR_M).all()
    unseen = obs["target.front"][:, 1] == NOWHERE[1]
    assert unseen.float().mean() > 0.7
    first = expert.act(obs, torch.arange(num), torch.zeros(num, dtype=torch.long))
    assert torch.allclose(first[unseen], torch.tensor([-0.8, 0.0, 0.0, 0.0]), atol=1e-6)
    running, success = torch.ones(num, dtype=torch.bool), torch.zeros(num, dtype=torch.bool)
    while running.any():
        obs, _, _, _, info = env.step(expert.act(obs, torch.arange(num), torch.zeros(num, dtype=torch.long)))
        success |= running & info["final_mask"] & info["success"]
        running &= ~info["final_mask"]
    assert success.float().mean() > 0.95


def test_a_share_of_the_episodes_starts_at_another_ball() -> None:
    """The others are those of the usual environment, number for number."""
    usual, mixed = (SeekVecEnv("seek", 400, image_size=8, compiled=False, from_ball=p) for p in (0.0, 0.4))
    first, second = (env.reset(EpisodeSeeds("share")) for env in (usual, mixed))
    same = (first["privileged.state"] == second["privileged.state"]).all(1)
    assert 0.5 < float(same.float().mean()) < 0.7
    assert torch.equal(first["image.front"][same], second["image.front"][same])
    assert mixed.spec.name == "drone/seek:from_ball=0.4,image_size=8"


@pytest.mark.parametrize("from_ball", [-0.1, 1.5, math.nan, "all", True])
def test_impossible_shares_are_refused(from_ball: Any) -> None:
    with pytest.raises(ConfigError, match=r"from_ball is .*; expected a share of the episodes, 0 to 1"):
        SeekVecEnv("seek", 1, from_ball=from_ball)


def test_every_colour_is_told_about_as_often() -> None:
    counts = torch.bincount(colour_number(torch.arange(4000)), minlength=len(COLOURS))
    assert ((counts - 1000).abs() < 120).all()  # four standard deviations


def places(obs: dict[str, Tensor]) -> list[list[int]]:
    """Column and row of the told ball's middle in each picture."""
    return ((obs["target.front"] + 1.0) / 2.0 * PX).long().clamp(0, PX - 1).tolist()


def test_new_wordings_are_in_no_demonstration() -> None:
    assert not {text.format("red") for text in NEW} & {text.format("red") for text in TRAINING}
    env = make_env("drone/seek", 32, wordings="new")
    obs = env.reset(EpisodeSeeds("words"))
    told = {to_text(each.numpy()) for each in obs[INSTRUCTION]}
    assert told <= {text.format(colour) for text in NEW for colour in COLOURS}
    assert env.spec.name == "drone/seek:wordings=new"
    assert tasks_in("drone/seek:wordings=new") == tuple(COLOURS)
    assert tasks_in("drone/none") == ()  # so that it is refused as unknown, not for its number of tasks
    longest = max(len(text) for each in WORDINGS.values() for text in each)
    assert longest_instruction("drone/seek") == longest


def test_episodes_that_restart_by_mask_are_the_same() -> None:
    """On a run's device no step reads the device, and seeds, pictures and results are those of the host."""
    host, resident = (make_env("drone/seek:image_size=8", 3, max_episode_steps=7) for _ in range(2))
    assert isinstance(resident, SeekVecEnv)
    assert resident.keep_on_device()
    first, second = (env.reset(EpisodeSeeds("mask")) for env in (host, resident))
    assert all(torch.equal(first[key], second[key]) for key in first)
    for step in range(REFILL_EVERY + 3):
        action = torch.full((3, 4), 0.5) * (-1.0) ** step
        expected = host.step(action)
        if 0 < step < 10:  # watching takes time; episodes end at step 7
            with HostReads().watching() as found:
                got = resident.step(action)
            assert not found.reads, found.reads
            assert not found.strays, found.strays
        else:
            got = resident.step(action)
        assert all(torch.equal(got[0][key], expected[0][key]) for key in first)
        assert torch.equal(got[4]["next_seed"], expected[4]["next_seed"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"reward": "dense"}, "pay for success only"),
        ({"image_size": 4}, "image_size is 4; expected 8 to 1024"),
        ({"max_episode_steps": 0}, "max_episode_steps is 0"),
        ({"wordings": "old"}, "Unknown set of wordings 'old'"),
    ],
)
def test_options_that_cannot_be_are_named(options: dict[str, Any], says: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        make_env("drone/seek", 1, **options)


def test_three_balls_of_four_colours_are_apart() -> None:
    """No two balls have one colour or overlap, and the told one is in the picture at the start."""
    env = SeekVecEnv("seek", 200, image_size=8, compiled=False)
    obs = env.reset(EpisodeSeeds("layout"))
    snapshot = env.snapshot()
    balls, colours = snapshot["balls"], snapshot["colours"]
    for one in range(BALLS):
        for other in range(one):
            assert ((balls[one] - balls[other]).norm(dim=0) > 2.0 * RADIUS_M).all()
            assert ((colours[one] - colours[other]).abs().sum(0) > 0.1).all()
    assert (obs["target.front"].abs() < 1.0).all()
