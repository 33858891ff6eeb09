"""Simulated human who takes over where the policy acts badly: interventions without a robot.

    is_bad(obs, policy's action, human's action) ─► a coin per (episode seed, step) ─► `steps` human steps

The coin makes the human fallible, as in RLIF's simulation (Luo et al. 2024): with probability `error` a bad
action is not interrupted, and a good one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Obs, StepResult, VecEnv
from robo_rl.core.seeding import Seeds, derive_seed
from robo_rl.core.settings import check_settings, setting
from robo_rl.core.shapes import Bool, Float, Int
from sim.vec.expert import Expert, WatchingExpert

# (obs, policy's (n, a), human's (n, a)) in [-1, 1] -> (n,) bool: bad
BadAction = Callable[[Obs, Tensor, Tensor], Tensor]


@dataclass
class InterventionConfig:
    """When the human takes over, and for how long."""

    distance: float = setting(
        0.5,
        "RMS difference to the human's action above which an action is bad, in [-1, 1] units",
        at_least=0.0,
    )
    error: float = setting(0.05, "chance of judging wrongly, either way, at a step", at_least=0.0)
    steps: int = setting(4, "steps that the human keeps control", at_least=1)
    noise: float = setting(0.0, "standard deviation of the noise added to the human's actions", at_least=0.0)


def by_distance(threshold: float) -> BadAction:
    """Bad action by distance: bad where the RMS difference to the human's action exceeds `threshold`."""

    def bad(obs: Obs, action: Float[Tensor, "n a"], human: Float[Tensor, "n a"]) -> Bool[Tensor, " n"]:
        return (action - human).square().mean(dim=-1).sqrt() > threshold

    return bad


class Intervened:
    """VecEnv in which `human` may act in the policy's place; `info` holds the executed action.

    info["intervened"]: (n,) bool, the human made this step. info["executed_action"]: (n, a), in the units of
    `spec.action`, inside its limits. After an intervention the policy has at least one step before the next.
    Who acts is a pure function of (episode seed, step, observation, action), so episodes are reproducible.
    """

    def __init__(
        self,
        env: VecEnv,
        human: Expert,
        is_bad: BadAction,
        *,
        error: float = 0.05,
        steps: int = 4,
        seed: int = 0,
    ) -> None:
        check_settings(InterventionConfig(error=error, steps=steps))
        if error > 1.0:
            raise ConfigError(
                f"intervention.error is a probability, found {error}; expected a number in [0, 1]."
            )
        self._env, self.human, self.is_bad = env, human, is_bad
        self.error, self.steps, self.seed = error, steps, seed
        self.spec, self.num_envs, self.metadata = env.spec, env.num_envs, env.metadata
        self._low, self._high = torch.tensor(env.spec.action.low), torch.tensor(env.spec.action.high)
        n = env.num_envs
        self._obs: Obs = {}
        self._episode = torch.zeros(n, dtype=torch.long)  # seed of the running episode
        self._step = torch.zeros(n, dtype=torch.long)  # steps made in it
        self._left = torch.zeros(n, dtype=torch.long)  # steps that the human will still make
        self._was = torch.zeros(n, dtype=torch.bool)  # the human made the previous step
        self._coins = torch.zeros(n, env.spec.max_episode_steps)
        # of the step under way: human acts, executed action, steps left
        self._running: tuple[Tensor, Tensor, Tensor] | None = None

    def reset(self, seeds: Seeds) -> Obs:
        self._obs, self._running = self._env.reset(seeds), None
        self._start(torch.arange(self.num_envs), self._env.snapshot()["episode_seed"].cpu())
        return self._obs

    def step(self, action: Float[Tensor, "n a"]) -> StepResult:
        self.step_async(action)
        return self.step_wait()

    def step_async(self, action: Float[Tensor, "n a"]) -> None:
        action = torch.minimum(torch.maximum(action.float(), self._low), self._high)
        human = self.human.act(self._obs, self._episode, self._step)
        human = torch.minimum(torch.maximum(human, self._low), self._high)
        left = torch.where(self._takes_over(action, human), self.steps, self._left)
        executed = torch.where((left > 0).unsqueeze(1), human, action)
        self._running = (left > 0, executed, (left - 1).clamp(min=0))
        self._env.step_async(executed)

    def _takes_over(self, action: Float[Tensor, "n a"], human: Float[Tensor, "n a"]) -> Bool[Tensor, " n"]:
        """Lanes where an intervention starts now."""
        normalize = self.spec.action.normalize
        bad = self.is_bad(self._obs, normalize(action), normalize(human))
        chance = torch.where(bad, 1.0 - self.error, self.error)
        coin = self._coins[torch.arange(self.num_envs), self._step]
        return (self._left == 0) & ~self._was & (coin < chance)

    def step_wait(self) -> StepResult:
        obs, reward, terminated, truncated, info = self._env.step_wait()
        assert self._running is not None  # the environment refuses a wait without a step
        (self._was, executed, self._left), self._running = self._running, None
        info |= {"intervened": self._was.clone(), "executed_action": executed}
        self._obs, self._step = obs, self._step + 1
        ended = torch.nonzero(info["final_mask"]).flatten()
        if len(ended):
            self._start(ended, info["next_seed"][ended])
        return obs, reward, terminated, truncated, info

    def _start(self, lanes: Int[Tensor, " k"], seeds: Int[Tensor, " k"]) -> None:
        """Begin an episode in these lanes, with the policy in control."""
        self._episode[lanes], self._step[lanes], self._left[lanes] = seeds, 0, 0
        self._was = self._was.index_fill(0, lanes, False)  # a fresh tensor: the old one is in `info`
        self._flip(lanes)

    def _flip(self, lanes: Int[Tensor, " k"]) -> None:
        for lane in lanes.tolist():
            key = derive_seed("intervention", self.seed, int(self._episode[lane]))
            coins = np.random.Generator(np.random.Philox(key=key)).random(
                self._coins.shape[1], dtype=np.float32
            )
            self._coins[lane] = torch.from_numpy(coins)

    def snapshot(self) -> dict[str, Any]:
        """Snapshot of the environment and of who has control, taken before a step that is under way."""
        ours = {"episode": self._episode, "step": self._step, "left": self._left, "was": self._was}
        control = {name: value.clone() for name, value in ours.items()}
        if isinstance(self.human, WatchingExpert):
            control["memory"] = self.human.memory()
        return {"env": self._env.snapshot(), "control": control}

    def restore(self, snapshot: Mapping[str, Any], seeds: Iterator[int] | None = None) -> Obs:
        """Return to a snapshot. Raises CheckpointError for one that was taken without interventions."""
        if "control" not in snapshot:
            raise CheckpointError(
                "The snapshot is of an environment without interventions. Resume with intervene=none."
            )
        self._obs = self._env.restore(snapshot["env"], seeds)
        control, self._running = snapshot["control"], None
        self._episode, self._step = control["episode"].clone(), control["step"].clone()
        self._left, self._was = control["left"].clone(), control["was"].clone()
        if isinstance(self.human, WatchingExpert):
            self.human.recall(control["memory"])
        self._flip(torch.arange(self.num_envs))
        return self._obs

    def render(self, lane: int = 0) -> Tensor:
        return self._env.render(lane)

    def close(self) -> None:
        self._env.close()
