"""Servos with motors in engines: physics with known answers, what is saved, what is refused."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.seeding import EpisodeSeeds
from sim.actuators.load import load_actuator
from sim.actuators.motors import ServoMotors
from sim.engines.scene import Scene
from sim.registry import make_env
from sim.scenes.task_env import make_task_env
from sim.vec.conformance import check_vec_env
from tests.sim.engines.worlds import ENGINES, begin, engine_of, run, scene_of, start_of

FLYWHEEL = """<worldbody><body><joint name="wheel" type="hinge" axis="0 0 1"/><inertial pos="0 0 0" mass="1"
  diaginertia="0.05 0.05 0.05"/></body></worldbody>
  <actuator><position name="wheel" joint="wheel" kp="{kp}" kv="{kv}" forcerange="-2 2"/></actuator>"""
NONE = ServoMotors((np.inf,), (1.0,), (0.0,), (0.0,))


def flywheel(motors: ServoMotors | None, kp: float = 20.0, kv: float = 0.0) -> Scene:
    """0.05 kg m^2 on a servo of at most 2 Nm; nothing falls."""
    return replace(scene_of(FLYWHEEL.format(kp=kp, kv=kv), gravity="0 0 0", timestep="0.002"), motors=motors)


@pytest.mark.parametrize("name", ENGINES)
def test_a_motor_runs_up_to_its_no_load_speed(name: str) -> None:
    """With a distant target: I dv/dt = F (1 - v / v0), so v = v0 (1 - exp(-t F / (I v0))), at most 3
    rad/s.
    """
    with closing(begin(name, flywheel(replace(NONE, no_load=(3.0,))))) as engine:
        for elapsed_s in (0.05, 0.1, 0.2, 1.0):
            seen = run(engine, elapsed_s if elapsed_s == 0.05 else elapsed_s / 2.0, torch.tensor([1e4]))
            expected = 3.0 * (1.0 - np.exp(-elapsed_s * 2.0 / (0.05 * 3.0)))
            if elapsed_s < 1.0:
                assert float(seen.qvel[0, 0]) == pytest.approx(expected, rel=0.03), elapsed_s
        assert 2.98 < float(seen.qvel[0, 0]) < 3.001


@pytest.mark.parametrize("name", ENGINES)
def test_without_a_curve_the_speed_is_unlimited(name: str) -> None:
    """2 Nm on 0.05 kg m^2: 40 rad/s after a second, so the speed above results from the curve."""
    with closing(begin(name, flywheel(None))) as engine:
        assert float(run(engine, 1.0, torch.tensor([1e4])).qvel[0, 0]) == pytest.approx(40.0, rel=1e-3)


@pytest.mark.parametrize("name", ENGINES)
def test_a_lagging_servo_trails_a_ramp(name: str) -> None:
    """A stiff servo's joint is where the lagged target is: x(t) = 1 - exp(-t / tau) of a step of 0.1 rad."""
    stiff = flywheel(replace(NONE, lag_s=(0.2,)), kp=200.0, kv=6.4)  # 63 rad/s, critically damped
    with closing(begin(name, stiff)) as engine:
        seen = [float(run(engine, 0.1, torch.tensor([0.1])).qpos[0, 0]) for _ in range(8)]
    time_s = 0.1 * np.arange(1, 9)
    late_s = 6.4 / 200.0  # of a ramp, by the servo itself
    np.testing.assert_allclose(seen[2:], 0.1 * (1.0 - np.exp(-(time_s - late_s) / 0.2))[2:], atol=0.002)


@pytest.mark.parametrize("name", ENGINES)
def test_a_joint_stops_at_the_near_side_of_the_play(name: str) -> None:
    """Backlash of 0.04 rad, an overdamped servo: from below it rests at 0.48, from above at 0.52."""
    scene = flywheel(replace(NONE, backlash=(0.04,)), kp=20.0, kv=4.0)
    with closing(begin(name, scene)) as engine:
        assert float(run(engine, 4.0, torch.tensor([0.5])).qpos[0, 0]) == pytest.approx(0.48, abs=5e-4)
        run(engine, 4.0, torch.tensor([1.0]))
        assert float(run(engine, 4.0, torch.tensor([0.5])).qpos[0, 0]) == pytest.approx(0.52, abs=5e-4)
        rest = run(engine, 1.0, torch.tensor([0.53])).qpos[0, 0]  # a change that stays within the play
        assert float(rest) == pytest.approx(0.52, abs=5e-4)


