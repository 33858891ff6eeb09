"""Training of teacher and students of `robo-rl vision` in a run folder, and their measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from policies.flight.vision import VisionPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.seeding import derive_seed
from robo_rl.flight.fly.runs import train_inside
from robo_rl.flight.own_files import with_checksums
from robo_rl.flight.rows import FlyRow
from robo_rl.flight.seed_runs import LOWER
from robo_rl.flight.vision.training import VisionSetup, camera_pilot, dark_camera_pilot, train, work
from robo_rl.runs.loaded_policy import find_policy
from robo_rl.runs.progress import progress
from robo_rl.runs.resumable import check_weights
from robo_rl.runs.run_dir import RunDir
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera
from sim.engines.own_file import path_of
from sim.engines.quad.craft import load_craft
from sim.flight.bullet.vision import VisionFlights
from sim.flight.bullet.vision_lane import VisionLanes
from sim.flight.trial import Pilot, Trial, fly, policy_pilot
from sim.tasks.flight.hover import HoverTask


def load_teacher(config: VisionConfig, out: Path) -> tuple[FlightPolicy, FlyConfig]:
    """Teacher and its training settings. Raises CheckpointError for a policy that cannot teach this task."""
    if config.teacher is None:
        given = FlyConfig(
            task="hover", craft=config.craft, integral=False, out=str(out / "teacher"), seed=config.seed,
            updates=config.teacher_updates, eval_episodes=config.eval_episodes, eval_s=config.eval_s,
            eager=config.eager, logger=config.logger,
        )  # fmt: skip
        train_inside(given, resume=config.resume)
        folder = Path(given.out)
    else:
        folder = Path(config.teacher)
        known = set(FlyConfig.__dataclass_fields__)
        given = FlyConfig(
            **{key: value for key, value in RunDir.open(folder).config().items() if key in known}
        )
    policy = load_policy(find_policy(folder))
    if not isinstance(policy, FlightPolicy) or given.task != "hover" or given.integral:
        raise CheckpointError(
            f"{folder} cannot teach hovering by camera: it must be a run of robo-rl fly task=hover "
            "integral=false, because a camera policy has no integral of the error."
        )
    return policy, given


def with_craft_of(config: VisionConfig, given: FlyConfig) -> VisionConfig:
    """Settings with the teacher's aircraft. Raises ConfigError if another one was set."""
    if config.craft not in (VisionConfig.craft, given.craft, path_of(given.craft)):
        raise ConfigError(
            f"craft={config.craft} cannot learn from a teacher of craft {given.craft}. Leave craft= out, or "
            "leave teacher= out: a teacher is then trained for this craft."
        )
    return replace(config, craft=given.craft)


def vision_setup(config: VisionConfig, teacher: tuple[FlightPolicy, FlyConfig]) -> VisionSetup:
    """Aircraft, task, teacher and camera from the settings."""
    policy, given = teacher
    usual = HoverTask()
    lanes = VisionLanes(
        config.task,
        max_episode_steps=usual.max_steps if config.eval_s is None else round(config.eval_s / usual.dt_s),
        craft=with_checksums(given).craft, history=given.history, px=config.px, camera_hz=config.camera_hz,
        start_tilt_rad=config.start_tilt_rad, start_speed_m_s=config.start_speed_m_s,
    )  # fmt: skip
    return VisionSetup(
        load_craft(given.craft),
        lanes.hover,
        policy,
        given.history,
        AirEffects(),
        FloorCamera(config.px),
        config.camera_hz,
        lanes.name,
    )


def train_students(
    config: VisionConfig, setup: VisionSetup, run: RunDir
) -> tuple[list[FlyRow], dict[str, Trial]]:
    """Train every seed. Returns rows, and the first seed's trials."""
    rows: list[FlyRow] = []
    trials: dict[str, Trial] = {}
    with (
        progress(work(config, setup) * config.seeds, "vision", "step") as bar,
        run.metrics(None, bar=bar) as metrics,
    ):
        metrics.shown = ("fit/position_m",)

        def advance() -> None:
            bar.update(1)

        for seed in range(config.seed, config.seed + config.seeds):
            policy, note = train(config, setup, seed, metrics.log, advance)
            check_weights(policy.state_dict(), run, LOWER)
            save_policy(run.path / f"seed{seed}", policy, note)
            trial, pictures = measure(config, setup, camera_pilot(policy, advance))
            rows.append(
                FlyRow.of(
                    "policy", trial, train_cpu_s=note["train_cpu_s"], env_steps=note["env_steps"], seed=seed
                )
            )
            if not trials:
                save_policy(
                    run.policy, policy, note | {"measured": rows[0].held.to_json(), "pictures": pictures}
                )
                trials["policy"] = trial
    return rows, trials


def measure(
    config: VisionConfig, setup: VisionSetup, pilot: Callable[[VisionFlights], Pilot]
) -> tuple[Trial, int]:
    """Trial on the shared starts, the same for every pilot, and its number of camera images."""
    flights = setup.flights(config.eval_episodes, derive_seed("vision eval", config.eval_seed))
    trial = fly(flights.flights, pilot(flights))
    flights.close()
    return trial, flights.pictures


def baseline_trials(config: VisionConfig, setup: VisionSetup, run: RunDir) -> Iterator[tuple[FlyRow, Trial]]:
    """Trials on the same starts of the teacher with exact states, and of the student without its camera."""
    policy = load_policy(run.policy)
    assert isinstance(policy, VisionPolicy)
    for name, pilot in {
        "teacher": lambda _: policy_pilot(setup.teacher.columns),
        "blind": dark_camera_pilot(policy),
    }.items():
        trial, _ = measure(config, setup, pilot)
        yield FlyRow.of(name, trial), trial
