"""`robo-rl run robot=...`: the whole graph on the real clock, with the inference in its own process."""

from __future__ import annotations

import json
import multiprocessing as mp
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hardware.bus.in_process import InProcessWorld
from hardware.bus.protocol import Bus
from hardware.messages import JointState
from hardware.safety.reasons import Reason
from hardware.topics import JOINT_STATES
from policies.deploy.bundle import Bundle
from robo_rl.apps.cli.main import main
from robo_rl.apps.contract import camera_words, next_step
from robo_rl.apps.nodes.node_life import leave
from robo_rl.apps.nodes.run_arm import arm_cell
from robo_rl.apps.nodes.run_robot import Cell, _Director
from robo_rl.apps.run import elsewhere
from robo_rl.apps.run import next_step as after_run
from robo_rl.conf.schema import ContractConfig, RunConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.core.seeding import derive_seed
from sim.registry import make_env
from tests.hardware.bundles import ENVELOPE, quad_bundle

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.long
def test_run_arm_reports_ticks_and_interventions(
    reach: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second and a half: ticks, deadlines, actions of the filter, reason of the end."""
    out = tmp_path / "report.json"
    assert main(["run", f"bundle={reach.folder}", "robot=sim_arm", "seconds=1.5", f"out={out}"]) == 0
    said = capsys.readouterr().out
    for words in ("ticks at 50 Hz", "missed deadlines", "safety filter:", "chunks were inferred", "ended: "):
        assert words in said
    report = json.loads(out.read_text())
    assert (report["robot"], report["success"]) == (
        "sim_arm",
        [],
    )  # its episode had not ended: neither k nor n
    assert "no episode ended" in said
    assert "ended: the time is over" in said
    times = [report[f"{key}"] for key in ("decision_ms_p50", "decision_ms_p99", "tick_ms_p99", "late_ms_p99")]
    assert all(0.0 < time_ms < 1500.0 for time_ms in times)
    assert report["decision_ms_p50"] <= report["decision_ms_p99"]
    assert report["rate_hz"] == 50.0
    assert report["ticks"] >= 50
    assert report["missed"] + report["skipped"] <= 1.5 * 50 + report["ticks"]
    assert f"Next:   robo-rl up arm_sim bundle={reach.folder}" in said


def test_arm_starts_at_the_start_of_the_task(reach: Bundle) -> None:
    """The goal of seed 0 is 2.8 cm from the arm's home position: no motion would be seen."""
    world, heard = InProcessWorld(clock=time.monotonic), list[JointState]()
    cell = arm_cell(RunConfig(str(reach.folder), robot="sim_arm", seed=0), reach, world)
    try:
        bus = world.bus("listener")
        JOINT_STATES.subscribe(bus, lambda state, _: heard.append(state))
        bus.spin(lambda: bool(heard))
    finally:
        leave(cell.nodes)
    with closing(make_env("arm6/reach", 1)) as env:
        state = env.reset(iter([derive_seed("eval", 0, 0)]))["state"][0].numpy()
    np.testing.assert_allclose(heard[0].position_rad, state[:6], atol=0.01)  # it sags a little


def test_run_quadcopter_and_land(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle, out = quad_bundle(tmp_path / "hover"), tmp_path / "report.json"
    words = ["run", f"bundle={bundle.folder}", "robot=sim_quad", "seconds=1", f"out={out}"]
    assert main(words) in (0, 3)  # 3: a machine too busy
    said = capsys.readouterr().out
    assert "decisions at 100 Hz" in said
    assert "landing, then motors off" in said or "no new" in said
    report = json.loads(out.read_text())
    assert {"missed", "skipped", "ticks", "rate_hz"} < report.keys()
    assert 0.0 < report["decision_ms_p50"] <= report["decision_ms_p99"] == report["tick_ms_p99"]


class _Judged:
    """A task whose score the test sets."""

    def __init__(self) -> None:
        self.success, self.ended = list[bool](), False

    def begin(self, episode: int) -> None:
        self.success.append(False)


def test_a_decided_episode_ends_at_once() -> None:
    """The second episode has its whole time, as it is not decided."""
    begun, now_s = list[float](), 0.0

    class Decided(_Judged):
        """Notes when episodes begin, all of which succeed."""

        def begin(self, episode: int) -> None:
            begun.append(now_s)
            self.success.append(True)
            self.ended = False

    task, bus = Decided(), SimpleNamespace(now=lambda: now_s)
    director = _Director(RunConfig("bundle", episodes=2), cell_of(task, lambda: None), cast(Bus, bus))
    while not director.over():
        now_s += 0.5
        task.ended = now_s == 2.0
    assert begun == [0.0, 2.0]
    assert (now_s, director.success) == (7.0, [True, True])


def cell_of(task: _Judged, stopped: Callable[[], Reason | None]) -> Cell:
    """A robot that is ready at once, with episodes of 5 s."""
    return Cell([], task, lambda: True, str, lambda: (True, ""), stopped, {}, str, dict, "", 5.0)


@pytest.mark.parametrize(
    ("given", "at_s", "expected", "why"),
    [
        ({"seconds": 7.0}, 7.0, [True], "the time is over"),  # the second episode was cut off
        ({"seconds": 10.0}, 10.0, [True, False], "the time is over"),
        ({"episodes": 2}, 10.0, [True, False], "all episodes are done"),
    ],
)
def test_only_finished_episodes_are_counted(
    given: dict[str, Any], at_s: float, expected: list[bool], why: str
) -> None:
    """k/n of a robot's episodes: one that time cuts off is not counted, and landing changes nothing."""
    task, bus, now_s = _Judged(), SimpleNamespace(now=lambda: now_s), 0.0
    cell = cell_of(task, lambda: None)
    director = _Director(RunConfig("bundle", **given), cell, cast(Bus, bus))
    while not director.over():
        task.success[0] = True
        now_s += 0.5
    task.success[:] = [False] * len(task.success)  # while it lands, the judge goes on looking
    assert (now_s, director.success, director.why()) == (at_s, expected, why)


def test_episode_ended_by_the_filter_is_a_failure() -> None:
    task, bus, stop = _Judged(), SimpleNamespace(now=lambda: 1.0), list[Reason]()
    cell = cell_of(task, lambda: stop[0] if stop else None)
    director = _Director(RunConfig("bundle", seconds=9.0), cell, cast(Bus, bus))
    assert not director.over()
    stop.append(Reason.STALE_STATE)
    assert director.over()
    assert director.success == [False]


def test_run_with_real_time_chunking(reach: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    """The same graph with chunks inferred by torch and guided: the arm follows, and the report says so."""
    assert main(["run", f"bundle={reach.folder}", "robot=sim_arm", "seconds=1.5", "realtime=true"]) == 0
    said = capsys.readouterr().out
    assert "chunks were inferred, the last in" in said


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["robot=ur5"], "Unknown simulated robot 'ur5'"),
        (["robot=mine.yaml"], "robo-rl up arm_sim bundle=... robot=mine.yaml"),
        (["robot=sim_quad"], "was made for arm6/reach, not for a quadcopter"),
        (["robot=sim_arm", "rate_hz=10"], "leave env and rate_hz out"),
        (["robot=sim_quad", "realtime=true"], "realtime=true is for robot=sim_arm and a bundle of chunks"),
        (["realtime=true"], "realtime=true is for robot=sim_arm only: an environment waits for each chunk"),
        (["remote=127.0.0.1:1"], "evaluate policy=remote:127.0.0.1:1"),
        (["robot=sim_quad", "remote=127.0.0.1:1"], "was made for arm6/reach, not for a quadcopter"),
        (["robot=sim_arm", "remote=127.0.0.1:1,x=1"], "is no address of a policy server"),
        (["robot=sim_arm", "remote=127.0.0.1:1", "realtime=true"], "leave it out, or remote=."),
        (["robot=sim_arm", "remote=127.0.0.1:1"], "robo-rl serve policy=<run> port=1\n"),  # to be pasted
    ],
)
def test_mistakes_print_one_sentence(
    reach: Bundle, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", f"bundle={reach.folder}", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("seed", "end"),
    [(2, "ended: the safety filter: "), (0, "ended: a fault: the inference process has died")],
)
def test_killed_inference_stops_the_arm(
    reach: Bundle, capsys: pytest.CaptureFixture[str], seed: int, end: str
) -> None:
    """kill -9 of the child: held, stopped, reported, exit code 3 (2 before it was ready); nothing hangs.

    With seed 2 the arm follows the policy, and the filter stops it. With seed 0 it has not received a command
    yet.
    """
    ends = threading.Event()

    def killer() -> None:
        while not ends.wait(0.2):
            for child in mp.active_children():
                if child.name == "inference" and time.monotonic() > begun_s + 6.0 and child.pid is not None:
                    os.kill(child.pid, signal.SIGKILL)

    begun_s = time.monotonic()
    thread = threading.Thread(target=killer, daemon=True)
    thread.start()
    try:
        code = main(["run", f"bundle={reach.folder}", "robot=sim_arm", "seconds=60", f"seed={seed}"])
    finally:
        ends.set()
        thread.join()
    output = capsys.readouterr()
    assert "the inference process has died" in output.out + output.err
    assert code in (2, 3)
    assert code == 2 or end in output.out
    assert time.monotonic() < begun_s + 50.0


