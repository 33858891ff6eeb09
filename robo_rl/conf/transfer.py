"""Settings of `robo-rl transfer`."""

from __future__ import annotations

from dataclasses import dataclass, field

from robo_rl.conf.fields import at_least
from robo_rl.core.settings import one_of


@dataclass
class TransferConfig:
    """`robo-rl transfer`: a policy in other physics engines, unchanged, on the same starts."""

    run: str | None = None  # folder of a run of `robo-rl fly`, `train` or `finetune`, or of a policy
    bundle: str | None = None  # or a bundle that it wrote
    engine: str = one_of("pybullet")  # that it is flown in, beside the dynamics that it was trained in
    engines: str | None = None  # arms: as many as you like, by commas: mujoco,pybullet,mjwarp
    env: str | None = (
        None  # arms: another variant of the task, e.g. arm/peg_insert without randomise; none: as trained
    )
    effects: str = "ground,downwash,drag"  # what the air does in it, by commas; or none
    height_m: float = at_least(0.0, 1.0)  # of the goal over the floor: with 0.2 a miss can be a crash
    above_m: float | None = None  # another craft hovers this far above the goal; none: no other craft
    rate_hz: float = at_least(60.0, 240.0)  # the engine steps at least this often
    aero: str = (
        "cf2x_gym"  # craft whose coefficients of the effects stand in where the flown craft's data have none
    )
    out: str = "runs/transfer"  # results.json, transfer.png, transfer.mp4
    episodes: int | None = at_least(
        1, None
    )  # starts, the same in every engine; none: 1000 flights, 100 of an arm
    seed: int = at_least(0, 1)  # which starts
    randomize: float = at_least(
        0.0, 0.0
    )  # half-width of mass, inertia, thrust, lag and drag, the same in both engines
    controllers: list[str] = field(
        default_factory=list
    )  # classical ones to fly as well, e.g. [pid,geometric]
    craft: str | None = None  # none: the one that the policy was trained on
    speed_m_s: float | None = at_least(0.01, None)  # figure8: largest speed; none: as trained
    eval_s: float | None = at_least(0.1, None)  # length of an episode; none: as trained
    video: bool = True  # film the flights in the other engine; needs no display
    pretty: bool = False  # film the first one by the engine's own renderer as well, with its onboard camera
    size: list[int] = field(default_factory=lambda: [640, 480])  # of that film, in pixels: multiples of 4

    @property
    def starts(self) -> int:
        """Flights in each engine."""
        return 1000 if self.episodes is None else self.episodes
