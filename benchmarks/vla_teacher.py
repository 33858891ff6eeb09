"""Parts of benchmarks/vla.py --rl teacher: a VLA learns from a teacher that sees the simulator's true state.

The teacher is a residual over the VLA (`method.privileged=true`). Episodes that the VLA begins and the
teacher finishes are recorded. From them and the demonstrations a pupil learns by the recipe of the base: with
new weights, or with those of the base (after PLD, Xiao et al. 2025, 2511.00091).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import cpu_seconds, verb

from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.store import EpisodeStore

TEACHER = {"method": "residual_lanes", "method.privileged": True, "num_envs": 30, "eval_every": 0}
TAKEOVER, LANES, LONGEST = 0.5, 6, 200  # of the recorded episodes; the last in steps


@dataclass(frozen=True)
class Lesson:
    """One seed: the base, its teacher and the recorded episodes, each in a folder below `home`."""

    base: str
    demos: Path
    env: str
    seed: int
    home: Path

    def teach(self, env_steps: int, tasks: int, more: list[str]) -> None:
        """Train the teacher; a training that was stopped continues. more: settings, key=value."""
        out = self.home / "teacher"
        if not (out / "policy" / "policy.json").exists():
            given = TEACHER | {"base": self.base, "demos": self.demos, "out": out, "env_steps": env_steps}
            again = {"resume": (out / "run.json").exists(), "final_episodes": 5 * tasks}
            verb("finetune", *more, **given, **again, seed=self.seed)

    def record(self, episodes: int) -> Path:
        """Episodes that the base begins and the teacher finishes. Those that are there are kept."""
        out = self.home / "data"
        start_s = cpu_seconds()
        where = {"policy": self.home / "teacher", "env": self.env, "out": out, "takeover": TAKEOVER}
        verb("collect", episodes=episodes, num_envs=LANES, num_workers=0, seed=self.seed + 1, **where)
        cost = self.home / "collect.json"  # of the call that recorded
        if not cost.exists():
            cost.write_text(json.dumps({"cpu_s": cpu_seconds() - start_s}))
        return out

    def costs(self) -> dict[str, Any]:
        """Environment steps of the teacher and of the recording, and CPU seconds of both.

        The steps of the recording are an upper bound: a failed attempt counts with the longest episode.
        """
        result = json.loads((self.home / "teacher" / "results.json").read_text())
        store = EpisodeStore(self.home / "data")
        tried = attempts(store, self.seed + 1) + LANES  # those that were running at the end as well
        recorded = sum(episode.frames for episode in store) + LONGEST * (tried - len(store))
        return {
            "env_steps": result["env_steps"] + recorded,
            "selection": result["steps"].get("selection", 0),
            "train_cpu_s": result["curve"]["train_cpu_s"]
            + json.loads((self.home / "collect.json").read_text())["cpu_s"],
        }


def attempts(store: EpisodeStore, seed: int) -> int:
    """Number of episodes that `collect` with this seed has begun up to the last stored one."""
    missing, seeds = {episode.meta.seed for episode in store}, EpisodeSeeds(("collect", seed))
    while missing:
        missing.discard(next(seeds))
    return seeds.count
