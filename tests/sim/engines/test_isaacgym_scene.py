"""Scenes for Isaac Gym, and the real worker's calls of its interface, recorded by a stand-in."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robo_rl.core.errors import ConfigError
from sim.asset_files import ASSETS
from sim.engines.isaacgym import frames, protocol
from sim.engines.isaacgym.describe import describe
from sim.engines.isaacgym.engine import IsaacGymEngine
from sim.engines.isaacgym.filters import collision_filters, may_touch
from sim.engines.isaacgym.process import WORKER
from sim.engines.scene import Scene, compile_scene
from sim.tasks.table import MANIPULATION, TaskOptions, make_task
from tests.sim.engines.warp_scenes import grasping, scene_of

STUB = Path(__file__).with_name("isaacgym_stub")


@pytest.fixture(scope="module")
def scene() -> Scene:
    return scene_of("peg_insert")


@pytest.mark.parametrize("name", ["lift", "peg_insert"])
def test_actors_equal_the_trees_of_the_model(name: str) -> None:
    """Its MJCF, compiled by MuJoCo: the same masses, inertias, shapes, and bodies at the same places in a
    bent pose.
    """
    scene = scene_of(name)
    model, told = scene.model, describe(scene)
    whole = mujoco.MjData(model)
    whole.qpos[:] = grasping(scene, name, 1).qpos[0].numpy()
    mujoco.mj_kinematics(model, whole)
    seen = []
    for actor in told["actors"]:
        tree = mujoco.MjModel.from_xml_string(actor["mjcf"])
        data = mujoco.MjData(tree)
        for joint, it in actor["dofs"].items():
            data.qpos[tree.joint(joint).qposadr] = whole.qpos[it["qpos"]]
        mujoco.mj_kinematics(tree, data)
        for body, it in actor["bodies"].items():
            row, root = it["row"], int(actor["name"][1:])
            seen.append(row)
            turned, placed = np.zeros(4), np.zeros(3)
            mujoco.mju_mulQuat(turned, whole.xquat[root], data.body(body).xquat)
            mujoco.mju_rotVecQuat(placed, data.body(body).xpos, whole.xquat[root])
            np.testing.assert_allclose(whole.xpos[root] + placed, whole.xpos[row], atol=1e-9)
            np.testing.assert_allclose(abs(turned @ whole.xquat[row]), 1.0, atol=1e-9)
            assert tree.body(body).geomnum == len(it["shapes"])
            if row:
                assert tree.body(body).mass == pytest.approx(model.body_mass[row])
                np.testing.assert_allclose(tree.body(body).inertia, model.body_inertia[row], rtol=1e-9)
                np.testing.assert_allclose(
                    np.linalg.eigvalsh(it["inertia_kg_m2"]), np.sort(model.body_inertia[row])
                )
    assert sorted(seen) == list(range(model.nbody))


def test_servo_and_joint_parameters(scene: Scene) -> None:
    """joint1 of panda.xml: kp 600, kv 50, 87 N m, armature 0.1, own damping 1, and its range."""
    arm = next(actor for actor in describe(scene)["actors"] if len(actor["dofs"]) == 9)
    joint = arm["dofs"][f"j{scene.joints.index('joint1')}"]
    assert (joint["kp"], joint["kv"], joint["effort"]) == (600.0, 50.0, 87.0)
    assert (joint["armature"], joint["damping"], joint["frictionloss"]) == (0.1, 1.0, 0.0)
    assert (joint["limited"], joint["lower"], joint["upper"]) == (True, -2.8973, 2.8973)
    assert joint["qpos"] == scene.qpos("joint1").start
    assert joint["ctrl"] == scene.ctrl("joint1")
    assert arm["fixed"]
    assert arm["weightless"]


def test_planes_become_boxes_below_their_surface() -> None:
    """A tilted plane is a box: objects on the plane rest on it."""
    path = (
        "<mujoco><worldbody><geom type='plane' size='0 3 1' pos='0 0 1' euler='30 0 0'/></worldbody></mujoco>"
    )
    model = mujoco.MjModel.from_xml_string(path)
    (actor,) = describe(Scene(model, path))["actors"]
    box = mujoco.MjModel.from_xml_string(actor["mjcf"])
    assert box.geom_size[0].tolist() == [10.0, 3.0, 0.05]
    normal = np.zeros(3)
    mujoco.mju_rotVecQuat(normal, [0.0, 0.0, 1.0], model.geom_quat[0])
    np.testing.assert_allclose(box.geom_pos[0] + 0.05 * normal, [0.0, 0.0, 1.0], atol=1e-12)


@pytest.mark.parametrize("name", MANIPULATION)
def test_task_scenes_are_supported(name: str) -> None:
    """Their scenes are supported, and every actuator drives one joint of one actor."""
    task = make_task(name, TaskOptions())
    scene = compile_scene(ASSETS / task.scene, ASSETS / "panda.xml", task.edit)
    driven = [
        dof["ctrl"]
        for actor in describe(scene)["actors"]
        for dof in actor["dofs"].values()
        if dof["ctrl"] >= 0
    ]
    assert sorted(driven) == list(range(scene.model.nu))


@pytest.mark.parametrize("name", MANIPULATION)
def test_filters_keep_mujocos_rule(name: str) -> None:
    """For every two shapes: they share a filter bit exactly if MuJoCo excludes their contact."""
    task = make_task(name, TaskOptions())
    model = compile_scene(ASSETS / task.scene, ASSETS / "panda.xml", task.edit).model
    filters = collision_filters(model)
    pairs = [(a, b) for a in filters for b in filters if a < b]
    for a, b in pairs:
        assert bool(filters[a] & filters[b]) != may_touch(model, a, b)
    assert any(may_touch(model, a, b) for a, b in pairs)
    assert all(0 <= bits < 2**31 for bits in filters.values())


def test_the_rule_is_that_of_mujoco() -> None:
    """Balls in one place, in all relations: MuJoCo's contacts are those that the rule permits."""
    xml = """<mujoco><worldbody><geom name="floor" type="sphere" size="1"/>
    <body name="a"><geom size="1"/><geom size="1" contype="2" conaffinity="2"/><joint type="slide"/>
      <body name="b"><joint type="slide"/><geom size="1" contype="3"/>
        <body name="c"><joint type="slide"/><geom size="1"/></body>
        <body name="d"><geom size="1"/></body></body></body>
    <body name="e"><freejoint/><geom size="1"/></body><body name="f" mocap="true"><geom size="1"/></body>
    </worldbody><contact><exclude body1="c" body2="e"/></contact></mujoco>"""
    model = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    made = {tuple(sorted(contact.geom.tolist())) for contact in data.contact}
    allowed = {
        (a, b) for a in range(model.ngeom) for b in range(a + 1, model.ngeom) if may_touch(model, a, b)
    }
    still = {0, model.ngeom - 1}  # the floor and the fixture: MuJoCo 4 sees no use in their touching, 3.9 did
    assert {pair for pair in made if set(pair) != still} == {pair for pair in allowed if set(pair) != still}


