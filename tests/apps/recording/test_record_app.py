"""The recording app's node between a small arm and the real safety filter, in virtual time."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hardware.checks.faulty_disk import full_at_call, full_disk
from hardware.topics import TASK
from robo_rl.apps.datasets.show import episode_text
from robo_rl.apps.recording.dataset import longest_frames, spec_of
from robo_rl.apps.recording.episodes import Tally
from robo_rl.conf.record import RecordingSettings
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.reward_marks import marked_reward, reward_marks
from robo_rl.data.store import EpisodeStore, recover
from robo_rl.data.validate import validate
from tests.apps.recording.cell import RecordingCell, make_cell
from tests.hardware.arm_descriptions import arm


def test_an_episode_holds_what_was_seen_and_what_was_really_sent(cell: RecordingCell) -> None:
    """A second at 20 Hz: the action of a frame is the command of the next tick, so the obedient arm is there
    in the next observation; a success has reward 1 and ends the task at the last frame.
    """
    cell.ask(kind="start")
    cell.drive(1.0, (0.5, -0.2, -0.2))
    cell.ask(kind="save", success=True)
    episode = cell.store().episode(0)
    assert episode.frames in (18, 19, 20)
    assert (episode.success, episode.meta.task, episode.meta.complete) == (True, "push the button", True)
    assert episode.intervention.all()
    state = episode.obs("state")
    assert len(state) == episode.frames + 1
    assert np.abs(state[1:, :3] - episode.action).max() < 0.02  # a command moves the arm by at most 0.016 rad
    assert state[-1, 0] - state[0, 0] > 0.2
    assert episode.reward.tolist() == [0.0] * (episode.frames - 1) + [1.0]
    assert episode.terminated.tolist() == [False] * (episode.frames - 1) + [True]
    for name in ("t_capture_ns", "t_receive_ns", "t_command_ns", "t_receive_ns.image.wrist"):
        assert (np.diff(episode.stamps()[name]) > 0).all(), name
    assert validate(cell.out) == []


def test_a_pause_holds_the_arm_and_adds_no_frame(cell: RecordingCell) -> None:
    """Frames before and after a pause join: the arm may not be driven meanwhile."""
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="pause")
    cell.run(0.3)
    frames, place = cell.node.episodes.frames, cell.arm.q_rad.copy()
    cell.drive(1.0)
    assert cell.node.episodes.frames == frames
    np.testing.assert_allclose(cell.arm.q_rad, place, atol=0.01)
    cell.ask(kind="resume")
    cell.drive(0.5)
    cell.ask(kind="end")
    cell.ask(kind="instruct", text="press it")
    cell.ask(kind="save", success=None)
    episode = cell.store().episode(0)
    assert (episode.success, episode.meta.task) == (None, "press it")
    assert np.abs(np.diff(episode.obs("state")[:, 0])).max() < 0.1


def test_discard_and_record_again(cell: RecordingCell) -> None:
    """Nothing is committed, the simulated arm is back at its start, armed, and the next episode runs."""
    start = cell.arm.q_rad.copy()
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="again")
    cell.run(2.0)
    assert cell.node.episodes.state == "recording"
    assert cell.armed
    np.testing.assert_allclose(cell.arm.q_rad, start)
    cell.drive(0.5)
    cell.ask(kind="discard")
    assert cell.node.notices.newest()[-1].text == "the episode was discarded"  # as its button says
    cell.run(2.0)
    np.testing.assert_allclose(cell.arm.q_rad, start)
    assert len(cell.store()) == 0
    assert [path for path in (cell.out / "staging").iterdir() if path.is_dir()] == []


def test_a_start_waits_until_the_scene_is_ready(cell: RecordingCell) -> None:
    """Space right after Enter: the arm is still put back, and its jump would be in the episode."""
    start = cell.arm.q_rad.copy()
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="save", success=True)
    cell.ask(kind="start")
    assert cell.node.episodes.state == "idle"
    cell.run(2.0)
    assert (cell.node.episodes.state, cell.armed) == ("recording", True)
    cell.ask(kind="save", success=True)
    cell.run(2.0)
    _, second = cell.store()
    assert np.abs(second.obs("state")[:, :3] - start).max() < 1e-6


def test_the_end_of_the_app_commits_the_running_episode(cell: RecordingCell) -> None:
    """SIGTERM: the episode is kept, marked incomplete, and the dataset is free for another program."""
    cell.ask(kind="start")
    cell.drive(0.5)
    assert "saved episode 0" in cell.node.stop("SIGTERM")
    assert (cell.store().episode(0).meta.complete, cell.store().episode(0).success) == (False, None)
    DatasetWriter.open(cell.out).close()


def test_an_episode_ends_at_its_longest_length(tmp_path: Path) -> None:
    """A page left open overnight does not fill the disk."""
    cell = make_cell(tmp_path / "data", longest_s=1.0)
    cell.ask(kind="start")
    cell.run(3.0)
    assert (cell.node.episodes.state, cell.node.episodes.frames) == ("ended", 20)


def test_the_longest_length_of_this_start_holds_within_that_of_the_dataset(tmp_path: Path) -> None:
    """A dataset of 1 s ends at 0.5 s if so asked; at 1 s where 2 s are asked, and the app says so."""
    robot, out = arm(), str(tmp_path / "data")
    spec = spec_of(RecordingSettings(robot=robot.name, out=out, longest_s=1.0), robot, simulated=False)
    rate_hz = spec.control_hz
    for asked_s, ends_s in ((0.5, 0.5), (1.0, 1.0), (2.0, 1.0)):
        most, said = longest_frames(RecordingSettings(robot=robot.name, out=out, longest_s=asked_s), spec)
        assert most == round(ends_s * rate_hz)
        assert ("end after 1 s, as it was created, not after longest_s=2" in said) == (asked_s > ends_s)


def test_a_cleared_instruction_reaches_the_policy(cell: RecordingCell) -> None:
    """The topic is latched: without an empty text, the policy follows the former instruction for ever."""
    heard: list[str] = []
    TASK.subscribe(cell.world.bus("policy"), lambda message, received_s: heard.append(message.text))
    cell.ask(kind="instruct", text="")
    cell.run(0.1)
    assert heard == ["push the button", ""]


@pytest.mark.parametrize("text", ["x" * 10_000, "insert\nthe peg", "insert \x1b[2J"])
def test_an_instruction_that_no_policy_could_read_is_refused(cell: RecordingCell, text: str) -> None:
    """The earlier one stays, and the page gets a sentence."""
    cell.ask(kind="instruct", text=text)
    assert cell.node.episodes.instruction == "push the button"
    assert any("The instruction" in sentence for sentence in cell.said)


def test_a_new_start_appends(cell: RecordingCell, tmp_path: Path) -> None:
    """The same `out` continues; counts include the earlier episodes."""
    cell.ask(kind="start")
    cell.run(0.5)
    cell.ask(kind="save", success=True)
    cell.node.stop("done")
    again = make_cell(tmp_path / "data")
    assert again.node.episodes.tally.successes == 1
    again.ask(kind="start")
    again.run(0.5)
    again.ask(kind="save", success=False)
    assert [episode.success for episode in again.store()] == [True, False]


def test_a_full_disk_ends_and_keeps_the_episode(cell: RecordingCell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the floor no episode starts; a running one ends and is committed."""
    cell.ask(kind="start")
    cell.run(0.5)
    monkeypatch.setattr("robo_rl.data.episodes.disk.free_bytes", lambda path: -1)
    cell.run(0.3)
    assert cell.node.episodes.state == "idle"
    assert len(cell.store()) == 1
    cell.ask(kind="start")
    assert cell.node.episodes.state == "idle"
    assert any("are free on the disk" in sentence for sentence in cell.said)


