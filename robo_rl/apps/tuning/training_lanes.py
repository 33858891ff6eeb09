"""Environments of a training run: in this process, or in actors that Ray runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch

from policies.registry import SavedPolicy
from robo_rl.apps.tuning.compose import Tuner, TuningSession, build_session, with_interventions
from robo_rl.apps.tuning.remote import OpenFleet
from robo_rl.apps.tuning.start import env_name, env_options
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.protocols import Logger, VecEnv
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import EnvSpec
from robo_rl.data.episodes.schema import DATASET_JSON
from robo_rl.data.store import DatasetWriter, EpisodeStore
from robo_rl.rl.collect import Collector
from robo_rl.rl.curriculum import CurriculumSeeds, TaskCurriculum
from robo_rl.rl.running import CollectedEpisode
from robo_rl.rl.scale.remote_collector import RemoteCollector
from robo_rl.runs.device import copied_to, run_device, train_in_tf32
from robo_rl.runs.run_dir import RunDir
from sim.registry import make_env, task_in, tasks_in
from sim.vec.on_device import env_on
from sim.vec.recorded import Recorded


@runtime_checkable
class TrainingLanes(Protocol):
    """Environments in the form of the training loop."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a checkpoint. Call before the tuner is restored."""
        ...

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        """Start episodes; fresh: without a checkpoint."""
        ...

    def learn(self, episodes: Sequence[CollectedEpisode]) -> None:
        """Read the outcomes of episodes that ended, for the choice of later ones."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint holds of them."""
        ...


class LocalLanes:
    """Environments of this process. A run that resumes continues their running episodes.

    repeat: episodes in turn from the same start. curriculum: chooses the tasks of episodes;
    None: their seeds do.
    """

    def __init__(
        self,
        env: VecEnv,
        seed_root: tuple[str, int],
        repeat: int = 1,
        curriculum: TaskCurriculum | None = None,
    ) -> None:
        self.env, self._root, self._repeat, self._curriculum = env, seed_root, repeat, curriculum
        self._seeds = self._at(0)

    def _at(self, count: int) -> EpisodeSeeds:
        """Seeds of the episodes from the `count`-th on."""
        if self._curriculum is None:
            return EpisodeSeeds(self._root, count, self._repeat)
        return CurriculumSeeds(self._root, self._curriculum, partial(task_in, self.env.spec.name), count)

    def restore(self, state: Mapping[str, Any]) -> None:
        if "env" not in state:
            raise CheckpointError(
                "The checkpoint was written with launcher=ray. Resume with the launcher and the number of "
                "actors that the run was started with."
            )
        if self._curriculum is not None:
            self._curriculum.load_state_dict(state["curriculum"])
        self._seeds = self._at(int(state["seeds"]))
        self.env.restore(state["env"], self._seeds)

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        if fresh:
            assert isinstance(tuner.collector, Collector)
            first = self._at(0)
            obs = self.env.reset(self._seeds)
            tuner.collector.reset(obs, [next(first) for _ in range(self.env.num_envs)])

    def learn(self, episodes: Sequence[CollectedEpisode]) -> None:
        if self._curriculum is not None:
            for episode in episodes:
                self._curriculum.add(task_in(self.env.spec.name, episode.seed), episode.success)

    def state_dict(self) -> dict[str, Any]:
        held = {"env": self.env.snapshot(), "seeds": self._seeds.count}
        return held if self._curriculum is None else held | {"curriculum": self._curriculum.state_dict()}


