"""Fine-tuning with actors: what each actor is built from, and the learner that owns replay and weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from policies.registry import SavedPolicy
from policies.vla.packed import PackedPolicy
from robo_rl.apps.tuning.compose import (
    TuningSession,
    build_collector,
    build_learner,
    deployed,
    deployed_noise,
    with_interventions,
)
from robo_rl.apps.tuning.maps import build_map, check_together
from robo_rl.apps.tuning.rewards.progress import ProgressRun
from robo_rl.apps.tuning.start import env_name, env_options
from robo_rl.apps.tuning.stores import (
    build_stores,
    feature_dim,
    reward_transform,
    store_widths,
    stored_base,
    with_given_demos,
)
from robo_rl.conf.finetune import ON_POLICY, FinetuneVerb, MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_json
from robo_rl.core.protocols import Logger
from robo_rl.core.seeding import EpisodeSeeds, derive_seed, generator
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.counts import counted
from robo_rl.core.views import ALL
from robo_rl.data.store import EpisodeStore
from robo_rl.nets.optim.graphs import update_graphs
from robo_rl.rl.acting import ActingPolicy
from robo_rl.rl.loop import FineTuner
from robo_rl.rl.mix import ReplayMix
from robo_rl.rl.progress.shaping import PotentialShaping
from robo_rl.rl.scale.actor import ActorParts
from robo_rl.rl.scale.blocks import BlockStore
from robo_rl.rl.scale.remote_collector import Fleet, RemoteCollector
from robo_rl.rl.scale.schedule import Schedule
from robo_rl.runs.device import copied_to, device_of, run_device
from robo_rl.runs.run_dir import RunDir
from sim.registry import make_env

ACTORS_FILE = "actors.json"
OpenFleet = Callable[[Callable[[int, int], ActorParts]], Fleet]


@dataclass(frozen=True)
class ActorBuilder:
    """Makes the parts of an actor in its own process. env, options, num_envs, num_workers: of `make_env`.

    Every new actor of a slot has its own seeds: it repeats no episode of the actor before it.
    """

    method: MethodConfig
    base: SavedPolicy
    env: str
    options: dict[str, Any]
    num_envs: int
    num_workers: int
    seed: int
    shaping: PotentialShaping | None = None

    def __call__(self, slot: int, incarnation: int) -> ActorParts:
        method, key = self.method, ("actor", self.seed, slot, incarnation)
        plain = make_env(self.env, self.num_envs, self.num_workers, **self.options)
        env = with_interventions(method, self.env, plain, derive_seed(*key))
        action_map = build_map(method.map, self.base)
        stores = {"online": BlockStore()}
        if method.mix.intervention > 0.0:
            stores["intervention"] = BlockStore()
        online, human = stores["online"], stores.get("intervention")
        collector = build_collector(method, self.base, env, action_map, online, human, shaping=self.shaping)
        features = feature_dim(self.base, env.spec)
        learner = build_learner(method, self.base, features, action_map, generator("learner", *key))
        acting = ActingPolicy(
            learner,
            generator("acting", *key),
            warmup=method.warmup,
            warmup_noise=method.warmup_noise,
            ramp_steps=method.ramp_steps,
        )
        seeds, first = EpisodeSeeds(("train", *key)), EpisodeSeeds(("train", *key))
        collector.reset(env.reset(seeds), [next(first) for _ in range(env.num_envs)])
        return ActorParts(collector, acting, stores)


def remote_session(
    config: FinetuneVerb,
    method: MethodConfig,
    base: SavedPolicy,
    spec: EnvSpec,
    open_fleet: OpenFleet,
    episode_limit: int | None,
    *,
    demos: EpisodeStore | None,
    dense_reward: bool,
    logger: Logger | None,
    say: Callable[[str], None],
    run: Path | None = None,
) -> TuningSession:
    """A learner on `config.device` with `config.actors` actors. spec: of the environment. run: folder that
    keeps the model of progress; None: it is not kept.
    """
    method = with_given_demos(method, demos is not None)
    if isinstance(stored_base(method, base, env_name(config)), PackedPolicy):
        raise ConfigError(
            f"method={method.name} stores the prefix of every decision of this base, which actors do not "
            "deliver. Leave out launcher=ray, or choose method=steering or method=residual."
        )
    options = env_options(config) | {"max_episode_steps": episode_limit}
    shaping = ProgressRun(run, config.seed, say).shaping(method, base, base, ALL, demos, device_of(base))
    builder = ActorBuilder(
        method, base, env_name(config), options, config.num_envs, config.num_workers, config.seed, shaping
    )
    device = run_device(config.device, device_of(base))
    if device.type != "cpu":
        base = copied_to(base, device)
    action_map = build_map(method.map, base)
    check_together(method, action_map, base)
    features = feature_dim(base, spec, device)
    widths, lanes = store_widths(base, features, action_map), config.actors * config.num_envs
    if shaping is not None:
        shaping = shaping.copied_to(device)
    stores = build_stores(
        method, base, lanes, widths, action_map, demos, dense_reward, device, shaping=shaping
    )
    rng = generator("learner", config.seed, device=device)
    learner = build_learner(method, base, features, action_map, rng)
    collector = RemoteCollector(
        open_fleet(builder),
        Schedule(config.actors, config.num_envs, config.block_steps, config.staleness),
        learner,
        stores,
        reward_transform(method),
        {"base": method.base_steps, "online": method.env_steps},
        say,
    )
    draws = generator("replay", config.seed, device=device)
    mix = ReplayMix(stores, vars(method.mix))
    captured = update_graphs(device, config.graphs, (rng, draws))
    tuner = FineTuner(method, collector, learner, mix, draws, logger, say, captured)
    return TuningSession(
        tuner, deployed(base, learner, action_map), deployed_noise(method), ("train", config.seed)
    )


@contextmanager
def opened_cluster(config: FinetuneVerb) -> Iterator[OpenFleet | None]:
    """Opens fleets in the Ray cluster that the settings name; None without launcher=ray."""
    if config.launcher == "none":
        yield None
        return
    from robo_rl.rl.scale.ray_cluster import existing_cluster, local_cluster

    cpus = max(1, config.num_workers)
    if config.ray_address is None:
        cluster = local_cluster(config.actors * cpus, config.object_store_mb)
    else:
        cluster = existing_cluster(config.ray_address, config.actors, cpus)
    with cluster:
        from robo_rl.rl.scale.ray_fleet import RayFleet

        fleets: list[RayFleet] = []

        def open_fleet(build: Callable[[int, int], ActorParts]) -> Fleet:
            fleets.append(RayFleet(build, cpus))
            return fleets[-1]

        try:
            yield open_fleet
        finally:
            for fleet in fleets:
                fleet.close()


def check_launcher(config: FinetuneVerb) -> None:
    """Raise ConfigError for settings that do not go with the launcher, MissingDependencyError without Ray."""
    method = config.method
    if config.launcher == "none":
        if config.actors > 1 or config.ray_address is not None:
            raise ConfigError(
                "actors and ray_address are settings of launcher=ray. Add it, or leave them out; num_envs "
                "sets the environments of this process."
            )
        return
    if method.name == "auto":
        raise ConfigError(
            "method=auto (the default) runs several methods in turn in one process. With launcher=ray choose "
            "one of them: method=steering or method=residual."
        )
    if method.encoder == "learned":
        raise ConfigError(
            "Actors send decisions without pictures, which method.encoder=learned replays. Leave out "
            "launcher=ray, or method.encoder."
        )
    if method.privileged:
        raise ConfigError(
            "Actors send the base's features, not the true state. Leave out launcher=ray, or "
            "method.privileged."
        )
    if method.algorithm in ON_POLICY:
        raise ConfigError(
            f"method={method.name} learns from the newest policy's data alone (PPO), but actors run ahead. "
            "Leave out launcher=ray, or choose an off-policy method: residual, steering, sac, td3."
        )
    if config.record != "none":
        raise ConfigError(
            f"record={config.record} writes one dataset from one process, which actors cannot share. Leave "
            "it out, or leave out launcher=ray."
        )
    lanes = config.actors * config.num_envs
    if method.replay_capacity < lanes:
        raise ConfigError(
            f"A replay of {method.replay_capacity} decisions is too small for {config.actors} actors with "
            f"{config.num_envs} environments each. Raise method.replay_capacity, or lower actors."
        )
    if find_spec("ray") is None:  # Ray reads its environment variables when it is imported, so not yet
        raise ModuleNotFoundError("launcher=ray needs Ray", name="ray")


def write_actors(collector: RemoteCollector, run: RunDir) -> str:
    """Save what the actors did in actors.json; returns it in a sentence."""
    waiting, schedule = collector.waiting, collector.schedule
    result = waiting.state_dict() | {
        "actors": len(schedule.slots),
        "env_steps": collector.env_steps,
        "replaced": schedule.replaced,
        "lost_env_steps": schedule.lost_env_steps,
        "actors_waited_share": waiting.actors_share,
        "learner_waited_share": waiting.learner_share,
        "mean_behind": waiting.mean_behind,
    }
    write_json(run.path / ACTORS_FILE, result)
    lost = f", with at most {counted(schedule.lost_env_steps, 'step')} lost" if schedule.replaced else ""
    return (
        f"{counted(len(schedule.slots), 'actor')}: waited for the learner {100 * waiting.actors_share:.0f} % "
        f"of their time, the learner for data {100 * waiting.learner_share:.0f} % of its time; weights "
        f"{waiting.mean_behind:.1f} blocks old on average, {waiting.most_behind} at most; "
        f"{schedule.replaced} replaced{lost}"
    )
