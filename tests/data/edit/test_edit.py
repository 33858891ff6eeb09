"""Edits change what they name and nothing else; a copy replaces the dataset, and undo restores it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robo_rl.core.errors import ConfigError, DataError, LockedError
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes, to_text
from robo_rl.data.edit import swap
from robo_rl.data.edit.changes import (
    EditReport,
    delete_episodes,
    parse_episodes,
    relabel_episodes,
    split_at,
    task_changed,
    undo,
)
from robo_rl.data.edit.listing import list_episodes
from robo_rl.data.edit.log import read_edits
from robo_rl.data.episodes.reward_marks import RewardMark, marked_reward, with_mark
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.data.validate import validate
from tests.data.recordings import ENV, STATE_ENV, add_frames, interrupt, record


@pytest.fixture(scope="module", params=["raw", "jpeg"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("recorded") / "set", [6, 5, 4], codec=request.param)


@pytest.fixture
def dataset(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "set"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return record(tmp_path / "set", [3, 3], env=STATE_ENV)


def contents(path: Path) -> dict[int, dict[str, Any]]:
    """Every array and label of every episode, images decoded."""
    return {
        e.number: {
            **{key: e.obs(key).tolist() for key in e.dataset.env.obs},
            **{name: e.array(name).tolist() for name in ("action", "reward", "terminated", "stamps_ns")},
            **{"meta": (e.frames, e.success, e.meta.task, e.meta.seed, e.has_final_obs)},
        }
        for e in EpisodeStore(path)
    }


def test_deleted_episodes_are_gone_and_the_others_keep_their_numbers(dataset: Path) -> None:
    """And the gap is no fault, because the log names it."""
    before = contents(dataset)
    report = delete_episodes(dataset, [1])
    assert (report.before, report.after, report.episodes) == (3, 2, (1,))
    del before[1]
    assert contents(dataset) == before
    assert not validate(dataset)
    assert sorted(p.name for p in dataset.parent.iterdir()) == [".set.undo", "set"]
    assert [entry["edit"] for entry in read_edits(dataset)] == ["delete"]


def test_undo_restores_every_byte_and_undo_of_undo_the_edit(dataset: Path) -> None:
    before = contents(dataset)
    delete_episodes(dataset, [0, 2])
    after = contents(dataset)
    assert undo(dataset).sentence == "The last edit is undone: delete."
    assert contents(dataset) == before
    assert undo(dataset).sentence == "The last edit is carried out again: delete."
    assert contents(dataset) == after


def test_relabelled_episodes_keep_their_earlier_label(dataset: Path) -> None:
    """The history says what the label was, until when, and who changed it; dense rewards stay."""
    before = contents(dataset)
    relabel_episodes(dataset, [0], success=False, task="push", by="ann")
    relabel_episodes(dataset, [0], success=None)
    episode = EpisodeStore(dataset).episode(0)
    assert (episode.success, episode.meta.task) == (None, "push")
    first, second = episode.meta.info["labels"]
    assert (first["success"], first["task"], first["by"]) == (True, "task 0", "ann")
    assert (second["success"], second["task"]) == (False, "push")
    after = contents(dataset)
    before[0].pop("meta"), after[0].pop("meta")
    assert after == before
    assert not validate(dataset)


def test_a_new_task_is_what_a_policy_is_told(tmp_path: Path) -> None:
    """Policies of words learn the observation `instruction`; an undo brings the old text back."""
    env = replace(STATE_ENV, obs=STATE_ENV.obs | {INSTRUCTION: INSTRUCTION_SPEC})
    writer = DatasetWriter.create(tmp_path / "set", env, stamps=(), min_free_bytes=0)
    for _ in range(2):
        with writer.episode(task="open the drawer") as episode:
            for _ in range(3):
                episode.add({"state": np.zeros(3), INSTRUCTION: to_bytes("open the drawer")}, np.zeros(2))
            episode.commit(success=True)
    writer.close()

    def told() -> list[set[str]]:
        return [{to_text(row) for row in each.obs(INSTRUCTION)} for each in EpisodeStore(tmp_path / "set")]

    with pytest.raises(ConfigError, match="at most 128"):
        relabel_episodes(tmp_path / "set", [1], task="close " * 40)
    relabel_episodes(tmp_path / "set", [1], task="close the drawer")
    assert told() == [{"open the drawer"}, {"close the drawer"}]
    assert not [fault for fault in validate(tmp_path / "set") if fault.severity == "error"]
    assert [task_changed(each.meta) for each in EpisodeStore(tmp_path / "set")] == [False, True]
    undo(tmp_path / "set")
    assert told() == [{"open the drawer"}] * 2


@pytest.mark.parametrize("new", [True, False, None])
def test_rewards_that_state_the_label_follow_it(tmp_path: Path, new: bool | None) -> None:
    """As imports of recordings write them: 1 and an end at the last frame of a success."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV, stamps=(), min_free_bytes=0)
    with writer.episode() as episode:
        for i in range(3):
            episode.add({"state": np.zeros(3)}, np.zeros(2), reward=float(i == 2), terminated=i == 2)
        episode.commit(success=True)
    writer.close()
    relabel_episodes(tmp_path / "set", [0], success=new)
    found = EpisodeStore(tmp_path / "set").episode(0)
    assert found.reward.tolist() == [0, 0, float(bool(new))]
    assert found.terminated.tolist() == [False, False, bool(new)]
    assert not [fault for fault in validate(tmp_path / "set") if fault.severity == "error"]


