"""Environments of a training run: in this process, or in actors that Ray runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from robo_rl.apps.tuning.compose import Tuner
from robo_rl.core.errors import CheckpointError
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.rl.collect import Collector
from robo_rl.rl.scale.remote_collector import RemoteCollector


@runtime_checkable
class TrainingLanes(Protocol):
    """Environments in the form of the training loop."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint. Call before the tuner is restored."""
        ...

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        """Start episodes; fresh: without a checkpoint."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of them."""
        ...


class LocalLanes:
    """Environments of this process. A run that resumes continues their running episodes."""

    def __init__(self, env: VecEnv, seed_root: tuple[str, int], repeat: int = 1) -> None:
        self.env, self._seeds = env, EpisodeSeeds(seed_root, repeat=repeat)

    def restore(self, state: Mapping[str, Any]) -> None:
        if "env" not in state:
            raise CheckpointError(
                "The checkpoint was written with launcher=ray. Resume with the launcher and the number of "
                "actors that the run was started with."
            )
        self._seeds = EpisodeSeeds(self._seeds.root, int(state["seeds"]), self._seeds.repeat)
        self.env.restore(state["env"], self._seeds)  # type: ignore[call-arg]

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        if fresh:
            assert isinstance(tuner.collector, Collector)
            first = EpisodeSeeds(self._seeds.root, repeat=self._seeds.repeat)
            obs = self.env.reset(self._seeds)
            tuner.collector.reset(obs, [next(first) for _ in range(self.env.num_envs)])

    def state_dict(self) -> dict[str, Any]:
        return {"env": self.env.snapshot(), "seeds": self._seeds.count}


class RemoteLanes:
    """Environments of actors, which always start new episodes: a checkpoint holds none of them."""

    def restore(self, state: Mapping[str, Any]) -> None:
        pass

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        assert isinstance(tuner.collector, RemoteCollector)
        tuner.collector.start()

    def state_dict(self) -> dict[str, Any]:
        return {}
