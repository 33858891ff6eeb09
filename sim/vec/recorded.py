"""Recording of the episodes of a run into a dataset, which the next policy can imitate.

Recorded(environment, writer) ─► the same environment; every episode that succeeds is committed to the dataset
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError
from robo_rl.core.protocols import Obs, StepResult, VecEnv, reported_success
from robo_rl.core.seeding import Seeds
from robo_rl.core.shapes import Float
from robo_rl.core.text.instruction import INSTRUCTION, TASK_NOTE, to_text
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.episode_buffer import EpisodeBuffer, write_episode

NO_SUCCESS = (
    "No training episode is recorded as a success, and none is imitated: the environment reports no success. "
    "record=all records every episode."
)
Step = tuple[Obs, Tensor, Tensor, Tensor]  # observation, executed action (n, a), reward (n,), human (n,)


class Recorded:
    """VecEnv that writes successful episodes, or all with `keep_all`, to `writer`'s dataset as they end.

    tasks: those of an environment of several tasks, for the notes of its episodes. An instruction is stored
    as the label of its episode. The stored action is the executed one. A snapshot holds the running episodes;
    restoring it removes what was recorded since from the dataset, so that a run that was killed and resumed
    records the same episodes. `say` is told once if nothing can be recorded for want of reported successes.
    """

    def __init__(
        self,
        env: VecEnv,
        writer: DatasetWriter,
        *,
        keep_all: bool = False,
        info: Mapping[str, Any] | None = None,
        tasks: Sequence[str] = (),
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._tasks, self._say = tuple(tasks), say
        self._env, self._writer, self._keep_all, self._info = env, writer, keep_all, dict(info or {})
        self.spec, self.num_envs, self.metadata = env.spec, env.num_envs, env.metadata
        self._low, self._high = torch.tensor(env.spec.action.low), torch.tensor(env.spec.action.high)
        self._obs: Obs = {}
        self._action = torch.zeros(env.num_envs, env.spec.action.dim)  # of the step under way
        self._past: list[Step] = []  # all steps since the oldest running episode began
        self._length = torch.zeros(env.num_envs, dtype=torch.long)  # steps of the running episodes

    def reset(self, seeds: Seeds) -> Obs:
        self._obs, self._past, self._length = self._env.reset(seeds), [], torch.zeros_like(self._length)
        return self._obs

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        low, high = self._low.to(action.device), self._high.to(action.device)
        self._action = torch.minimum(torch.maximum(action.float(), low), high)
        self._env.step_async(action)

    def step_wait(self) -> StepResult:
        obs, reward, terminated, truncated, info = self._env.step_wait()
        human = info.get("intervened", torch.zeros_like(reward, dtype=torch.bool))
        self._past.append((self._obs, info.get("executed_action", self._action), reward, human))
        self._obs, self._length = obs, self._length + 1
        for lane in torch.nonzero(info["final_mask"]).flatten().tolist():
            if self._keep_all or bool(info["success"][lane]):
                episode = self._take(lane, terminated, info)
                note = {TASK_NOTE: self._tasks[episode.task]} if self._tasks else {}
                write_episode(self._writer, episode, task=self._label(episode), info=self._info | note)
            elif self._say is not None and reported_success(info, lane) is None:
                self._say(NO_SUCCESS)
                self._say = None
            self._length[lane] = 0
        self._past = self._past[len(self._past) - int(self._length.max()) :]
        return obs, reward, terminated, truncated, info

    def _label(self, episode: EpisodeBuffer) -> str:
        instruction = episode.obs[0].get(INSTRUCTION)
        return self.spec.name if instruction is None else to_text(instruction)

    def _take(self, lane: int, terminated: Tensor, info: Mapping[str, Any]) -> EpisodeBuffer:
        """Episode that has just ended in this lane."""
        steps = self._past[len(self._past) - int(self._length[lane]) :]
        seen = [obs for obs, *_ in steps] + [info["final_obs"]]
        return EpisodeBuffer(
            seed=int(info["episode_seed"][lane]),
            obs=[{key: value[lane].cpu().numpy() for key, value in obs.items()} for obs in seen],
            action=[action[lane].cpu().numpy() for _, action, _, _ in steps],
            reward=[float(reward[lane]) for _, _, reward, _ in steps],
            human=[bool(human[lane]) for *_, human in steps],
            terminated=bool(terminated[lane]),
            success=reported_success(info, lane),
            done=True,
            task=int(info["task"][lane]) if self._tasks else 0,
        )

    def snapshot(self) -> dict[str, Any]:
        """Snapshot of the environment, the running episodes, and the number of the dataset's next episode."""
        columns = {f"obs.{name}": [obs[name] for obs, *_ in self._past] for name in self.spec.obs}
        for i, name in enumerate(("action", "reward", "human"), 1):
            columns[name] = [step[i] for step in self._past]  # type: ignore[misc]  # a tensor, as i > 0
        past = {name: torch.stack(values) for name, values in columns.items() if values}
        ours = {"length": self._length.clone(), "past": past, "next_number": self._writer.next_number}
        return {"env": self._env.snapshot(), "recorded": ours}

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Return to a snapshot. Raises CheckpointError for one that was taken without recording."""
        if "recorded" not in snapshot:
            raise CheckpointError(
                "The snapshot is of an environment that recorded nothing. Resume with record=none."
            )
        self._obs = self._env.restore(snapshot["env"], seeds)
        ours = snapshot["recorded"]
        past, self._length = ours["past"], ours["length"].clone()
        if past and "human" not in past:  # a checkpoint of an older version
            past = past | {"human": torch.zeros_like(past["reward"], dtype=torch.bool)}
        self._past = [
            (
                {name: past[f"obs.{name}"][i] for name in self.spec.obs},
                *(past[name][i] for name in ("action", "reward", "human")),
            )
            for i in range(int(self._length.max()))
        ]
        self._writer.rewind(int(ours["next_number"]))
        return self._obs

    def render(self, lane: int = 0) -> Tensor:
        return self._env.render(lane)

    def close(self) -> None:
        self._env.close()