def test_a_full_disk_is_told_without_a_command_that_is_not_needed(cell: RecordingCell) -> None:
    """The message used to advise salvaging an episode that it said was saved."""
    cell.ask(kind="start")
    with full_at_call(40):
        cell.run(1.5)
    assert cell.node.episodes.state == "idle"
    assert "safe; free some space. Episode 0 was ended and saved with" in cell.said[-1]


def test_the_end_of_the_app_at_a_full_disk_tells_how_to_salvage(tmp_path: Path) -> None:
    """The app that has ended cannot save again. The command can be pasted: the path has a space."""
    cell = make_cell(tmp_path / "my data")
    cell.ask(kind="start")
    cell.run(1.0)
    with full_disk(cell.out, room_bytes=0):
        told = cell.node.episodes.close("the app ends")
    assert "save again" not in told
    command = shlex.split(told.partition("Then salvage the running one: ")[2])
    assert command == ["robo-rl", "data", "validate", f"path={cell.out}", "recover=true"]
    subprocess.run([sys.executable, "-m", "robo_rl", *command[1:]], check=True)
    assert len(cell.store()) == 1


def test_episodes_are_deleted_and_relabelled_and_it_is_undone(cell: RecordingCell) -> None:
    """By the same edits as `robo-rl data edit`; no episode starts meanwhile, and the next number follows."""
    for success in (True, False, True):
        cell.ask(kind="start")
        cell.run(0.3)
        cell.ask(kind="save", success=success)
        cell.run(2.0)
    cell.edit(kind="delete", episodes=[1])
    cell.ask(kind="relabel", episodes=[2], text="push it")
    cell.edit(kind="relabel", episodes=[2], success=False)  # waits for the edit before
    assert [(e.number, e.success, e.meta.task) for e in cell.store()] == [
        (0, True, "push the button"),
        (2, False, "push it"),
    ]
    assert (cell.node.episodes.tally.successes, cell.node.episodes.tally.failures) == (1, 1)
    cell.edit(kind="undo")
    assert [e.success for e in cell.store()] == [True, True]
    cell.edit(kind="delete", episodes=[7])
    assert "7" in cell.said[-1]
    cell.ask(kind="start")
    cell.run(0.3)
    cell.ask(kind="save", success=True)
    assert [e.number for e in cell.store()] == [0, 2, 3]


