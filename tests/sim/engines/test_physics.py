"""Every engine against formulas: falling, swinging, sliding, turning, energy, servos, friction, changed
parameters.
"""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from numpy import ndarray

from sim.engines.protocol import Physics
from sim.engines.scene import Scene
from tests.sim.engines.worlds import ENGINES, GRAVITY_M_S2, begin, energy_j, run, scene_of, seen

_HARD = {"impratio": 100, "cone": "elliptic"}  # MuJoCo's friction without creep
_BALL = """<body name="ball" pos="0 0 5"><freejoint name="ball"/>
    <geom type="sphere" size="0.05" mass="0.3"/></body>"""
_FLOOR = '<geom type="plane" size="5 5 0.1" friction="0.5 0.005 0.0001"/>'
_CUBE = """<body name="cube" pos="0 0 0.05"><freejoint name="cube"/>
    <geom type="box" size="0.05 0.05 0.05" mass="1" friction="0.5 0.005 0.0001" condim="3"/></body>"""


@pytest.mark.parametrize("name", ENGINES)
def test_free_fall_matches_the_formula(name: str) -> None:
    """One second: -g t^2 / 2 to first order in the step, nothing sideways, and -g t exactly."""
    scene = scene_of(f"<worldbody>{_BALL}</worldbody>", timestep=0.001)
    physics = run(begin(name, scene), 1.0)
    assert float(physics.qpos[0, 2]) == pytest.approx(5.0 - 0.5 * GRAVITY_M_S2, abs=GRAVITY_M_S2 * 0.001)
    assert float(physics.qvel[0, 2]) == pytest.approx(-GRAVITY_M_S2, rel=1e-4)
    assert physics.qpos[0, :2].abs().max() == 0.0
    torch.testing.assert_close(physics.body_m[0, scene.body("ball")], physics.qpos[0, :3])


@pytest.mark.parametrize("name", ENGINES)
def test_a_thrown_hammer_turns_about_its_centre_of_mass(name: str) -> None:
    """Its origin is 0.2 m from the centre of mass: the centre flies a parabola; momentum and energy are
    constant.
    """
    hammer = """<body name="hammer" pos="0 0 5"><freejoint name="hammer"/>
        <inertial pos="0.2 0 0.05" quat="0.9 0.1 0.3 0.2" mass="0.7" diaginertia="0.01 0.02 0.025"/></body>"""
    scene = scene_of(f"<worldbody>{hammer}</worldbody>", timestep=0.001)
    model, body = scene.model, scene.body("hammer")
    turn = np.array([0.9, -0.2, 0.3, 0.1]) / np.linalg.norm([0.9, -0.2, 0.3, 0.1])
    engine = begin(name, scene, qpos=[0, 0, 5, *turn], qvel=[1.0, -0.5, 2.0, 3.0, -1.0, 4.0])
    before = _moments(scene, body, seen(engine))
    energy = energy_j(scene, seen(engine))
    physics = run(engine, 0.5)
    after = _moments(scene, body, physics)
    fallen = before[0] + before[1] * 0.5 + np.array([0.0, 0.0, -0.5 * GRAVITY_M_S2 * 0.25])
    np.testing.assert_allclose(after[0], fallen, atol=0.01)
    np.testing.assert_allclose(after[1], before[1] - np.array([0.0, 0.0, 0.5 * GRAVITY_M_S2]), atol=0.02)
    np.testing.assert_allclose(after[2], before[2], atol=0.01 * np.linalg.norm(before[2]))
    assert energy_j(scene, physics) == pytest.approx(
        energy, abs=0.01 * float(model.body_mass[body]) * GRAVITY_M_S2
    )


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("amplitude_rad", [0.1, 1.0])
def test_a_pendulum_keeps_its_period(name: str, amplitude_rad: float) -> None:
    """T = 2 pi sqrt(I / m g d) (1 + a^2/16 + 11 a^4/3072), from five half swings; the series is good to 1e-4
    here.
    """
    bob = """<body name="rod"><joint name="hinge" axis="0 1 0" pos="0.1 0 0.2"/>
        <inertial pos="0.1 0 -0.2" mass="0.5" diaginertia="0.002 0.002 0.001"/></body>"""
    scene = scene_of(f"<worldbody>{bob}</worldbody>", timestep=0.001)
    inertia = 0.002 + 0.5 * 0.4**2
    small_s = 2.0 * math.pi * math.sqrt(inertia / (0.5 * GRAVITY_M_S2 * 0.4))
    period_s = small_s * (1.0 + amplitude_rad**2 / 16.0 + 11.0 * amplitude_rad**4 / 3072.0)
    engine = begin(name, scene, qpos=[amplitude_rad])
    angles = [float(run(engine, 0.004).qpos[0, 0]) for _ in range(round(2.8 * period_s / 0.004))]
    crossings = [
        (i + angles[i] / (angles[i] - angles[i + 1]) + 1) * 0.004
        for i in range(len(angles) - 1)
        if angles[i] * angles[i + 1] < 0.0
    ]
    assert (crossings[4] - crossings[0]) / 2.0 == pytest.approx(period_s, rel=0.003)
    assert max(angles[-700:]) == pytest.approx(amplitude_rad, rel=0.02)


