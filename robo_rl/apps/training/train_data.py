"""Datasets of a training: the episodes to learn from, their windows and their statistics."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from policies.training.batches import LoaderWindows, TensorWindows, WindowSource
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.spec import ActionSpec, EnvSpec, image_fault, sense_of, target_of
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION, TASK_NOTE, suits_vla, to_bytes, to_text
from robo_rl.data.edit.changes import task_changed
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.episodes.recover import empty_sentence
from robo_rl.data.joined_windows import JoinedWindows
from robo_rl.data.normalizer import Normalizer, used_range
from robo_rl.data.plausible import check_episodes
from robo_rl.data.selection import EpisodeSelection, select_episodes
from robo_rl.data.spec_difference import differences
from robo_rl.data.store import EpisodeStore
from robo_rl.data.windows import WindowDataset, WindowSpec, collate, load_tensors

SHOWN = 3  # texts or episodes in a sentence
SAMPLED = 100  # episodes of which the instruction is read
LEAST_WINDOW = 32  # frames; windows up to this length are permitted on shorter episodes


def dataset_paths(data: str) -> list[str]:
    """Folders of `data=`: one, or several written [a,b]. Raises ConfigError for none, or one named twice."""
    several = data.startswith("[") and data.endswith("]")
    paths = [path.strip().strip("'\"") for path in data[1:-1].split(",")] if several else [data]
    if not all(paths):
        raise ConfigError(f"data={data} names an empty folder. Write data=[data/a,data/b].")
    places = [Path(path).resolve() for path in paths]
    for i, place in enumerate(places):
        if place in places[:i]:
            raise ConfigError(
                f"data={data} names {paths[i]} twice, whose episodes would count double. Name it once."
            )
    return paths


@dataclass(frozen=True)
class TrainData:
    """Selected episodes of one or several datasets, which have the same observations and actions, or are of
    several `embodiments`.

    action_range: the actions that [-1, 1] stands for, see `robo_rl.data.normalizer`. limits: those of a
    policy that is trained further, in place of a range of the data.
    """

    selections: tuple[EpisodeSelection, ...]
    action_range: str = "limits"
    limits: ActionSpec | None = None

    @classmethod
    def select(
        cls,
        data: str,
        learn_from: str,
        action_range: str = "limits",
        limits: ActionSpec | None = None,
        *,
        task_as_instruction: bool = False,
        several: bool = False,
    ) -> TrainData:
        """Episodes of `data=` by the rule `learn_from`.

        task_as_instruction: the task of an episode is its instruction where none was recorded as an
        observation. several: datasets may be of different embodiments.

        Raises DataError for datasets that do not fit each other and episodes without a task to tell,
        ConfigError for a bad `data=`.
        """
        stores = [EpisodeStore(path, task_as_instruction=task_as_instruction) for path in dataset_paths(data)]
        for store in stores:
            check_images(store)
        if not several:
            check_alike(stores)
        made = cls(tuple(selected_episodes(store, learn_from) for store in stores), action_range, limits)
        check_episodes(made.episodes)
        for selection in made.selections:
            check_task_instructions(selection)
        return made

    @cached_property
    def spec(self) -> EnvSpec:
        """Contract of the data, without what only a simulator knows; the name is that of the first dataset,
        the limits of actions those that a policy learns.
        """
        specs = [selection.store.spec.for_datasets() for selection in self.selections]
        first = replace(specs[0], max_episode_steps=max(spec.max_episode_steps for spec in specs))
        narrowed = self.action_range == "data" or (self.action_range == "auto" and not first.simulated)
        if not narrowed:
            return first
        if self.limits is not None and self.limits.dim == first.action.dim:
            return replace(first, action=self.limits)
        actions = np.concatenate([episode.action for episode in self.episodes])
        return replace(first, action=used_range(first.action, actions))

    @cached_property
    def embodiments(self) -> tuple[TrainData, ...]:
        """The datasets in groups with the same observations, actions and rate, in the order of `data=`."""
        groups: list[list[EpisodeSelection]] = []
        for selection in self.selections:
            alike = [group for group in groups if not difference(group[0].store, selection.store)]
            if alike:
                alike[0].append(selection)
            else:
                groups.append([selection])
        return tuple(replace(self, selections=tuple(group)) for group in groups)

    @property
    def path(self) -> str:
        """Folders for messages."""
        return " and ".join(str(selection.store.path) for selection in self.selections)

    @property
    def episodes(self) -> list[Episode]:
        return [episode for selection in self.selections for episode in selection.episodes]

    @property
    def frames(self) -> int:
        return sum(episode.frames for episode in self.episodes)

    @property
    def left_out(self) -> dict[str, int]:
        """Number of episodes left out for each reason."""
        every = [selection.left_out for selection in self.selections]
        return {why: sum(each[why] for each in every) for why in every[0]}

    @property
    def has_pictures(self) -> bool:
        """True with images or point clouds, which do not fit into memory."""
        specs = [selection.store.spec for selection in self.selections]
        senses = {sense_of(key, array) for spec in specs for key, array in spec.for_datasets().obs.items()}
        return bool(senses - {"state", "privileged", "text", "target"})

    def sentences(self) -> list[str]:
        """For each dataset of which episodes were left out: how many, why, and what selects them all."""
        sentences = [selection.sentence() for selection in self.selections]
        return [f"{each} learn_from=all selects every one." for each in sentences if each]

    @property
    def task_instructions(self) -> list[str]:
        """Tasks that are instructions, because none were recorded as observations."""
        return sorted({episode.meta.task for episode in self.episodes if episode.task_is_instruction})

    def task_instruction_sentence(self) -> str:
        """Sentence on episodes whose task is their instruction; empty if all have a recorded one."""
        if not (texts := self.task_instructions):
            return ""
        some = ", ".join(f"'{text}'" for text in texts[:SHOWN]) + (", ..." if len(texts) > SHOWN else "")
        sentence = (
            f"No instruction was recorded as an observation: the task of each episode is told ({some})."
        )
        return " ".join([sentence, *filter(None, map(_advice_on_names, self.selections))])

    def unread_sentence(self) -> str:
        """Sentence for a policy that reads no instructions; empty for data with at most one, in a sample of
        the episodes.
        """
        if INSTRUCTION not in self.spec.obs:
            return ""
        sample = self.episodes[:: 1 + len(self.episodes) // SAMPLED]
        if len({to_text(episode.obs(INSTRUCTION)[0]) for episode in sample}) < 2:
            return ""
        remedy = "; policy=vla does" if suits_vla(self.spec) else ""
        return f"The data have several instructions, which policy=generative does not read{remedy}."

    def check_human(self) -> None:
        """Raise ConfigError if learn_steps=human would select every step, because no human intervened."""
        if not any(np.any(episode.intervention) for episode in self.episodes):
            raise ConfigError(
                f"learn_steps=human selects the steps in which a human acted, and {self.path} has none "
                "(column intervention). Record interventions, or leave the setting out."
            )

    def human_sentence(self) -> str:
        """Sentence on the steps at which chunks begin with learn_steps=human."""
        acted = [int(np.sum(episode.intervention)) for episode in self.episodes]
        rest = sum(e.frames for e, steps in zip(self.episodes, acted, strict=True) if not steps)
        others = f", and {rest} of episodes without interventions" if rest else ""
        return (
            f"Chunks begin at {sum(acted) + rest} of {self.frames} steps: {sum(acted)} in which a human "
            f"acted{others}."
        )

    def fingerprint(self) -> dict[str, int]:
        """Numbers that differ for other episodes, and for other observations and actions in the same ones.

        The content is known by the checksums in each episode.json; no array is read.
        """
        numbers = [[episode.number for episode in selection.episodes] for selection in self.selections]
        text = str(numbers[0] if len(numbers) == 1 else numbers)
        content = [array_checksums(episode) for episode in self.episodes]
        return {
            "episodes": len(self.episodes),
            "frames": self.frames,
            "numbers_crc32": zlib.crc32(text.encode()),
            "content_crc32": zlib.crc32(str(content).encode()),
        }

    def check_windows(self, **lengths: int) -> None:
        """Raise ConfigError for windows longer than every episode, which would be mostly padding."""
        longest = max((episode.frames for episode in self.episodes), default=0)
        for key, length in lengths.items():
            if length > max(longest, LEAST_WINDOW):
                raise ConfigError(
                    f"{key}={length} cannot be used: the longest episode in {self.path} has "
                    f"{counted(longest, 'frame')}. Give at most that many."
                )

    def normalizer(self, floor: float = 0.0) -> Normalizer:
        """Statistics of every state observation over all frames of the selected episodes. floor: see
        `Normalizer`.
        """
        keys = [key for key, spec in self.spec.obs.items() if sense_of(key, spec) == "state"]
        states = {key: torch.cat([torch.tensor(e.obs(key)) for e in self.episodes]) for key in keys}
        return Normalizer.fit(states, floor=floor)

    def wordings(self) -> dict[str, tuple[str, ...]]:
        """Each instruction -> all instructions of its task, by the task in the notes of the episodes.

        An instruction of several tasks, or of episodes without a task, is alone, and so is one that was given
        to episodes later: it may name another task than the one that the environment had.
        """
        tasks: dict[str, set[Any]] = {}
        for episode in self.episodes:
            for words in np.unique(episode.obs(INSTRUCTION), axis=0):
                of = tasks.setdefault(to_text(words), set())
                of |= set() if task_changed(episode.meta) else {episode.meta.info.get(TASK_NOTE)}
        alike = {text: next(iter(of)) if len(of) == 1 else None for text, of in sorted(tasks.items())}
        return {
            text: (text,) if task is None else tuple(each for each, of in alike.items() if of == task)
            for text, task in alike.items()
        }

    def windows(self, spec: WindowSpec, num_workers: int, *, human_only: bool = False) -> WindowSource:
        """Windows in memory for states and words; through a loader for images and point clouds.

        human_only: see `WindowDataset`.
        """
        parts = [(selection.store.path, selection.positions) for selection in self.selections]
        action, keys = self.spec.action, tuple(self.spec.obs)
        if self.has_pictures:
            sets = [
                WindowDataset(path, spec, keys, episodes=positions, human_only=human_only)
                for path, positions in parts
            ]
            joined = sets[0] if len(sets) == 1 else JoinedWindows(sets)
            return LoaderWindows(joined, action, num_workers, collate)
        tables = [
            load_tensors(path, spec, keys, episodes=positions, human_only=human_only)
            for path, positions in parts
        ]
        columns = {key: torch.cat([table[key] for table in tables]) for key in tables[0]}
        return TensorWindows(columns, action.normalize(columns.pop("action")))


def array_checksums(episode: Episode) -> list[tuple[str, int]]:
    """(name, CRC-32C) of the arrays that a training reads: observations and actions, not labels."""
    names = [*sorted(episode.dataset.env.for_datasets().obs), "action"]
    of_task = [(INSTRUCTION, zlib.crc32(episode.meta.task.encode()))] if episode.task_is_instruction else []
    return of_task + [
        (name, episode.meta.arrays[name].crc32c) for name in names if name in episode.meta.arrays
    ]


def check_task_instructions(selection: EpisodeSelection) -> None:
    """Raise DataError if the task of an episode is its instruction, and is no text that can be one."""
    episodes = [episode for episode in selection.episodes if episode.task_is_instruction]
    without = [episode.number for episode in episodes if not episode.meta.task.strip()]
    path = selection.store.path
    if without:
        raise DataError(
            f"{path} has {counted(len(without), 'episode')} with neither an instruction nor a task to tell "
            f"the policy (first: {without[0]}). Give them one: "
            f"{command('data edit', path=path, relabel=without[:SHOWN], task='what was done')}"
        )
    for episode in episodes:
        try:
            to_bytes(episode.meta.task)
        except ConfigError as error:
            raise DataError(
                f"The task of episode {episode.number} of {path} cannot be told. {error}"
            ) from None


def check_images(store: EpisodeStore) -> None:
    """Raise DataError for an image of another type than uint8 (h, w, 3), and a depth of whole numbers, which
    no policy reads.
    """
    for key, array in store.spec.obs.items():
        if fault := image_fault(key, array):
            raise DataError(
                f"{store.path} cannot be trained on: {fault} Write the dataset again with that type."
            )


def check_alike(stores: Sequence[EpisodeStore]) -> None:
    """Raise DataError for datasets whose observations, actions or rates differ; names, episode lengths and
    what only a simulator knows may.
    """
    first = stores[0]
    for other in stores[1:]:
        if what := difference(first, other):
            raise DataError(
                f"{first.path} and {other.path} cannot be trained on together ({what}). A policy has one "
                "set of observations and one action space: train one policy for each, or one "
                "vision-language-action policy for all (policy=vla), without init=."
            )


def difference(first: EpisodeStore, other: EpisodeStore) -> str:
    """What the observations, actions or rates of `other` differ in; empty if nothing. Names, episode lengths
    and what only a simulator knows may differ.
    """
    wanted = first.spec.for_datasets()
    alike = replace(other.spec.for_datasets(), name=wanted.name, max_episode_steps=wanted.max_episode_steps)
    return differences(alike, wanted)


def selected_episodes(store: EpisodeStore, learn_from: str) -> EpisodeSelection:
    """Episodes to learn from. Raises DataError if there are none, or the rule selects none."""
    selection = select_episodes(store, learn_from)
    if not len(store):
        raise DataError(empty_sentence(store.path))
    if not selection.positions:
        raise DataError(
            f"learn_from={learn_from} selects none of the {len(store)} episodes in {store.path}: "
            f"{selection.reasons}. Record successful ones, or use all by learn_from=all."
        )
    return selection


def pictures_without_target(data: TrainData) -> list[str]:
    """Pictures of the data, or of the first of several embodiments, without a label of the place to act."""
    pictures = [key for key, array in data.spec.obs.items() if sense_of(key, array) == "image"]
    return [key for key in pictures if target_of(key) not in data.spec.obs]


def unlabelled_sentence(data: TrainData) -> str:
    """Sentence on pictures in which policy.spatial has no label; empty if all have one."""
    if not (pictures := pictures_without_target(data)):
        return ""
    return (
        f"The data do not tell where to act in {', '.join(pictures)}: the points there are predicted and "
        "condition the actions, but their error is not in the loss."
    )


def check_targets(data: TrainData, otherwise: str) -> None:
    """Raise ConfigError if a picture of the data has no place to act, which policy.spatial learns. Of several
    embodiments, one must have places in all of its pictures.

    otherwise: what the user can do without such data.
    """
    each = [pictures_without_target(part) for part in data.embodiments]
    if all(each):
        missing = dict.fromkeys(target_of(key) for pictures in each for key in pictures)
        hold = "does not hold" if len(data.selections) == 1 else "do not hold"
        raise ConfigError(
            f"policy.spatial learns where in the pictures to act, which {data.path} {hold} "
            f"({', '.join(missing)}). Collect again from a simulated suite (robo-rl collect "
            f"suite=metaworld/mt6), or {otherwise}."
        )


def _advice_on_names(selection: EpisodeSelection) -> str:
    """How to put words in the place of tasks that are the environment's name; empty without such tasks."""
    name = selection.store.spec.name
    named = [e.number for e in selection.episodes if e.task_is_instruction and e.meta.task == name]
    if not named:
        return ""
    edit = command("data edit", path=selection.store.path, relabel=_ranges(named), task="<words>")
    return f"'{name}' is the name of an environment. Put words in its place: {edit}"


def _ranges(numbers: list[int]) -> list[str]:
    """Rising numbers as `data edit` reads them: [3, 7, 8, 9] -> ["3", "7-9"]."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][-1] + 1:
            found[-1].append(number)
        else:
            found.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in found]
