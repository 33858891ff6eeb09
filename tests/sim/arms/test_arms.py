"""Arithmetic of arms against MuJoCo and by hand: rotations, chains, inverse kinematics, the three control
modes.
"""

from __future__ import annotations

import math
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from sim.arms.chain import KinematicChain, damped_step, solve_positive
from sim.arms.control import Cartesian, JointPosition, JointVelocity, Reach
from sim.arms.robot import PANDA, ArmRobot, load_robot
from sim.asset_files import ASSETS
from sim.bodies.pose import Pose, pose_error
from sim.bodies.rotation import about_z, axis_z, conjugate, from_rotvec, multiply, rotate, to_rotvec, yaw_of
from sim.engines.scene import Scene, compile_scene

vectors = hnp.arrays(np.float64, (3,), elements=st.floats(-3.0, 3.0))


@pytest.fixture(scope="module")
def chain() -> KinematicChain:
    return KinematicChain(compile_scene(ASSETS / "lift.xml", PANDA.path), PANDA)


@settings(deadline=None)
@given(vectors)
def test_rotation_vectors_come_back(vector: np.ndarray) -> None:
    """Up to full turns, the shortest vector of the same rotation is returned."""
    v = torch.from_numpy(vector)
    angle = float(v.norm())
    if abs(angle - math.pi) < 1e-3:
        return  # both ways round are as short
    back = to_rotvec(from_rotvec(v))
    shortest = v if angle <= math.pi else v * (1.0 - 2.0 * math.pi / angle)
    torch.testing.assert_close(back, shortest, rtol=0, atol=1e-9)


@settings(deadline=None)
@given(vectors, vectors, vectors)
def test_rotations_compose(a: np.ndarray, b: np.ndarray, v: np.ndarray) -> None:
    """Turning by b, then by a, is turning by their product; and back again is where it was."""
    first, second, vector = (
        from_rotvec(torch.from_numpy(b)),
        from_rotvec(torch.from_numpy(a)),
        torch.from_numpy(v),
    )
    both = multiply(second, first)
    torch.testing.assert_close(rotate(both, vector), rotate(second, rotate(first, vector)))
    torch.testing.assert_close(rotate(conjugate(both), rotate(both, vector)), vector)


def test_quarter_turns_by_hand() -> None:
    """A quarter turn about z: x becomes y, the heading is 90 degrees, z stays."""
    quarter = about_z(torch.tensor(math.pi / 2))
    torch.testing.assert_close(rotate(quarter, torch.tensor([1.0, 0.0, 0.0])), torch.tensor([0.0, 1.0, 0.0]))
    assert float(yaw_of(quarter)) == pytest.approx(math.pi / 2)
    torch.testing.assert_close(axis_z(quarter), torch.tensor([0.0, 0.0, 1.0]))


def test_the_chain_is_mujocos(chain: KinematicChain) -> None:
    """Tool, links and Jacobian at 20 random poses against MuJoCo's."""
    scene = compile_scene(ASSETS / "lift.xml", PANDA.path)
    model, data = scene.model, mujoco.MjData(scene.model)
    q = chain.low_rad + (chain.high_rad - chain.low_rad) * torch.rand(20, 7, dtype=torch.float64)
    tool, links = chain.place(q)
    found = chain.jacobian(links, tool.m)
    site, first = model.site("tool").id, scene.qvel("joint1").start
    for i in range(20):
        data.qpos[scene.qpos("joint1").start :][:7] = q[i].numpy()
        mujoco.mj_kinematics(model, data)
        mujoco.mj_comPos(model, data)
        moves, turns = np.zeros((3, model.nv)), np.zeros((3, model.nv))
        mujoco.mj_jacSite(model, data, moves, turns, site)
        np.testing.assert_allclose(tool.m[i], data.site_xpos[site], atol=1e-9)
        np.testing.assert_allclose(links.m[i], data.xpos[chain.links], atol=1e-9)
        np.testing.assert_allclose(found[i], np.concatenate([moves, turns])[:, first : first + 7], atol=1e-9)


BENT = """<mujoco><compiler angle="radian"/><worldbody><body name="a" pos="0 0 0.1">
<joint name="j0" axis="0 1 0" range="-2 2" ref="0.5"/><geom size="0.02"/><body name="b" pos="0.3 0 0">
<joint name="j1" axis="0 1 0" range="-2 2" {} /><geom size="0.02"/><site name="tool" pos="0.2 0 0"/>
</body></body>
</worldbody></mujoco>"""


def _two(joint: str, names: tuple[str, ...] = ("j0", "j1")) -> tuple[Scene, ArmRobot]:
    scene = Scene(mujoco.MjModel.from_xml_string(BENT.format(joint)), "")
    return scene, ArmRobot("bent", "", names, (0.0, 0.0), (1.0, 1.0))


