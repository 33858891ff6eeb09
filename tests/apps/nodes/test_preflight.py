"""Mistakes of bundle, robot, driver and goal are reported before a node starts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from policies.deploy.bundle import MANIFEST, OWN_SUM, Bundle, sha256_of_manifest
from policies.vocabulary import unread_sentence
from robo_rl.apps.cli.main import main
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.nodes.preflight_goal import check_words
from robo_rl.core.errors import ConfigError, RoboRLError
from robo_rl.core.spec import ArraySpec
from tests.hardware.bundles import arm_bundle, arm_env, quad_bundle


@pytest.mark.parametrize(
    ("set_name", "words", "sentence"),
    [
        ("arm_sim", {"robot": "sim_amr"}, "Did you mean 'sim_arm'"),
        ("arm_sim", {"goal": "abc"}, "goal"),
        (
            "arm_sim",
            {"record": f"{__file__}/new"},
            f"record={__file__}/new cannot be written: {__file__} is a",
        ),
        ("arm_sim", {"goal": "[nan, 0, 0.4]"}, "and finite"),
        ("arm_sim", {"bundle": "nothere"}, "nothere"),
        ("quad_sim", {"bundle": __file__}, f"{__file__} is a file, not a bundle"),
        ("arm", {"bundle": "b", "robot": "ur5e", "driver": "nofile.yaml"}, "nofile.yaml is not there"),
        ("arm_sim", {"device": "leader"}, "needs leader=<YAML file"),
        ("arm_sim", {"device": "leader", "leader": "so1.yaml"}, "so1.yaml does not exist"),
        ("arm_sim", {"device": "recording:drive.jsonl"}, "drive.jsonl does not exist"),
        ("arm_sim", {"device": "gamepad", "device_settings": "pad.yaml"}, "pad.yaml does not exist"),
    ],
)
def test_mistakes_are_reported_before_any_node_starts(
    set_name: str, words: dict[str, str], sentence: str
) -> None:
    """A real driver must not connect if the bundle does not exist."""
    with pytest.raises(RoboRLError, match=re.escape(sentence)):
        check(load_set(set_name).commands(words))


def test_mistyped_driver_setting_is_reported_first(tmp_path: Path) -> None:
    """The message lists the permitted keys, including the watchdog."""
    driver = tmp_path / "ur.yaml"
    driver.write_text("driver: ur\nhost: 192.0.2.1\nwatchdg_s: 0.2\n")
    words = load_set("teleop").commands({"robot": "ur5e", "driver": str(driver)})
    with pytest.raises(ConfigError, match=r"no setting watchdg_s\. It takes: host, .*watchdog_s"):
        check(words)
    driver.write_text("driver: ur\nhost: 192.0.2.1\nwatchdog_s: 0.2\n")
    check(words)


def test_the_driver_of_another_kind_of_robot_is_named(tmp_path: Path) -> None:
    """An arm's set takes no `ground`, that of a quadcopter no `robot`: neither is what is missing."""
    driver = tmp_path / "driver.yaml"
    driver.write_text("driver: crazyflie\nuri: radio://0/80/2M/E7E7E7E7E7\n")
    words = load_set("teleop").commands({"robot": "sim_arm", "driver": str(driver)})
    with pytest.raises(
        ConfigError, match="'crazyflie' is a quadcopter's driver, but these nodes move an arm"
    ):
        check(words)
    driver.write_text("driver: ur\nhost: 192.0.2.1\n")
    words = load_set("quad").commands({"bundle": "flight", "driver": str(driver)})
    with pytest.raises(ConfigError, match="'ur' is an arm's driver, but these nodes fly a quadcopter"):
        check(words)


def test_mistyped_device_setting_is_reported_first(tmp_path: Path) -> None:
    """Without the hardware of the device, which may be plugged in later."""
    pad = tmp_path / "pad.yaml"
    pad.write_text("mode: tool\ngriper_axis: 5\n")
    words = load_set("arm_sim").commands({"device": "gamepad", "device_settings": str(pad)})
    with pytest.raises(ConfigError, match="device=gamepad has no setting griper_axis"):
        check(words)
    pad.write_text("mode: tool\ngripper_axis: 5\n")
    check(words)


def test_bundle_of_another_robot_is_reported_first(reach: Bundle) -> None:
    check(load_set("arm_sim").commands({"bundle": str(reach.folder)}))
    with pytest.raises(RoboRLError, match="does not fit the robot 'ur5e'"):
        check(load_set("arm").commands({"bundle": str(reach.folder), "robot": "ur5e"}))


def told_otherwise(bundle: Bundle, folder: Path, unit: str) -> str:
    """A copy whose observation 'state', of equal size, has the names of `unit`."""
    shutil.copytree(bundle.folder, folder)
    manifest = json.loads((folder / MANIFEST).read_text())
    manifest["env"]["obs"]["state"]["unit"] = unit
    (folder / MANIFEST).write_text(json.dumps(manifest | {OWN_SUM: sha256_of_manifest(manifest)}))
    return str(folder)