@pytest.mark.parametrize("name", ENGINES)
def test_an_undamped_double_pendulum_keeps_its_energy(name: str) -> None:
    """Two seconds of chaotic motion at 1 ms: energy within 3 % of its range."""
    arms = """<body><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02" mass="0.5"/>
        <body pos="0 0 -0.4"><joint axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.02" mass="0.4"/>
        </body></body>"""
    scene = scene_of(f"<worldbody>{arms}</worldbody>", timestep=0.001)
    engine = begin(name, scene, qpos=[2.0, 1.0])
    whole_j = 2.0 * GRAVITY_M_S2 * (0.5 * 0.2 + 0.4 * 0.55)
    first, worst = energy_j(scene, seen(engine)), 0.0
    for _ in range(20):
        worst = max(worst, abs(energy_j(scene, run(engine, 0.1)) - first))
    assert worst < 0.03 * whole_j


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("slope", [0.45, 0.55])
def test_a_box_slides_outside_the_friction_cone_only(name: str, slope: float) -> None:
    """Friction 0.5: on a slope of 0.45 it stays, on one of 0.55 it slides at g (sin - 0.5 cos)."""
    angle = math.atan(slope)
    down, aside = GRAVITY_M_S2 * math.cos(angle), GRAVITY_M_S2 * math.sin(angle)
    scene = scene_of(
        f"<worldbody>{_FLOOR}{_CUBE}</worldbody>",
        timestep=0.002,
        gravity=f"{aside} 0 {-down}",
        impratio=100,
        cone="elliptic",
    )
    engine = begin(name, scene)
    run(engine, 0.1)  # settles
    start = seen(engine)
    gone_m = float(run(engine, 0.5).qpos[0, 0] - start.qpos[0, 0])
    if slope < 0.5:
        assert abs(gone_m) < 0.001
    else:
        formula_m = float(start.qvel[0, 0]) * 0.5 + 0.5 * (aside - 0.5 * down) * 0.25
        assert gone_m == pytest.approx(formula_m, rel=0.05)


@pytest.mark.parametrize("name", ENGINES)
def test_friction_can_be_scaled(name: str) -> None:
    """Worlds side by side on a slope of 0.7: friction 0.5 slides, twice as much holds."""
    angle = math.atan(0.7)
    pull = f"{GRAVITY_M_S2 * math.sin(angle)} 0 {-GRAVITY_M_S2 * math.cos(angle)}"
    scene = scene_of(
        f"<worldbody>{_FLOOR}{_CUBE}</worldbody>", timestep=0.002, gravity=pull, impratio=100, cone="elliptic"
    )
    engine = begin(name, scene, 2)
    engine.randomise(torch.tensor([1]), {"friction_scale": torch.tensor([2.0])})
    gone_m = run(engine, 0.5).qpos[:, 0]
    assert gone_m[0] > 0.15
    assert abs(gone_m[1]) < 0.01


_SLIDER = """<worldbody><body name="slider"><joint name="slider" type="slide" axis="1 0 0" {joint}/>
    <geom type="box" size="0.05 0.05 0.05" mass="2" contype="0" conaffinity="0"/></body></worldbody>
    <actuator>{actuator}</actuator>"""


@pytest.mark.parametrize("name", ENGINES)
def test_a_servo_pulls_no_harder_than_it_may(name: str) -> None:
    """Target at 5 m with a limit of 1 m, it pulls 3 N of 1000: x = F t^2 / 2 m with 2 kg and 1 kg of
    armature.
    """
    servo = '<position joint="slider" kp="1000" kv="0" forcerange="-3 3" ctrlrange="0 1"/>'
    scene = scene_of(_SLIDER.format(joint='armature="1"', actuator=servo), timestep=0.001)
    engine = begin(name, scene)
    physics = run(engine, 0.5, torch.tensor([5.0]))
    assert float(physics.qpos[0, 0]) == pytest.approx(0.5 * 3.0 / 3.0 * 0.25, rel=0.01)
    assert float(physics.qvel[0, 0]) == pytest.approx(0.5, rel=0.01)


@pytest.mark.parametrize("name", ENGINES)
def test_a_servo_stops_where_its_command_is_clipped(name: str) -> None:
    scene = scene_of(
        _SLIDER.format(joint="", actuator='<position joint="slider" kp="200" kv="40" ctrlrange="0 0.1"/>'),
        timestep=0.002,
    )
    assert float(run(begin(name, scene), 3.0, torch.tensor([5.0])).qpos[0, 0]) == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("name", ENGINES)
def test_joint_damping_is_viscous(name: str) -> None:
    """v = v0 exp(-c t / m): 4 N s/m on 2 kg for half a second leaves 1/e; the scale doubles the exponent."""
    scene = scene_of(_SLIDER.format(joint='damping="4"', actuator=""), timestep=0.001)
    engine = begin(name, scene, 2, qvel=[1.0])
    engine.randomise(torch.tensor([1]), {"damping_scale": torch.tensor([[2.0]])})
    speeds = run(engine, 0.5).qvel[:, 0]
    torch.testing.assert_close(
        speeds, torch.tensor([math.exp(-1.0), math.exp(-2.0)]).double(), rtol=0.01, atol=0.0
    )


