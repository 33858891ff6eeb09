"""Training of a student that hovers by its camera, from a teacher that is given the exact state (DAgger)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.flight.policy import FlightPolicy
from policies.flight.vision import FRAMES, VisionPolicy
from policies.flight.vision_fit import Shots, fit_eye, pose_errors
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.eval.timing import cpu_seconds
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera
from sim.engines.bullet.scatter import scattered
from sim.engines.quad.craft import Craft
from sim.flight.bullet.vision import APART, Record, VisionFlights, truth, vision_spec
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, fly
from sim.tasks.flight.hover import HoverTask

_SHOTS = 100  # pictures from scattered poses that count as one unit of the progress bar


@dataclass(frozen=True)
class Sight:
    """Craft, task, teacher and camera of a student."""

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


def work(config: VisionConfig, sight: Sight) -> int:
    """Units of the progress bar for one student: pictures by the hundred, control steps, updates."""
    eye = config.shots // _SHOTS + config.eye_updates + config.rounds * (config.eye_updates // 4)
    return eye + (config.rounds + 1) * sight.task.max_steps


def train(
    config: VisionConfig,
    sight: Sight,
    seed: int,
    log: Callable[[int, Any], None],
    advance: Callable[[], None],
) -> tuple[VisionPolicy, dict[str, Any]]:
    """Train one student by DAgger with exact states as labels; returns it and the note of its training.

    First pictures from scattered poses, then rounds of: record flights with more trust in the student, fit
    the eye to everything recorded. log(round, scalars). advance: called for every unit of `work`.
    """
    start_s = cpu_seconds()
    torch.manual_seed(derive_seed("vision init", seed))
    policy, rng = sight.student(), generator("vision fit", seed)
    shots = [look_around(config, sight, seed, advance)]
    fit_eye(policy.eye, shots, config.eye_updates, config.lr, rng, told=advance)
    for index in range(config.rounds):
        flights = sight.flights(config.flights, derive_seed("vision flights", seed, index))
        flights.record = Record()
        fly(flights.flights, seeing(policy, advance, trust=trust(index, config.rounds))(flights))
        flights.close()
        shots.append(recorded(flights.record))
        rms = pose_errors(policy.eye, shots[-1])  # before it is used for training
        fit_eye(policy.eye, shots, config.eye_updates // 4, config.lr / 4, rng, told=advance)
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


def look_around(config: VisionConfig, sight: Sight, seed: int, advance: Callable[[], None]) -> Shots:
    """Pictures from poses all over the box, with the poses as labels."""
    rng = np.random.default_rng(derive_seed("vision shots", seed))
    left = 0

    def shot(num: int) -> None:
        nonlocal left
        left += num
        for _ in range(left // _SHOTS):
            advance()
        left %= _SHOTS

    return Shots(*scattered(
        sight.eye, -sight.scene.height_m, config.shots, sight.task.box_m, config.start_tilt_rad, rng, shot
    ))  # fmt: skip


def recorded(record: Record) -> Shots:
    """Pictures of recorded flights, with the exact poses as labels."""
    return Shots(
        torch.from_numpy(np.concatenate(record.frames)), torch.cat(record.tilt), torch.cat(record.pose)
    )


def trust(index: int, rounds: int) -> float:
    """Weight of the student's estimate in a round of recording: 0 in the first, 1 in the last two."""
    return min(1.0, index / max(1, rounds - 2))


def seeing(
    policy: VisionPolicy, advance: Callable[[], None] | None = None, trust: float = 1.0
) -> Callable[[VisionFlights], Pilot]:
    """Pilot that flies the policy by its camera. Features of a picture are computed once, when it is taken.

    trust: below 1 the teacher acts on truth + trust * (estimate - truth), so that an untrained student is
    recorded near its later flights, not while it falls. advance: called at every decision.
    """

    def of(flights: VisionFlights) -> Pilot:
        features = torch.zeros(0)

        def act(_: Flights) -> Tensor:
            nonlocal features
            flights.look()
            if flights.fresh:
                features = policy.frames(flights.image())
            state = flights.state()
            if advance is not None:
                advance()
            estimate = policy.estimate(features, state)
            if trust < 1.0:
                estimate = torch.lerp(truth(flights.flights.state), estimate, trust)
            return policy.act(estimate, state).T

        return act

    return of


def blind(policy: VisionPolicy) -> Callable[[VisionFlights], Pilot]:
    """Pilot of the same policy with a dark camera: the baseline with inertial sensors only."""

    def of(flights: VisionFlights) -> Pilot:
        dark = torch.zeros(1, flights.view.eye.px, flights.view.eye.px, FRAMES, dtype=torch.uint8)
        features = policy.frames(dark).expand(flights.flights.num, -1)

        def act(_: Flights) -> Tensor:
            flights.look()
            state = flights.state()
            return policy.act(policy.estimate(features, state), state).T

        return act

    return of
