"""Manipulation tasks under the contract: episodes, experts in every control mode, and failing physics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, EnvError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.eval.stats import SuccessRate
from sim.arms.control import MODES
from sim.asset_files import ASSETS
from sim.registry import has_dense_reward, list_envs, make_env, make_expert
from sim.scenes import task_env
from sim.scenes.expert import SceneExpert
from sim.scenes.randomise import load_randomise
from sim.scenes.task_env import TaskVecEnv, make_task_env
from sim.tasks.table import MANIPULATION
from sim.vec.conformance import check_vec_env
from tests.sim.engines.worlds import ENGINES


@pytest.mark.parametrize("task", MANIPULATION)
def test_every_task_keeps_the_contract(task: str) -> None:
    check_vec_env(make_env(f"arm/{task}", 3, max_episode_steps=9), steps=20)


def test_pictures_keep_the_contract() -> None:
    """The last images of an episode are its own, also after a restore."""
    check_vec_env(make_env("arm/lift:cameras=view+front,image_size=32", 2, max_episode_steps=5), steps=8)


@pytest.mark.pybullet
def test_pybullet_keeps_the_contract() -> None:
    """Contacts of an earlier episode, or rounded states, would change the episode."""
    check_vec_env(make_env("arm/peg_insert:engine=pybullet,randomise=mild", 3, max_episode_steps=9), steps=20)


@pytest.mark.slow
def test_mujoco_warp_keeps_the_contract() -> None:
    pytest.importorskip("mujoco_warp", reason="needs the extra [gpu]")
    check_vec_env(make_env("arm/lift:engine=mjwarp", 3, device="cpu", max_episode_steps=9), steps=20)


@pytest.mark.parametrize("control", MODES)
def test_every_control_keeps_the_contract(control: str) -> None:
    check_vec_env(make_env(f"arm/lift:control={control}", 3, max_episode_steps=9, reward="dense"), steps=20)


def run_expert(name: str, episodes: int, noise: float = 0.0) -> tuple[SuccessRate, torch.Tensor]:
    """(success, lengths of the episodes)"""
    env: Any = make_env(name, episodes)
    expert = make_expert(name, noise, env=env)
    obs, steps = env.reset(EpisodeSeeds(("expert", 0))), torch.zeros(episodes, dtype=torch.long)
    seeds = torch.tensor([next(s) for s in [EpisodeSeeds(("expert", 0))] for _ in range(episodes)])
    solved, lengths = torch.zeros(episodes, dtype=torch.bool), torch.full((episodes,), -1)
    while bool((lengths < 0).any()):
        obs, _, _, _, info = env.step(expert.act(obs, seeds, steps))
        steps += 1
        first = info["final_mask"] & (lengths < 0)
        solved |= first & info["success"]
        lengths[first] = steps[first]
    env.close()
    return SuccessRate(int(solved.sum()), episodes), lengths


# Pushing takes the longest episodes.
EVERY = [pytest.param(task, marks=pytest.mark.long) if task == "push_t" else task for task in MANIPULATION]


@pytest.mark.parametrize("task", EVERY)
def test_every_expert_solves_its_task(task: str) -> None:
    """At least 38 of 40, the 95 % that demonstrations need."""
    rate, _ = run_expert(f"arm/{task}", 40)
    assert rate.k >= 38, str(rate)


@pytest.mark.parametrize("task", EVERY)
def test_experts_solve_their_tasks_with_delayed_commands(task: str, tmp_path: Path) -> None:
    """With a step of delay and other servos, masses and friction, as in `randomise`."""
    late = tmp_path / "late.yaml"
    late.write_text((ASSETS / "randomise" / "mild.yaml").read_text().replace("[0, 1]", "[1, 1]"))
    rate, _ = run_expert(f"arm/{task}:randomise={late}", 20)
    assert rate.k >= 19, str(rate)


@pytest.mark.parametrize("control", ["joint_velocity", "joint_position"])
def test_experts_command_joints_as_well(control: str) -> None:
    rate, _ = run_expert(f"arm/lift:control={control}", 20)
    assert rate.k >= 19, str(rate)


def test_an_expert_is_as_quick_by_speeds_as_by_moves_of_the_tool() -> None:
    """Both add to the commanded position. Relative to the lagging one, drawers took 37 % longer to open."""
    by_tool, by_speed = (
        run_expert(f"arm/drawer:control={c}", 20)[1] for c in ("cartesian", "joint_velocity")
    )
    assert by_speed.float().mean() < 1.15 * by_tool.float().mean()


def test_noise_spoils_an_expert() -> None:
    """Noise has an effect: with that of a full command fewer cubes are lifted."""
    assert run_expert("arm/lift", 20, noise=1.0)[0].k < run_expert("arm/lift", 20, noise=0.1)[0].k


def test_results_do_not_depend_on_threads() -> None:
    """Worlds are equal bit for bit with any number of threads."""
    ends = []
    for threads in (1, 2):
        env = make_task_env("lift", 32, threads=threads)
        env.reset(EpisodeSeeds(("threads", 0)))
        for _ in range(10):
            obs = env.step(env.script().float())[0]
        ends.append(obs["state"])
        env.close()
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=0)


@pytest.mark.slow
def test_compiled_equals_eager() -> None:
    """Equal episodes, with or without compiled step arithmetic, up to rounding."""
    ends = []
    for compiled in (True, False):
        env = make_task_env("lift", 4, compiled=compiled, reward="dense")
        env.reset(EpisodeSeeds(("compiled", 0)))
        results = [env.step(env.script().float()) for _ in range(5)]
        ends.append(torch.cat([results[-1][0]["state"], results[-1][1][:, None]], 1))
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=1e-5)


def test_physics_that_fails_ends_the_episode_as_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An invalid state in one world: its episode ends without success, observations stay finite, others
    continue.
    """
    monkeypatch.chdir(tmp_path)
    env = make_task_env("lift", 3)
    before = env.reset(EpisodeSeeds(("spoilt", 0)))["state"]
    saved = env._engine.save()
    saved["rows"][1, env._engine.scene.model.nq] = 1e300  # a speed
    env._engine.load(saved)
    with pytest.warns(RuntimeWarning, match="physics of 1 worlds has failed"):
        obs, _, terminated, truncated, info = env.step(torch.zeros(3, env.spec.action.dim))
    assert terminated.tolist() == [False, True, False] == info["diverged"].tolist()
    assert not truncated.any()
    assert not info["success"].any()
    torch.testing.assert_close(info["final_obs"]["state"][1], before[1])
    assert torch.isfinite(obs["state"]).all()
    assert torch.isfinite(env.step(torch.zeros(3, 5))[0]["state"]).all()
    dump = np.load(next(tmp_path.glob("diverged-*.npz")))
    assert np.isfinite(dump["before_rows"]).all()
    assert dump["action"].shape == (5,)