def test_goal_of_another_size_is_reported_first(
    reach: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By `up`, `run` and `contract`; goals of another program, or without effect, are reported."""
    arm_sim = load_set("arm_sim")
    with pytest.raises(
        RoboRLError, match=r"\(m: goal_x, goal_y, goal_z\), but goal=\[0\.4, 0\.0\] sends 2 numbers"
    ):
        check(arm_sim.commands({"bundle": str(reach.folder), "goal": "[0.4,0]"}))
    (said,) = check(arm_sim.commands({"bundle": str(reach.folder), "goal": "[]"}))
    assert "needs goal_x, goal_y, goal_z from the topic 'goal', which none of these nodes publishes" in said
    place, _, _ = reach.env.obs["state"].unit.rpartition("; ")
    flat = told_otherwise(reach, tmp_path / "flat", f"{place}; rad: base; m: goal_x, goal_y")
    blind = told_otherwise(reach, tmp_path / "blind", f"{place}; rad: base, elbow, wrist")
    (said,) = check(arm_sim.commands({"bundle": blind}))
    assert "so goal=[0.4, 0.0, 0.4] has no effect" in said
    for verb in ("run", "contract"):
        assert main([verb, f"bundle={flat}", "robot=sim_arm"]) == 2
        said = capsys.readouterr().err
        assert "observes a goal of 2 numbers (m: goal_x, goal_y), but the task of robot=sim_arm" in said
    assert main(["contract", f"bundle={blind}", "robot=sim_arm"]) == 0
    assert f"Next:   robo-rl up arm_sim bundle={blind}" in capsys.readouterr().out


@pytest.mark.long
def test_missing_pictures_are_reported_first(tmp_path: Path) -> None:
    """A bundle whose camera no node of the set has is refused; where another program may send its pictures,
    a message says so.
    """
    env = arm_env(**{"image.top": ArraySpec((48, 64, 3), "uint8")})
    bundle = str(arm_bundle(tmp_path / "bundle", env=env).folder)
    rows = "".join(
        f"  - {{name: {n}, low_rad: -1, high_rad: 1, velocity_rad_s: 2, acceleration_rad_s2: 20}}\n"
        for n in "abc"
    )
    robot = tmp_path / "mine.yaml"
    robot.write_text(
        f"name: mine\ncommand_hz: 50\nstate_hz: 50\njoints:\n{rows}"
        "cameras:\n  top: {width_px: 64, height_px: 48, rate_hz: 50}\n"
    )
    given = {"bundle": bundle, "robot": str(robot), "goal": "[0.4]"}
    for words in ({}, {"cameras": "view"}):
        with pytest.raises(
            ConfigError, match=r"needs pictures of 'top', .* The simulated arm has no such camera"
        ):
            check(load_set("arm_sim").commands(given | words))
    with pytest.raises(ConfigError, match=r"these nodes publish pictures of 'left': .* camera_name=top"):
        check(load_set("arm").commands(given | {"camera": "pattern", "camera_name": "left"}))
    assert check(load_set("arm").commands(given | {"camera": "pattern"})) == []  # the robot has but one
    (said,) = check(load_set("arm").commands(given))
    assert "needs pictures of 'top', which none of these nodes publishes" in said


def test_unsuitable_flight_bundle_is_reported_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An arm's; and one for motors, on a link for thrust and body rates, which `quad` is unless told."""
    arm = {"bundle": str(arm_bundle(tmp_path / "arm").folder)}
    with pytest.raises(RoboRLError, match="not for a quadcopter"):
        check(load_set("quad_sim").commands(arm))
    quad = {"bundle": str(quad_bundle(tmp_path / "quad").folder)}
    check(load_set("quad").commands(quad | {"level": "motors"}))
    with pytest.raises(RoboRLError, match="commands motors"):
        check(load_set("quad").commands(quad))
    assert main(["contract", f"bundle={quad['bundle']}", "robot=sim_quad"]) == 2
    assert "robo-rl run bundle=" in capsys.readouterr().err


def test_an_instruction_is_compared_with_the_words_of_the_bundle(tmp_path: Path) -> None:
    """Before a node starts, as other verbs do."""
    config = {"vla": {"tokens": "words"}, "vocabulary": ["drawer", "the"]}
    (tmp_path / "policy.json").write_text(json.dumps({"config": config}))
    policy = ("arm_policy", node_settings("arm_policy", [f"bundle={tmp_path}", "robot=sim_arm"]))

    def said(words: str) -> list[str]:
        return list(check_words([policy, ("task", node_settings("task", [f"words={words}"]))]))

    assert said("the drawer") == said("") == []
    assert said("close the drawer") == [unread_sentence(tmp_path, ["close"])]
    with pytest.raises(ConfigError, match="knows no word of the instruction 'wave hello'"):
        said("wave hello")
    with pytest.raises(ConfigError, match="has no letter and no digit"):
        said("!!!")
