"""Construction of PyBullet scenes: frames, inertias, friction, filters; unsupported scenes give one
sentence.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, MissingDependencyError
from robo_rl.core.seeding import EpisodeSeeds
from sim.asset_files import ASSETS
from sim.engines.bullet.scenes.engine import BulletEngine
from sim.engines.bullet.scenes.friction import split_friction, touching_pairs
from sim.engines.bullet.scenes.plan import plan_scene
from sim.engines.bullet.scenes.servo import torques
from sim.engines.scene import Scene, compile_scene
from sim.scenes.task_env import make_task_env
from tests.sim.engines.worlds import begin, scene_of, start_of

p = pytest.importorskip("pybullet")

# Joints away from their bodies' origins, two joints on one body, references, free bodies that carry others.
_ODD = """<worldbody><geom type="plane" size="2 2 0.1"/>
  <body name="cart" pos="0.3 0.2 0.5" quat="0.8 0.2 0.1 0.3">
    <joint name="x" type="slide" axis="1 0.2 0" armature="0.3"/>
    <joint name="yaw" axis="0 0.1 1" pos="0.1 0 0.05" ref="0.2"/>
    <geom type="box" size="0.1 0.05 0.02" pos="0.02 0.01 0" mass="1"/>
    <body name="bracket" pos="0.1 0 0.1" quat="0.7 0 0.7 0.1"><geom type="sphere" size="0.03" mass="0.2"/>
      <body name="tip" pos="0 0 0.1"><joint name="pitch" axis="0 1 0" pos="0 0 -0.04" armature="0.1"/>
        <geom type="cylinder" size="0.02 0.05" euler="0.3 0.2 0.1" mass="0.3"/></body></body></body>
  <body name="bird" pos="1 0 1" quat="0.9 0.1 0.2 0.3"><freejoint name="bird"/>
    <geom type="capsule" fromto="0 0 0 0.2 0.1 0" size="0.02" mass="0.4"/>
    <geom type="box" size="0.02 0.03 0.04" pos="0 0 0.1" mass="0.1"/>
    <body name="wing" pos="0 0.1 0.05"><joint name="flap" axis="1 0 0" pos="0 -0.1 0"/>
      <geom type="ellipsoid" size="0.02 0.1 0.005" mass="0.05" contype="0" conaffinity="0"/></body></body>
  <body name="fixture" mocap="true" pos="0 1 0"><geom type="box" size="0.1 0.1 0.1"/>
    <body name="drawer" pos="0 0 0.3"><joint name="drawer" type="slide" axis="0 1 0"/>
      <geom type="box" size="0.1 0.1 0.02" mass="0.5"/></body></body></worldbody>"""


@pytest.fixture(scope="module")
def odd() -> Scene:
    return scene_of(_ODD, timestep=0.002)


def random_qpos(scene: Scene, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    qpos = scene.model.qpos0 + draw.uniform(-0.5, 0.5, scene.model.nq)
    turn = scene.qpos("bird").start + 3
    qpos[turn : turn + 4] /= np.linalg.norm(qpos[turn : turn + 4])
    return qpos


@pytest.mark.parametrize("seed", range(5))
def test_bullets_links_stand_where_mujocos_bodies_do(odd: Scene, seed: int) -> None:
    """Centres of mass and colliding geoms at random joints, fixture moved: equal to 1e-9 m by Bullet's
    kinematics.
    """
    qpos, data = random_qpos(odd, seed), mujoco.MjData(odd.model)
    data.qpos[:], data.mocap_pos[:] = qpos, [[0.3, 0.7, 0.1]]
    mujoco.mj_kinematics(odd.model, data)
    with closing(begin("pybullet", odd, qpos=qpos, fixture_m=[[0.3, 0.7, 0.1]])) as engine:
        assert isinstance(engine, BulletEngine)
        world, seen = engine._worlds[0], 0
        for body, part in zip(world._ids, plan_scene(odd), strict=True):
            base = p.getBasePositionAndOrientation(body, physicsClientId=world._client)[0]
            if part.geom >= 0:
                np.testing.assert_allclose(base, data.geom_xpos[part.geom], atol=1e-9)
            if part.joint >= 0:
                np.testing.assert_allclose(base, data.xipos[part.anchor], atol=1e-9)
            for i, link in enumerate(part.links):
                state = p.getLinkState(body, i, computeForwardKinematics=1, physicsClientId=world._client)
                if link.body >= 0:
                    np.testing.assert_allclose(state[0], data.xipos[link.body], atol=1e-9)
                if link.geom >= 0:
                    np.testing.assert_allclose(state[0], data.geom_xpos[link.geom], atol=1e-9)
                seen += (link.body >= 0) + (link.geom >= 0)
    assert seen == 5 + 6  # bodies that are links; colliding geoms that are


def test_state_round_trip(odd: Scene) -> None:
    """Poses and velocities of joints and free bodies pass through Bullet's frames unchanged, up to a tiny
    step.
    """
    qpos, qvel = random_qpos(odd, 1), np.random.default_rng(2).uniform(-1.0, 1.0, odd.model.nv)
    still = scene_of(_ODD, timestep=1e-7, gravity="0 0 0")
    with closing(begin("pybullet", still, qpos=qpos, qvel=qvel)) as engine:
        engine.step(torch.zeros(1, 0).double(), 1)
        physics = engine.physics()
    np.testing.assert_allclose(physics.qpos[0], qpos, atol=1e-6)
    np.testing.assert_allclose(physics.qvel[0], qvel, atol=2e-5)


def test_armature_is_exact_for_a_joint_on_its_own() -> None:
    """1 Nm on a hinge with 0.2 kg m^2 of armature and 0.05 of its link turns it at 4 rad/s^2."""
    body = """<worldbody><body><joint name="hinge" axis="1 1 0" armature="0.2"/>
        <inertial pos="0 0 0" mass="1" diaginertia="0.05 0.05 0.05"/></body></worldbody>
        <actuator><motor joint="hinge"/></actuator>"""
    for name in ("mujoco", "pybullet"):
        with closing(begin(name, scene_of(body, timestep=0.001))) as engine:
            engine.step(torch.ones(1, 1).double(), 500)
            assert float(engine.physics().qvel[0, 0]) == pytest.approx(2.0, rel=1e-6)


def test_the_arm_moves_as_in_mujoco() -> None:
    """Steps of 0.25 rad, every 50 ms for a second: the upper arm within 0.03 rad, the wrist, whose armature
    burdens its neighbours in Bullet, within 0.1 rad; after the second within 0.01 rad.
    """
    scene = compile_scene(ASSETS / "lift.xml", ASSETS / "panda.xml")
    qpos = scene.model.qpos0.copy()
    qpos[7:14] = [0.0, -0.3, 0.0, -2.2, 0.0, 2.0, 0.785]
    draw, paths = np.random.default_rng(0).uniform(-0.25, 0.25, (4, 7)), []
    for name in ("mujoco", "pybullet"):
        with closing(begin(name, scene, 4, qpos=qpos)) as engine:
            ctrl, path = torch.zeros(4, 9).double(), []
            ctrl[:, :7] = torch.from_numpy(qpos[7:14] + draw)
            for _ in range(20):
                engine.step(ctrl, 10)
                path.append(engine.physics().qpos[:, 7:14])
            paths.append(torch.stack(path))
    apart = (paths[0] - paths[1]).abs().amax((0, 1))
    assert apart[:4].max() < 0.03
    assert apart.max() < 0.1
    assert (paths[0][-1] - paths[1][-1]).abs().max() < 0.01


@pytest.mark.parametrize("task", ["lift", "peg_insert"])
def test_pairs_that_matter_rub_as_in_mujoco(task: str) -> None:
    """Objects with fingers and with surfaces: within 2 %, sliding and turning about the normal."""
    model = compile_scene(ASSETS / f"{task}.xml", ASSETS / "panda.xml").model
    friction, pairs = split_friction(model), touching_pairs(model)
    checked = 0
    for pair in pairs:
        if pair.weight == 1.0:
            a, b = pair.one, pair.other
            assert friction.sliding[a] * friction.sliding[b] == pytest.approx(pair.sliding, rel=0.02)
            turning = (
                friction.sliding[a] * friction.spinning_m[b] + friction.sliding[b] * friction.spinning_m[a]
            )
            assert turning == pytest.approx(pair.spinning_m, abs=0.001)
            checked += 1
    assert checked == {"lift": 3, "peg_insert": 9}[task]


def test_a_brake_is_never_more_than_the_damping() -> None:
    """By hand: drive 10 - 4 x 0.5 = 8, servo 8 - 3 x 2 = 2 in range: torque 8, brake (3 + 1) x 2 + 0.5.
    Clipped: 6.
    """
    assert torques([(0.5, 2.0)], [10.0], [(4.0, 3.0, -6.0, 6.0, 1.0, 0.0, 0.0, 0.5)]) == ([8.0], [8.5])
    assert torques([(0.5, 2.0)], [20.0], [(4.0, 3.0, -6.0, 6.0, 1.0, 0.0, 0.0, 0.5)]) == ([6.0], [2.5])


_BALL = '<worldbody><body><joint type="ball"/><geom size="0.1"/></body></worldbody>'
_EGG = '<worldbody><body><freejoint/><geom type="ellipsoid" size="0.1 0.1 0.2"/></body></worldbody>'
_TIED = """<worldbody><body name="a"><freejoint/><geom size="0.1"/></body>
    <body name="b" pos="1 0 0"><freejoint/><geom size="0.1"/></body></worldbody>
    <equality><weld body1="a" body2="b"/></equality>"""
_THICK = '<worldbody><body><joint type="free" damping="1"/><geom size="0.1"/></body></worldbody>'
_HINGED = """<worldbody><body><joint name="a"/><geom size="0.1"/></body></worldbody>
    <actuator><position joint="a" kp="10"/></actuator>"""
_STIFF = """<worldbody><body><joint type="slide" damping="1e4"/><geom size="0.01" mass="0.001"/></body>
    </worldbody>"""


@pytest.mark.parametrize(
    ("xml", "says"),
    [
        (_BALL, "ball joints"),
        (_EGG, "colliding shapes"),
        (_TIED, "equality"),
        (_THICK, "damping"),
        (_STIFF, "damped so strongly"),
    ],
)
def test_unsupported_features_are_refused(xml: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        BulletEngine(scene_of(xml), 1)


@pytest.mark.parametrize("num", [0, 1001])
def test_too_many_worlds_are_refused(num: int) -> None:
    with pytest.raises(ConfigError, match="num_envs"):
        BulletEngine(scene_of(_BALL), num)


def test_missing_mesh_is_reported(tmp_path: Path) -> None:
    robot = tmp_path / "robot.urdf"
    robot.write_text(
        '<robot name="r"><link name="a"><collision><geometry><mesh '
        'filename="gone.stl"/></geometry></collision></link>'
        "</robot>"
    )
    with pytest.raises(ConfigError, match=r"gone\.stl") as caught:
        compile_scene(ASSETS / "lift.xml", robot)
    assert "\n" not in str(caught.value)


def test_a_mesh_touches_with_its_hull(tmp_path: Path) -> None:
    """A user's tetrahedron of 10 cm falls on its base and lies there."""
    (tmp_path / "tetra.obj").write_text(
        "v 0 0 0\nv .1 0 0\nv 0 .1 0\nv 0 0 .1\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"
    )
    file = tmp_path / "scene.xml"
    file.write_text(
        '<mujoco><asset><mesh name="t" file="tetra.obj"/></asset><worldbody><geom type="plane" size="1 1 '
        '.1"/><body name="t" pos="0 0 0.05"><freejoint/><geom type="mesh" '
        'mesh="t"/></body></worldbody></mujoco>'
    )
    scene = compile_scene(file)
    with closing(begin("pybullet", scene)) as engine:
        engine.step(torch.zeros(1, 0).double(), 400)
        end = engine.physics().qpos[0]
    assert float(end[2]) == pytest.approx(0.0, abs=2e-4)
    assert end[4:6].abs().max() < 0.005  # upright


