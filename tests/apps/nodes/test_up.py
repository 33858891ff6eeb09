"""`robo-rl up`: real nodes over DDS, from their start to their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.recording.bag_reader import Bag
from hardware.topics import CHUNK, SAFE, image_topic
from policies.deploy.bundle import Bundle
from robo_rl.apps.cli.main import main
from robo_rl.apps.nodes.supervise import namespace_lock
from robo_rl.core.errors import BusNameError, ConfigError
from robo_rl.core.files.lock import FolderLock
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[3]
SOON_S = 60.0


def test_command_line_mistakes_print_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The set is the first word; mistakes give one line before anything starts."""
    assert main(["up", "arm_simm"]) == 2
    assert "Unknown set of nodes 'arm_simm'. Did you mean 'arm_sim'?" in capsys.readouterr().err
    assert main(["up", "quad_sim"]) == 2
    assert "needs bundle=" in capsys.readouterr().err
    assert main(["up"]) == 2
    assert "set" in capsys.readouterr().err
    assert main(["up", "arm_sim", "namespace=a b", "seconds=1"]) == 2
    assert "'a b' cannot be a namespace" in capsys.readouterr().err


def test_missing_bus_package_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The missing package is reported once, not by each of four nodes."""
    monkeypatch.setattr("hardware.bus.choose.find_spec", lambda name: None)
    monkeypatch.delenv("ROS_DISTRO", raising=False)
    for bus, missing in (("rclpy", "no ROS 2 is sourced"), ("dds", "needs the package 'cyclonedds'")):
        assert main(["up", "arm_sim", f"bus={bus}", "seconds=1"]) == 2
        said = capfd.readouterr()
        assert missing in said.err
        assert (said.out, said.err.count("robo-rl: ")) == ("", 1)


@contextmanager
def up(*words: str) -> Iterator[subprocess.Popen[str]]:
    """`robo-rl up`, ended in any case together with its nodes."""
    with free_domain() as domain:
        environment = os.environ | {
            "PYTHONPATH": str(ROOT),
            "ROS_DOMAIN_ID": str(domain),
            "PYTHONUNBUFFERED": "1",
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "robo_rl", "up", *words],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        os.environ["ROS_DOMAIN_ID"] = str(domain)
        try:
            yield process
        finally:
            del os.environ["ROS_DOMAIN_ID"]
            process.kill()
            process.communicate(timeout=SOON_S)


def wait_for_commands() -> None:
    """Wait until the filter of the set sends to the robot, as seen on the wire."""
    bus, heard, late_s = DdsBus("listener"), [], time.monotonic() + SOON_S
    SAFE.subscribe(bus, lambda command, _: heard.append(command))
    bus.spin(lambda: bool(heard) or time.monotonic() > late_s)
    bus.close()
    assert heard, "the filter never sent anything"


def children(process: subprocess.Popen[str]) -> dict[str, int]:
    """Node -> process id."""
    found = {}
    for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        found[words[words.index("robo_rl.apps.nodes.process") + 3]] = int(pid)
    return found


def test_up_and_ctrl_c_of_the_simulated_arm() -> None:
    """Real nodes over real DDS, until Ctrl-C: the filter brakes while the robot still listens, and no process
    remains.
    """
    with up("arm_sim") as process:
        wait_for_commands()
        pids = children(process)
        assert main(["call", "safety_filter/stop"]) == 0
        assert main(["call", "safety_filter/nonsense", "timeout_s=0.2"]) == 2
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=SOON_S)[0]
        assert process.returncode == 0, text
    assert "The simulated arm behind its safety filter; with a bundle, controlled by it." in text
    assert "up: none of these nodes commands the robot; bundle=... starts one that does." in text
    assert "up: SIGINT: stopping safety_filter, sim_robot, task, diagnostics." in text
    assert text.index("safety_filter: robo-rl up stops it") < text.index("the simulation ends")
    assert "Traceback" not in text
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]


@pytest.mark.long
def test_two_cameras_are_published_and_recorded(seeing_robot: str, tmp_path: Path) -> None:
    """Each in its own process over DDS, on its own topic; the recording holds both."""
    words = f"robot={seeing_robot}", "camera=pattern+pattern", f"record={tmp_path / 'recordings'}"
    with up("teleop", *words) as process:
        bus, late_s = DdsBus("listener"), time.monotonic() + SOON_S
        shapes: dict[str, set[tuple[int, ...]]] = {"wrist": set(), "front": set()}
        # Until the recorder records: a camera may start before it.
        bus.spin(lambda: any(tmp_path.rglob("episode_*")) or time.monotonic() > late_s)
        for name, seen in shapes.items():
            image_topic(name).subscribe(bus, lambda image, _, seen=seen: seen.add(image.pixels.shape))
        bus.spin(lambda: all(shapes.values()) or time.monotonic() > late_s)
        bus.close()
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=SOON_S)[0]
    assert shapes == {"wrist": {(48, 64, 3)}, "front": {(84, 84, 3)}}, text
    (recorded,) = (tmp_path / "recordings").glob("episode_*")
    with closing(Bag(recorded, ros_types())) as bag:
        topics = {image_topic(name).name for name in shapes}
        assert {topic for topic, _, _ in bag.messages(topics)} == topics


def test_killed_filter_stops_the_set() -> None:
    """kill -9: the others stop, the reason is reported, and the exit code is not 0."""
    with up("arm_sim") as process:
        wait_for_commands()
        pids = children(process)
        os.kill(pids["safety_filter"], signal.SIGKILL)
        text = process.communicate(timeout=SOON_S)[0]
        assert process.returncode == 3, text
    assert "up: safety_filter has ended by itself (killed by SIGKILL): stopping" in text
    assert not [pid for pid in pids.values() if Path(f"/proc/{pid}").exists()]


def test_failing_node_prints_its_reason(tmp_path: Path) -> None:
    """The node's own sentence under its own name, then the stop."""
    with FolderLock(tmp_path, "folder"), up("arm_sim", f"record={tmp_path}") as process:
        text = process.communicate(timeout=SOON_S)[0]
        assert process.returncode == 3
    assert f"Another recorder writes into {tmp_path}; stop it, or choose another folder." in text
    assert "up: recorder has ended by itself (exit code 2)" in text
    assert "Traceback" not in text


