"""Settings of `robo-rl vision`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import at_least
from robo_rl.core.settings import one_of


@dataclass
class VisionConfig:
    """`robo-rl vision`: hover by an onboard camera in PyBullet, learned from a policy of `robo-rl fly` that
    is told.
    """

    task: str = one_of("vision_hover")
    teacher: str | None = (
        None  # run of `robo-rl fly task=hover integral=false`; none: trained first, in out/teacher
    )
    craft: str = "cf2x_l2f"  # of a teacher that is trained here
    out: str = "runs/vision"  # everything goes here
    px: int = at_least(16, 48)  # side of the camera's square picture
    camera_hz: float = at_least(1.0, 25.0)  # pictures per second, under control at 100 Hz
    start_tilt_rad: float = at_least(
        0.0, 0.5
    )  # starts are tilted by up to this: beyond, the camera sees no floor
    start_speed_m_s: float = at_least(0.0, 0.5)  # ... and move with up to this along each axis
    shots: int = at_least(
        1, 40_000
    )  # pictures from scattered poses, which teach the eye before anything flies by it
    eye_updates: int = at_least(1, 1600)  # of the eye on them; after each round of flights a quarter of that
    rounds: int = at_least(
        1, 5
    )  # of recording: the teacher flies the first, the student, more and more, the others
    flights: int = at_least(1, 60)  # recorded in each
    lr: float = at_least(0.0, 2e-3)  # learning rate at the start of each fit
    eval_flights: int = at_least(1, 200)  # starts of every row of the table, the same for all
    eval_s: float | None = at_least(0.1, None)  # length of a flight, recorded or measured; none: 5 s
    eval_seed: int = at_least(0, 1)  # which starts
    seed: int = at_least(0, 0)  # of the first training
    seeds: int = at_least(1, 1)  # students, from `seed` on, of one teacher; the first one's policy is kept
    video: bool = True  # film the first one's flight, the camera's picture in the corner; needs no display
    eager: bool = False  # do not compile the simulator that trains the teacher
    teacher_updates: int = at_least(0, 0)  # of the teacher that is trained here; 0: what suits hovering
    overwrite: bool = False  # replace the run in `out`