@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("<worldbody><body><joint type='ball'/><geom size='.1'/></body></worldbody>", "ball joints"),
        ("<worldbody><geom type='ellipsoid' size='.1 .1 .2'/></worldbody>", "collisions of mjGEOM_ELLIPSOID"),
        (
            "<worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody>"
            "<actuator><motor joint='j' name='m'/></actuator>",
            "the actuator 'm', which is not a position servo",
        ),
        (
            "<worldbody><body><joint name='j'/><geom size='.1'/></body></worldbody>"
            "<actuator><position joint='j' name='p' kp='9' forcerange='-1 2'/></actuator>",
            "the actuator 'p', which pulls with 1 and pushes with 2",
        ),
        ("<worldbody><body><joint name='j' ref='1'/><geom size='.1'/></body></worldbody>", "the joint 'j'"),
        (
            "<worldbody><body gravcomp='1' name='a'><joint/><geom size='.1'/>"
            "<body><joint/><geom size='.1'/></body></body></worldbody>",
            "gravity compensation of some bodies of 'a' only",
        ),
        (
            "<worldbody><body name='a'><joint/><geom size='.1'/></body></worldbody>"
            "<equality><weld body1='a'/></equality>",
            "equality constraints",
        ),
    ],
)
def test_unsupported_features_are_refused(tmp_path: Path, inside: str, what: str) -> None:
    """Refused before a worker is started."""
    path = tmp_path / "scene.xml"
    path.write_text(f"<mujoco>{inside}</mujoco>")
    with pytest.raises(ConfigError, match=f"cannot simulate {what}.*Use engine=mujoco"):
        describe(compile_scene(path))


finite = st.floats(-5.0, 5.0, width=32)


@settings(deadline=None)
@given(st.lists(finite, min_size=16, max_size=16).filter(lambda x: np.linalg.norm(x[3:7]) > 0.1))
def test_frames_go_there_and_back(numbers: list[float]) -> None:
    """Any pose, velocity and centre of mass."""
    row = np.array(numbers)[None]
    qpos, qvel, com_m = row[:, :7].copy(), row[:, 7:13], row[0, 13:]
    qpos[:, 3:7] /= np.linalg.norm(qpos[:, 3:7])
    back = frames.free_of_root(frames.root_of_free(qpos, qvel, com_m), com_m)
    np.testing.assert_allclose(back[0], qpos, atol=1e-9)
    np.testing.assert_allclose(back[1], qvel, atol=1e-9)


