"""The oracle of the recorder's attack finds broken recordings; the attack finds nothing in this version."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("cyclonedds", reason="cyclonedds is not installed: pip install 'robo-rl[dds]'")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from attacks import recorder, recorder_oracle
from attacks.recorder_oracle import NAMES, STAMPS_HZ, TASK, Told, pixels, positions

from hardware import messages as m
from hardware import topics as t
from hardware.bus.dds.cdr import ros_types
from hardware.bus.wire import WIRE
from hardware.recording.recording import IN_PROGRESS, Channel, Recording

FRAMES = range(3, 20)
LACKS = [
    f"an episode that was saved lacks a message on {topic}" for topic in ("/joint_states", "/command/safe")
]


def save(
    folder: Path,
    frames: Iterable[int] = FRAMES,
    flushed: Iterable[int] = (7, 13),
    task: str = TASK,
    losses: int = 0,
) -> Path:
    """An episode as the recorder saves it, of these frames, in three chunks."""
    types, topics = ros_types(), (t.TASK, t.JOINT_STATES, t.SAFE, t.image_topic("top"))
    channels = {topic.name: Channel(WIRE[topic.kind].ros_type, topic.profile) for topic in topics}
    running = Recording(folder, "episode_1", channels, types)
    running.add("task", types.encode(m.Text(task)), 0)
    for n in frames:
        nothing, place, stamp_s = np.zeros(0), positions(n), n / STAMPS_HZ
        sent = {
            "joint_states": m.JointState(stamp_s, NAMES, place, nothing, nothing),
            "command/safe": m.JointTrajectory(stamp_s, NAMES, place[None], np.array([0.01])),
            "camera/top/image_raw": m.Image(stamp_s, pixels(n)),
        }
        for topic, message in sent.items():
            if n % recorder_oracle.EVERY[f"/{topic}"] == 0:
                running.add(topic, types.encode(message), n)
        if n in flushed:
            running._flush()
    return running.commit(losses)


def saved(messages: int | None = None, **changes: int | bool) -> Told:
    """An episode whose messages were all sent and acknowledged."""
    told = Told(FRAMES[0], FRAMES[-1], FRAMES[0], FRAMES[-1], saved=True, messages=messages)
    for name, value in changes.items():
        setattr(told, name, value)
    return told


def broken(folder: Path, told: Told) -> list[str]:
    return [violation.kind for violation in recorder_oracle.violations(folder, [told])[0]]


def test_a_kept_promise_is_no_violation(tmp_path: Path) -> None:
    """1 task, 17 states, 17 commands and 4 pictures."""
    save(tmp_path)
    assert broken(tmp_path, saved(39)) == []
    assert broken(tmp_path, saved(40)) == ["a saved episode has 39 messages, acknowledged 40"]


@pytest.mark.parametrize("missing", [FRAMES[0], 8, 11, FRAMES[-1]])
def test_a_frame_that_was_removed_is_found(tmp_path: Path, missing: int) -> None:
    """Also when the recorder had acknowledged that many messages."""
    save(tmp_path, [n for n in FRAMES if n != missing])
    assert broken(tmp_path, saved()) == LACKS


def test_a_gap_is_named_and_a_reported_one_is_no_violation(tmp_path: Path) -> None:
    frames = [n for n in FRAMES if n not in (5, 8, 9)]
    save(tmp_path / "silent", frames)
    (first, _), _ = recorder_oracle.violations(tmp_path / "silent", [saved(quiet=True)])
    assert first.detail == "5 8-9 of 3-4 6-7 10-19, due 3-19, ended in silence"
    save(tmp_path / "reported", frames, losses=3)
    assert broken(tmp_path / "reported", saved()) == []
    save(tmp_path / "doubled", [*frames, 3], losses=3)
    assert broken(tmp_path / "doubled", saved())[:2] == LACKS


def test_frames_of_another_episode_twice_or_in_disorder_are_found(tmp_path: Path) -> None:
    save(tmp_path, [*FRAMES, 20])
    assert broken(tmp_path, saved()) == ["an episode has a message from outside of it"]
    for number, frames in enumerate(([*FRAMES, FRAMES[-1]], [*reversed(FRAMES)])):
        save(tmp_path / str(number), frames)
        assert broken(tmp_path / str(number), saved())[:2] == LACKS


def test_a_lost_a_doubled_and_a_discarded_episode_are_found(tmp_path: Path) -> None:
    path = save(tmp_path)
    assert broken(tmp_path, saved(discarded=True, saved=False)) == ["a discarded episode is there"]
    shutil.copytree(path, tmp_path / "episode_2")
    assert broken(tmp_path, saved()) == ["an episode is there twice"]
    for name in ("episode_1", "episode_2"):
        shutil.rmtree(tmp_path / name)
    assert broken(tmp_path, saved()) == ["an episode that was saved is lost"]
    assert broken(tmp_path, saved(saved=False)) == ["an episode that was interrupted is lost"]
    assert broken(tmp_path, saved(saved=False, due_last=-1)) == []


def test_a_cut_file_and_a_changed_value_are_found(tmp_path: Path) -> None:
    """A file cut at many places; another value in one message."""
    (path,) = save(tmp_path).glob("*.mcap")
    data = path.read_bytes()
    for length in range(0, len(data), 997):
        path.write_bytes(data[:length])
        assert broken(tmp_path, saved()), length
    place = data.index(positions(8).tobytes())
    path.write_bytes(data[: place + 1] + b"\x55" + data[place + 2 :])
    assert broken(tmp_path, saved()) == ["a message on /joint_states has another content"]


def test_a_violation_is_counted_once(tmp_path: Path) -> None:
    """The folder is read at every start of a recorder, so one lost episode was counted up to twenty times."""
    save(tmp_path, [n for n in FRAMES if n != 8])
    attack = recorder.Attack(SimpleNamespace(next=100, sent_s=[0.0] * 100), 0, random.Random(0))
    attack.open(tmp_path, tmp_path / "log")
    attack.episodes.append(saved())
    for _ in range(3):
        attack.judge()
    assert attack.found == dict.fromkeys(LACKS, 1)


def test_what_a_start_leaves_is_found(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / IN_PROGRESS / "episode_2").mkdir()
    (tmp_path / ".salvage_episode_2").mkdir()
    assert broken(tmp_path, saved()) == [
        "in_progress/ has 1 recordings after a start",
        "a hidden file is left after a start",
    ]


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_kills_and_full_disks_lose_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """One of each kind; `benchmarks/attack.py --part recorder` ends 240 recorders and fills 80 disks."""
    tried, found, example = recorder.attack(len(recorder.ENDS), seed=1)
    assert (tried, found.total(), example) == (11, 0, "")
    assert '"attack/recorder/kills"' in capsys.readouterr().out