@pytest.mark.slow
def test_bundle_moves_the_simulated_arm_over_dds(reach: Bundle, tmp_path: Path) -> None:
    """Six processes: chunks are inferred, the filter follows them, diagnostics report it, and Ctrl-C stops
    all.
    """
    with up("arm_sim", f"bundle={reach.folder}", f"record={tmp_path / 'recordings'}") as process:
        bus, chunks, commands, late_s = DdsBus("listener"), [], [], time.monotonic() + 2 * SOON_S
        CHUNK.subscribe(bus, lambda chunk, _: chunks.append(chunk))
        SAFE.subscribe(bus, lambda command, _: commands.append(command))
        bus.spin(lambda: (len(chunks) > 5 and len(commands) > 100) or time.monotonic() > late_s)
        bus.close()
        process.send_signal(signal.SIGINT)
        text = process.communicate(timeout=SOON_S)[0]
    assert process.returncode == 0, text
    assert len(chunks) > 5, text
    assert len({command.position_rad.tobytes() for command in commands}) > 20  # it moves
    assert "safety_filter: following policy" in text
    assert "saved episode_" in text
    assert "Traceback" not in text


def test_one_set_per_domain_and_namespace() -> None:
    """Two filters would send to one robot; another namespace is another robot."""
    domain = 10_000 + os.getpid() % 10_000  # of the lock alone: no DDS here
    taken = "from robo_rl.apps.nodes.supervise import namespace_lock\n"
    taken += f"with namespace_lock({domain}, ''): print('held', flush=True); input()"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", taken],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with (
            pytest.raises(BusNameError, match="Another `robo-rl up`, `robo-rl record` or `ros2 launch` runs"),
            namespace_lock(domain, "/"),
        ):
            pass
        with namespace_lock(domain, "left"):
            pass
        other.kill()
    with namespace_lock(domain, ""):
        pass


def test_network_is_a_setting_of_nodes_on_rclpy(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes without ROS take an interface, which has a name."""
    assert main(["up", "arm_sim", "bus=dds", "network=lan"]) == ConfigError.exit_code
    assert "ROBO_RL_INTERFACE=eth0" in capsys.readouterr().err