class RemoteLanes:
    """Environments of actors, which always start new episodes: a checkpoint holds none of them."""

    def restore(self, state: Mapping[str, Any]) -> None:
        pass

    def start(self, tuner: Tuner, *, fresh: bool) -> None:
        assert isinstance(tuner.collector, RemoteCollector)
        tuner.collector.start()

    def learn(self, episodes: Sequence[CollectedEpisode]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {}


@contextmanager
def training_env(
    config: FinetuneVerb, limit: int | None, actors: OpenFleet | None
) -> Iterator[VecEnv | None]:
    """Environment of training, in this process; None if actors hold it. limit: steps of an episode."""
    if actors is not None:
        yield None
        return
    options = env_options(config) | {"max_episode_steps": limit}
    with closing(make_env(env_name(config), config.num_envs, config.num_workers, **options)) as env:
        yield env


def local_session(
    config: FinetuneVerb,
    method: MethodConfig,
    base: SavedPolicy,
    env: VecEnv,
    spec: EnvSpec,
    run: RunDir,
    *,
    fresh: bool,
    demos: EpisodeStore | None,
    dense_reward: bool,
    logger: Logger,
    say: Callable[[str], None],
) -> tuple[SavedPolicy, TuningSession, LocalLanes]:
    """(base on the run's device, learner with its collector, environments) of a run in this process.

    spec: of the environment with the task's own step limit. fresh: without a checkpoint.
    """
    name, device = env_name(config), run_device(config.device, getattr(env, "device", torch.device("cpu")))
    train_in_tf32(device)
    env = with_interventions(method, name, env, config.seed)
    if config.record != "none":
        env = recorded_lanes(config, env, spec, demos, run, fresh=fresh, say=say)
    env = env_on(env, device)
    if device.type != "cpu":
        base = copied_to(base, device)
    tuning = build_session(
        method, base, env, seed=config.seed, device=device, graphs=config.graphs, run=run.path,
        demos=demos, dense_reward=dense_reward, logger=logger, say=say,
    )  # fmt: skip
    lanes = LocalLanes(env, tuning.seed_root, max(1, method.groups.size), curriculum_of(method, name))
    return base, tuning, lanes


def curriculum_of(method: MethodConfig, env_name: str) -> TaskCurriculum | None:
    """Curriculum over the tasks of an environment of several tasks; None where all get equal shares."""
    tasks = tasks_in(env_name)
    if not tasks or method.least_weight == 1.0 or method.groups.size:
        return None
    return TaskCurriculum(len(tasks), method.least_weight)


def check_curriculum(config: FinetuneVerb) -> None:
    """Raise ConfigError for a curriculum over tasks with actors, which choose the tasks of episodes apart."""
    method = config.method
    if config.launcher == "ray" and curriculum_of(method, env_name(config)) is not None:
        raise ConfigError(
            f"Actors of launcher=ray give all tasks equal shares, found method.least_weight="
            f"{method.least_weight:g}. Set it to 1, or leave out launcher=ray."
        )


def recorded_lanes(
    config: FinetuneVerb,
    env: VecEnv,
    spec: EnvSpec,
    demos: EpisodeStore | None,
    run: RunDir,
    *,
    fresh: bool,
    say: Callable[[str], None],
) -> Recorded:
    """The training environment, which records its episodes in the run with the contract of `demos`, for a
    merge.

    spec: of the environment with the task's own step limit; the shorter limit of training is not recorded.
    """
    folder = run.episodes
    if demos is None or not set(spec.obs) <= set(demos.spec.obs):  # few datasets hold the true state
        spec = spec.for_datasets()
    if (folder / DATASET_JSON).exists():
        writer = DatasetWriter.open(folder, spec)
    else:
        codec, stamps = ("raw", ()) if demos is None else (demos.meta.image_codec, demos.meta.stamps)
        writer = DatasetWriter.create(
            folder, spec, image_codec=codec, stamps=stamps, info={"commit": commit()}
        )
    if fresh:  # a run that was killed before its first checkpoint starts anew
        writer.rewind(0)
    info = {"by": config.method.name, "seed": config.seed}
    keep_all, tasks = config.record == "all", tasks_in(env.spec.name)
    return Recorded(env, writer, keep_all=keep_all, info=info, tasks=tasks, say=say)