def test_both_parts_of_a_split_join_to_the_episode(dataset: Path) -> None:
    """The observation at the cut is the last one of the first part and the first one of the second."""
    before = contents(dataset)
    assert split_at(dataset, 0, 4).episodes == (0, 3)
    after = contents(dataset)
    for name in ("action", "reward", "terminated", "stamps_ns"):
        assert after[0][name] + after[3][name] == before[0][name]
    for key in ENV.obs:
        assert after[0][key] + after[3][key][1:] == before[0][key]
        assert after[0][key][-1] == after[3][key][0]
    assert (after[0]["meta"], after[3]["meta"]) == (
        (4, None, "task 0", 0, True),
        (2, True, "task 0", None, True),
    )
    assert {n: after[n] for n in (1, 2)} == {n: before[n] for n in (1, 2)}
    assert not validate(dataset)


def test_each_part_of_a_split_keeps_its_own_reward_marks(tmp_path: Path) -> None:
    """A mark at frame 1 stays there; that at frame 4 is at frame 1 of the part that begins at 3."""
    writer = DatasetWriter.create(tmp_path / "set", STATE_ENV)
    with writer.episode() as episode:
        add_frames(episode, 0, 6, STATE_ENV)
        for mark in (RewardMark(1, 1.0), RewardMark(4, -1.0)):
            episode.annotate(with_mark(episode.info, mark))
        episode.commit(success=True)
    writer.close()
    split_at(tmp_path / "set", 0, 3)
    rewards = [marked_reward(episode.meta).tolist() for episode in EpisodeStore(tmp_path / "set")]
    assert rewards == [[0.0, 1.0, 0.0], [0.0, -1.0, 0.0]]


def test_a_part_that_ends_at_a_cut_is_known(small: Path) -> None:
    """Also where a first part is split again, and in datasets that an earlier release has split."""
    split_at(small, 0, 2)
    split_at(small, 0, 1)
    assert {e.number: e.continues for e in EpisodeStore(small)} == {0: True, 1: False, 2: False, 3: True}
    for number in (0, 2):
        file = small / f"episodes/{number:06d}/episode.json"
        meta = json.loads(file.read_text())
        meta["info"]["split"].pop("continues")
        file.unlink()
        file.write_text(json.dumps(meta))
    assert [e.continues for e in EpisodeStore(small)][:3] == [True, False, False]


def test_both_parts_of_a_failure_are_failures(small: Path) -> None:
    """The first part may hold the cause, and training leaves failures out."""
    relabel_episodes(small, [0], success=False)
    split_at(small, 0, 1)
    assert [e.success for e in EpisodeStore(small) if e.number in (0, 2)] == [False, False]