@pytest.mark.parametrize("name", ENGINES)
def test_dry_friction_of_the_model_holds_a_joint(name: str, tmp_path: Path) -> None:
    """A tenth of 2 Nm: a servo that pulls with 0.15 Nm does not move the wheel, one with 0.25 Nm does."""
    path = tmp_path / "dry.yaml"
    path.write_text("coulomb: 0.1")
    model = load_actuator(str(path))
    assert model is not None
    import mujoco

    spec = mujoco.MjSpec.from_string(flywheel(None, kp=1.0).xml)
    model.add_friction(spec)
    scene = Scene(spec.compile(), spec.to_xml())
    assert model.motors(scene.model) is None
    assert scene.model.dof_frictionloss.tolist() == pytest.approx([0.2])
    with closing(begin(name, scene)) as engine:
        assert abs(float(run(engine, 0.3, torch.tensor([0.15])).qpos[0, 0])) < 2e-3
        assert abs(float(run(engine, 0.3, torch.tensor([0.25])).qpos[0, 0])) > 0.02


@pytest.mark.parametrize("engine", ENGINES)
def test_a_slow_arm_arrives_later(engine: str, tmp_path: Path) -> None:
    """First joint by 0.5 rad: with motors that end at 0.6 rad/s it takes three times as long."""
    path = tmp_path / "slow.yaml"
    path.write_text("no_load_rad_s: 0.6")
    steps = {}
    for actuator in ("none", str(path)):
        env = make_task_env("reach", 1, engine=engine, actuator=actuator, control="joint_position")
        env.reset(EpisodeSeeds(("slow", 0)))
        start, count = env.view.q_rad[0].clone(), 0
        while float(env.view.q_rad[0, 0] - start[0]) < 0.45 and count < 60:
            target = start.clone()
            target[0] += 0.5
            env.step(target[None].float())
            count += 1
        steps[actuator] = count
        env.close()
    assert steps["none"] <= 12
    assert 2.0 * steps["none"] <= steps[str(path)] < 60


@pytest.mark.parametrize("engine", ENGINES)
def test_zero_lag_is_bit_identical(engine: str, tmp_path: Path) -> None:
    """A lag of zero for one servo uses the slow path, one sub-step at a time: the episode is equal bit for
    bit.
    """
    path = tmp_path / "nothing.yaml"
    path.write_text("lag_s: {joint1: 0.0}")
    ends = []
    for actuator in ("none", str(path)):
        env = make_task_env("lift", 2, engine=engine, actuator=actuator, randomise="wide", threads=1)
        env.reset(EpisodeSeeds(("same", 0)))
        for _ in range(12):
            obs = env.step(env.from_script(env.script()).float())[0]
        ends.append(obs["state"])
        env.close()
    assert torch.equal(*ends)


RANDOM = "no_load: [0.7, 1.3]\nlag: [0.5, 2.0]\nbacklash: [0.5, 2.0]\nstrength: [0.8, 1.2]\nkp: [0.9, 1.1]\n"


@pytest.mark.parametrize("engine", ENGINES)
def test_motors_keep_the_contract(engine: str, tmp_path: Path) -> None:
    """Purity, snapshots and restores bit for bit, with servos that lag and differ by episode."""
    path = tmp_path / "motors.yaml"
    path.write_text(RANDOM)
    name = f"arm/peg_insert:engine={engine},actuator=hobby,randomise={path}"
    check_vec_env(make_env(name, 3, max_episode_steps=9), steps=20)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lagging_world_is_saved_in_mid_motion(engine: str) -> None:
    """Lagged targets are saved: another engine continues bit for bit, and would not without them."""
    scene = flywheel(replace(NONE, lag_s=(0.1,)), kv=1.0)
    start = {"qpos": np.array([0.2]), "ctrl": np.array([0.3])}
    with closing(begin(engine, scene, 2, **start)) as first, closing(engine_of(engine, scene, 2)) as other:
        first.set_state(torch.tensor([1]), start_of(scene, 1, ctrl=np.array([-0.5])))
        run(first, 0.06, torch.tensor([1.0]))
        other.load({key: value.clone() for key, value in first.save().items()})
        for _ in range(3):
            one, two = (run(each, 0.05, torch.tensor([0.4])) for each in (first, other))
            assert torch.equal(one.qpos, two.qpos)
            assert torch.equal(one.qvel, two.qvel)
        assert len(set(one.qpos[:, 0].tolist())) == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_and_processes_change_nothing(engine: str) -> None:
    """Limits of torque are written into models: threads must not share them. PyBullet's processes receive the
    motors.
    """
    ends = []
    for threads in (1, 2):
        env = make_task_env(
            "reach", 33 if engine == "mujoco" else 16, engine=engine, threads=threads, actuator="geared"
        )
        env.reset(EpisodeSeeds(("threads", 0)))
        for _ in range(5):
            obs = env.step(env.from_script(env.script()).float())[0]
        ends.append(obs["state"])
        env.close()
    assert torch.equal(*ends)