def test_a_joint_may_have_a_reference() -> None:
    """MuJoCo counts from it: at q = ref the link is as the MJCF has it."""
    scene, robot = _two("")
    data = mujoco.MjData(scene.model)
    data.qpos[:] = 0.9, 0.2
    mujoco.mj_kinematics(scene.model, data)
    tool, _ = KinematicChain(scene, robot).place(torch.tensor([[0.9, 0.2]], dtype=torch.float64))
    np.testing.assert_allclose(tool.m[0], data.site("tool").xpos, atol=1e-12)


@pytest.mark.parametrize(
    ("joint", "names", "says"),
    [
        ('type="slide"', ("j0", "j1"), "'j1' of bent is no hinge"),
        ("", ("j1", "j0"), "from the base to the tool"),
    ],
)
def test_unsupported_joints_are_refused(joint: str, names: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        KinematicChain(*_two(joint, names))


def test_unknown_joint_is_named() -> None:
    with pytest.raises(UnknownNameError, match=r"Unknown joint 'j8'.*Known: j0, j1"):
        KinematicChain(*_two("", ("j0", "j8")))


def test_inverse_kinematics_arrives_and_stays_in_range(chain: KinematicChain) -> None:
    goal_m = torch.tensor([[0.5, 0.1, 0.2], [0.4, -0.2, 0.3]], dtype=torch.float64)
    down = torch.tensor([[0.0, 1.0, 0.0, 0.0]], dtype=torch.float64).expand(2, 4)
    home = torch.tensor(PANDA.home_rad, dtype=torch.float64).expand(2, 7)
    q, left = chain.inverse(Pose(goal_m, down), home)
    assert float(left.max()) < 1e-3
    assert bool(((q >= chain.low_rad) & (q <= chain.high_rad)).all())
    torch.testing.assert_close(chain.place(q)[0].m, goal_m, rtol=0, atol=1e-3)


@settings(deadline=None)
@given(st.integers(0, 1000))
def test_the_written_out_solver_is_a_solver(seed: int) -> None:
    rng = torch.Generator().manual_seed(seed)
    half = torch.randn(4, 6, 7, generator=rng, dtype=torch.float64)
    matrix = half @ half.transpose(1, 2) + 0.01 * torch.eye(6, dtype=torch.float64)
    right = torch.randn(4, 6, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(
        solve_positive(matrix, right), torch.linalg.solve(matrix, right), rtol=1e-7, atol=1e-7
    )


def test_the_posture_moves_no_tool(chain: KinematicChain) -> None:
    """Without a tool error the pull to the posture stays in the null space, except for the damping."""
    q = torch.tensor(PANDA.home_rad, dtype=torch.float64)[None]
    tool, links = chain.place(q)
    jacobian = chain.jacobian(links, tool.m)
    posture = torch.full((1, 7), 0.3, dtype=torch.float64)
    step = damped_step(jacobian, torch.zeros(1, 6, dtype=torch.float64), posture, 1e-4, 1.0)
    assert float(step.norm()) > 0.005
    assert float((jacobian @ step.unsqueeze(-1)).norm()) < 1e-4


def at(chain: KinematicChain, q: Tensor) -> tuple[Pose, Pose]:
    return chain.place(q)


def test_a_cartesian_command_moves_the_tool_that_way(chain: KinematicChain) -> None:
    """One full step along x and a turn: the servos' targets match that pose up to linearisation."""
    control = Cartesian(chain, PANDA, Reach("yaw", step_m=0.01, step_rad=0.05))
    q = torch.tensor(PANDA.home_rad, dtype=torch.float64)[None]
    tool, links = at(chain, q)
    action = torch.tensor([[1.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
    target, memory = control.command(control.begin(q, tool), action, q, tool, links)
    moved = pose_error(at(chain, target)[0], tool)[0]
    torch.testing.assert_close(
        moved, torch.tensor([0.01, 0, 0, 0, 0, 0.05], dtype=torch.float64), rtol=0, atol=1e-3
    )
    assert memory.shape == (1, 7)


def test_a_blocked_arm_presses_within_its_leash(chain: KinematicChain) -> None:
    """The tool cannot move while commands continue: its target stays within 4 cm."""
    control = Cartesian(chain, PANDA, Reach("full"))
    q = torch.tensor(PANDA.home_rad, dtype=torch.float64)[None]
    tool, links = at(chain, q)
    memory = control.begin(q, tool)
    for _ in range(50):
        _, memory = control.command(memory, torch.ones(1, 6, dtype=torch.float64), q, tool, links)
    assert float((memory[:, :3] - tool.m).abs().max()) <= 0.04 + 1e-9
    lead = to_rotvec(multiply(memory[:, 3:], conjugate(tool.quat)))
    assert float(lead.norm()) <= 0.2 + 1e-6


def test_joint_targets_keep_speed_and_leash(chain: KinematicChain) -> None:
    q = torch.tensor(PANDA.home_rad, dtype=torch.float64)[None]
    tool, links = at(chain, q)
    speeds = JointVelocity(chain, PANDA, control_hz=20.0)
    target, memory = speeds.command(
        speeds.begin(q, tool), torch.full((1, 7), 1.0, dtype=torch.float64), q, tool, links
    )
    torch.testing.assert_close(target, q + 0.05)
    for _ in range(50):
        target, memory = speeds.command(memory, torch.full((1, 7), 2.0, dtype=torch.float64), q, tool, links)
    torch.testing.assert_close(target, torch.minimum(q + 0.3, chain.high_rad))
    places = JointPosition(chain, PANDA)
    target, _ = places.command(places.begin(q, tool), chain.low_rad[None], q, tool, links)
    torch.testing.assert_close(target, q - 0.3)


def test_own_robot_from_a_yaml_file(tmp_path: Path) -> None:
    """A YAML file beside an MJCF is a robot; what is wrong with one is said by key."""
    (tmp_path / "mine.xml").write_text(PANDA.path.read_text())
    lines = [
        "name: mine",
        "asset: mine.xml",
        f"joints: [{', '.join(PANDA.joints)}]",
        f"home_rad: {list(PANDA.home_rad)}",
        f"speed_rad_s: {list(PANDA.speed_rad_s)}",
        "fingers: [finger_left, finger_right]",
        "open_m: 0.04",
    ]
    path = tmp_path / "mine.yaml"
    path.write_text("\n".join(lines))
    robot = load_robot(str(path))
    assert robot.joints == PANDA.joints
    assert compile_scene(ASSETS / "lift.xml", robot.path).model.nq == 16
    for old, new, says in (
        ("home_rad: ", "home_rad: [x] #", "home_rad"),
        ("speed_rad_s: ", "speed_rad_s: [1.0] #", "one entry per joint"),
        ("open_m: 0.04", "opne_m: 0.04", "opne_m"),
        ("speed_rad_s: [", "speed_rad_s: [-1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 0.0] #", "expected speeds above 0"),
    ):
        path.write_text("\n".join(lines).replace(old, new))
        with pytest.raises((ConfigError, UnknownNameError), match=says):
            load_robot(str(path))
    path.write_text("\n".join(lines).replace("mine.xml", "gone.xml"))
    with pytest.raises(ConfigError, match=r"gone\.xml"):
        load_robot(str(path))
    path.write_text("name: [")
    with pytest.raises(ConfigError, match="valid YAML"):
        load_robot(str(path))
    with pytest.raises(UnknownNameError, match="panda"):
        load_robot("pandaa")
    with pytest.raises(ConfigError, match=r"gone\.yaml does not exist. Give a robot of robo-rl \(panda\)"):
        load_robot(str(tmp_path / "gone.yaml"))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "arm.urdf",
            '<robot name="r"><link name="a"><collision><geometry><mesh filename="parts/gone.stl"/></geometry>'
            "</collision></link></robot>",
            r"arm\.urdf names a mesh that is not there: parts/gone\.stl\. Expected .*/parts/gone\.stl\. Put",
        ),
        (
            "ros.urdf",
            '<robot name="r"><link name="a"><collision><geometry>'
            '<mesh filename="package://my_arm/gone.stl"/></geometry>'
            "</collision></link></robot>",
            r"ros\.urdf names a mesh that is not there: package://my_arm/gone\.stl.*packages of ROS are not "
            r"searched",
        ),
        (
            "arm.xml",
            '<mujoco><compiler meshdir="parts"/><asset><mesh name="a" file="a.stl"/><mesh name="b" '
            'file="b.obj"/></asset><worldbody><geom type="mesh" mesh="a"/></worldbody></mujoco>',
            r"arm\.xml names 2 meshes that are not there: a\.stl, b\.obj.*/parts/a\.stl",
        ),
    ],
)
def test_missing_mesh_is_reported(tmp_path: Path, name: str, text: str, says: str) -> None:
    """The message names the model, all missing meshes and the searched folders."""
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        compile_scene(ASSETS / "lift.xml", path)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match=says):
        compile_scene(path)


def test_missing_scene_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        compile_scene(tmp_path / "nowhere.xml")


def test_mesh_is_found_in_meshdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In `meshdir`, relative to the model, in any working folder."""
    (tmp_path / "robot" / "parts").mkdir(parents=True)
    solid = "".join(f"v {corner}\n" for corner in ("0 0 0", "1 0 0", "0 1 0", "0 0 1"))
    (tmp_path / "robot" / "parts" / "a.obj").write_text(f"{solid}f 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n")
    (tmp_path / "robot" / "arm.xml").write_text(
        '<mujoco><compiler meshdir="parts"/><asset><mesh name="a" file="a.obj"/></asset>'
        '<worldbody><geom type="mesh" mesh="a"/></worldbody></mujoco>'
    )
    monkeypatch.chdir(tmp_path)
    assert compile_scene(Path("robot/arm.xml")).model.nmesh == 1