def test_clearance_of_the_hole() -> None:
    """0.1 mm of play: the peg fits, and touches no wall in the middle."""
    env = make_task_env("peg_insert", 2, clearance_mm=0.1)
    model = env._engine.scene.model
    gap_m = model.geom("wall_east").pos[0] - model.geom("wall_east").size[0] - model.geom("peg_shaft").size[0]
    assert gap_m == pytest.approx(1e-4, abs=1e-9)


def test_dense_rewards_are_between_nothing_and_one() -> None:
    env = make_task_env("lift", 8, reward="dense")
    env.reset(EpisodeSeeds(("dense", 0)))
    rewards = torch.stack([env.step(env.script().float())[1] for _ in range(30)])
    assert rewards.min() >= 0.0
    assert 0.3 < rewards.max() <= 1.0


def test_name_holds_the_options_that_matter() -> None:
    assert "arm/peg_insert" in list_envs()
    assert "arm6/reach" in list_envs()
    name = "arm/peg_insert:clearance_mm=0.2,control=joint_velocity"
    env = make_env(name, 1, max_episode_steps=5, render_size=64)
    assert make_env(env.spec.name, 1).spec.obs == env.spec.obs
    assert "render_size" not in env.spec.name
    assert "clearance_mm=0.2" in env.spec.name
    assert not has_dense_reward("arm/lift")
    assert has_dense_reward("arm/lift", "dense")
    assert has_dense_reward("arm/lift:reward=dense")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("arm/lift:engine=bulet", UnknownNameError, "engine"),
        ("arm/lift:engine=isaaclab", ConfigError, "env=isaaclab/"),
        ("arm/lift:clearance_mm=1", ConfigError, "peg_insert has"),
        ("arm/peg_insert:clearance_mm=abc", ConfigError, "clearance_mm is 'abc'; expected a number"),
        ("arm/lift:robot=pnda", UnknownNameError, "panda"),
        ("arm/lift:robot=none.yaml", ConfigError, "none.yaml"),
        ("arm/lift:control=torque", UnknownNameError, "control"),
        ("arm/lift:threads=-1", ConfigError, "threads"),
        ("arm/peg_insert:clearance_mm=0", ConfigError, "clearance_mm"),
        ("arm/lft", UnknownNameError, "arm/lift"),
        ("arm/lift:cameras=viw", UnknownNameError, "view"),
        ("arm/lift:image_size=2", ConfigError, "image_size"),
        ("arm/lift:render_size=0", ConfigError, "render_size is 0; expected 8 to 4096"),
        ("arm/lift:render_size=-5", ConfigError, "render_size is -5"),
        ("arm/lift:compiled=banana", ConfigError, "compiled is 'banana'; expected true or false or none"),
        ("arm/lift:device=5", ConfigError, "device is 5; expected text or none"),
        ("arm/lift:engine=mjwarp,threads=2", ConfigError, "threads=2 is for mujoco and pybullet"),
        ("arm6/reach:render_size=0", ConfigError, "render_size is 0; expected 8 to 4096"),
        ("metaworld/reach-v3:render_size=abc", ConfigError, "render_size is 'abc'; expected 8 to 4096"),
        ("arm/lift:device=cuda", ConfigError, "engine mujoco cannot run on device=cuda: only mjwarp chooses"),
    ],
)
def test_mistakes_are_refused(name: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        make_env(name, 1)


def test_an_expert_must_see_the_scene() -> None:
    expert = SceneExpert("lift")
    with pytest.raises(EnvError, match="make_expert"):
        expert.act({}, torch.zeros(1, dtype=torch.long), torch.zeros(1, dtype=torch.long))
    with pytest.raises(EnvError, match="tasks in scenes"):
        expert.watch(make_env("arm6/reach", 1))
    assert isinstance(make_env("arm/lift", 1), TaskVecEnv)


@pytest.mark.parametrize("engine", ENGINES)
def test_touch_is_part_of_a_snapshot(engine: str) -> None:
    """With the cube in its hand the expert continues to lift in another environment, by touch."""
    made, other = (make_task_env("lift", 1, engine=engine) for _ in range(2))
    made.reset(EpisodeSeeds(("touch", 0)))
    while not (made.view.physics.touch_n > 0.5).all():
        made.step(made.from_script(made.script()).float())
    other.restore(made.snapshot())
    assert other.view.physics.touch_n.equal(made.view.physics.touch_n)
    assert other.script().equal(made.script())


def test_randomised_worlds_keep_the_contract() -> None:
    """Other masses, gains, delays and noise in every episode, still a function of seed and actions, also
    restored.
    """
    check_vec_env(make_env("arm/peg_insert:randomise=wide", 3, max_episode_steps=9), steps=20)


def test_randomisation_reaches_physics_and_senses() -> None:
    """The same start and commands: worlds differ from the plain ones, and from each other."""
    ends = {}
    for name in ("none", "wide"):
        env = make_task_env("lift", 4, randomise=name)
        env.reset(EpisodeSeeds(("random", 0)))
        for _ in range(3):
            env.step(torch.ones(4, 5))
        ends[name] = env.view.tool.m
    apart_m = (ends["none"] - ends["wide"]).norm(dim=-1)
    assert float(apart_m.min()) > 1e-4
    assert len(set(apart_m.tolist())) == 4


def test_a_delayed_action_takes_effect_later(tmp_path: Path) -> None:
    """A delay of two steps: the third command is executed fifth. The first command is used until then."""
    path = tmp_path / "late.yaml"
    path.write_text("action_delay: [2, 2]")
    env = make_task_env("lift", 1, randomise=str(path))
    env.reset(EpisodeSeeds(("late", 0)))
    commands = [torch.full((1, 5), float(i) / 10.0) for i in range(6)]
    done = []
    inner = env._servo_targets
    env._servo_targets = lambda action: (done.append(round(10 * float(action[0, 0]))), inner(action))[1]  # type: ignore[method-assign]
    for command in commands:
        env.step(command)
    assert done == [0, 0, 0, 1, 2, 3]


@pytest.mark.parametrize("obs_delay", [0, 1])
def test_snapshot_is_moved_to_the_device_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obs_delay: int
) -> None:
    """Checkpoints are in host memory: on a GPU, goals and commands must be moved to the device."""
    path = tmp_path / "late.yaml"
    path.write_text(f"obs_delay: [{obs_delay}, {obs_delay}]")
    env = make_task_env("lift", 2, randomise=str(path), compiled=False)
    env.reset(EpisodeSeeds(("device", 0)))
    snapshot = env.snapshot()
    monkeypatch.setattr(
        env._engine, "device", torch.device("meta")
    )  # stands for a GPU: it computes shapes alone
    monkeypatch.setattr(task_env, "to_host", dict)
    told = env.restore(snapshot)
    kept = [told["state"], *(getattr(env, name) for name in task_env._KEPT)]
    assert {value.device.type for value in kept} == {"meta"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mas: [1, 2]", "mass"),
        ("mass: [2, 1]", "mass"),
        ("mass: [0.5, .inf]", "finite"),
        ("noise: {m: .inf}", "finite"),
        ("mass: 3", "mass"),
        ("action_delay: [0, 99]", "99"),
        ("action_delay: [0.5, 1.5]", "whole steps"),
        ("noise: {mm: 0.1}", "mm"),
        ("noise: 3", "noise"),
        ("", "nothing"),
        ("mass: [1, 2", "valid YAML"),
        ("mass: [0.9, 1.1]\nmass: [0.5, 0.6]\n", "line 2, column 1: the key 'mass' is given twice"),
        ("noise: {m: 0.1, m: 0.2}", "the key 'm' is given twice"),
    ],
)
def test_wrong_ranges_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "ranges.yaml"
    path.write_text(text)
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        make_task_env("lift", 1, randomise=str(path))


