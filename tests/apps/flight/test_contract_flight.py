"""`robo-rl contract` for flight bundles and the link of a quadcopter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.checks.flight_contract import check_link
from hardware.quads.link import quad_link
from policies.deploy.bundle import Bundle
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.cli.main import main
from robo_rl.apps.nodes.node_sets import load_set
from robo_rl.apps.nodes.node_table import node_settings
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.nodes.robot_builders import robot_driver
from robo_rl.conf.node import RobotDriverNodeConfig
from robo_rl.conf.up import UpConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from tests.hardware.bundles import quad_bundle, rates_bundle

CRAZYFLIE = "driver: crazyflie\nuri: radio://0/80/2M/E7E7E7E7E7\n"


@pytest.fixture(scope="module")
def rates(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return rates_bundle(tmp_path_factory.mktemp("rates") / "bundle")


@pytest.mark.long
@pytest.mark.parametrize("robot", ["crazyflie", "px4", "px4_topics", "crazyswarm2"])
def test_bundle_fits_both_links(rates: Bundle, robot: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["contract", f"bundle={rates.folder}", f"robot={robot}"]) == 0
    said = capsys.readouterr().out
    assert f"{rates.folder} fits a {robot}: thrust and body rates up to 4 rad/s" in said
    assert " hover=<its hover thrust> ground=-0.6" in said


def test_driver_file_sets_the_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A PX4 permits 4 rad/s unless its file says otherwise; the message gives both remedies."""
    bundle, file = rates_bundle(tmp_path / "bundle", rate_rad_s=6.0), tmp_path / "px4.yaml"
    given = ["contract", f"bundle={bundle.folder}"]
    assert main([*given, "robot=crazyflie"]) == 0
    assert main([*given, "robot=px4"]) != 0
    assert (
        "limits rates to 4 rad/s: train with rate_rad_s=4, or set the driver's max_rate_rad_s"
        in capsys.readouterr().err
    )
    file.write_text("driver: px4\nmax_rate_rad_s: 6\n")
    assert main([*given, f"robot={file}"]) == 0
    file.write_text("driver: px4\nmax_rate_rad_s: fast\n")
    assert main([*given, f"robot={file}"]) != 0
    assert "expected a number" in capsys.readouterr().err
    assert main([*given, "robot=ur"]) != 0


@pytest.mark.parametrize("limit", ["max_tilt_rad", "max_speed_m_s"])
@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("driver: crazyflie\nuri: radio://0/80/2M/E7E7E7E7E7", "would not bound the thrust and body rates"),
        ("driver: px4", "would not bound the thrust and body rates"),
        ("driver: px4_topics", "has no setting {0}.* {0} of the flight filter bound .* up quad {0}="),
        ("driver: crazyswarm2\nname: cf1", "has no setting {0}.* {0} of the flight filter bound a policy"),
    ],
)
def test_limits_that_bound_no_policy_are_refused(
    rates: Bundle, tmp_path: Path, lines: str, sentence: str, limit: str
) -> None:
    """A driver gets body rates, and limits neither tilt nor speed. Refused by `up` and by the node alone."""
    (file := tmp_path / "quad.yaml").write_text(f"{lines}\n{limit}: 0.3\n")
    with pytest.raises(ConfigError, match=sentence.format(limit)):
        check(load_set("quad").commands({"bundle": str(rates.folder), "driver": str(file), "ground": "0"}))
    with pytest.raises(ConfigError, match=limit):
        robot_driver(RobotDriverNodeConfig(settings=str(file)), InProcessWorld().bus("robot_driver"))


def test_up_quad_sets_the_limits_of_the_filter(rates: Bundle) -> None:
    words = ["set=quad", f"bundle={rates.folder}", "max_tilt_rad=0.6", "max_speed_m_s=1", "fence_m=[1,1,0.8]"]
    given = load_config("up", words, UpConfig)
    keys = ("bundle", "max_tilt_rad", "max_speed_m_s", "fence_m")
    commands = load_set("quad").commands({key: str(getattr(given, key)) for key in keys})
    filter_ = node_settings("flight_filter", commands["flight_filter"][1:])
    assert (filter_.max_tilt_rad, filter_.max_speed_m_s, filter_.fence_m) == (0.6, 1.0, [1.0, 1.0, 0.8])
    defaults = load_set("quad").commands({"bundle": str(rates.folder)})
    assert node_settings("flight_filter", defaults["flight_filter"][1:]).fence_m == [10.0, 10.0, 10.0]


def test_unsuitable_bundles_are_refused(rates: Bundle, tmp_path: Path) -> None:
    """Motors, another task, a rate above the link's, a bundle without an envelope."""
    link = quad_link("crazyflie", {})
    with pytest.raises(CheckpointError, match="commands motors, which cannot be done over a link"):
        check_link(quad_bundle(tmp_path / "motors"), link)

    def changed(**env: Any) -> Bundle:
        return replace(rates, env=replace(rates.env, **env))

    with pytest.raises(
        CheckpointError, match="sends commands at 200 Hz, but the link transmits them at 100 Hz"
    ):
        check_link(changed(control_hz=200.0), link)
    with pytest.raises(CheckpointError, match=r"trained for quad/race:level=rates"):
        check_link(changed(name="quad/race:level=rates"), link)
    with pytest.raises(CheckpointError, match="no flight envelope"):
        check_link(replace(rates, envelope=None), link)


def test_up_checks_the_contract_first(rates: Bundle, tmp_path: Path) -> None:
    """With the driver's own limits; an unknown ground height is refused."""
    file = tmp_path / "cf.yaml"
    file.write_text(CRAZYFLIE)
    words = {
        "bundle": str(rates.folder),
        "driver": str(file),
        "hover": "0.56",
        "ground": "-0.6",
    }
    commands = load_set("quad").commands(words)
    check(commands)
    assert "ground_m=-0.6" in commands["robot_driver"]
    assert {"ground_m=-0.6", "hover=0.56", "level=rates"} <= set(commands["flight_filter"])
    assert "hover=0.56" in commands["quad_policy"]
    with pytest.raises(ConfigError, match=r"ground=-0\.6"):
        check(load_set("quad").commands({k: v for k, v in words.items() if k != "ground"}))
    file.write_text(CRAZYFLIE + "max_rate_rad_s: 2\n")
    with pytest.raises(CheckpointError, match="limits rates to 2 rad/s"):
        check(commands)


def test_run_in_the_simulated_craft(rates: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes, filter and an autopilot with its own thrust scale; the next command names the level."""
    assert main(["run", f"bundle={rates.folder}", "robot=sim_quad", "episodes=1"]) == 0
    said = capsys.readouterr().out
    assert "1/1 episodes succeeded" in said
    assert f"robo-rl up quad_sim bundle={rates.folder} level=rates" in said