def test_speeds_of_roots_are_those_of_mujoco(scene: Scene) -> None:
    """The centre of mass's velocity and the spin, in the world, as MuJoCo computes them for a tumbling
    peg.
    """
    data, peg = mujoco.MjData(scene.model), scene.body("peg")
    where, how = scene.qpos("peg"), scene.qvel("peg")
    data.qpos[where] = [0.1, 0.2, 0.3, 0.5, -0.5, 0.7, 0.1]
    data.qpos[where][3:] /= np.linalg.norm(data.qpos[where][3:])
    data.qvel[how] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    mujoco.mj_forward(scene.model, data)
    speed = np.zeros(6)  # angular, linear, at the centre of mass
    mujoco.mj_objectVelocity(scene.model, data, int(mujoco.mjtObj.mjOBJ_BODY), peg, speed, 0)
    root = frames.root_of_free(data.qpos[where][None], data.qvel[how][None], scene.model.body_ipos[peg])[0]
    np.testing.assert_allclose(root[10:], speed[:3], atol=1e-12)
    np.testing.assert_allclose(root[7:10], speed[3:], atol=1e-12)
    np.testing.assert_allclose(root[[6, 3, 4, 5]], data.qpos[where][3:])


@pytest.fixture
def gymsim(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The worker's module, with the stand-in for isaacgym."""
    names = [name for name in sys.modules if name.split(".")[0] in ("isaacgym", "frames", "gymsim")]
    for name in names:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(WORKER.parent))
    monkeypatch.syspath_prepend(str(STUB))
    module = import_module("gymsim")
    for name in [name for name in sys.modules if name.split(".")[0] in ("isaacgym", "frames", "gymsim")]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])  # forgotten when the test is over
    return module


def build(gymsim: ModuleType, scene: Scene, worlds: int) -> tuple[Any, dict[str, Any], Any]:
    model = scene.model
    sizes = {"n": worlds, "nq": model.nq, "nv": model.nv, "nu": model.nu, "nb": model.nbody}
    sizes |= {"nf": len(scene.fixtures), "nt": len(scene.touch)}
    slots = protocol.slots(bytearray(protocol.size_bytes(sizes)), sizes)
    sim = gymsim.GymSim({**describe(scene), "device": 0}, slots)
    return sim, slots, sim._gym


def test_simulation_has_the_parameters_of_the_scene(gymsim: ModuleType, scene: Scene) -> None:
    """Whatever the importer made: masses, servos, limits, friction and filters are set on every actor."""
    sim, _, gym = build(gymsim, scene, 2)
    assert gym.params.dt == pytest.approx(scene.timestep_s)
    assert gym.params.gravity.z == pytest.approx(-9.81)
    assert not gym.params.use_gpu_pipeline
    assert gym.params.up_axis == "UP_AXIS_Z"
    arm = next(actor for actor in gym.envs[1] if len(actor.asset.dofs) == 9)
    assert arm.asset.options.fix_base_link
    assert arm.asset.options.disable_gravity
    assert not arm.asset.options.collapse_fixed_joints
    assert arm.group == 1
    assert (arm.dof_props["driveMode"] == 1).all()
    assert arm.dof_props["stiffness"][0] == 600.0
    assert arm.dof_props["damping"][0] == 51.0  # of the servo and of the joint itself
    assert arm.dof_props["effort"][8] == 30.0
    assert arm.dof_props["hasLimits"].all()
    tip = arm.shape_props[0]
    assert tip.friction == pytest.approx(1.2)
    peg = gym.envs[1][next(i for i, each in enumerate(sim._actors) if each["free_qpos"] >= 0)]
    assert peg.body_props[0].mass == pytest.approx(0.06)
    assert peg.body_props[0].com.z == pytest.approx(-0.022)
    assert not peg.asset.options.fix_base_link
    assert tip.filter & peg.shape_props[0].filter == 0  # fingers hold the peg's head
    assert arm.shape_props[0].filter & arm.shape_props[1].filter  # and not each other


