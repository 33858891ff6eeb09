"""Settings of `robo-rl vision`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import logger_setting, setting
from robo_rl.core.settings import one_of


@dataclass
class VisionConfig:
    """`robo-rl vision`: hover by an onboard camera in PyBullet, taught by a policy with the true state."""

    task: str = one_of("vision_hover", help="task to train")
    teacher: str | None = setting(
        None, "run of `robo-rl fly task=hover integral=false`; none: train one first in out/teacher"
    )
    craft: str = setting("cf2x_l2f", "craft of a teacher that is trained here")
    out: str = setting("runs/vision", "folder of the run: policy, table, video")
    px: int = setting(48, "height and width of the camera image [px]", at_least=16)
    camera_hz: float = setting(25.0, "rate of the camera [Hz]; control runs at 100 Hz", at_least=1.0)
    start_tilt_rad: float = setting(
        0.5, "largest tilt of a start [rad]; beyond it the camera does not see the floor", at_least=0.0
    )
    start_speed_m_s: float = setting(0.5, "largest velocity of a start per axis [m/s]", at_least=0.0)
    shots: int = setting(40_000, "images from random poses to pre-train the image encoder", at_least=1)
    eye_updates: int = setting(
        1600, "encoder updates on these images; a quarter of them after each round of flights", at_least=1
    )
    rounds: int = setting(
        5,
        "rounds of recording (DAgger): the teacher flies the first, then more and more the student",
        at_least=1,
    )
    flights: int = setting(60, "flights recorded in each round", at_least=1)
    lr: float = setting(2e-3, "learning rate at the start of each fit", at_least=0.0)
    eval_episodes: int = setting(
        200, "measured flights per row of the table, from the same starts", at_least=1
    )
    eval_s: float | None = setting(None, "length of a recorded or measured flight [s]; none: 5", at_least=0.1)
    eval_seed: int = setting(1, "seed of the measured starts", at_least=0)
    seed: int = setting(0, "seed of the first training", at_least=0)
    seeds: int = setting(
        1,
        "number of students of one teacher, with seeds from `seed` on; the first policy is kept",
        at_least=1,
    )
    video: bool = setting(True, "record a video of the first student with its camera image; needs no display")
    eager: bool = setting(False, "do not compile the simulator that trains the teacher")
    teacher_updates: int = setting(
        0, "updates of a teacher that is trained here; 0: the default of task=hover", at_least=0
    )
    logger: str = logger_setting()
    resume: bool = setting(
        False, "continue the run in `out`: an unfinished teacher is trained on, and students start again"
    )
    overwrite: bool = setting(False, "replace the run in `out`")