def test_moments_are_marked_with_rewards(cell: RecordingCell) -> None:
    """Marks are kept with frame, author and time; the column `reward` stays that of the label."""
    cell.ask(kind="mark", reward=1.0)
    assert "Only a frame that is being recorded can be marked" in cell.said[-1]
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="mark", reward=1.0)
    cell.drive(0.5)
    cell.ask(kind="mark", reward=-1.0)
    cell.drive(0.2)
    cell.ask(kind="save", success=False)
    meta = cell.store().episode(0).meta
    good, bad = reward_marks(meta)
    assert (good.reward, bad.reward, good.at[-1]) == (1.0, -1.0, "Z")
    assert 5 < good.frame < bad.frame
    reward = marked_reward(meta)
    assert len(reward) == meta.frames
    assert np.flatnonzero(reward).tolist() == [good.frame, bad.frame]
    assert not cell.store().episode(0).reward.any()
    assert f"+1 at frame {good.frame}, -1 at frame {bad.frame}" in episode_text(cell.store().episode(0))


def test_marks_of_a_killed_episode_are_salvaged(cell: RecordingCell, tmp_path: Path) -> None:
    """The note is on the disk as soon as it is made."""
    cell.ask(kind="start")
    cell.drive(0.5)
    cell.ask(kind="mark", reward=0.5)
    shutil.copytree(cell.out, tmp_path / "copy")  # as the disk is after a kill
    recover(tmp_path / "copy")
    (episode,) = EpisodeStore(tmp_path / "copy")
    assert [mark.reward for mark in reward_marks(episode.meta)] == [0.5]
    assert not episode.meta.complete


def test_the_newest_instruction_of_a_killed_episode_is_salvaged(cell: RecordingCell, tmp_path: Path) -> None:
    """One that was changed while the episode ran; the marks stay."""
    cell.ask(kind="start")
    cell.drive(0.3)
    cell.ask(kind="mark", reward=0.5)
    cell.ask(kind="instruct", text="pull the lever")
    shutil.copytree(cell.out, tmp_path / "copy")  # as the disk is after a kill
    recover(tmp_path / "copy")
    (episode,) = EpisodeStore(tmp_path / "copy")
    assert (episode.meta.task, len(reward_marks(episode.meta))) == ("pull the lever", 1)


def test_interrupted_episodes_are_not_counted_for_training(cell: RecordingCell, tmp_path: Path) -> None:
    """Neither with a label that they were given later: `robo-rl train` leaves them out."""
    cell.ask(kind="start")
    cell.drive(0.3)
    cell.node.stop("SIGTERM")
    assert cell.node.episodes.tally == Tally(episodes=1, interrupted=1)
    again = make_cell(tmp_path / "data")
    again.edit(kind="relabel", episodes=[0], success=True)
    again.run(0.1)
    shown = again.shared.view["episode"]
    assert (shown["count"], shown["successes"], shown["interrupted"]) == (1, 0, 1)
    assert again.node.episodes.tally.trainable("unfailed") == 0
    again.edit(kind="relabel", episodes=[0], success=False)
    assert again.node.episodes.tally == Tally(episodes=1, failures=1)
