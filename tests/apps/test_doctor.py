"""`robo-rl doctor` names what is missing and the command that installs it."""

from __future__ import annotations

import json
from importlib import util
from typing import Any

import pytest

from robo_rl.apps import doctor
from robo_rl.conf.schema import DoctorConfig
from robo_rl.core import packages


def without(monkeypatch: pytest.MonkeyPatch, *modules: str) -> None:
    """Pretend that these modules are not installed."""
    real = util.find_spec
    for place in (packages, doctor):
        monkeypatch.setattr(
            place.util, "find_spec", lambda name, *more: None if name in modules else real(name, *more)
        )


def test_report_is_json_with_every_package(capsys: pytest.CaptureFixture[str]) -> None:
    """A bug report carries machine, versions and one finding per package."""
    assert doctor.main(DoctorConfig(json=True, render=False)) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = {finding["what"]: finding for finding in report["findings"]}
    assert {package.distribution for package in packages.PACKAGES} <= found.keys()
    assert found["torch"]["state"] == "ok"
    assert report["versions"]["torch"]


def test_missing_simulator_is_listed_with_its_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Missing extras are no failure: a robot has no simulator. The command is printed at the end, once."""
    without(monkeypatch, "mujoco", "metaworld")
    assert doctor.main(DoctorConfig()) == 0
    said = capsys.readouterr().out
    assert "missing" in said
    assert said.count("pip install 'robo-rl[sim]'") == 1


def test_a_missing_core_package_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without torch nothing else works, but doctor must."""
    without(monkeypatch, "torch")
    assert doctor.main(DoctorConfig(render=False)) == 2
    assert "pip install robo-rl" in capsys.readouterr().out


def test_unsourced_ros_is_distinguished_from_missing_ros(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ROS 2 built for another Python is the usual reason why rclpy cannot be imported."""
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    without(monkeypatch, "rclpy")
    found = {finding.what: finding for finding in doctor.ros_findings()}
    assert found["ROS 2"].state == "ok"
    assert found["rclpy"].state == "note"
    assert "built for the Python of jazzy" in found["rclpy"].detail
    assert "rclpy" not in found["robot nodes"].detail


def test_missing_bus_is_listed_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    without(monkeypatch, "rclpy", "cyclonedds")
    found = {finding.what: finding for finding in doctor.ros_findings()}
    assert found["robot nodes"].hint == "pip install 'robo-rl[dds]'"


def test_doctor_reports_possible_senders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loopback is private to the machine; a named network, and any network of ROS, is not."""
    monkeypatch.delenv("ROBO_RL_INTERFACE", raising=False)
    assert doctor.network_finding(rclpy=False).state == "ok"
    assert "every network" in doctor.network_finding(rclpy=True).detail
    monkeypatch.setenv("ROBO_RL_INTERFACE", "eth0")
    finding = doctor.network_finding(rclpy=False)
    assert finding.state == "note"
    assert "ROBO_RL_INTERFACE=eth0: anybody on that network can command the robot" in finding.detail


def test_gpu_packages_are_suggested_only_where_there_is_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU they are a note without a command."""
    without(monkeypatch, "mujoco_warp", "warp")
    for there, state, hint in ((False, "note", ""), (True, "missing", "pip install 'robo-rl[gpu]'")):
        monkeypatch.setattr(doctor, "has_gpu", lambda there=there: there)
        found = {finding.what: finding for finding in doctor.package_findings()}
        assert (found["mujoco-warp"].state, found["mujoco-warp"].hint) == (state, hint)


def test_the_command_suits_an_installed_package_and_a_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """pip reads the extras of an installed robo-rl; a checkout that is not installed is named by its path."""
    monkeypatch.setattr(packages, "installed", lambda: True)
    assert packages.pip_install("sim") == "pip install 'robo-rl[sim]'"
    assert packages.pip_install(None) == "pip install robo-rl"
    monkeypatch.setattr(packages, "installed", lambda: False)
    assert packages.pip_install("sim") == f"pip install -e '{packages.ROOT}[sim]'"
    assert (packages.ROOT / "setup.cfg").is_file()
    assert packages.install_command("cv2.data", None) == f"pip install -e '{packages.ROOT}[train]'"


def test_only_one_place_knows_the_form_of_the_command() -> None:
    """Messages of all modules come from `pip_install`."""
    for folder in ("robo_rl", "policies", "sim", "hardware"):
        for file in (packages.ROOT / folder).rglob("*.py"):
            assert file.name == "packages.py" or "pip install 'robo-rl[" not in file.read_text(), file
