"""Settings of `robo-rl vision`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import logger_setting, setting
from robo_rl.core.settings import one_of


@dataclass
class VisionConfig:
    """`robo-rl vision`: hover by an onboard camera in PyBullet, taught by a policy that is given the state."""

    task: str = one_of("vision_hover", help="the task that is trained")
    teacher: str | None = setting(
        None, "run of `robo-rl fly task=hover integral=false`; none: trained first, in out/teacher"
    )
    craft: str = setting("cf2x_l2f", "of a teacher that is trained here")
    out: str = setting("runs/vision", "everything goes here")
    px: int = setting(48, "side of the camera's square picture", at_least=16)
    camera_hz: float = setting(25.0, "pictures per second, under control at 100 Hz", at_least=1.0)
    start_tilt_rad: float = setting(
        0.5, "starts are tilted by up to this: beyond, the camera sees no floor", at_least=0.0
    )
    start_speed_m_s: float = setting(0.5, "... and move with up to this along each axis", at_least=0.0)
    shots: int = setting(
        40_000, "pictures from scattered poses, which teach the eye before anything flies by it", at_least=1
    )
    eye_updates: int = setting(
        1600, "of the eye on them; after each round of flights a quarter of that", at_least=1
    )
    rounds: int = setting(
        5, "of recording: the teacher flies the first, the student, more and more, the others", at_least=1
    )
    flights: int = setting(60, "recorded in each", at_least=1)
    lr: float = setting(2e-3, "learning rate at the start of each fit", at_least=0.0)
    eval_episodes: int = setting(200, "starts of every row of the table, the same for all", at_least=1)
    eval_s: float | None = setting(None, "length of a flight, recorded or measured; none: 5 s", at_least=0.1)
    eval_seed: int = setting(1, "which starts", at_least=0)
    seed: int = setting(0, "of the first training", at_least=0)
    seeds: int = setting(
        1, "students, from `seed` on, of one teacher; the first one's policy is kept", at_least=1
    )
    video: bool = setting(
        True, "film the first one's flight, the camera's picture in the corner; needs no display"
    )
    eager: bool = setting(False, "do not compile the simulator that trains the teacher")
    teacher_updates: int = setting(
        0, "of the teacher that is trained here; 0: the default of task=hover", at_least=0
    )
    logger: str = logger_setting()
    overwrite: bool = setting(False, "replace the run in `out`")