EDITS: dict[str, Callable[..., EditReport]] = {
    "delete": lambda path, **options: delete_episodes(path, [0], **options),
    "relabel": lambda path, **options: relabel_episodes(path, [0], success=False, **options),
    "split": lambda path, **options: split_at(path, 0, 1, **options),
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_dry_run_changes_nothing(small: Path, edit: str) -> None:
    """But it checks and reports as the edit does."""
    files = {p: p.stat().st_mtime_ns for p in small.parent.rglob("*") if p.is_file() and p.name != ".lock"}
    promised = EDITS[edit](small, dry_run=True)
    now = {p: p.stat().st_mtime_ns for p in small.parent.rglob("*") if p.is_file() and p.name != ".lock"}
    assert now == files
    done = EDITS[edit](small)
    assert "would be" in promised.sentence
    assert (promised.sentence.replace("would be ", ""), promised.after) == (done.sentence, done.after)
    state = contents(small)
    undo(small, dry_run=True)
    assert contents(small) == state


@pytest.mark.parametrize("edit", EDITS)
def test_edits_work_without_hard_links_and_exchange(
    small: Path, edit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network file systems have neither: files are copied, and two renames replace the exchange."""

    def no_link(*_: Any) -> None:
        raise OSError(1, "Operation not permitted")

    before = contents(small)
    monkeypatch.setattr(swap.os, "link", no_link)
    monkeypatch.setattr(swap, "exchange", lambda *_: False)
    EDITS[edit](small)
    assert contents(small) != before
    undo(small)
    assert contents(small) == before
    assert sorted(p.name for p in small.parent.iterdir()) == [".set.undo", "set"]


def test_undo_refuses_to_lose_episodes_recorded_since(small: Path) -> None:
    delete_episodes(small, [0])
    writer = DatasetWriter.open(small, min_free_bytes=0)
    with writer.episode(seed=7) as episode:
        add_frames(episode, 7, 2, STATE_ENV)
        episode.commit()
    writer.close()
    with pytest.raises(DataError, match="changed since its last edit"):
        undo(small)
    assert [row.number for row in list_episodes(small)] == [1, 2]


def test_without_undo_the_space_is_free_at_once(small: Path) -> None:
    delete_episodes(small, [0], keep_undo=False)
    assert [p.name for p in small.parent.iterdir()] == ["set"]
    with pytest.raises(DataError, match="no former state"):
        undo(small)


def test_a_dataset_that_is_written_is_not_edited(small: Path) -> None:
    """Neither by another process nor by this one, whose writer would go on writing into the former state."""
    writer = DatasetWriter.open(small, min_free_bytes=0)
    with pytest.raises(LockedError, match="close its DatasetWriter"):
        delete_episodes(small, [0])
    writer.close()
    delete_episodes(small, [0])


def test_interrupted_episodes_are_recovered_before_an_edit(small: Path) -> None:
    """An edit would lose their frames."""
    writer = DatasetWriter.open(small, min_free_bytes=0)
    interrupt(writer, 9, 2, STATE_ENV)
    writer.close()
    with pytest.raises(DataError, match=r"1 interrupted episode.*recover=true"):
        delete_episodes(small, [0])
    assert len(list((small / "staging").iterdir())) == 2


def test_a_mount_point_is_refused_before_anything_is_copied(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a volume of a container: the folder cannot be exchanged for the copy."""
    monkeypatch.setattr(swap, "_link_tree", lambda *_: pytest.fail("copied"))
    monkeypatch.setattr(swap, "is_mount_point", lambda root: root == small)
    with pytest.raises(DataError, match=r"set is a mount point.*Move the dataset into a folder below it"):
        delete_episodes(small, [0])


def test_mount_points_are_known() -> None:
    assert swap.is_mount_point(Path("/"))
    assert not swap.is_mount_point(Path(__file__).parent)


def test_a_folder_that_is_mounted_on_the_dataset_is_a_mount_point(tmp_path: Path) -> None:
    """Also one of the same file system, with a blank in its name; needs the permission to mount."""
    source, target = tmp_path / "source", tmp_path / "my set"
    source.mkdir()
    target.mkdir()
    words = "from robo_rl.data.edit.swap import is_mount_point; from pathlib import Path; import sys; "
    words += "print(is_mount_point(Path(sys.argv[1]).resolve()))"
    mount = 'mount --bind "$1" "$2"'
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    folders = ["sh", str(source), str(target)]
    if subprocess.run([*apart, mount, *folders], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mount is permitted here")
    script = f'{mount} && exec "$3" -c "$4" "$2"'
    done = subprocess.run(
        [*apart, script, *folders, sys.executable, words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_linked_dataset_is_edited_where_it_is(small: Path, tmp_path: Path) -> None:
    """The link stays a link."""
    link = tmp_path / "elsewhere" / "link"
    link.parent.mkdir()
    link.symlink_to(small)
    delete_episodes(link, [0])
    assert link.is_symlink()
    assert [row.number for row in list_episodes(small)] == [1]


@pytest.mark.parametrize(
    ("edit", "error", "words"),
    [
        (lambda path: delete_episodes(path, [7]), DataError, "no episode 7: numbers go from 0 to 1"),
        (lambda path: delete_episodes(path, []), ConfigError, "No episode is named"),
        (lambda path: relabel_episodes(path, [0]), ConfigError, "new label is missing"),
        (lambda path: split_at(path, 0, 3), ConfigError, "from 1 to 2"),
        (lambda path: delete_episodes(path.parent, [0]), DataError, "not a dataset"),
        (lambda path: delete_episodes(path / "no", [0]), DataError, "does not exist"),
        (undo, DataError, "no former state"),
    ],
)
def test_impossible_edits_are_refused(
    small: Path, edit: Callable[[Path], Any], error: type[Exception], words: str
) -> None:
    """With one sentence, and nothing is left behind."""
    with pytest.raises(error, match=words):
        edit(small)
    assert [p.name for p in small.parent.iterdir()] == ["set"]
    assert len(list_episodes(small)) == 2


def test_numbers_of_episodes_are_parsed() -> None:
    assert parse_episodes(["3", "7-9"]) == [3, 7, 8, 9]
    for word in ("x", "-3", "3-", "1-99999999", "1e3", ""):
        with pytest.raises(ConfigError, match=r"expected numbers|more than a million"):
            parse_episodes([word])


def test_a_reversed_range_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^Found '9-7', expected the smaller number first: 7-9\.$"):
        parse_episodes(["9-7"])


def test_an_edit_from_inside_the_dataset_is_refused(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell would stay in the former state: the next edit by path=. would change that one."""
    monkeypatch.chdir(small / "episodes")
    with pytest.raises(DataError, match=r"Leave it first: cd "):
        delete_episodes("..", [0])
    assert len(list_episodes(small)) == 2


def test_the_former_state_of_a_dataset_cannot_be_edited(small: Path) -> None:
    delete_episodes(small, [0])
    with pytest.raises(DataError, match=r"kept by an edit"):
        delete_episodes(small.with_name(f".{small.name}.undo"), [1])


def test_the_hint_on_an_unknown_episode_can_be_pasted(small: Path) -> None:
    spaced = small.rename(small.with_name("my data"))
    with pytest.raises(DataError, match=rf"robo-rl data list 'path={spaced}'$"):
        delete_episodes(spaced, [7])


def test_the_list_shows_what_was_recorded_and_what_cannot_be_read(small: Path) -> None:
    """Frames 1, 3, ... are interventions. A damaged episode has a row with its fault."""
    row = list_episodes(small)[0]
    assert (row.frames, row.seconds, row.success, row.task) == (3, 3 / 20, True, "task 0")
    assert (row.interventions, row.intervention_frames) == (1, 1)
    assert row.bytes > 0
    (small / "episodes/000001/intervention/c.0").write_bytes(b"")
    assert "truncated" in list_episodes(small)[1].fault