def test_numbers_without_a_unit_have_noise(tmp_path: Path) -> None:
    """YAML reads the unit 1 as a number: the message demanded what was given."""
    path = tmp_path / "noise.yaml"
    path.write_text("noise: {1: 0.5, m: 0.1}")
    assert load_randomise(str(path)).noise == {"1": 0.5, "m": 0.1}


def test_a_path_that_no_name_can_hold_is_refused(tmp_path: Path) -> None:
    """A policy keeps the name of its environment, in which a comma begins the next option."""
    (tmp_path / "a,b").mkdir()
    path = tmp_path / "a,b" / "ranges.yaml"
    path.write_text("mass: [0.9, 1.1]")
    with pytest.raises(ConfigError, match=r"a,b/ranges\.yaml cannot be part of an environment's name"):
        make_task_env("lift", 1, randomise=str(path))


def test_depth_and_bodies_are_those_of_the_scene() -> None:
    """The camera's geometry maps the cube's centre to a pixel of the cube, at the depth of its front."""
    env = make_task_env("lift", 1)
    env.reset(EpisodeSeeds(("depth", 0)))
    engine, model, size = env._engine, env._engine.scene.model, 200
    camera = model.camera("view")
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, camera.quat)
    x, y, z = turn.reshape(3, 3).T @ (
        env.view.object_pose("cube").m[0].numpy() - camera.pos
    )  # the camera looks along -z
    scale_px = 0.5 * size / np.tan(np.radians(camera.fovy[0]) / 2.0)
    row, column = round(size / 2 - scale_px * y / -z), round(size / 2 + scale_px * x / -z)
    bodies = engine.render(0, "view", size, size, "segment")
    depth_m = engine.render(0, "view", size, size, "depth")
    assert int(bodies[row, column]) == engine.scene.body("cube")
    assert -z - 0.04 < float(depth_m[row, column]) < -z
    assert engine.scene.body("link0") in bodies.unique().tolist()
