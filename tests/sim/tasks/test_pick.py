"""An arm with a hand of four fingers that lifts the named object: model, commands, words, and the expert."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.text.instruction import to_text
from sim.asset_files import ASSETS
from sim.hands.drive import LEASH_RAD
from sim.registry import longest_instruction, make_env, same_task, task_in, tasks_in
from sim.render.projection import in_camera
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.vec.conformance import check_vec_env
from tests.sim.tasks.expert_run import run_expert

PICTURES = "arm_hand/pick:cameras=view+front,image_size=16,state=robot"


@pytest.mark.parametrize(
    "name",
    [
        "arm_hand/pick",
        "arm_hand/pick:control=joint_velocity,randomise=wide",
        "arm_hand/pick:control=joint_position,wordings=new",
        PICTURES,
    ],
)
def test_it_keeps_the_contract(name: str) -> None:
    check_vec_env(make_env(name, 3, max_episode_steps=9, reward="dense"), steps=20)


@pytest.mark.pybullet
def test_it_keeps_the_contract_in_pybullet() -> None:
    check_vec_env(make_env("arm_hand/pick:engine=pybullet", 3, max_episode_steps=9), steps=20)


@pytest.mark.parametrize(("noise", "least"), [(0.0, 58), (0.2, 57)])
def test_expert_lifts_the_named_object(noise: float, least: int) -> None:
    """Also with noise of a fifth of a full command on the tool and on every joint of the hand."""
    rate = run_expert("arm_hand/pick", 60, noise)
    assert rate.k >= least, str(rate)


@pytest.mark.parametrize("control", ["joint_velocity", "joint_position"])
def test_expert_commands_the_joints_of_the_arm_too(control: str) -> None:
    rate = run_expert(f"arm_hand/pick:control={control},randomise=mild", 20)
    assert rate.k >= 19, str(rate)


@pytest.mark.pybullet
def test_expert_does_not_depend_on_the_engine() -> None:
    rate = run_expert("arm_hand/pick:engine=pybullet", 8)
    assert rate.k >= 7, str(rate)


def one_world(**options: Any) -> TaskVecEnv:
    env = make_task_env("pick", 1, **options)
    env.reset(EpisodeSeeds(("one", 0)))
    return env


def test_hand_replaces_the_gripper() -> None:
    """The palm is 5 cm beyond the flange, 9.2 cm before the tool, which points down; the gripper is gone, and
    with it its servos and sensors.
    """
    env = one_world()
    model, scene = env.model, env._engine.scene
    assert env.spec.action.dim == 3 + 16
    assert model.nu == 7 + 16
    assert "finger_left" not in scene.joints
    assert scene.touch == ("east_skin", "north_skin", "west_skin", "south_skin")
    data = mujoco.MjData(model)
    data.qpos[:] = env.view.physics.qpos[0].numpy()
    mujoco.mj_kinematics(model, data)
    down = np.array([0.0, 0.0, -1.0])
    flange_m = data.body("link7").xpos + 0.107 * down
    np.testing.assert_allclose(data.body("palm").xpos, flange_m + 0.05 * down, atol=1e-3)
    np.testing.assert_allclose(env.view.tool.m[0], flange_m + 0.142 * down, atol=1e-3)


def test_fingertips_of_the_open_hand_are_around_the_tool() -> None:
    """All as far from its axis: 60 + 60 + 10 degrees of bend, links of 54, 38.4 and 26.7 mm, 76.4 mm from the
    palm's axis to the first joint that bends.
    """
    env = one_world()
    bends = [math.radians(each) for each in (60.0, 120.0, 130.0)]
    links_m = (0.054, 0.0384, 0.0267)
    out_m = 0.0764 + sum(link * math.cos(bend) for link, bend in zip(links_m, bends, strict=True))
    along_m = sum(link * math.sin(bend) for link, bend in zip(links_m, bends, strict=True))
    tool, tips_m = env.view.tool.m[0], env.view.hand.tips_m[0]
    distance_m = (tips_m - tool)[:, :2].norm(dim=-1)
    torch.testing.assert_close(distance_m, torch.full_like(distance_m, out_m), atol=1e-3, rtol=0.0)
    below_m = tool[2] - tips_m[:, 2]
    torch.testing.assert_close(below_m, torch.full_like(below_m, along_m - 0.092), atol=1e-3, rtol=0.0)


def test_targets_of_the_fingers_are_on_a_leash() -> None:
    """Fingers go to the commanded positions by 0.2 rad at most; the arm's part of an action moves none."""
    env = one_world()
    q_rad = env.view.hand.q_rad
    action = torch.zeros(1, 19)
    action[:, 3:] = (q_rad + torch.linspace(-0.5, 0.5, 16)).float()
    memory = torch.cat([*env.view.tool], -1)
    ctrl, _ = env._drive.command(memory, action.to(q_rad), env.view)
    moved = ctrl[:, env.wiring.hand.servos] - q_rad
    expected = torch.linspace(-0.5, 0.5, 16).clamp(-LEASH_RAD, LEASH_RAD)
    torch.testing.assert_close(moved[0].float(), expected, atol=1e-5, rtol=0.0)
    action[:, :3] = 1.0
    other, _ = env._drive.command(memory, action.to(q_rad), env.view)
    torch.testing.assert_close(other[:, env.wiring.hand.servos], ctrl[:, env.wiring.hand.servos])
    assert not torch.equal(other[:, env.wiring.servos], ctrl[:, env.wiring.servos])


