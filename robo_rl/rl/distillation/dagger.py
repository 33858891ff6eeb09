"""What a teacher answers in the states that matter: its own, and those that its student gets into.

A student that is only shown its teacher's states has never seen its own mistakes. So part of the decisions is
executed by the student, and the teacher answers everywhere (DAgger, Ross et al. 2011).

A teacher that decides whole chunks answers in any state. One that corrects every step (a step-wise residual)
has answered only when its chunk was executed; its answer is then what it really executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.protocols import ChunkPolicy, PlanningExecutor, ResumableNoise, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.shapes import Bool
from robo_rl.rl.distillation.distill import DistillData

MakeExecutor = Callable[[ChunkPolicy, int], PlanningExecutor]


@dataclass
class DaggerData:
    """The answers, and what they cost."""

    data: DistillData
    env_steps: int


class DaggerCollector:
    """Rolls teacher and student out together, lane by lane and decision by decision."""

    def __init__(
        self,
        env: VecEnv,
        teacher: ChunkPolicy,
        make_executor: MakeExecutor,
        noise: ResumableNoise,
        corrects_steps: bool,
        seed: int,
    ) -> None:
        self.env, self.teacher, self.noise, self.corrects_steps = env, teacher, noise, corrects_steps
        self.make_executor = make_executor
        self.rng, self.seeds = generator("gather", seed), EpisodeSeeds(("distill", seed))

    @torch.no_grad()
    def collect(
        self,
        env_steps: int,
        student: ChunkPolicy | None = None,
        student_share: float = 0.5,
        on_step: Callable[[int], None] = lambda _: None,
    ) -> DaggerData:
        """At least `env_steps` steps; with a student, it executes `student_share` of the decisions.

        on_step(environment steps done) is called after every step of all lanes.
        """
        n = self.env.num_envs
        executor = self.make_executor(self.teacher, n)
        first = EpisodeSeeds(self.seeds.root, self.seeds.count)
        obs = self.env.reset(self.seeds)
        executor.reset(obs)
        self.noise.reset(range(n), [next(first) for _ in range(n)])
        book = _Book(n, self.teacher.chunk, self.env.spec.action.dim)
        by_student = torch.zeros(n, dtype=torch.bool)
        steps = 0
        while steps < env_steps:
            rows = executor.due()
            if len(rows):
                by_student[rows] = self._who(len(rows), student, student_share)
                self._decide(executor, rows, by_student[rows], student, book)
            history = executor.history()
            base = executor.peek()
            action = torch.where(by_student.unsqueeze(1), base, self.teacher.refine(history, base))
            if not self.corrects_steps:
                book.state(self.teacher.features(history))
            obs, _, _, _, info = self.env.step(self.env.spec.action.denormalize(action))
            book.executed(action)
            executor.advance()
            executor.observe(info["final_obs"])
            steps += n
            ended = torch.nonzero(info["final_mask"]).flatten()
            if len(ended):
                book.close(ended, ~by_student[ended])
                executor.reset(obs, ended)
                self.noise.reset(ended.tolist(), info["next_seed"][ended].tolist())
            full = torch.nonzero(book.length == self.teacher.execute).flatten()
            book.close(full, ~by_student[full])
            on_step(steps)
        data = book.data() if self.corrects_steps else self._label(book.states())
        return DaggerData(data, steps)

    def state_dict(self) -> dict[str, Any]:
        """Its place between two collections; every collection starts with new episodes."""
        return {"rng": self.rng.get_state(), "seeds": self.seeds.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.set_state(state["rng"])
        self.seeds = EpisodeSeeds(self.seeds.root, int(state["seeds"]))

    def _who(self, count: int, student: ChunkPolicy | None, share: float) -> Bool[Tensor, " k"]:
        if student is None:
            return torch.zeros(count, dtype=torch.bool)
        return torch.rand(count, generator=self.rng) < share

    def _decide(
        self,
        executor: PlanningExecutor,
        rows: Tensor,
        by_student: Tensor,
        student: ChunkPolicy | None,
        book: _Book,
    ) -> None:
        noise = self.noise.draw(rows.tolist(), executor.decision[rows].tolist())
        chunk = executor.plan(rows, noise)
        features = self.teacher.features(executor.history(rows))
        if student is not None and by_student.any():
            chunk[by_student] = student.sample_from(features[by_student], noise[by_student])
            executor.queue(rows, chunk)
            executor.decision[rows] -= 1  # planned twice, decided once
        book.open(rows, features, noise)

    def _label(self, features: Tensor) -> DistillData:
        """The teacher's chunk in every state, each with a fresh draw of its own noise."""
        shape = (len(features), self.teacher.chunk, self.env.spec.action.dim)
        scale = float(getattr(self.noise, "scale", 1.0))
        noise = torch.randn(shape, generator=self.rng) * scale
        parts = [
            self.teacher.sample_from(f, z)
            for f, z in zip(features.split(4096), noise.split(4096), strict=True)
        ]
        return DistillData(features, noise, torch.cat(parts), torch.ones(shape[:2]))


class _Book:
    """Running decisions per lane, and what was noted."""

    def __init__(self, lanes: int, chunk: int, action_dim: int) -> None:
        self.length = torch.zeros(lanes, dtype=torch.long)
        self._features: dict[int, Tensor] = {}
        self._noise: dict[int, Tensor] = {}
        self._taken = torch.zeros(lanes, chunk, action_dim)
        self._rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._states: list[Tensor] = []
        self._lanes = torch.arange(lanes)

    def open(self, rows: Tensor, features: Tensor, noise: Tensor) -> None:
        for i, lane in enumerate(rows.tolist()):
            self._features[lane], self._noise[lane] = features[i], noise[i]
        self.length[rows] = 0
        self._taken[rows] = 0.0

    def state(self, features: Tensor) -> None:
        self._states.append(features.clone())

    def executed(self, action: Tensor) -> None:
        self._taken[self._lanes, self.length] = action
        self.length += 1

    def close(self, lanes: Tensor, noted: Tensor) -> None:
        """End the decisions of these lanes; `noted` are those that the teacher executed."""
        for lane, note in zip(lanes.tolist(), noted.tolist(), strict=True):
            if note and self.length[lane] > 0:
                weight = (torch.arange(self._taken.shape[1]) < self.length[lane]).float()
                self._rows.append(
                    (self._features[lane], self._noise[lane], self._taken[lane].clone(), weight)
                )
            self.length[lane] = 0

    def data(self) -> DistillData:
        if not self._rows:
            raise ConfigError(
                "A teacher that corrects every step answers only where it acts itself, and it never did. "
                "Gather more steps (rollout_steps, round_steps), or lower student_share."
            )
        columns = [torch.stack(column) for column in zip(*self._rows, strict=True)]
        return DistillData(*columns)

    def states(self) -> Tensor:
        return torch.cat(self._states)


def corrects_steps(policy: ChunkPolicy) -> bool:
    """Does this policy, or one that it is built on, change actions between two plans?"""
    layer: object = policy
    while (action_map := getattr(layer, "map", None)) is not None:
        if getattr(action_map, "timescale", "") == "step":
            return True
        layer = getattr(layer, "base", None)
    return False