@pytest.mark.parametrize("name", ENGINES)
def test_dry_friction_holds_until_it_is_overcome(name: str) -> None:
    """2 N of it: 1.5 N moves nothing, 4 N moves 2 kg at 1 m/s^2."""
    motor = '<motor joint="slider"/>'
    scene = scene_of(_SLIDER.format(joint='frictionloss="2"', actuator=motor), timestep=0.002)
    assert abs(float(run(begin(name, scene), 0.5, torch.tensor([1.5])).qpos[0, 0])) < 0.005
    assert float(run(begin(name, scene), 0.5, torch.tensor([4.0])).qvel[0, 0]) == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("name", ENGINES)
def test_a_limit_stops_a_joint(name: str) -> None:
    scene = scene_of(_SLIDER.format(joint='range="-0.1 0.1" limited="true"', actuator=""), timestep=0.002)
    assert float(run(begin(name, scene, qvel=[1.0]), 0.3).qpos[0, 0]) < 0.12


@pytest.mark.parametrize("name", ENGINES)
def test_a_soft_servo_sags_by_the_weight_over_its_stiffness(name: str) -> None:
    """m g / kp = 2 x 9.81 / 400; half the stiffness, or twice the mass, doubles it. Compensated gravity: no
    sag.
    """
    joint = '<joint name="lift" type="slide" axis="0 0 1"/>'
    geom = '<geom type="box" size="0.05 0.05 0.05" mass="2" contype="0" conaffinity="0"/>'
    bodies = f"""<body name="heavy">{joint}{geom}</body>
        <body name="light" gravcomp="1">{joint.replace("lift", "light")}{geom}</body>"""
    servos = "".join(f'<position joint="{each}" kp="400" kv="60"/>' for each in ("lift", "light"))
    scene = scene_of(f"<worldbody>{bodies}</worldbody><actuator>{servos}</actuator>", timestep=0.002)
    engine = begin(name, scene, 3)
    engine.randomise(torch.tensor([1]), {"kp_scale": torch.tensor([[0.5, 0.5]])})
    mass = torch.ones(1, scene.model.nbody)
    mass[0, scene.body("heavy")] = 2.0
    engine.randomise(torch.tensor([2]), {"mass_scale": mass})
    qpos, sag_m = run(engine, 3.0).qpos, 2.0 * GRAVITY_M_S2 / 400.0
    torch.testing.assert_close(
        qpos[:, 0], -sag_m * torch.tensor([1.0, 2.0, 2.0]).double(), rtol=1e-3, atol=0.0
    )
    assert qpos[:, 1].abs().max() < 1e-6


@pytest.mark.parametrize("name", ENGINES)
def test_a_weaker_servo_does_not_hold_what_a_strong_one_does(name: str) -> None:
    """A limit of 30 N holds 2 kg (19.6 N); half of it does not, and falls with (19.6 - 15) / 2 m/s^2."""
    joint = '<joint name="lift" type="slide" axis="0 0 1"/>'
    body = (
        f'<body>{joint}<geom type="box" size="0.05 0.05 0.05" mass="2" contype="0" conaffinity="0"/></body>'
    )
    servo = '<position joint="lift" kp="40000" kv="1000" forcerange="-30 30"/>'
    scene = scene_of(f"<worldbody>{body}</worldbody><actuator>{servo}</actuator>", timestep=0.002)
    engine = begin(name, scene, 2)
    engine.randomise(torch.tensor([1]), {"strength_scale": torch.tensor([[0.5]])})
    held_m, fallen_m = run(engine, 1.0).qpos[:, 0].tolist()
    assert held_m == pytest.approx(-2.0 * GRAVITY_M_S2 / 40000.0, rel=0.01)
    assert fallen_m == pytest.approx(-0.5 * (GRAVITY_M_S2 - 7.5), rel=0.02)


def _moments(scene: Scene, body: int, physics: Physics) -> tuple[ndarray, ndarray, ndarray]:
    """(centre of mass, its speed, angular momentum about it) of a free body, world 0."""
    turn, inertial = np.empty(9), np.empty(9)
    model, qpos, qvel = scene.model, physics.qpos[0].numpy(), physics.qvel[0].numpy()
    mujoco.mju_quat2Mat(turn, qpos[3:7])
    mujoco.mju_quat2Mat(inertial, model.body_iquat[body])
    pose, axes = turn.reshape(3, 3), inertial.reshape(3, 3)
    arm, spin = pose @ model.body_ipos[body], pose @ qvel[3:6]
    tensor = pose @ axes @ np.diag(model.body_inertia[body]) @ axes.T @ pose.T
    return qpos[:3] + arm, qvel[:3] + np.cross(spin, arm), tensor @ spin
