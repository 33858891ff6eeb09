"""`robo-rl up` and its sets of nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from hardware.bus.dds.bus import DdsBus
from hardware.bus.dds.cdr import ros_types
from hardware.recording.bag_reader import Bag
from hardware.topics import CHUNK, SAFE, image_topic
from policies.deploy.bundle import MANIFEST, OWN_SUM, Bundle, sha256_of_manifest
from policies.vocabulary import unread_sentence
from robo_rl.apps.cli.main import main
from robo_rl.apps.nodes.node_sets import load_set, set_names
from robo_rl.apps.nodes.node_table import NODES, node_settings
from robo_rl.apps.nodes.preflight import check
from robo_rl.apps.nodes.preflight_goal import check_words
from robo_rl.apps.nodes.supervise import namespace_lock
from robo_rl.apps.up import ARGUMENTS
from robo_rl.conf.fields import settings
from robo_rl.conf.up import UpConfig
from robo_rl.core.errors import BusNameError, ConfigError, RoboRLError, UnknownNameError
from robo_rl.core.spec import ArraySpec
from sim.registry import make_env
from tests.hardware.bundles import arm_bundle, arm_env, quad_bundle
from tests.hardware.domains import free_domain


def test_settings_of_a_device_are_no_drivers(tmp_path: Path) -> None:
    """`device_settings=` names a file without the key driver."""
    (tmp_path / "pad.yaml").write_text("mode: tool\n")
    words = {"device": "gamepad", "device_settings": str(tmp_path / "pad.yaml")}
    commands = load_set("arm_sim").commands(words)
    assert f"settings={tmp_path / 'pad.yaml'}" in commands["teleop"]
    assert check(commands) == []


@pytest.mark.parametrize("name", set_names())
def test_sets_declare_all_arguments(name: str) -> None:
    """Every used argument is declared, and every declared one is a setting of `robo-rl up`."""
    chosen = load_set(name)
    declared = {argument.name for argument in chosen.arguments}
    used = {
        str(v)[1:] for member in chosen.members for v in member.settings.values() if str(v).startswith("$")
    }
    conditions = [word for member in chosen.members for word in (member.when, member.each) if word]
    used |= {name for word in conditions for name in word.split("|")}
    assert used == declared <= set(ARGUMENTS) <= {field.name for field in fields(UpConfig)}
    assert all(argument.meaning for argument in chosen.arguments)
    assert name in settings(UpConfig)["set"].meaning


def test_stop_order_is_commands_filter_robot() -> None:
    """They stop in reverse order of their start; a recorder records the stop, so it stops last."""
    for name in set_names():
        order = [member.node for member in load_set(name).members]
        chain = [
            ["sim_robot", "robot_driver", "controller_driver"],
            ["safety_filter", "flight_filter"],
            ["action_head", "quad_policy"],
            ["arm_policy"],
        ]
        places = [order.index(node) for step in chain for node in step if node in order]
        assert places == sorted(places)
        assert order[0] == "recorder"


def test_arguments_reach_their_nodes() -> None:
    commands = load_set("arm_sim").commands({"bundle": "b", "robot": "mine.yaml"})
    assert commands["safety_filter"] == ["safety_filter", "robot=mine.yaml", "arm=true"]
    assert commands["arm_policy"] == [
        "arm_policy",
        "bundle=b",
        "robot=mine.yaml",
        "start=true",
        "realtime=false",
        "remote=",
    ]
    assert "recorder" not in commands
    assert "arm_policy" not in load_set("arm_sim").commands({})
    assert load_set("arm_sim").commands({"device": "keyboard"})["teleop"] == [
        "teleop",
        "robot=sim_arm",
        "device=keyboard",
        "settings=",
    ]
    led = load_set("teleop").commands({"robot": "ur5e", "device": "leader", "leader": "so100.yaml"})
    assert led["teleop"] == ["teleop", "robot=ur5e", "device=leader", "settings=", "leader=so100.yaml"]
    seen = load_set("arm_sim").commands({"record": "r", "cameras": "view"})["recorder"]
    assert seen == ["recorder", "out=r", "start=true", "cameras=view", "depth=true"]


@pytest.mark.parametrize(("name", "robot"), [("arm_sim", {}), ("teleop", {"robot": "ur5e"})])
def test_recording_starts_on_request(name: str, robot: dict[str, str]) -> None:
    """The hint on arming is printed when nodes are ready; it is left out if another program drives."""
    for device, start in (("keyboard", "start=false"), ("", "start=true")):
        assert start in load_set(name).commands({"record": "r", "device": device} | robot)["recorder"]


def test_wrong_arguments_print_one_sentence() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'arm_sim'"):
        load_set("arm_simm")
    with pytest.raises(ConfigError, match=r"'quad_sim' needs bundle=\.\.\.: folder of the flight bundle"):
        load_set("quad_sim").commands({})
    with pytest.raises(
        ConfigError, match="'quad_sim' takes no 'robot'; it takes bundle, level, scene, instruction, "
    ):
        load_set("quad_sim").commands({"robot": "x", "bundle": "b"})


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


ROOT = Path(__file__).resolve().parents[3]
SOON_S = 60.0


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


def test_failing_node_prints_its_reason() -> None:
    """The node's own sentence under its own name, then the stop."""
    with up("arm_sim", "record=/dev/null/recordings") as process:
        text = process.communicate(timeout=SOON_S)[0]
        assert process.returncode == 3
    assert "Recordings cannot go to /dev/null/recordings: Not a directory" in text
    assert "up: recorder has ended by itself (exit code 2)" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("name", set_names())
