"""Parts of benchmarks/vla.py --rl teacher: a VLA learns from a teacher that sees the simulator's true state.

The teacher is a residual over the VLA (`method.privileged=true`). Episodes that the VLA begins and the
teacher finishes are recorded. From them and the demonstrations a pupil learns by the recipe of the base: with
new weights, or with those of the base (after PLD, Xiao et al. 2025, 2511.00091). A pupil that learns the
teacher's steps alone needs some from the beginning of episodes: the teacher then acts in half of them alone.

In further rounds the teacher finishes episodes that the pupil of the round before begins, and the pupil
continues to learn from all of them (DAgger, Ross et al. 2011, 1011.0686).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import cpu_seconds, verb

from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore

TEACHER = {"method": "residual_lanes", "method.privileged": True, "num_envs": 30, "eval_every": 0}
TAKEOVER, LANES, LONGEST = 0.5, 6, 200  # of the recorded episodes; the last in steps


@dataclass(frozen=True)
class Recording:
    """Recorded episodes of a lesson: the folder's name, how many, the largest share of an episode that is not
    the teacher's, and the seed. begun_by: policy that acts before the teacher; None: the base.
    """

    name: str
    episodes: int
    takeover: float
    seed: int
    begun_by: Path | None = None


@dataclass(frozen=True)
class Lesson:
    """One seed: the base, its teacher and the recorded episodes, each in a folder below `home`.

    episodes: number of recorded ones in a round.
    pupils: the policy at the end of each round. half_alone: the teacher acts in half of the episodes of the
    first round from the first step.
    """

    base: str
    demos: Path
    env: str
    seed: int
    home: Path
    episodes: int
    pupils: Sequence[Path]
    half_alone: bool = False

    @property
    def recordings(self) -> list[list[Recording]]:
        """What is recorded in each round; different episodes in each folder."""
        first = [Recording("data", self.episodes, TAKEOVER, self.seed + 1)]
        if self.half_alone:
            half = self.episodes // 2
            corrected = Recording("corrected", half, TAKEOVER, self.seed + 1)
            first = [corrected, Recording("alone", self.episodes - half, 0.0, self.seed + 1001)]
        later = enumerate(self.pupils[:-1], 2)
        return [first] + [
            [Recording(f"round{k}", self.episodes, TAKEOVER, self.seed + 1000 * k + 1, pupil)]
            for k, pupil in later
        ]

    def teach(self, env_steps: int, tasks: int, more: list[str]) -> None:
        """Train the teacher; a training that was stopped continues. more: settings, key=value."""
        out = self.home / "teacher"
        if not (out / "policy" / "policy.json").exists():
            given = TEACHER | {"base": self.base, "demos": self.demos, "out": out, "env_steps": env_steps}
            again = {"resume": (out / "run.json").exists(), "final_episodes": 5 * tasks}
            verb("finetune", *more, **given, **again, seed=self.seed)

    def record(self, rounds: int) -> list[Path]:
        """Folders of the recorded episodes of the first rounds. Those that are there are kept."""
        wanted = [each for made in self.recordings[:rounds] for each in made]
        for each in wanted:
            start_s = cpu_seconds()
            begun = {} if each.begun_by is None else {"takeover_from": each.begun_by, "noise": 0.0}
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
        """Environment steps of the teacher and of the recordings, and CPU seconds of both.

        The steps of a recording are an upper bound: a failed attempt counts with the longest episode.
        """
        result = json.loads((self.home / "teacher" / "results.json").read_text())
        steps, cpu_s = result["env_steps"], result["curve"]["train_cpu_s"]
        for each in (each for made in self.recordings for each in made):
            store = EpisodeStore(self.home / each.name)
            tried = attempts(store, each.seed) + LANES  # those that were running at the end as well
            steps += sum(episode.frames for episode in store) + LONGEST * (tried - len(store))
            cpu_s += json.loads(self._cost(each).read_text())["cpu_s"]
        return {
            "env_steps": steps,
            "selection": result["steps"].get("selection", 0),
            "train_cpu_s": cpu_s,
        }


def attempts(store: EpisodeStore, seed: int) -> int:
    """Number of episodes that `collect` with this seed has begun up to the last stored one."""
    missing, seeds = {episode.meta.seed for episode in store}, EpisodeSeeds(("collect", seed))
    while missing:
        missing.discard(next(seeds))
    return seeds.count
