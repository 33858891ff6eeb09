"""DAgger: the teacher labels states that it reaches itself and states that its student reaches.

A student trained on the teacher's states alone has no data about its own mistakes. So the student executes
part of the decisions, and the teacher labels all states (Ross et al. 2011).

A teacher that decides entire chunks can label any state. A teacher that corrects every step (a step-wise
residual) gives labels only where it acted itself: the label is the chunk of actions that it executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import ChunkPolicy, PlanningExecutor, ResumableNoise, VecEnv
from robo_rl.core.seeding import EpisodeSeeds, generator
from robo_rl.core.shapes import Bool
from robo_rl.rl.distillation.distill import DistillData

MakeExecutor = Callable[[ChunkPolicy, int], PlanningExecutor]


@dataclass
class DaggerData:
    """Labelled states, and the environment steps that they cost."""

    data: DistillData
    env_steps: int


class DaggerCollector:
    """Rolls out teacher and student together; each decision of each lane is executed by one of them."""

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
        """Labels from at least `env_steps` steps; the student, if given, executes `student_share` of the
        decisions.

        on_step(environment steps so far) is called after every step of all lanes.
        """
        n = self.env.num_envs
        executor = self.make_executor(self.teacher, n)
        first = EpisodeSeeds(self.seeds.root, self.seeds.count)
        obs = self.env.reset(self.seeds)
        executor.reset(obs)
        self.noise.reset(range(n), [next(first) for _ in range(n)])
        log = _DecisionLog(n, self.teacher.chunk, self.env.spec.action.dim)
        by_student = torch.zeros(n, dtype=torch.bool)
        steps = 0
        while steps < env_steps:
            if lanes := executor.due():
                by_student[lanes.ids] = self._draw_student(len(lanes), student, student_share)
                self._decide(executor, lanes, by_student[lanes.ids], student, log)
            history = executor.history()
            base = executor.peek()
            action = torch.where(by_student.unsqueeze(1), base, self.teacher.refine(history, base))
            if not self.corrects_steps:
                log.add_states(self.teacher.features(history))
            obs, _, _, _, info = self.env.step(self.env.spec.action.denormalize(action))
            log.executed(action)
            executor.advance()
            executor.observe(info["final_obs"])
            steps += n
            ended = torch.nonzero(info["final_mask"]).flatten()
            if len(ended):
                log.close(ended, ~by_student[ended])
                executor.reset(obs, ended)
                self.noise.reset(ended, info["next_seed"][ended])
            full = torch.nonzero(log.length == self.teacher.execute).flatten()
            log.close(full, ~by_student[full])
            on_step(steps)
        data = log.data() if self.corrects_steps else self._label(log.states())
        return DaggerData(data, steps)

    def state_dict(self) -> dict[str, Any]:
        """State between two collections; each collection starts with new episodes."""
        return {"rng": self.rng.get_state(), "seeds": self.seeds.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.rng.set_state(state["rng"])
        self.seeds = EpisodeSeeds(self.seeds.root, int(state["seeds"]))

    def _draw_student(self, count: int, student: ChunkPolicy | None, share: float) -> Bool[Tensor, " k"]:
        if student is None:
            return torch.zeros(count, dtype=torch.bool)
        return torch.rand(count, generator=self.rng) < share

    def _decide(
        self,
        executor: PlanningExecutor,
        lanes: Lanes,
        by_student: Tensor,
        student: ChunkPolicy | None,
        log: _DecisionLog,
    ) -> None:
        noise = self.noise.draw(lanes.ids, lanes.read(executor.decision))
        chunk = executor.plan(lanes, noise)
        features = self.teacher.features(executor.history(lanes))
        if student is not None and by_student.any():
            chunk[by_student] = student.sample_from(features[by_student], noise[by_student])
            executor.queue(lanes, chunk, replaces=True)
        log.open(lanes.ids, features, noise)

    def _label(self, features: Tensor) -> DistillData:
        """The teacher's chunk in every state, each with newly drawn noise."""
        shape = (len(features), self.teacher.chunk, self.env.spec.action.dim)
        scale = float(getattr(self.noise, "scale", 1.0))
        noise = torch.randn(shape, generator=self.rng) * scale
        parts = [
            self.teacher.sample_from(f, z)
            for f, z in zip(features.split(4096), noise.split(4096), strict=True)
        ]
        return DistillData(features, noise, torch.cat(parts), torch.ones(shape[:2]))


class _DecisionLog:
    """Running decision of every lane and the labels collected so far."""

    def __init__(self, lanes: int, chunk: int, action_dim: int) -> None:
        self.length = torch.zeros(lanes, dtype=torch.long)
        self._features: dict[int, Tensor] = {}
        self._noise: dict[int, Tensor] = {}
        self._actions = torch.zeros(lanes, chunk, action_dim)
        self._rows: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self._states: list[Tensor] = []
        self._lanes = torch.arange(lanes)

    def open(self, lane_ids: Tensor, features: Tensor, noise: Tensor) -> None:
        for i, lane in enumerate(lane_ids.tolist()):
            self._features[lane], self._noise[lane] = features[i], noise[i]
        self.length[lane_ids] = 0
        self._actions[lane_ids] = 0.0

    def add_states(self, features: Tensor) -> None:
        self._states.append(features.clone())

    def executed(self, action: Tensor) -> None:
        self._actions[self._lanes, self.length] = action
        self.length += 1

    def close(self, lanes: Tensor, by_teacher: Tensor) -> None:
        """End the decisions of these lanes. by_teacher: mask of those that become labels."""
        for lane, is_label in zip(lanes.tolist(), by_teacher.tolist(), strict=True):
            if is_label and self.length[lane] > 0:
                weight = (torch.arange(self._actions.shape[1]) < self.length[lane]).float()
                self._rows.append(
                    (self._features[lane], self._noise[lane], self._actions[lane].clone(), weight)
                )
            self.length[lane] = 0

    def data(self) -> DistillData:
        if not self._rows:
            raise ConfigError(
                "A teacher that corrects every step gives labels only where it acts itself, and it never "
                "did. Collect more steps (rollout_steps, round_steps), or lower student_share."
            )
        columns = [torch.stack(column) for column in zip(*self._rows, strict=True)]
        return DistillData(*columns)

    def states(self) -> Tensor:
        return torch.cat(self._states)
