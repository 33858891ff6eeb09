"""Parts of benchmarks/vla.py --rl teacher: a VLA learns from a teacher that sees the simulator's true state.

The teacher is a residual over the VLA (`method.privileged=true`). Episodes that the VLA begins and the
teacher finishes are recorded. From them and the demonstrations a pupil learns by the recipe of the base: with
new weights, or with those of the base (after PLD, Xiao et al. 2025, 2511.00091). A pupil that learns the
teacher's steps alone needs some from the beginning of episodes: the teacher then acts in half of them alone.

In further rounds the teacher finishes episodes that the pupil of the round before begins, and the pupil
continues to learn from all of them (DAgger, Ross et al. 2011, 1011.0686). From the third round on, the
episodes can go to the tasks in which that pupil fails.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from typing import Any

from common import cpu_seconds, verb

from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore
from sim.registry import task_in, tasks_in

TEACHER = {"method": "residual_lanes", "method.privileged": True, "num_envs": 30, "eval_every": 0}
TAKEOVER, LANES, LONGEST = 0.5, 6, 200  # of the recorded episodes; the last in steps
MEASURED_LANES = 12  # of the episodes in which failures are counted
UPDATES = 4000  # of a pupil, unless others are given
PUPILS = {"new": "pupil", "base": "base_further"}  # kinds, and their folders


def add_options(options: ArgumentParser) -> None:
    """Add the options of --rl teacher."""
    of_teacher = options.add_argument_group("--rl teacher")
    of_teacher.add_argument(
        "--taught", type=int, default=50, help="recorded episodes of each task in a round"
    )
    of_teacher.add_argument(
        "--taught-steps",
        choices=("all", "teacher"),
        default="all",
        help="steps of the recorded episodes that the pupil learns",
    )
    of_teacher.add_argument("--rounds", type=int, default=1, help="rounds of recorded episodes")
    of_teacher.add_argument(
        "--by-failures",
        type=int,
        default=0,
        help="episodes of each task that share out those of the third round and later ones; 0: equal shares",
    )
    of_teacher.add_argument(
        "--pupil-steps",
        nargs="+",
        type=int,
        default=[UPDATES],
        help="updates of the pupil in each round; the last number is for all further ones",
    )
    of_teacher.add_argument(
        "--pupil", choices=PUPILS, default="new", help="new weights, or the base trained further"
    )


def updates_of(args: Any, k: int) -> int:
    """Updates of the pupil in round k, counted from 0."""
    given: list[int] = args.pupil_steps
    return given[min(k, len(given) - 1)]


def pupils_of(args: Any, home: Path) -> list[Path]:
    """Folder of the pupil of each round; the names tell different numbers of updates apart."""
    first = PUPILS[args.pupil] + ("_corrected" if args.taught_steps == "teacher" else "")
    folders = []
    for k in range(args.rounds):
        updates = list(dropwhile(UPDATES.__eq__, (updates_of(args, each) for each in range(k + 1))))
        name = first if k == 0 else f"{first}_round{k + 1}"
        name += f"_{'_'.join(map(str, updates))}_updates" if updates else ""
        folders.append(home / (name + ("_by_failures" if args.by_failures and k >= 2 else "")))
    return folders


@dataclass(frozen=True)
class Recording:
    """Recorded episodes of a lesson: the folder's name, how many, the largest share of an episode that is not
    the teacher's, and the seed. begun_by: policy that acts before the teacher; None: the base. task: the only
    one; None: all, in equal shares.
    """

    name: str
    episodes: int
    takeover: float
    seed: int
    begun_by: Path | None = None
    task: str | None = None


@dataclass(frozen=True)
class Lesson:
    """One seed: the base, its teacher and the recorded episodes, each in a folder below `home`.

    episodes: number of recorded ones in a round.
    pupils: the policy at the end of each round. half_alone: the teacher acts in half of the episodes of the
    first round from the first step. by_failures: episodes of each task in which the failures are counted that
    share out the third round and later ones; 0: equal shares.
    """

    base: str
    demos: Path
    env: str
    seed: int
    home: Path
    episodes: int
    pupils: Sequence[Path]
    half_alone: bool = False
    by_failures: int = 0

    def recordings(self, rounds: int) -> list[Recording]:
        """What is recorded in the first rounds; different episodes in each folder."""
        made = [Recording("data", self.episodes, TAKEOVER, self.seed + 1)]
        if self.half_alone:
            half = self.episodes // 2
            corrected = Recording("corrected", half, TAKEOVER, self.seed + 1)
            made = [corrected, Recording("alone", self.episodes - half, 0.0, self.seed + 1001)]
        for k, pupil in enumerate(self.pupils[: rounds - 1], 2):
            name, seed = f"round{k}" if k == 2 else f"after_{pupil.name}", self.seed + 1000 * k + 1
            if k == 2 or not self.by_failures:
                made.append(Recording(name, self.episodes, TAKEOVER, seed, pupil))
                continue
            for task, episodes in self._shares(pupil, seed).items():
                made.append(Recording(f"{name}_{task}", episodes, TAKEOVER, seed, pupil, task))
        return made

    def _shares(self, pupil: Path, seed: int) -> dict[str, int]:
        """Episodes of each task in which the pupil fails, in proportion to its failures; without any, equal
        shares of all tasks.
        """
        tasks = tasks_in(self.env)
        report = self._measured(pupil)
        if not report.exists():
            count = {"episodes": self.by_failures * len(tasks), "num_envs": MEASURED_LANES, "num_workers": 0}
            verb("evaluate", policy=pupil, env=self.env, out=report, noise=0.0, seed=seed, **count)
        outcomes = json.loads(report.read_text())["policy"]
        failed = [0] * len(tasks)
        for episode, success in zip(outcomes["seeds"], outcomes["success"], strict=True):
            failed[task_in(self.env, episode)] += not success
        parts = failed if any(failed) else [1] * len(tasks)
        shares = [round(self.episodes * part / sum(parts)) for part in parts]
        return {task: share for task, share in zip(tasks, shares, strict=True) if share}

    @staticmethod
    def _measured(pupil: Path) -> Path:
        """Report of the episodes in which the failures of this pupil were counted."""
        return pupil / "failures.json"

    def teach(self, env_steps: int, tasks: int, more: list[str]) -> None:
        """Train the teacher; a training that was stopped continues. more: settings, key=value."""
        out = self.home / "teacher"
        if not (out / "policy" / "policy.json").exists():
            given = TEACHER | {"base": self.base, "demos": self.demos, "out": out, "env_steps": env_steps}
            again = {"resume": (out / "run.json").exists(), "final_episodes": 5 * tasks}
            verb("finetune", *more, **given, **again, seed=self.seed)

    def record(self, rounds: int) -> list[Path]:
        """Folders of the recorded episodes of the first rounds. Those that are there are kept."""
        wanted = self.recordings(rounds)
        for each in wanted:
            start_s = cpu_seconds()
            begun = {} if each.begun_by is None else {"takeover_from": each.begun_by, "noise": 0.0}
            begun |= {} if each.task is None else {"tasks": f"[{each.task}]"}
            verb(
                "collect",
                policy=self.home / "teacher",
                env=self.env,
                out=self.home / each.name,
                takeover=each.takeover,
                episodes=each.episodes,
                num_envs=LANES,
                num_workers=0,
                seed=each.seed,
                **begun,
            )
            cost = self._cost(each)  # of the call that recorded
            if not cost.exists():
                cost.write_text(json.dumps({"cpu_s": cpu_seconds() - start_s}))
        return [self.home / each.name for each in wanted]

    def _cost(self, recording: Recording) -> Path:
        """File with the CPU seconds of a recording."""
        return self.home / ("collect.json" if recording.name == "data" else f"collect_{recording.name}.json")

    def costs(self) -> dict[str, Any]:
        """Environment steps of the teacher, the recordings and the counts of failures, and CPU seconds.

        The steps of a recording are an upper bound: a failed attempt counts with the longest episode.
        """
        result = json.loads((self.home / "teacher" / "results.json").read_text())
        steps, cpu_s = result["env_steps"], result["curve"]["train_cpu_s"]
        for each in self.recordings(len(self.pupils)):
            store = EpisodeStore(self.home / each.name)
            tried = self._attempts(store, each) + LANES  # those that were running at the end as well
            steps += sum(episode.frames for episode in store) + LONGEST * (tried - len(store))
            cpu_s += json.loads(self._cost(each).read_text())["cpu_s"]
        counted = 0
        for report in filter(Path.exists, map(self._measured, self.pupils)):
            measured = json.loads(report.read_text())["policy"]
            counted += measured["env_steps"]
            cpu_s += measured["cpu_s"]
        return {
            "env_steps": steps + counted,
            "selection": result["steps"].get("selection", 0) + counted,
            "train_cpu_s": cpu_s,
        }

    def _attempts(self, store: EpisodeStore, recording: Recording) -> int:
        """Number of episodes that `collect` has begun up to the last stored one."""
        missing, count = {episode.meta.seed for episode in store}, 0
        seeds, tasks = EpisodeSeeds(("collect", recording.seed)), tasks_in(self.env)
        while missing:
            seed = next(seeds)
            count += recording.task is None or tasks[task_in(self.env, seed)] == recording.task
            missing.discard(seed)
        return count


def lesson_of(args: Any, base: str, demos: Path, env: str, seed: int, home: Path) -> Lesson:
    """One seed of --rl teacher, as the options say."""
    pupils, alone = pupils_of(args, home), args.taught_steps == "teacher"
    episodes = args.taught * len(tasks_in(env))
    return Lesson(base, demos, env, seed, home, episodes, pupils, alone, args.by_failures)
