"""`robo-rl vision`: a student that hovers by its camera, learned from a teacher that is told where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.checkpoint import load_policy, save_policy
from policies.flight.policy import FlightPolicy
from policies.flight.vision import FRAMES, VisionPolicy
from policies.flight.vision_fit import Shots, fit_eye, pose_errors
from robo_rl.apps.flight.fly_setting import FlightSetup
from robo_rl.apps.flight.vision_report import finish
from robo_rl.apps.fly import FlyRow, row, train_all
from robo_rl.apps.runs.loaded_policy import find_policy
from robo_rl.apps.runs.progress import progress
from robo_rl.apps.runs.run_dir import RunDir
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.eval.timing import cpu_seconds
from sim.engines.bullet.client import load_pybullet
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera
from sim.engines.bullet.scatter import scattered
from sim.engines.bullet.vision import APART, Record, VisionFlights, steps_per_picture, truth, vision_spec
from sim.engines.quad.craft import Craft, load_craft
from sim.flight.flights import Flights
from sim.flight.memory import FlightSenses
from sim.flight.trial import Pilot, Trial, fly, policy_pilot
from sim.tasks.flight.hover import HoverTask

_SHOTS = 100  # pictures from scattered poses that count as one step of the progress bar

__all__ = ["Sight", "compared", "main", "sight_of", "taught", "train_students"]


@dataclass(frozen=True)
class Sight:
    """What flies and what it sees."""

    craft: Craft
    task: HoverTask
    teacher: FlightPolicy
    history: int
    scene: AirEffects
    eye: FloorCamera
    camera_hz: float

    def flights(self, num: int, seed: int) -> VisionFlights:
        return VisionFlights(
            self.craft, self.task, self.history, num, seed, self.scene, self.eye, self.camera_hz
        )  # fmt: skip

    def student(self) -> VisionPolicy:
        period_s = 1.0 / self.camera_hz
        spec = vision_spec(self.task, self.history, self.eye, self.camera_hz)
        return VisionPolicy(spec, self.teacher, period_s, APART * period_s)

    @property
    def setting(self) -> FlightSetup:
        """As pictures take it."""
        return FlightSetup(self.craft, self.task, self.task, FlightSenses(self.history, integral=False))


def main(config: VisionConfig) -> int:
    """Train teacher and `seeds` students, fly them on the same starts, and leave table, pictures, film and
    bundle.
    """
    load_pybullet()  # before the work, not after it
    torch.set_num_threads(1)
    steps_per_picture(config.camera_hz, HoverTask().dt_s)
    with RunDir.create(config.out, config, overwrite=config.overwrite) as run:
        teacher = taught(config, run.path)
        config = with_craft_of(config, teacher[1])
        sight = sight_of(config, teacher)
        rows, trials = train_students(config, sight, run)
        for other, trial in compared(config, sight, run):
            rows.append(other)
            trials[other.name] = trial
        return finish(config, sight, run, rows, trials)


def compared(config: VisionConfig, sight: Sight, run: RunDir) -> Iterator[tuple[FlyRow, Trial]]:
    """On the same starts: the teacher, told where it is, and the kept student without its camera."""
    policy = load_policy(run.policy)
    assert isinstance(policy, VisionPolicy)
    for name, pilot in {
        "teacher": lambda _: policy_pilot(sight.teacher.columns),
        "blind": _blind(policy),
    }.items():
        trial, _ = measured(config, sight, pilot)
        yield row(name, trial), trial


def taught(config: VisionConfig, out: Path) -> tuple[FlightPolicy, FlyConfig]:
    """The teacher and the settings of its training. Raises CheckpointError for one that cannot teach this."""
    if config.teacher is None:
        given = FlyConfig(
            task="hover", craft=config.craft, integral=False, out=str(out / "teacher"), seed=config.seed,
            updates=config.teacher_updates, eval_flights=config.eval_flights, eval_s=config.eval_s,
            eager=config.eager,
        )  # fmt: skip
        train_all(given, FlightSetup.of(given), RunDir.create(given.out, given))
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
            "integral=false, for a camera policy carries no sum of errors from step to step."
        )
    return policy, given


def with_craft_of(config: VisionConfig, given: FlyConfig) -> VisionConfig:
    """The student flies what its teacher flew. Raises ConfigError where another craft was asked for."""
    if config.craft not in (VisionConfig.craft, given.craft):
        raise ConfigError(
            f"craft={config.craft} cannot be flown after a teacher of craft {given.craft}. Leave it out, or "
            "leave teacher= out: one is trained for it then."
        )
    return replace(config, craft=given.craft)


def sight_of(config: VisionConfig, teacher: tuple[FlightPolicy, FlyConfig]) -> Sight:
    policy, given = teacher
    task = replace(HoverTask(), start_tilt_rad=config.start_tilt_rad, start_speed_m_s=config.start_speed_m_s)
    if config.eval_s is not None:
        task = replace(task, max_steps=round(config.eval_s / task.dt_s))
    return Sight(
        load_craft(given.craft),
        task,
        policy,
        given.history,
        AirEffects(),
        FloorCamera(config.px),
        config.camera_hz,
    )


def train_students(config: VisionConfig, sight: Sight, run: RunDir) -> tuple[list[FlyRow], dict[str, Trial]]:
    """Every seed from nothing; the first one's policy and flights are kept."""
    rows: list[FlyRow] = []
    trials: dict[str, Trial] = {}
    with (
        progress(_work(config, sight) * config.seeds, "vision", "step") as bar,
        run.metrics(None, bar=bar) as metrics,
    ):
        metrics.shown = ("fit/position_m",)

        def told() -> None:
            bar.update(1)

        for seed in range(config.seed, config.seed + config.seeds):
            policy, note = train(config, sight, seed, metrics.log, told)
            save_policy(run.path / f"seed{seed}", policy, note)
            trial, pictures = measured(config, sight, seeing(policy, told))
            rows.append(
                row("policy", trial, train_cpu_s=note["train_cpu_s"], env_steps=note["env_steps"], seed=seed)
            )
            if not trials:
                save_policy(
                    run.policy, policy, note | {"measured": rows[0].held.to_json(), "pictures": pictures}
                )
                trials["policy"] = trial
    return rows, trials


