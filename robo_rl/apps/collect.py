"""`robo-rl collect`: record episodes of a scripted expert or a trained policy into a dataset.

Episodes are recorded in parallel and committed in the order of their seeds. So the dataset does not depend on
the number of parallel environments or on interruptions (with a policy: up to rounding), and short episodes
are not favoured. In an environment of several tasks, every task, or every one of `tasks`, gets an equal share
of the episodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.conf.schema import CollectConfig
from robo_rl.core.errors import ConfigError, EnvError
from robo_rl.core.protocols import Obs, VecEnv, reported_success
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION, TASK_NOTE, to_text
from robo_rl.data.episodes.dataset_writer import DatasetWriter, never_filled
from robo_rl.data.episodes.episode_buffer import EpisodeBuffer, write_episode
from robo_rl.data.episodes.reader import EpisodeStore
from robo_rl.data.episodes.schema import DATASET_JSON, Codec
from robo_rl.data.selection import select_episodes
from robo_rl.runs.demonstrators import Demonstrator, make_demonstrator
from robo_rl.runs.loaded_policy import own_env, worker_count
from robo_rl.runs.next_step import train_on
from robo_rl.runs.progress import progress
from sim.adapters.own_function import Function, find_function
from sim.registry import make_env, numbers_of, task_in, tasks_in

MOST_ATTEMPTS = 10  # attempts per episode, unless `attempts` is set
SILENT = 20  # attempts without any reported success or failure after which keep=success is given up
MORE_SUCCESSES = "For successes, raise episodes= or max_episode_steps=, or lower the noise."
SHOWN = 3  # sources of recorded episodes in a sentence
FARTHEST = 100_000  # seeds searched for those of a dataset, which may also hold some of another `seed`


def main(config: CollectConfig, expert: Function | None = None) -> int:
    """Record until the dataset holds `episodes` episodes. expert: a function, instead of its name."""
    others = (config.expert or config.takeover_from) is not None
    name = config.env or own_env(config.policy, "collect", others=others)
    config = replace(config, env=name)
    if config.expert is not None and expert is None:
        expert = find_function(config.expert)  # before the simulators start
    num_workers = worker_count(config.num_workers, config.num_envs)
    chosen = numbers_of(name, config.tasks)
    options: dict[str, Any] = {"reward": config.reward, "max_episode_steps": config.max_episode_steps}
    with closing(make_env(name, config.num_envs, num_workers, **options)) as env:
        driver = make_demonstrator(config, env, expert=expert)
        spec = env.spec if config.privileged else env.spec.for_datasets()
        is_new = not Path(config.out).exists()
        writer = open_dataset(config, spec)
        store = EpisodeStore(config.out)
        have = len(store)
        if note := origin_note(config, store):
            print(note)
        with progress(config.episodes, "collect", "episode", initial=have) as bar:
            quotas = EpisodeQuotas.of(name, chosen, config.episodes, store)
            collection = Collection(config, env, driver, writer, bar, quotas)
            try:
                if have < config.episodes:
                    collection.run(config.episodes - have, first_index(config.seed, store))
            except KeyboardInterrupt as stop:
                kept = (
                    f"{bar.n} of {config.episodes} episodes are in {config.out}; the same command continues"
                )
                raise KeyboardInterrupt(kept) from stop
            except Exception:
                if is_new and not collection.tried:  # it could not start, so no empty dataset is left
                    writer.close()
                    rmtree(writer.path)
                raise
    if have < config.episodes:
        counts = count_words(bar.n, collection.kept, collection.tried)
        succeeded = success_words(config, EpisodeStore(config.out))
        print(f"{config.out}: {counts}{succeeded}; {counted(collection.env_steps, 'environment step')}")
    if select_episodes(EpisodeStore(config.out), "unfailed").positions:
        print(f"Next:   {train_on(config.out)}")
    else:
        print(f"No episode of {config.out} succeeded. {MORE_SUCCESSES}")
        print(f"Next:   {train_on(config.out)} learn_from=all   (to learn from failures)")
    return 0


def count_words(total: int, kept: int, tried: int) -> str:
    """Episodes of the dataset, and those kept of the tried ones: "50 episodes kept of 52 tried", or of a
    dataset that had some before "80 episodes (30 new, of 33 tried)".
    """
    episodes = counted(total, "episode")
    return (
        f"{episodes} kept of {tried} tried" if kept == total else f"{episodes} ({kept} new, of {tried} tried)"
    )


def success_words(config: CollectConfig, store: EpisodeStore) -> str:
    """Successes in a dataset that keeps failures, too: ", 3 successes in the dataset"; empty where no episode
    has a label.
    """
    labels = [episode.success for episode in store if episode.success is not None]
    if config.keep != "all" or not labels:
        return ""
    return f", {counted(sum(labels), 'success', 'successes')} in the dataset"


def origin_note(config: CollectConfig, store: EpisodeStore) -> str:
    """Sentence on a dataset that is full already, or whose episodes have another source or noise than the new
    ones; empty where there is nothing to say.
    """
    ours = made_by(config)
    origins = Counter(_origin(note) for episode in store if "by" in (note := episode.meta.info))
    new, count = _origin(ours), counted(len(store), "episode")
    other = set(origins) - {new}
    theirs = "; ".join(f"{of_it} {origin}" for origin, of_it in origins.most_common(SHOWN))
    theirs += "; ..." * (len(origins) > SHOWN)
    if len(store) >= config.episodes:
        recorded, others = (f" ({theirs})", f"episodes {new}") if other else ("", "others")
        return (
            f"nothing to record: {config.out} has {count} already{recorded}. For more, raise episodes=; for "
            f"{others}, choose another out=."
        )
    if not other:
        return ""
    return f"Note: {config.out} has {count} already ({theirs}). The new ones are recorded {new}."


def made_by(config: CollectConfig) -> dict[str, Any]:
    """Note on the source of new episodes, which is stored with each of them."""
    note: dict[str, Any] = {"by": config.policy or config.expert or "expert", "noise": config.noise}
    return note if config.takeover_from is None else note | {"begun_by": config.takeover_from}


def _origin(note: Mapping[str, Any]) -> str:
    """`made_by` in words."""
    expert = note["by"] == "expert"
    noise, first = note.get("noise"), note.get("begun_by")
    noise = 0.0 if noise is None and expert else noise
    words = ["by the scripted expert" if expert else f"by {note['by']}"]
    words += [] if noise is None else [f"with noise={noise}"]
    return " ".join(words + ([] if first is None else [f"and takeover_from={first}"]))


def open_dataset(config: CollectConfig, spec: EnvSpec) -> DatasetWriter:
    """Writer of the dataset in `out`, which is created if absent or without any episode: an earlier command
    whose episodes all failed may have had other settings.
    """
    root = Path(config.out)
    if (root / DATASET_JSON).exists() and not never_filled(root):
        return DatasetWriter.open(root, spec)
    codec: Codec = "jpeg" if config.image_codec == "jpeg" else "raw"
    note = {"commit": commit()}
    return DatasetWriter.create(root, spec, image_codec=codec, stamps=(), info=note, renew=True)


class EpisodeQuotas:
    """Places left for episodes of each recorded task of `env`; unlimited in an environment of one task."""

    def __init__(self, env: str, left: dict[int, int]) -> None:
        self.env, self.tasks, self._left = env, tasks_in(env), left

    @classmethod
    def of(cls, env: str, chosen: Sequence[int], episodes: int, store: EpisodeStore) -> EpisodeQuotas:
        """Equal shares of the `chosen` tasks, by number, in a dataset of `episodes`: less what `store` holds
        of them, and of all that is not of other tasks.
        """
        tasks = tasks_in(env)
        had = Counter(episode.meta.info.get(TASK_NOTE) for episode in store)
        ours = [tasks[number] for number in chosen]
        whole, rest = divmod(episodes - (len(store) - sum(had[task] for task in ours)), max(1, len(ours)))
        left = {number: whole + (i < rest) - had[tasks[number]] for i, number in enumerate(chosen)}
        return cls(env, left)

    def take(self, number: int) -> bool:
        """True, and one place less, if the task of this number has one left."""
        if self.tasks:
            self._left[number] -= 1
            return self._left[number] >= 0
        return True

    def seeds(self, seed: int, start: int) -> Iterator[int]:
        """Episode seeds of the recorded tasks, from number `start` of `seed` on."""
        every = EpisodeSeeds(("collect", seed), start)
        everything = len(self._left) == len(self.tasks)
        return every if everything else (each for each in every if task_in(self.env, each) in self._left)


def first_index(seed: int, store: EpisodeStore) -> int:
    """Index of the first seed after those already in the dataset."""
    missing = {episode.meta.seed for episode in store}
    index, seeds = 0, EpisodeSeeds(("collect", seed))
    while missing and seeds.count < FARTHEST:
        if (found := next(seeds)) in missing:
            missing.remove(found)
            index = seeds.count
    return index


class Collection:
    """Runs the lanes and commits their episodes in the order of the seeds."""

    def __init__(
        self,
        config: CollectConfig,
        env: VecEnv,
        driver: Demonstrator,
        writer: DatasetWriter,
        bar: Any,
        shares: EpisodeQuotas,
    ) -> None:
        self.config, self.env, self.driver, self.writer, self.bar = config, env, driver, writer, bar
        self.shares = shares
        self.tried = self.kept = 0
        self.env_steps = 0  # of all lanes, also in episodes that fail or are not finished
        self._labelled = 0  # tried episodes whose success the environment reported
        self._made_by = made_by(config)
        self._buffers: list[EpisodeBuffer] = []  # in seed order, from the oldest uncommitted one

    def run(self, wanted: int, first: int) -> None:
        """Record `wanted` episodes from seed index `first`. Raises EnvError if too few attempts succeed."""
        most = self.config.attempts or max(50, MOST_ATTEMPTS * wanted)
        obs, lanes, upcoming = self._start(first)
        while self.kept < wanted:
            if self.tried >= most and not self.kept:
                raise EnvError(
                    f"None of {self.tried} episodes succeeded, so none was recorded. Watch one by robo-rl "
                    "view, lower the noise, raise max_episode_steps=, or keep failures by keep=all."
                )
            if self.tried >= most:
                raise EnvError(
                    f"Only {self.kept} of {self.tried} episodes succeeded, {wanted} were requested. These "
                    "are kept. Lower the noise, keep failures by keep=all, or allow more attempts."
                )
            action = self._clipped(self.driver.act())
            intervened = self.driver.intervened()
            following, reward, terminated, _, info = self.env.step(action)
            self.env_steps += len(lanes)
            for row, episode in enumerate(lanes):
                episode.obs.append(self._row(obs, row))
                episode.action.append(action[row].numpy())
                episode.reward.append(float(reward[row]))
                episode.human += [] if intervened is None else [bool(intervened[row])]
            obs = following
            self.driver.observe(obs)
            ended = torch.nonzero(info["final_mask"]).flatten().tolist()
            for row in ended:
                self._end(lanes[row], row, info, bool(terminated[row]))
                lanes[row] = self._next(upcoming)
            if ended:
                self.driver.start(ended, [lanes[row].seed for row in ended], obs)
                self._commit(wanted, most)

    def _start(self, first: int) -> tuple[Obs, list[EpisodeBuffer], Iterator[int]]:
        seeds = partial(self.shares.seeds, self.config.seed, first)
        obs = self.env.reset(seeds())
        upcoming = seeds()  # the same again: a lane that ends continues with the next one, in lane order
        lanes = [self._next(upcoming) for _ in range(self.env.num_envs)]
        self.driver.start(range(self.env.num_envs), [episode.seed for episode in lanes], obs)
        return obs, lanes, upcoming

    def _next(self, upcoming: Iterator[int]) -> EpisodeBuffer:
        self._buffers.append(EpisodeBuffer(next(upcoming)))
        return self._buffers[-1]

    def _clipped(self, action: Tensor) -> Tensor:
        low, high = action.new_tensor(self.env.spec.action.low), action.new_tensor(self.env.spec.action.high)
        return torch.minimum(torch.maximum(action, low), high)

    def _end(self, episode: EpisodeBuffer, row: int, info: dict[str, Any], terminated: bool) -> None:
        if int(info["episode_seed"][row]) != episode.seed:
            raise EnvError(f"Lane {row} ran seed {int(info['episode_seed'][row])}, expected {episode.seed}.")
        episode.obs.append(self._row(info["final_obs"], row))
        episode.success, episode.terminated, episode.done = reported_success(info, row), terminated, True
        episode.task = int(info["task"][row]) if self.shares.tasks else 0

    @staticmethod
    def _row(obs: Obs, row: int) -> dict[str, NDArray[Any]]:
        return {key: value[row].numpy() for key, value in obs.items()}

    def _commit(self, wanted: int, most: int) -> None:
        """Commit the finished episodes that have no running one before them."""
        while self._buffers and self._buffers[0].done and self.kept < wanted and self.tried < most:
            episode = self._buffers.pop(0)
            self.tried += 1
            self._labelled += episode.success is not None
            if (episode.success or self.config.keep == "all") and self.shares.take(episode.task):
                write_episode(self.writer, episode, task=self._instruction(episode), info=self._note(episode))
                self.kept += 1
                self.bar.update(1)
        self._check_labels(min(most, SILENT))

    def _check_labels(self, enough: int) -> None:
        """Raise ConfigError if successes are to be kept, and `enough` episodes were all without a label."""
        if self.config.keep == "success" and self.tried >= enough and not self._labelled:
            raise ConfigError(
                f"{self.shares.env} reported in none of {self.tried} episodes whether it succeeded, so "
                "keep=success keeps none. Give keep=all: the episodes are stored without a label, and "
                "robo-rl train learns from all of them."
            )

    def _instruction(self, episode: EpisodeBuffer) -> str:
        """Text that is stored with the episode: its instruction where it has one."""
        instruction = episode.obs[0].get(INSTRUCTION)
        return self.config.task or (self.shares.env if instruction is None else to_text(instruction))

    def _note(self, episode: EpisodeBuffer) -> dict[str, Any]:
        return self._made_by | ({TASK_NOTE: self.shares.tasks[episode.task]} if self.shares.tasks else {})