LOADING = """
import time
print("loading", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt as stop:
    raise ImportError("initialization failed") from stop  # what an extension module makes of it
"""


@pytest.mark.long
@pytest.mark.parametrize("module", ["mujoco", "torch"])
def test_signal_while_loading_ends_at_once(reach: Bundle, tmp_path: Path, module: str) -> None:
    """SIGINT and SIGTERM during an import, before and after the verb handles signals itself."""
    (tmp_path / f"{module}.py").write_text(LOADING)
    words = [sys.executable, "-m", "robo_rl", "run", f"bundle={reach.folder}", "robot=sim_arm"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}"}
    asked: dict[signal.Signals, subprocess.Popen[str]] = {
        number: subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    for number, process in asked.items():
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "loading\n"
            process.send_signal(number)
            said = process.communicate(timeout=30.0)[0]
        finally:
            process.kill()
            process.communicate()
        assert "Traceback" not in said
        if module == "mujoco":
            assert process.returncode == 128 + number
            assert said == f"robo-rl: {number.name} while the nodes were being loaded: nothing was sent.\n"
        else:  # nothing of ours hears SIGTERM yet, so that it ends the process as the kernel does
            assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: -signal.SIGTERM}[number]


def test_contract_prints_the_next_command(reach: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    """From the contract to the simulated arm; with another robot's description, to that robot, not armed."""
    assert main(["contract", f"bundle={reach.folder}", "robot=sim_arm"]) == 0
    assert f"Next:   robo-rl run bundle={reach.folder} robot=sim_arm" in capsys.readouterr().out
    config = ContractConfig(bundle=str(reach.folder), robot="mine.yaml")
    assert next_step(config, reach).startswith(
        f"robo-rl up arm bundle={reach.folder} robot=mine.yaml driver=<"
    )
    assert after_run(reach) == f"robo-rl contract bundle={reach.folder} robot=sim_arm"
    push = replace(reach, env=replace(reach.env, name="pusht", action=replace(reach.env.action, unit="px")))
    assert after_run(push) == ""
    fly = replace(reach, env=replace(reach.env, name="quad/hover"), envelope=ENVELOPE)
    assert after_run(fly) == f"robo-rl run bundle={reach.folder} robot=sim_quad"
    unable = replace(fly, envelope=None)
    assert after_run(unable) == ""  # the simulated craft refuses it, too
    assert elsewhere(unable).startswith(
        "robo-rl fly task=hover updates=<more> out=<new run>   (train for longer"
    )
    assert after_run(replace(fly, env=replace(fly.env, name="quad/race"))) == ""


def test_a_bundle_without_a_goal_is_sent_to_up(reach: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` scores how a goal is reached, so it refuses a bundle that observes none; `up` runs it."""
    monkeypatch.setattr("robo_rl.apps.nodes.run_arm.goal_names", lambda bundle: ())
    config = RunConfig(str(reach.folder), robot="sim_arm")
    with pytest.raises(CheckpointError, match=r"observes no goal.*: robo-rl up arm_sim bundle="):
        arm_cell(config, reach, InProcessWorld(clock=time.monotonic))


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (("state",), ", uses no camera (the robot has front, wrist)"),
        (("state", "image.wrist"), ", uses cameras wrist"),
    ],
)
def test_contract_names_the_cameras_that_the_bundle_uses(keys: tuple[str, ...], words: str) -> None:
    bundle: Any = SimpleNamespace(env=SimpleNamespace(obs=dict.fromkeys(keys)))
    robot: Any = SimpleNamespace(cameras={"front": None, "wrist": None})
    assert camera_words(bundle, robot) == words


@pytest.mark.parametrize("name", ["crazyflie", "sim_quad"])
def test_contract_of_an_arm_with_a_quadcopter_is_refused(
    name: str, reach: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["contract", f"bundle={reach.folder}", f"robot={name}"]) == 2
    assert f"robot={name} is a quadcopter, and {reach.folder} acts for an arm" in capsys.readouterr().err


def test_a_missing_file_of_a_driver_is_named(reach: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    """No error number of the operating system; what is there instead."""
    assert main(["contract", f"bundle={reach.folder}", "robot=nope.yaml"]) == 2
    said = capsys.readouterr().err
    assert "nope.yaml" in said
    assert "Errno" not in said