def _work(config: VisionConfig, sight: Sight) -> int:
    """What the progress bar counts: pictures by the hundred, control steps of flights, updates."""
    eye = config.shots // _SHOTS + config.eye_updates + config.rounds * (config.eye_updates // 4)
    return eye + (config.rounds + 1) * sight.task.max_steps


def train(
    config: VisionConfig, sight: Sight, seed: int, log: Callable[[int, Any], None], told: Callable[[], None]
) -> tuple[VisionPolicy, dict[str, Any]]:
    """Look around; then record, fit, record with more trust, fit on all: DAgger with exact states as
    labels.
    """
    start_s = cpu_seconds()
    torch.manual_seed(derive_seed("vision init", seed))
    policy, rng = sight.student(), generator("vision fit", seed)
    shots = [_look_around(config, sight, seed, told)]
    fit_eye(policy.eye, shots, config.eye_updates, config.lr, rng, told=told)
    for index in range(config.rounds):
        flights = sight.flights(config.flights, derive_seed("vision flights", seed, index))
        flights.record = Record()
        fly(flights.flights, seeing(policy, told, trust=trust(index, config.rounds))(flights))
        flights.close()
        shots.append(_shots(flights.record))
        rms = pose_errors(policy.eye, shots[-1])  # not yet learned from
        fit_eye(policy.eye, shots, config.eye_updates // 4, config.lr / 4, rng, told=told)
        log(
            index + 1,
            {"fit/position_m": rms[:3].norm(), "fit/heading_rad": rms[3:].norm(),
             "fit/held_while_recording": float(flights.flying.mean())},
        )  # fmt: skip
    note = {
        "verb": "vision", "task": config.task, "craft": sight.craft.name, "source": sight.craft.source,
        "env_steps": config.rounds * config.flights * sight.task.max_steps, "seed": seed, "noise": 0.0,
        "pictures": sum(len(item.frames) for item in shots),
        "train_cpu_s": round(cpu_seconds() - start_s, 2), "commit": commit(), "settings": asdict(config),
    }  # fmt: skip
    return policy, note


def _look_around(config: VisionConfig, sight: Sight, seed: int, told: Callable[[], None]) -> Shots:
    """Pictures from poses all over the box."""
    rng = np.random.default_rng(derive_seed("vision shots", seed))
    left = 0

    def shot(num: int) -> None:
        nonlocal left
        left += num
        for _ in range(left // _SHOTS):
            told()
        left %= _SHOTS

    return Shots(*scattered(
        sight.eye, -sight.scene.height_m, config.shots, sight.task.box_m, config.start_tilt_rad, rng, shot
    ))  # fmt: skip


def measured(
    config: VisionConfig, sight: Sight, pilot: Callable[[VisionFlights], Pilot]
) -> tuple[Trial, int]:
    """The shared starts, the same for every pilot; and how many pictures they took."""
    flights = sight.flights(config.eval_flights, derive_seed("vision eval", config.eval_seed))
    trial = fly(flights.flights, pilot(flights))
    flights.close()
    return trial, flights.pictures


def trust(index: int, rounds: int) -> float:
    """How far a round of recording believes the student: not at all in the first, wholly in the last two."""
    return min(1.0, index / max(1, rounds - 2))


def seeing(
    policy: VisionPolicy, told: Callable[[], None] | None = None, trust: float = 1.0
) -> Callable[[VisionFlights], Pilot]:
    """The policy behind its camera. Features of a picture are computed once, when it is taken.

    trust: below 1 the teacher acts on truth + trust * (estimate - truth), so that a student which knows
    little yet errs where it will fly later, not where it falls.
    """

    def of(flights: VisionFlights) -> Pilot:
        features = torch.zeros(0)

        def act(_: Flights) -> Tensor:
            nonlocal features
            flights.look()
            if flights.fresh:
                features = policy.frames(flights.image())
            state = flights.state()
            if told is not None:
                told()
            estimate = policy.estimate(features, state)
            if trust < 1.0:
                estimate = torch.lerp(truth(flights.flights.state), estimate, trust)
            return policy.act(estimate, state).T

        return act

    return of


def _blind(policy: VisionPolicy) -> Callable[[VisionFlights], Pilot]:
    """The same policy with a dark camera: what it reaches by its inertial sensors alone."""

    def of(flights: VisionFlights) -> Pilot:
        dark = torch.zeros(1, flights.view.eye.px, flights.view.eye.px, FRAMES, dtype=torch.uint8)
        features = policy.frames(dark).expand(flights.flights.num, -1)

        def act(_: Flights) -> Tensor:
            flights.look()
            state = flights.state()
            return policy.act(policy.estimate(features, state), state).T

        return act

    return of


def _shots(record: Record) -> Shots:
    return Shots(
        torch.from_numpy(np.concatenate(record.frames)), torch.cat(record.tilt), torch.cat(record.pose)
    )