def test_fingers_rest_on_the_table() -> None:
    """A hand pressed down with stretched fingers does not sink into the table, which the palm of
    `hand/reorient` cannot touch.
    """
    env = one_world()
    action = torch.cat([torch.tensor([[0.0, 0.0, -1.0]]), env.view.open_rad[None].float()], -1)
    for _ in range(30):
        env.step(action)
    assert float(env.view.hand.tips_m[..., 2].min()) > 0.008  # a fingertip's radius is 12 mm


@pytest.mark.parametrize("lifted", ["cube", "ball"])
def test_only_the_named_object_counts(lifted: str) -> None:
    env = make_task_env("pick", 16)
    env.reset(EpisodeSeeds(("told", 0)))
    saved, column = env._engine.save(), env._engine.scene.qpos(lifted).start + 2
    saved["rows"][:, column] = 0.13
    env._engine.load(saved)
    env._physics = env._engine.physics()
    named = env.view.goal[:, 0]
    solved = env.task.solved(env.view)
    assert solved.tolist() == (named == ["cube", "ball"].index(lifted)).tolist()
    assert 0 < int(solved.sum()) < 16
    lifted_term = env.task.terms(env.view)["lifted"]
    torch.testing.assert_close(lifted_term, solved.to(lifted_term))


def test_words_name_the_task_of_the_episode() -> None:
    """The registry, the contract's `info["task"]` and the instruction agree; only states without the goal are
    a robot's own.
    """
    assert tasks_in(PICTURES) == ("cube", "ball")
    env: Any = make_env(PICTURES, 12, max_episode_steps=2)
    given = EpisodeSeeds(("words", 0))
    seeds = [next(given) for _ in range(12)]
    obs = env.reset(EpisodeSeeds(("words", 0)))
    expected = [task_in(PICTURES, seed) for seed in seeds]
    texts = [to_text(row) for row in obs["instruction"].numpy()]
    objects = [("red cube", "blue ball")[number] for number in expected]
    assert all(name in text for name, text in zip(objects, texts, strict=True))
    assert ["ball" in text for text in texts] == [number == 1 for number in expected]
    assert len(set(texts)) > 4
    info = env.step(torch.zeros(12, env.spec.action.dim))[4]
    assert info["task"].tolist() == expected
    obs, *_, info = env.step(torch.zeros(12, env.spec.action.dim))
    assert info["task"].tolist() == expected
    begun = [task_in(PICTURES, seed) for seed in info["next_seed"].tolist()]
    assert ["ball" in to_text(row) for row in obs["instruction"].numpy()] == [each == 1 for each in begun]
    assert "named" not in env.spec.obs["state"].unit
    env.close()


def test_new_wordings_are_in_no_demonstration() -> None:
    variants: Any = make_task_env("pick", 1).task.variants
    assert not set(sum(variants.training.values(), ())) & set(sum(variants.new.values(), ()))
    assert longest_instruction("arm_hand/pick") == len(b"grasp the blue ball and lift it")
    with pytest.raises(UnknownNameError, match="old"):
        make_env("arm_hand/pick:wordings=old", 1)
    with pytest.raises(ConfigError, match="lift is one task, without wordings"):
        make_env("arm/lift:wordings=new", 1)
    with pytest.raises(ConfigError, match="gives instructions itself"):
        make_env("arm_hand/pick:instruction=lift the red cube", 1)
    assert same_task("arm_hand/pick:wordings=new", PICTURES)


