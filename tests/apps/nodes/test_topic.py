"""`robo-rl topic ...` and a node in its own process, over real DDS on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")

from robo_rl.apps.cli.main import main
from tests.hardware.bus.talker import RATE_HZ
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[3]
SOON_S = 20.0


@pytest.fixture(scope="module")
def talker() -> Iterator[int]:
    """A publishing node, once it is discovered, and its domain."""
    with free_domain() as domain, pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROS_DOMAIN_ID", str(domain))
        for name in ("ROBO_RL_INTERFACE", "ROS_DISTRO"):
            patch.delenv(name, raising=False)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hardware.bus.talker"], env=environment, cwd=ROOT
        )
        try:
            assert main(["topic", "info", "/lab/estop", f"wait_s={SOON_S}"]) == 0
            yield domain
        finally:
            process.kill()
            process.wait()


def test_list_shows_topics_types_and_nodes(talker: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The output of ros2 topic list -t and ros2 node info; the node graph and services are no topics."""
    assert main(["topic", "list"]) == 0
    rows = [re.split(r"  +", line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["topic", "type", "published by", "heard by"],
        ["/lab/camera/view/image_raw", "sensor_msgs/msg/Image", "/lab/talker", "-"],
        ["/lab/estop", "std_msgs/msg/Bool", "-", "/lab/talker"],
        ["/lab/gripper", "acme_msgs/msg/Gripper", "no node", "-"],
        ["/lab/joint_states", "sensor_msgs/msg/JointState", "/lab/talker", "-"],
        ["/lab/manifest", "std_msgs/msg/String", "/lab/talker", "-"],
    ]
    assert main(["topic", "list", "namespace=arm"]) == 2
    assert "There is no topic below '/arm/'. Topics: /lab/camera/view/image_raw, " in capsys.readouterr().err


def test_info_shows_quality_of_service(talker: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The latched topic keeps its message; it has no subscriber."""
    assert main(["topic", "info", "manifest", "namespace=lab"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "/lab/manifest: std_msgs/msg/String",
        "published by:",
        "  /lab/talker (reliable, transient local)",
        "heard by: nobody",
    ]
    assert main(["topic", "info", "lab/camera/view/image_raw"]) == 0
    assert "/lab/talker (best effort, volatile)" in capsys.readouterr().out


def test_echo_prints_messages_of_every_kind_of_topic(talker: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Joint states shortened, an image by its size, and messages latched before the subscription."""
    assert main(["topic", "echo", "/lab/joint_states", "count=2", "cut=3"]) == 0
    first, second, rest = capsys.readouterr().out.split("---\n")
    assert first == second
    assert rest == ""
    assert (
        "name: [joint0, joint1, joint2, ...]  # 20 values\nposition: [0.0, 0.125, 0.25, ...]  # 20 values"
        in first
    )
    assert main(["topic", "echo", "/lab/joint_states", "count=1", "cut=none"]) == 0
    whole = yaml.safe_load(capsys.readouterr().out.split("---")[0])
    assert whole["position"] == [i / 8 for i in range(20)]
    assert main(["topic", "echo", "/lab/camera/view/image_raw", "count=1"]) == 0
    assert "height: 48\nwidth: 64\nencoding: rgb8\n" in capsys.readouterr().out
    assert main(["topic", "echo", "/lab/manifest", "seconds=1"]) == 0
    assert capsys.readouterr().out.endswith("xxx...  # 500 characters\n---\n")


def test_hz_measures_the_rate(talker: int, capsys: pytest.CaptureFixture[str]) -> None:
    """50 Hz within the tolerance of a busy machine; every line is complete."""
    assert main(["topic", "hz", "/lab/joint_states", "seconds=2.5"]) == 0
    *_, last = capsys.readouterr().out.splitlines()
    found = re.fullmatch(
        r"([\d.]+) Hz, period mean ([\d.]+), min [\d.]+, max [\d.]+, std [\d.]+ ms, .* kB/s, over (\d+) "
        r"messages",
        last,
    )
    assert found, last
    assert float(found[1]) == pytest.approx(RATE_HZ, rel=0.2)
    assert float(found[2]) == pytest.approx(1e3 / RATE_HZ, rel=0.2)
    assert int(found[3]) > RATE_HZ


def test_silent_topic_is_reported(talker: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a publisher the command waits, and reports both facts."""
    assert main(["topic", "hz", "/lab/estop", "seconds=1.3"]) == 0
    said = capsys.readouterr()
    assert "'/lab/estop' has no publisher yet; waiting." in said.err
    assert re.match(r"silent for 1\.\d s\n", said.out)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (
            ["info", "/lab/joint_sates"],
            2,
            r"no topic '/lab/joint_sates' \(waited 0.3 s\). Did you mean '/lab/joint",
        ),
        (
            ["echo", "joint_states"],
            2,
            "Did you mean '/lab/joint_states'\\? Known topics: /lab/camera/view/image_raw, ",
        ),
        (["echo", "/lab/gripper"], 3, "acme_msgs/msg/Gripper, which is not among the messages of ROS jazzy"),
        (["hz", "a b"], 2, "'a b' cannot be the name of a topic"),
        (["hz", "x", "window=1"], 2, "window=1 cannot be used"),
        (["info"], 2, "needs topic="),
        (["lst"], 2, "Did you mean 'topic list'"),
    ],
)
def test_mistakes_print_one_sentence(
    talker: int, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, words: str
) -> None:
    """The existing topics, and a remedy."""
    wait = ["wait_s=0.3"] if len(arguments) > 1 else []
    assert main(["topic", *arguments, *wait]) == code
    said = capsys.readouterr()
    assert re.search(words, said.err)
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_empty_bus_error_names_domain_and_interface(domain: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "list", "wait_s=0.1"]) == 3
    assert f"No node was found in domain {domain} on interface 'lo'" in capsys.readouterr().err


def test_missing_packages_error_has_the_install_command(tmp_path: Path) -> None:
    """As on a machine without [dds]: the import fails, in its own process."""
    (tmp_path / "cyclonedds.py").write_text("raise ModuleNotFoundError('gone', name='cyclonedds')\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "robo_rl", "topic", "list"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "robo-rl topic list needs the package 'cyclonedds'" in done.stderr
    assert "pip install 'robo-rl[dds]'" in done.stderr


def test_ctrl_c_prints_the_received_messages(talker: int) -> None:
    """Exit code 130 and one sentence during reception; a closed pipe is no error."""
    command = [sys.executable, "-m", "robo_rl", "topic", "echo", "/lab/joint_states"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "header:\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SOON_S)
    assert process.returncode == 130
    assert re.fullmatch(r"robo-rl: stopped; \d+ messages of '/lab/joint_states' came\.\n", said)