def test_excluded_contacts_do_not_act() -> None:
    """Two balls fall on a static post; the one with an excluded contact falls through, in both engines."""
    balls = "".join(
        f'<body name="{name}" pos="{x} 0 0.5"><freejoint/><geom size="0.05"/></body>'
        for name, x in (("a", 0), ("b", 1))
    )
    posts = '<body name="post"><geom type="box" size="2 0.1 0.1"/></body>'
    xml = f'<worldbody>{posts}{balls}</worldbody><contact><exclude body1="post" body2="b"/></contact>'
    for name in ("mujoco", "pybullet"):
        with closing(begin(name, scene_of(xml, timestep=0.002))) as engine:
            engine.step(torch.zeros(1, 0).double(), 400)
            height_m = engine.physics().qpos[0, [2, 9]]
        assert float(height_m[0]) == pytest.approx(0.15, abs=0.005)
        assert height_m[1] < -1.0


def test_missing_pybullet_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pybullet", None)
    with pytest.raises(MissingDependencyError, match=r"robo-rl\[pybullet\]"):
        make_task_env("lift", 1, engine="pybullet")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300])
def test_a_world_that_fails_shows_it_and_starts_again(bad: float) -> None:
    """An invalid speed in world 1 of 3: its state shows it, other worlds are unaffected, a new start repairs
    it.
    """
    scene = compile_scene(ASSETS / "lift.xml", ASSETS / "panda.xml")
    with closing(begin("pybullet", scene, 3)) as engine, closing(begin("pybullet", scene)) as alone:
        ctrl, qvel = torch.zeros(3, scene.model.nu).double(), np.zeros(scene.model.nv)
        qvel[8] = bad
        engine.set_state(torch.tensor([1]), start_of(scene, 1, qvel=qvel))
        for each in (engine, alone):
            each.step(ctrl[: each.num_envs], 20)
        finite = torch.isfinite(engine.physics().qpos).all(1) & torch.isfinite(engine.physics().qvel).all(1)
        assert finite.tolist() == [True, False, True]
        assert torch.equal(engine.physics().qpos[[0, 2]], alone.physics().qpos.expand(2, -1))
        engine.set_state(torch.tensor([1]), start_of(scene))
        engine.step(ctrl, 20)
        assert torch.equal(engine.physics().qpos[1], alone.physics().qpos[0])


