"""Training of a student that hovers by camera, from a teacher with access to the exact state (DAgger)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from policies.flight.policy import FlightPolicy
from policies.flight.vision import FRAMES, VisionPolicy
from policies.flight.vision_fit import PoseSamples, fit_pose_estimator, pose_errors
from robo_rl.conf.vision import VisionConfig
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed, generator
from robo_rl.eval.timing import cpu_seconds
from sim.engines.bullet.effects import AirEffects
from sim.engines.bullet.floor_view import FloorCamera
from sim.engines.bullet.scatter import scattered
from sim.engines.own_file import is_own
from sim.engines.quad.craft import Craft
from sim.flight.bullet.vision import APART, Record, VisionFlights, truth, vision_spec
from sim.flight.flights import Flights
from sim.flight.trial import Pilot, fly
from sim.tasks.flight.hover import HoverTask

_SHOTS = 100  # images from random poses per unit of the progress bar


@dataclass(frozen=True)
class VisionSetup:
    """Aircraft, task, teacher and camera of a student."""

    craft: Craft
    task: HoverTask
    teacher: FlightPolicy
    history: int
    scene: AirEffects
    eye: FloorCamera
    camera_hz: float
    env: str  # name of the environment of these flights

    def flights(self, num: int, seed: int) -> VisionFlights:
        return VisionFlights(
            self.craft, self.task, self.history, num, seed, self.scene, self.eye, self.camera_hz
        )  # fmt: skip

    def student(self) -> VisionPolicy:
        period_s = 1.0 / self.camera_hz
        spec = vision_spec(self.task, self.history, self.eye, self.camera_hz, self.env)
        return VisionPolicy(spec, self.teacher, period_s, APART * period_s)


def work(config: VisionConfig, setup: VisionSetup) -> int:
    """Units of the progress bar for one student: images by the hundred, control steps, updates."""
    eye = config.shots // _SHOTS + config.eye_updates + config.rounds * (config.eye_updates // 4)
    return eye + (config.rounds + 1) * setup.task.max_steps


def train(
    config: VisionConfig,
    setup: VisionSetup,
    seed: int,
    log: Callable[[int, Any], None],
    advance: Callable[[], None],
) -> tuple[VisionPolicy, dict[str, Any]]:
    """Train one student by DAgger with exact states as labels; returns it and the note of its training.

    It starts with images from random poses. Each round then records flights with a larger weight of the
    student's estimate, and fits the image encoder to all records. log(round, scalars). advance: called for
    every unit of `work`.
    """
    start_s = cpu_seconds()
    torch.manual_seed(derive_seed("vision init", seed))
    policy, rng = setup.student(), generator("vision fit", seed)
    shots = [random_poses(config, setup, seed, advance)]
    fit_pose_estimator(policy.eye, shots, config.eye_updates, config.lr, rng, on_update=advance)
    for index in range(config.rounds):
        flights = setup.flights(config.flights, derive_seed("vision flights", seed, index))
        flights.record = Record()
        fly(
            flights.flights,
            camera_pilot(policy, advance, weight=estimate_weight(index, config.rounds))(flights),
        )
        flights.close()
        shots.append(recorded(flights.record))
        rms = pose_errors(policy.eye, shots[-1])  # before these images are used for training
        fit_pose_estimator(policy.eye, shots, config.eye_updates // 4, config.lr / 4, rng, on_update=advance)
        log(
            index + 1,
            {"fit/position_m": rms[:3].norm(), "fit/heading_rad": rms[3:].norm(),
             "fit/held_while_recording": float(flights.flying.mean())},
        )  # fmt: skip
    note = {
        "verb": "vision", "task": config.task, "craft": setup.craft.name, "source": setup.craft.source,
        "env_steps": config.rounds * config.flights * setup.task.max_steps, "seed": seed, "noise": 0.0,
        "pictures": sum(len(item.frames) for item in shots),
        "train_cpu_s": round(cpu_seconds() - start_s, 2), "commit": commit(), "settings": asdict(config),
        **({"craft_numbers": setup.craft.numbers} if is_own(config.craft) else {}),
    }  # fmt: skip
    return policy, note


def random_poses(
    config: VisionConfig, setup: VisionSetup, seed: int, advance: Callable[[], None]
) -> PoseSamples:
    """Images from random poses in the box, with the poses as labels."""
    rng = np.random.default_rng(derive_seed("vision shots", seed))
    left = 0

    def shot(num: int) -> None:
        nonlocal left
        left += num
        for _ in range(left // _SHOTS):
            advance()
        left %= _SHOTS

    return PoseSamples(*scattered(
        setup.eye, -setup.scene.height_m, config.shots, setup.task.box_m, config.start_tilt_rad, rng, shot
    ))  # fmt: skip


def recorded(record: Record) -> PoseSamples:
    """Images of recorded flights, with the exact poses as labels."""
    return PoseSamples(
        torch.from_numpy(np.concatenate(record.frames)), torch.cat(record.tilt), torch.cat(record.pose)
    )


def estimate_weight(index: int, rounds: int) -> float:
    """Weight of the student's estimate in a round of recording: 0 in the first, 1 in the last two."""
    return min(1.0, index / max(1, rounds - 2))


def camera_pilot(
    policy: VisionPolicy, advance: Callable[[], None] | None = None, weight: float = 1.0
) -> Callable[[VisionFlights], Pilot]:
    """Pilot that flies the policy by its camera. Features of an image are computed once, when it is taken.

    weight: the teacher acts on truth + weight * (estimate - truth), so that an untrained student is recorded
    near its later flights, not while it falls. advance: called at every decision.
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
            if weight < 1.0:
                estimate = torch.lerp(truth(flights.flights.state), estimate, weight)
            return policy.act(estimate, state).T

        return act

    return of


def dark_camera_pilot(policy: VisionPolicy) -> Callable[[VisionFlights], Pilot]:
    """Pilot of the same policy with a black camera image: the baseline with inertial sensors only."""

    def of(flights: VisionFlights) -> Pilot:
        dark = torch.zeros(1, flights.view.eye.px, flights.view.eye.px, FRAMES, dtype=torch.uint8)
        features = policy.frames(dark).expand(flights.flights.num, -1)

        def act(_: Flights) -> Tensor:
            flights.look()
            state = flights.state()
            return policy.act(policy.estimate(features, state), state).T

        return act

    return of