def test_randomised_motors_differ_by_world(tmp_path: Path) -> None:
    """Equal commands and starts: two worlds whose motors have different no-load speeds move differently."""
    scene = flywheel(replace(NONE, no_load=(3.0,), lag_s=(0.05,), backlash=(0.1,)), kv=1.0)
    for change, told in (("no_load_scale", 1e4), ("lag_scale", 0.3), ("backlash_scale", 0.3)):
        with closing(begin("mujoco", scene, 2)) as engine:
            engine.randomise(torch.arange(2), {change: torch.tensor([[0.5], [1.0]])})
            engine.set_state(torch.arange(2), start_of(scene, 2))
            slow, plain = run(engine, 0.5, torch.tensor([told])).qpos[:, 0].tolist()
        assert abs(plain - slow) > 1e-3, change
        if change == "no_load_scale":
            assert slow < 0.6 * plain


def test_hands_and_bases_have_motors_as_well() -> None:
    for name in ("hand/reorient:actuator=geared", "mobile/rearrange:actuator=dc_motor"):
        env = make_env(name, 2, max_episode_steps=5)
        assert "actuator=" in env.spec.name
        check_vec_env(env, steps=6)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no_load: 3", "no_load_rad_s"),
        ("no_load_rad_s: 0", "above 0"),
        ("stall: 0.5", "1 or more"),
        ("lag_s: fast", "expected a number"),
        ("lag_s: {joint9: 0.1}", "joint7"),
        ("lag_s: -0.1", "0 or more"),
        ("", "nothing"),
        ("lag_s: [1", "valid YAML"),
    ],
)
def test_wrong_numbers_are_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text)
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        make_task_env("lift", 1, actuator=str(path))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("arm/lift:actuator=dcmotor", "dc_motor"),
        ("arm/lift:actuator=none.yaml", "none.yaml"),
        ("arm/lift:actuator=3", "expected text"),
        ("arm/lift:actuator=dc_motor,engine=isaacgym", "only the friction"),
        ("arm/lift:actuator=lag,engine=mjwarp", "only the friction"),
    ],
)
def test_unsupported_models_are_refused(name: str, says: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError), match=says):
        make_env(name, 1)


def test_ranges_of_missing_parameters_are_refused(tmp_path: Path) -> None:
    """By the key of the user's file."""
    path = tmp_path / "ranges.yaml"
    path.write_text("no_load: [0.5, 1.0]")
    with pytest.raises(ConfigError, match="'no_load' of the randomisation has nothing"):
        make_task_env("lift", 1, randomise=str(path), actuator="lag")
    make_task_env("lift", 1, randomise=str(path), actuator="dc_motor").close()


def test_a_change_of_a_missing_parameter_is_refused() -> None:
    """By the name that the caller of the engine gave."""
    change = {"no_load_scale": torch.full((1, 1), 0.5)}
    expected = pytest.raises(ConfigError, match="The change no_load_scale has nothing to scale")
    with closing(engine_of("mujoco", flywheel(replace(NONE, lag_s=(0.2,))))) as engine, expected:
        engine.randomise(torch.arange(1), change)


def test_a_motor_that_is_no_position_servo_is_refused(tmp_path: Path) -> None:
    scene = scene_of(
        FLYWHEEL.format(kp=1, kv=0).replace("<position ", "<general ").replace('kp="1" kv="0"', "")
    )
    path = tmp_path / "lag.yaml"
    path.write_text("lag_s: 0.1")
    model = load_actuator(str(path))
    assert model is not None
    with pytest.raises(ConfigError, match="no position servo"):
        model.motors(scene.model)


def test_a_curve_needs_a_limit(tmp_path: Path) -> None:
    scene = scene_of(FLYWHEEL.format(kp=1, kv=0).replace('forcerange="-2 2"', ""))
    model = load_actuator("dc_motor")
    assert model is not None
    with pytest.raises(ConfigError, match="no limit of torque"):
        model.motors(scene.model)