def test_nodes_accept_the_settings_of_their_sets(name: str) -> None:
    """Nodes exist and have these settings: a typo would otherwise show only when the robot is started."""
    for member in load_set(name).members:
        module, attribute = NODES[member.node][1].split(":")
        schema = getattr(import_module(module), attribute)
        assert set(member.settings) <= set(settings(schema)), member
        required = {key for key, setting in settings(schema).items() if setting.required}
        assert required <= set(member.settings), member


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


@pytest.mark.parametrize(
    ("set_name", "words", "sentence"),
    [
        ("arm_sim", {"robot": "sim_amr"}, "Did you mean 'sim_arm'"),
        ("arm_sim", {"goal": "abc"}, "goal"),
        ("arm_sim", {"goal": "[nan, 0, 0.4]"}, "and finite"),
        ("arm_sim", {"bundle": "nothere"}, "nothere"),
        ("quad_sim", {"bundle": __file__}, f"{__file__} is a file, not a bundle"),
        ("arm", {"bundle": "b", "robot": "ur5e", "driver": "nofile.yaml"}, "nofile.yaml is not there"),
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


@pytest.fixture(scope="module")
def reach(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """An untrained bundle for the simulated arm."""
    with closing(make_env("arm6/reach", 1)) as env:
        return arm_bundle(tmp_path_factory.mktemp("reach") / "bundle", env=env.spec)


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
            pytest.raises(BusNameError, match="Another `robo-rl up` or `ros2 launch` runs"),
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


def test_an_instruction_alone_starts_the_task_node() -> None:
    """Without a goal, which an empty word leaves out; and cameras of a quadcopter need no description."""
    commands = load_set("arm").commands({"bundle": "b", "robot": "ur5e", "instruction": "close the drawer"})
    task = node_settings("task", commands["task"][1:])
    assert (task.goal, task.words) == ([], "close the drawer")
    assert "task" not in load_set("arm").commands({"bundle": "b", "robot": "ur5e"})
    flown = load_set("quad").commands({"bundle": "b", "camera": "0", "camera_name": "front"})
    assert flown["camera"] == ["camera", "source=0", "camera=front", "transport=raw"]
    assert "camera" not in load_set("quad").commands({"bundle": "b"})
