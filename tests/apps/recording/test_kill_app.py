"""A killed app loses no committed episode, and the running one is salvaged to its last complete frame."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robo_rl.apps.recording.dataset import open_dataset, spec_of
from robo_rl.apps.recording.shared_state import Notices
from robo_rl.conf.record import RecordingSettings
from robo_rl.data.store import EpisodeStore, recover
from robo_rl.data.validate import validate
from tests.apps.recording.cell import make_cell
from tests.hardware.domains import free_domain

ROOT = Path(__file__).resolve().parents[3]


def record_and_kill(out: Path, lines: int) -> tuple[int, int]:
    """Kill the process after so many lines; returns how many episodes and frames it has reported."""
    words = [sys.executable, "-m", "tests.apps.recording.recording_process", str(out)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    saved, frames = 0, 0
    for _ in range(lines):
        word, number = process.stdout.readline().split()
        saved, frames = (int(number) + 1, 0) if word == "saved" else (saved, int(number))
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return saved, frames


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_kill_loses_no_episode(tmp_path: Path, seed: int) -> None:
    """At a random line; the next start says what was salvaged, goes on, and the dataset is sound."""
    saved, frames = record_and_kill(tmp_path / "data", random.Random(seed).randrange(8, 60))
    cell = make_cell(tmp_path / "data")
    episodes = list(EpisodeStore(tmp_path / "data"))
    complete = [episode for episode in episodes if episode.meta.complete]
    cut = [episode for episode in episodes if not episode.meta.complete]
    assert len(complete) >= saved
    if frames > 0 and len(complete) == saved:
        assert [episode.frames >= frames for episode in cut] == [True]
    assert all(episode.frames >= 20 and episode.success for episode in complete)
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="save", success=False)
    assert len(cell.store()) == len(episodes) + 1
    assert [fault for fault in validate(tmp_path / "data") if fault.severity == "error"] == []
    cell.node.stop("done")


def test_the_next_start_warns_of_what_was_salvaged(tmp_path: Path) -> None:
    """Pages show a warning, and begin anew with the messages: each start of the app has an id of its own."""
    cell = make_cell(tmp_path / "data")
    cell.ask(kind="start")
    cell.drive(0.5)
    shutil.copytree(cell.out, tmp_path / "copy")  # as the disk is after a kill
    given = RecordingSettings(robot=cell.robot.name, out=str(tmp_path / "copy"), min_free_gb=0.0)
    notices = Notices(cell.said.append)
    open_dataset(given, spec_of(given, cell.robot, simulated=False)).report_salvaged(notices.tell)
    (notice,) = notices.newest()
    assert (notice.number, notice.level) == (1, "warning")
    assert notice.text.startswith("Episode 0 was interrupted: its ")
    assert make_cell(tmp_path / "other").shared.view["app_id"] != cell.shared.view["app_id"] != ""


@pytest.mark.slow
def test_a_dataset_may_be_copied_while_it_is_recorded(tmp_path: Path) -> None:
    """Each copy has at least the episodes saved before, and is sound; the running one is salvaged."""
    words = [sys.executable, "-m", "tests.apps.recording.recording_process", str(tmp_path / "data")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        for number in range(4):
            saved = 0
            while saved <= number:
                word, count = process.stdout.readline().split()
                saved = int(count) + 1 if word == "saved" else 0
            copy = tmp_path / f"copy{number}"
            subprocess.run(["cp", "-r", str(tmp_path / "data"), str(copy)], check=False)
            assert len(EpisodeStore(copy)) >= saved
            recover(copy)
            assert [fault for fault in validate(copy) if fault.severity == "error"] == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_sigterm_to_the_verb_commits_and_stops_all_nodes(tmp_path: Path) -> None:
    """`robo-rl record robot=sim_arm` over DDS: an episode is begun by the service, then comes SIGTERM."""
    pytest.importorskip("cyclonedds", reason="the nodes need the extra dds: pip install '.[dds]'")
    pytest.importorskip("uvicorn", reason="the page needs the extra app: pip install '.[app]'")
    pytest.importorskip("mujoco", reason="the simulated arm needs the extra sim: pip install '.[sim]'")
    with free_domain() as domain:
        stop_by_sigterm(tmp_path, domain)
    (episode,) = EpisodeStore(tmp_path / "data")
    assert (episode.meta.complete, episode.success) == (False, None)
    assert episode.frames > 5


def stop_by_sigterm(folder: Path, domain: int) -> None:
    """Start the verb, begin an episode, and end it a second later."""
    from hardware.bus.dds.bus import DdsBus

    words = ["robot=sim_arm", f"out={folder / 'data'}", "port=0", "open=false", "min_free_gb=0", "cameras="]
    process = subprocess.Popen(
        [sys.executable, "-m", "robo_rl", "record", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env=os.environ | {"ROS_DOMAIN_ID": str(domain)},
    )
    assert process.stdout is not None
    said: list[str] = []
    while "the page is at" not in (line := process.stdout.readline()):
        assert line, said
        said.append(line)
    bus = DdsBus("test", domain=domain)
    try:
        until_s = time.monotonic() + 30.0
        while not (answer := bus.call("record_app/start", 10.0))[0]:
            assert time.monotonic() < until_s, answer
            time.sleep(0.2)
    finally:
        bus.close()
    time.sleep(1.0)
    process.terminate()
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "all nodes are stopped" in rest