def test_a_command_that_is_no_number_is_not_hidden() -> None:
    scene = scene_of(_HINGED)
    with closing(begin("pybullet", scene)) as engine:
        engine.step(torch.full((1, 1), float("nan")).double(), 5)
        assert not torch.isfinite(engine.physics().qpos).any()


def test_worlds_are_given_back() -> None:
    """Closing an engine closes its clients: PyBullet has about a thousand in a process, for all engines
    together.
    """
    scene = scene_of(_BALL.replace("ball", "hinge"))
    for _ in range(3):
        with closing(BulletEngine(scene, 2)) as engine:
            clients = [world._client for world in engine._worlds]
            assert all(p.isConnected(client) for client in clients)
        assert not any(p.isConnected(client) for client in clients)


def test_one_engine_serves_the_task_environment() -> None:
    """Both tasks for a few steps, with resets, restored from a snapshot bit for bit."""
    with closing(make_task_env("peg_insert", 2, engine="pybullet", max_episode_steps=4)) as env:
        env.reset(EpisodeSeeds(("serve", 0)))
        for _ in range(6):
            env.step(env.script().float())
        kept, action = env.snapshot(), env.script().float()
        after = env.step(action)[0]["state"]
        env.step(action)
        env.restore(kept)
        assert torch.equal(env.step(action)[0]["state"], after)


def test_start_of_fills_in_the_models_own_start(odd: Scene) -> None:
    """The helper of these tests: rows for all worlds, the fixture where the model has it."""
    start = start_of(odd, 3)
    assert start.qpos.shape == (3, odd.model.nq)
    assert start.fixture_m.tolist() == [[[0.0, 1.0, 0.0]]] * 3
