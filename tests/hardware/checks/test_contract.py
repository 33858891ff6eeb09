"""Check of a bundle against a robot: every mismatch is one sentence, before anything moves."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.checks.arm_contract import check_contract, check_goal, goal_names, mismatches
from hardware.description import CameraDescription
from hardware.layout import Segment, action_joints, parse_unit
from policies.deploy.bundle import Bundle
from robo_rl.core.errors import CheckpointError
from robo_rl.core.spec import ArraySpec, EnvSpec
from tests.hardware.arm_descriptions import arm
from tests.hardware.bundles import arm_env

SMALLER = "pictures cannot be scaled down to that size."


def other(chunks: Bundle, env: EnvSpec, rates: dict[str, float] | None = None) -> Bundle:
    """The same with another contract."""
    manifest = chunks.manifest | {"rates_hz": rates or {key: env.control_hz for key in env.obs}}
    return Bundle(chunks.folder, manifest, env, 1, 16, 8, "zero", None)


def test_matching_bundle_has_no_mismatches(chunks: Bundle) -> None:
    assert not list(mismatches(chunks, arm()))
    check_contract(chunks, arm())


@pytest.mark.parametrize(
    ("env", "robot", "sentences"),
    [
        (
            arm_env(("a", "b", "x")),
            arm(),
            [
                "It commands the joints x, which the robot does not have (a, b, c).",
                "It does not command the joints c.",
                "It observes the joints x, which the robot does not have.",
            ],
        ),
        (
            arm_env(limit_rad=1.5),
            arm(),
            [
                f"Joint {name} is commanded from -1.5 to 1.5 rad; the robot's range is -1 to 1 rad."
                for name in "abc"
            ],
        ),
        (
            arm_env(control_hz=100.0),
            arm(),
            [
                "It sends commands at 100 Hz, but the robot takes them at 50 Hz.",
                "It observes states at 100 Hz, but the robot sends them at 50 Hz.",
            ],
        ),
        (
            arm_env(**{"image.top": ArraySpec((48, 64, 3), "uint8")}),
            arm(),
            ["It needs the camera 'top'; the robot has none."],
        ),
        (
            arm_env(**{"depth.top": ArraySpec((48, 64), unit="m")}),
            arm(cameras={"top": {"width_px": 32, "height_px": 48, "rate_hz": 60}}),
            [f"It expects 64 x 48 pictures of the camera 'top', and the robot's 32 x 48 {SMALLER}"],
        ),
        (
            arm_env(**{"points.top": ArraySpec((64, 3), unit="m")}),
            arm(),
            [
                "The bundle needs points.top, which no node of an arm publishes. Point clouds are not sent, "
                "but depths are: train with env=...:senses=depth."
            ],
        ),
        (
            arm_env(**{"image.top": ArraySpec((48, 64, 3), "uint8")}),
            arm(cameras={"top": {"width_px": 640, "height_px": 360, "rate_hz": 30}}),
            [
                f"It expects 64 x 48 pictures of the camera 'top', and the robot's 640 x 360 {SMALLER}",
                "It needs the camera 'top' at 50 Hz; the robot's has 30 Hz.",
            ],
        ),
        (
            EnvSpec("gym/x", {"state": ArraySpec((3,))}, arm_env().action, 10, 50.0),
            arm(),
            [
                "The unit of its observation 'state' does not name the numbers, so they cannot be taken from "
                "the robot's topics."
            ],
        ),
    ],
    ids=["joints", "limits", "rates", "no camera", "depth", "points", "camera", "no names"],
)  # fmt: skip
def test_each_mismatch_is_one_sentence(
    chunks: Bundle, env: EnvSpec, robot: Any, sentences: list[str]
) -> None:
    found = other(chunks, env)
    assert list(mismatches(found, robot)) == sentences
    said = f"The bundle {found.folder} does not fit the robot 'small'"  # most are called 'bundle'
    with pytest.raises(CheckpointError, match=re.escape(said)):
        check_contract(found, robot)


def test_goal_of_another_size_is_refused(chunks: Bundle) -> None:
    """Before anything moves; otherwise the policy would report it only while it runs."""
    assert goal_names(chunks) == ("goal",)
    check_goal(chunks, 1, "goal=[0.4]")
    with pytest.raises(
        CheckpointError,
        match=r"observes a goal of 1 numbers \(m: goal\), but goal=\[0, 1\] sends 2 numbers\.",
    ):
        check_goal(chunks, 2, "goal=[0, 1]")
    blind = other(
        chunks, EnvSpec("x", {"state": ArraySpec((3,), unit="rad: a, b, c")}, arm_env().action, 10, 50.0)
    )
    with pytest.raises(CheckpointError, match="observes no goal, but the task sends 3"):
        check_goal(blind, 3, "the task")


def test_flight_bundle_does_not_fit_an_arm(chunks: Bundle) -> None:
    """The advice is the robot that it can fly, not another import of its data: it has none."""
    from sim.flight.vec_env import QuadVecEnv

    flight = other(chunks, QuadVecEnv("hover", 1).spec)
    (sentence,) = mismatches(flight, arm())
    assert "motor command" in sentence
    with pytest.raises(CheckpointError) as refused:
        check_contract(flight, arm())
    said = str(refused.value)
    assert said.endswith(f"in simulation: robo-rl run bundle={flight.folder} robot=sim_quad")
    assert "import" not in said
    race = other(chunks, replace(flight.env, name="quad/race:track=splits"))
    with pytest.raises(CheckpointError, match=f"in simulation: robo-rl run bundle={race.folder}$"):
        check_contract(race, arm())


def test_unit_is_parsed_into_segments() -> None:
    assert parse_unit("rad: a, b; m: x") == (Segment("rad", ("a", "b")), Segment("m", ("x",)))
    assert parse_unit("rad") == ()
    assert parse_unit("") == ()
    assert parse_unit("rad: a,; m: x") == ()
    assert action_joints("rad: a, b") == ("a", "b")
    assert action_joints("m: a, b") == ()
    assert action_joints("motor command: -1 stopped, 1 full speed") == ()


def test_descriptions_hold_cameras() -> None:
    robot = arm(cameras={"top": {"width_px": 640, "height_px": 480, "rate_hz": 30}})
    assert robot.cameras == {"top": CameraDescription(640, 480, 30.0)}


def test_contract_verb(chunks: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`robo-rl contract`: exit code 0 and one line, or 2 and one line that names every mismatch."""
    from robo_rl.apps.cli.main import main

    good = tmp_path / "good.yaml"
    rows = "\n".join(
        f"  - {{name: {n}, low_rad: -1, high_rad: 1, velocity_rad_s: 2, acceleration_rad_s2: 20}}"
        for n in "abc"
    )
    good.write_text(f"name: mine\ncommand_hz: 50\nstate_hz: 50\njoints:\n{rows}\n")
    assert main(["contract", f"bundle={chunks.folder}", f"robot={good}"]) == 0
    assert f"{chunks.folder} fits mine: 3 joints" in capsys.readouterr().out
    assert main(["contract", f"bundle={chunks.folder}", "robot=sim_arm"]) == 2
    said = capsys.readouterr().err
    assert "It commands the joints a, b, c" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(("chunk", "graphs"), [(1, 1), (16, 2), (16, 1)])
