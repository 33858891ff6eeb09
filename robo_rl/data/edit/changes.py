"""Edits of a dataset: delete, relabel and split episodes, and undo the last edit.

Each edit writes a copy and exchanges it with the dataset (`swap.py`): a kill at any instant leaves the old
state or the new one. Episodes keep their numbers; the numbers of deleted ones stay free. Readers that have
the dataset open go on reading the episodes that they know. With `dry_run`, everything is checked and nothing
is changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from typing import Any, Literal

import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.shapes import Shaped
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.edit.split import split_episode
from robo_rl.data.edit.swap import edited_copy, finish, undo_edit
from robo_rl.data.episodes.commit import numbers
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.rewrite import rewrite_arrays, write_meta
from robo_rl.data.episodes.schema import EPISODES, DatasetMeta, EpisodeMeta

LABELS = "labels"  # key of EpisodeMeta.info: earlier labels, each with the time and author of its replacement
Label = bool | None | Literal["keep"]


@dataclass(frozen=True, slots=True)
class EditReport:
    """What an edit did, or would do. episodes: the numbers that it concerns; before, after: episodes of the
    dataset.
    """

    sentence: str
    episodes: tuple[int, ...]
    before: int
    after: int
    dry_run: bool


def delete_episodes(
    path: str | Path, episodes: Sequence[int], *, dry_run: bool = False, keep_undo: bool = True
) -> EditReport:
    """Delete episodes by number.

    keep_undo: keep the former state for `undo`; without it the disk space is free at once. Raises DataError
    for a number that does not exist and for a path that is no dataset, LockedError while the dataset is
    written.
    """
    root, chosen, there = _chosen(path, episodes)
    report = EditReport(
        f"{counted(len(chosen), 'episode')} {_would_be(dry_run)}deleted, {there - len(chosen)} left.",
        chosen, there, there - len(chosen), dry_run,
    )  # fmt: skip
    if not dry_run:
        entry = {"edit": "delete", "episodes": list(chosen)}
        with edited_copy(root, entry, keep_undo=keep_undo) as copy:
            for number in chosen:
                rmtree(_folder(copy, number))
    return report


def relabel_episodes(
    path: str | Path,
    episodes: Sequence[int],
    *,
    success: Label = "keep",
    task: str | None = None,
    by: str = "",
    dry_run: bool = False,
    keep_undo: bool = True,
) -> EditReport:
    """Change labels: `success` to True, False or None (unknown), `task` to a text; others are kept.

    The earlier labels stay in episode.json under info.labels, with the time and the author (`by`) of the
    change. Rewards that only state the label, 1 at the last frame of a success and 0 elsewhere, and the flag
    `terminated` with them, follow the new label; other rewards are kept. The observation `instruction`, if
    the dataset has it, becomes the new task in every frame: it is what a policy is told. Raises as
    `delete_episodes` does, and ConfigError if nothing is to be changed, or for a task that cannot be an
    instruction.
    """
    if success == "keep" and task is None:
        raise ConfigError("A new label is missing: give success=true, false or none, or task=<instruction>.")
    root, chosen, there = _chosen(path, episodes)
    dataset = DatasetMeta.load(root)
    plan = [_relabelled(Episode(_folder(root, n), dataset), success, task, by) for n in chosen]
    new = [f"success {str(success).lower()}"] * (success != "keep") + [f"task '{task}'"] * (task is not None)
    report = EditReport(
        f"{counted(len(chosen), 'episode')} {_would_be(dry_run)}labelled {' and '.join(new)}.",
        chosen, there, there, dry_run,
    )  # fmt: skip
    if not dry_run:
        entry = {"edit": "relabel", "episodes": list(chosen), "success": success, "task": task, "by": by}
        with edited_copy(root, entry, keep_undo=keep_undo) as copy:
            for number, (meta, arrays) in zip(chosen, plan, strict=True):
                if arrays:
                    rewrite_arrays(_folder(copy, number), meta, arrays)
                else:
                    write_meta(_folder(copy, number), meta)
    return report


def split_at(
    path: str | Path, episode: int, frame: int, *, dry_run: bool = False, keep_undo: bool = True
) -> EditReport:
    """Cut an episode before `frame`. The first part keeps the number, the second gets the next free one.

    The second part keeps the success label. The first has none, or that of a failure: it is trained on as a
    demonstration without an end of its own, and not at all if the episode failed. Raises as
    `delete_episodes` does, and ConfigError for a frame that leaves an empty part.
    """
    root, _, there = _chosen(path, [episode])
    whole = Episode(_folder(root, episode), DatasetMeta.load(root))
    if not 0 < frame < whole.frames:
        raise ConfigError(
            f"frame={frame} cannot split episode {episode}, which has {counted(whole.frames, 'frame')}: give "
            f"one from 1 to {whole.frames - 1}."
        )
    second = max(numbers(root)) + 1
    report = EditReport(
        f"Episode {episode} {_would_be(dry_run)}split at frame {frame}: {counted(frame, 'frame')} in "
        f"{episode}, {whole.frames - frame} in the new episode {second}.",
        (episode, second), there, there + 1, dry_run,
    )  # fmt: skip
    if not dry_run:
        entry = {"edit": "split", "episodes": [episode, second], "frame": frame}
        with edited_copy(root, entry, keep_undo=keep_undo) as copy:
            split_episode(whole, frame, _folder(copy, episode), _folder(copy, second))
    return report


def undo(path: str | Path, *, dry_run: bool = False) -> EditReport:
    """Restore the state before the last edit; a second undo restores the edit.

    Raises DataError if there is no such state, or if the dataset changed after the edit.
    """
    root = finish(path)
    DatasetMeta.load(root)
    before = len(numbers(root))
    entry, back = undo_edit(root, dry_run=dry_run)
    after = before if dry_run else len(numbers(root))
    episodes = tuple(int(number) for number in entry.get("episodes", ()))
    done = f"{_would_be(dry_run) or 'is '}{'carried out again' if back else 'undone'}"
    sentence = f"The last edit {done}: {entry.get('edit')}."
    return EditReport(sentence, episodes, before, after, dry_run)


def _would_be(dry_run: bool) -> str:
    return "would be " if dry_run else ""


def parse_episodes(words: Sequence[str]) -> list[int]:
    """["3", "7-9"] -> [3, 7, 8, 9]. Raises ConfigError for anything else."""
    found: list[int] = []
    for word in words:
        first, dash, last = str(word).strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(first + last) > 18:
            raise ConfigError(f"Found '{word}', expected numbers of episodes such as [3,7-9].")
        end = int(last or first)
        if end < int(first):
            raise ConfigError(f"Found '{word}', expected the smaller number first: {last}-{first}.")
        if end - int(first) > 10**6:
            raise ConfigError(f"Found '{word}', more than a million episodes. Give a smaller range.")
        found += range(int(first), end + 1)
    return found


def _chosen(path: str | Path, episodes: Sequence[int]) -> tuple[Path, tuple[int, ...], int]:
    """Real path, chosen numbers in order, number of episodes. Raises DataError for an unknown number."""
    root = finish(path)
    DatasetMeta.load(root)
    there = numbers(root)
    chosen = tuple(sorted(set(episodes)))
    if not chosen:
        raise ConfigError("No episode is named. Give numbers as robo-rl data list shows them, e.g. [3,7-9].")
    if unknown := sorted(set(chosen) - set(there)):
        known = f"numbers go from {there[0]} to {there[-1]}" if there else "it holds none"
        raise DataError(
            f"{path} has no episode {', '.join(map(str, unknown[:5]))}: {known}. "
            f"See them all: {command('data list', path=path)}"
        )
    return root, chosen, len(there)


def _folder(root: Path, number: int) -> Path:
    return root / EPISODES / f"{number:06d}"


def _relabelled(
    episode: Episode, success: Label, task: str | None, by: str
) -> tuple[EpisodeMeta, dict[str, Shaped[ndarray, " n"]]]:
    """New episode.json, and the arrays that change with the label."""
    old = episode.meta
    new_success = old.success if success == "keep" else success
    change: dict[str, Any] = {"success": old.success, "task": old.task, "by": by}
    change["until"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    history = old.info.get(LABELS, [])
    info = {**old.info, LABELS: [*(history if isinstance(history, list) else []), change]}
    meta = replace(old, success=new_success, task=old.task if task is None else task, info=info)
    arrays: dict[str, Shaped[ndarray, "n ..."]] = {}
    instruction = episode.dataset.env.obs.get(INSTRUCTION)
    same = instruction is not None and (instruction.shape, instruction.dtype) == (
        INSTRUCTION_SPEC.shape,
        INSTRUCTION_SPEC.dtype,
    )
    if task is not None and same:
        arrays[INSTRUCTION] = np.tile(to_bytes(task), (episode.obs_rows, 1))
    if bool(new_success) == bool(old.success) or not _states_label(episode):
        return meta, arrays
    reward = np.zeros(old.frames, dtype="float32")
    reward[-1] = float(bool(new_success))
    return meta, arrays | {"reward": reward, "terminated": reward > 0.5}


def task_changed(meta: EpisodeMeta) -> bool:
    """True if an edit has given the episode another task than it was recorded with."""
    history = meta.info.get(LABELS, [])
    changes = [each for each in history if isinstance(each, dict)] if isinstance(history, list) else []
    return bool(changes) and changes[0].get("task", meta.task) != meta.task


def _states_label(episode: Episode) -> bool:
    """True if reward and `terminated` only state the label of success."""
    expected = np.zeros(episode.frames, dtype="float32")
    expected[-1] = float(bool(episode.success))
    return bool(
        np.array_equal(episode.reward, expected) and np.array_equal(episode.terminated, expected > 0.5)
    )