@pytest.mark.parametrize("ranges", ["", "camera_m: 0.05\ncamera_rad: 0.1"])
def test_targets_are_where_the_pictures_show_the_named_object(ranges: str, tmp_path: Path) -> None:
    """Compared with MuJoCo's own cameras, shifted and turned like those of the pictures; after a step as at
    the start.
    """
    (tmp_path / "ranges.yaml").write_text(ranges or "obs_delay: [0, 0]")
    env: Any = make_env(f"{PICTURES},randomise={tmp_path / 'ranges.yaml'}", 2)
    obs = env.reset(EpisodeSeeds(("targets", 0)))
    for _ in range(2):
        for lane in range(2):
            model = copy.copy(env.model)
            if ranges:
                env._senses._cameras._visuals[lane].show(model, env.model)
            data = mujoco.MjData(model)
            env.pose_bodies(data, lane)
            mujoco.mj_camlight(model, data)
            place_m = env.task.target_m(env.view)[lane].numpy()
            for name in ("view", "front"):
                expected = in_camera(model, data, name, place_m)
                np.testing.assert_allclose(obs[f"target.{name}"][lane], expected, atol=1e-4)
        obs = env.step(torch.zeros(2, env.spec.action.dim))[0]
    env.close()


def test_a_restart_by_mask_forgets_the_delayed_words_of_the_episode_before(tmp_path: Path) -> None:
    """With observations two steps late, the first ones of an episode are repeated until its own arrive."""
    (tmp_path / "late.yaml").write_text("obs_delay: [2, 2]")
    env: Any = make_env(f"arm_hand/pick:randomise={tmp_path / 'late.yaml'}", 16)
    before = env.reset(EpisodeSeeds(("before", 0)))
    coming = EpisodeSeeds(("after", 0))
    seeds = torch.tensor([next(coming) for _ in range(16)])
    every, state = torch.ones(16).bool(), env._obs["state"]
    first = env._senses.restarted(every, state, env.view, seeds, before)
    assert not torch.equal(first["instruction"], before["instruction"])
    later = env._senses.after_step(state, every, env.view, seeds, torch.ones_like(seeds), first, range(16))
    assert torch.equal(later["instruction"], first["instruction"])
    env.close()


MINE = """name: mine
asset: mine.xml
joints: [joint1, joint2, joint3, joint4, joint5, joint6, joint7]
home_rad: [0, -0.39, 0, -2.36, 0, 1.96, 0.785]
speed_rad_s: [2, 2, 2, 2, 2, 2, 2]
"""
TOOL = '<site name="tool" pos="0 0 0.1034" size="0.005"/>'
JOINT7 = '<joint name="joint7" axis'


def mine(folder: Path, old: str = "", new: str = "", more: str = "gripper: hand") -> str:
    """Environment of an arm of one's own: the panda with a change."""
    (folder / "mine.xml").write_text((ASSETS / "panda.xml").read_text().replace(old, new))
    (folder / "mine.yaml").write_text(f"{MINE}{more}\n")
    return f"arm_hand/pick:robot={folder / 'mine.yaml'}"


def test_an_arm_needs_a_flange(tmp_path: Path) -> None:
    """An arm of one's own names the body of its gripper in its file."""
    assert make_env(mine(tmp_path), 1).spec.action.dim == 19
    with pytest.raises(ConfigError, match="mine has no body 'claw' in whose place a hand"):
        make_env(mine(tmp_path, more="gripper: claw"), 1)


def test_a_tool_outside_the_gripper_becomes_that_of_the_hand(tmp_path: Path) -> None:
    """The tool is between the fingertips wherever the arm's own was."""
    expected: Any = make_env(mine(tmp_path), 1)
    found: Any = make_env(mine(tmp_path, JOINT7, f'<site name="tcp"/>{JOINT7}', "tool: tcp"), 1)
    for env in (found, expected):
        env.reset(EpisodeSeeds(("tool", 0)))
    np.testing.assert_allclose(found.view.tool.m, expected.view.tool.m, atol=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "more", "says"),
    [
        ('"link5"', '"palm"', "", "both have bodies named palm. Rename those in .*mine.xml"),
        (JOINT7, f'<site name="east_tip"/>{JOINT7}', "", "both have sites named east_tip"),
        ("", "", "tool: east_tip", "both have sites named east_tip"),
        ("", "", "gripper: link6", "joints joint6, joint7 in the body 'link6', which the hand would replace"),
    ],
)
def test_an_arm_that_cannot_carry_the_hand_is_refused(
    tmp_path: Path, old: str, new: str, more: str, says: str
) -> None:
    """Names of both, and joints in place of the gripper: one sentence that says what to change."""
    with pytest.raises(ConfigError, match=says):
        make_env(mine(tmp_path, old or TOOL, new or TOOL, more), 1)