def test_a_bundle_may_act_at_a_lower_rate_than_the_robot(chunks: Bundle, chunk: int, graphs: int) -> None:
    """Single actions, corrections of chunks, and chunks alone; none at a higher rate."""
    manifest = {"rates_hz": {"state": 10.0}, "graphs": [{"file": "policy.onnx"}] * graphs}

    def made(hz: float) -> Bundle:
        return replace(
            chunks, manifest=chunks.manifest | manifest, env=arm_env(control_hz=hz), chunk=chunk, execute=1
        )

    assert not list(mismatches(made(10.0), arm()))
    assert not list(mismatches(made(50.0), arm()))
    (sentence,) = mismatches(made(100.0), arm())
    assert sentence == "It sends commands at 100 Hz, but the robot takes them at 50 Hz."


@pytest.mark.parametrize("hz", [math.nan, -50.0, 0.0, math.inf])
def test_impossible_rates_are_refused(chunks: Bundle, hz: float) -> None:
    """NaN compares false with everything, so a test for `more than the robot` alone accepts it."""
    sentence = f"control {hz:g} Hz"
    assert any(sentence in found for found in mismatches(other(chunks, arm_env(control_hz=hz)), arm()))
    rates = {"state": hz}
    assert any(f"state {hz:g} Hz" in found for found in mismatches(other(chunks, arm_env(), rates), arm()))


@pytest.mark.parametrize("unit", ["rad", "", "m: a, b"])
def test_joints_without_names_are_a_matter_of_the_dataset(unit: str, chunks: Bundle) -> None:
    """The robot's description is right: the cure is the unit in the dataset's contract."""
    env = arm_env()
    with pytest.raises(CheckpointError) as refused:
        check_contract(other(chunks, replace(env, action=replace(env.action, unit=unit))), arm())
    assert 'write them as in "rad: a, b, c"' in str(refused.value)
    assert "EnvSpec that recorded it, or in its dataset.json, and train again." in str(refused.value)
    assert "description" not in str(refused.value)