def test_state_is_written_before_and_read_after_a_step(gymsim: ModuleType, scene: Scene) -> None:
    """In one indexed write of each kind; xyzw inside, wxyz outside; targets by name; forces as their norm."""
    sim, slots, gym = build(gymsim, scene, 3)
    start = grasping(scene, "peg_insert", 3)
    for name in ("qpos", "fixture_m", "fixture_quat"):
        slots[name][:] = getattr(start, name).numpy()
    turned = np.array([0.6, 0.0, 0.8, 0.0])
    peg = scene.qpos("peg")
    slots["qpos"][2, peg.start + 3 : peg.stop] = turned
    calls = gymsim.gymapi.CALLS
    calls.clear()
    sim.set_state([0])
    sim.set_state([2])
    assert not calls
    slots["ctrl"][:] = np.arange(9) / 10.0
    sim.step(4)
    written = [call for call in calls if call[0].startswith("set")]
    assert [call[0] for call in calls].count("simulate") == 4
    assert [kind for kind, _ in written] == ["set root", "set dof"]
    chosen = {gym.actors[i].group for i in written[0][1]}
    assert chosen == {0, 2}
    for i in range(9):  # the stand-in's joints are where their targets are
        joint = scene.model.actuator_trnid[i, 0]
        asked = i / 10.0 if i < 7 else 0.04  # fingers open no wider than their servos may be told
        assert slots["qpos"][2, scene.model.jnt_qposadr[joint]] == pytest.approx(asked)
    fallen_m = 9.81 * scene.timestep_s**2 * (1 + 2 + 3 + 4)
    assert slots["qpos"][2, peg.start + 2] == pytest.approx(
        float(start.qpos[2, peg.start + 2]) - fallen_m, abs=1e-5
    )
    np.testing.assert_allclose(slots["qpos"][2, peg.start + 3 : peg.stop], turned, atol=1e-6)
    np.testing.assert_allclose(slots["body_quat"][2, scene.body("peg")], turned, atol=1e-6)
    np.testing.assert_allclose(slots["body_m"][0, scene.body("hole")], start.fixture_m[0, 0], atol=1e-6)
    # In the stand-in every row of bodies feels 13 N more than the one before.
    left, right = slots["touch_n"][0]
    assert right - left == pytest.approx(13.0)
    calls.clear()
    sim.step(1)
    assert [kind for kind, _ in calls] == ["simulate"]


def test_other_parameters_reach_one_environment(gymsim: ModuleType, scene: Scene) -> None:
    """Relative to the original, however often: 2 then 3 gives 3."""
    sim, slots, gym = build(gymsim, scene, 2)
    for factor in (2.0, 3.0):
        for name in ("mass_scale", "kp_scale", "kv_scale", "damping_scale", "strength_scale"):
            slots[name][0] = factor
        slots["friction_scale"][0] = 0.5
        sim.randomise(
            [1], ["mass_scale", "friction_scale", "kp_scale", "kv_scale", "damping_scale", "strength_scale"]
        )
    peg = next(i for i, each in enumerate(sim._actors) if each["free_qpos"] >= 0)
    arm = next(i for i, each in enumerate(sim._actors) if each["dofs"])
    assert [env[peg].body_props[0].mass for env in gym.envs] == pytest.approx([0.06, 0.18])
    assert gym.envs[1][peg].body_props[0].inertia.x.x == pytest.approx(
        3 * gym.envs[0][peg].body_props[0].inertia.x.x
    )
    assert [env[arm].dof_props["stiffness"][0] for env in gym.envs] == [600.0, 1800.0]
    assert [env[arm].dof_props["damping"][0] for env in gym.envs] == [51.0, 153.0]
    assert [env[arm].dof_props["effort"][0] for env in gym.envs] == pytest.approx([87.0, 261.0])
    assert [env[arm].shape_props[0].friction for env in gym.envs] == pytest.approx([1.2, 0.6])


def test_shapes_that_the_importer_lost_are_noticed(gymsim: ModuleType, scene: Scene) -> None:
    """Instead of friction and filters on the wrong shape."""
    gym = gymsim.gymapi.GYM
    whole = gym.get_actor_rigid_body_shape_indices
    gym.get_actor_rigid_body_shape_indices = lambda env, actor: [
        SimpleNamespace(start=0, count=7) for _ in whole(env, actor)
    ]
    with pytest.raises(RuntimeError, match="7 shapes in Isaac Gym"):
        build(gymsim, scene, 1)


def test_the_real_worker_runs_in_a_process_of_its_own(scene: Scene) -> None:
    """Engine, pipes, worker.py, gymsim.py and the stand-in together."""
    command = [sys.executable, str(WORKER)]
    engine = IsaacGymEngine(scene, 2, command=command, environ={"PYTHONPATH": str(STUB)})
    start = grasping(scene, "peg_insert", 2)
    engine.set_state(torch.arange(2), start)
    engine.randomise(torch.tensor([1]), {"friction_scale": torch.tensor([0.5])})
    engine.step(start.ctrl, 2)
    physics = engine.physics()
    i = scene.qpos("joint4").start
    assert physics.qpos[:, i].tolist() == pytest.approx([-2.2, -2.2])
    assert float(physics.qvel[0, scene.qvel("peg")][2]) == pytest.approx(-2 * 9.81 * scene.timestep_s)
    engine.close()
