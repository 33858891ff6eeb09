"""Settings of `robo-rl transfer`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting
from robo_rl.core.settings import one_of


@dataclass
class TransferConfig:
    """`robo-rl transfer`: a policy in other physics engines, unchanged, on the same starts."""

    run: str | None = setting(None, "folder of a run of `robo-rl fly`, `train` or `finetune`, or of a policy")
    bundle: str | None = setting(None, "a bundle, instead of `run`")
    engine: str = one_of("pybullet", help="engine to fly in, compared with the training dynamics")
    engines: str | None = setting(
        None, "arms: engines to compare, separated by commas: mujoco,pybullet,mjwarp"
    )
    env: str | None = setting(
        None, "arms: another variant of the task, e.g. arm/peg_insert without randomise; none: as trained"
    )
    effects: str = setting(
        "ground,downwash,drag", "aerodynamic effects in the engine, separated by commas; or none"
    )
    height_m: float = setting(
        1.0, "height of the goal over the floor [m]; at 0.2 a miss can be a crash", at_least=0.0
    )
    above_m: float | None = setting(
        None, "height of another hovering craft above the goal [m]; none: no other craft"
    )
    rate_hz: float = setting(240.0, "least rate of the engine's steps [Hz]", at_least=60.0)
    aero: str = setting(
        "cf2x_gym", "craft whose aerodynamic coefficients replace missing ones of the flown craft"
    )
    out: str = setting("runs/transfer", "folder of results.json, transfer.png, transfer.mp4")
    episodes: int | None = setting(
        None,
        "measured episodes, the same starts in every engine; none: 1000 flights, 100 for arms",
        at_least=1,
    )
    seed: int = setting(1, "seed of the starts", at_least=0)
    randomize: float = setting(
        0.0, "randomisation of mass, inertia, thrust, lag and drag in both engines: half-width", at_least=0.0
    )
    controllers: list[str] = setting([], "classical controllers to fly as well, e.g. [pid,geometric]")
    craft: str | None = setting(None, "craft to fly; none: that of the training")
    speed_m_s: float | None = setting(None, "figure8: largest speed [m/s]; none: as trained", at_least=0.01)
    eval_s: float | None = setting(None, "length of an episode [s]; none: as trained", at_least=0.1)
    video: bool = setting(True, "record a video of the flights in the other engine; needs no display")
    pretty: bool = setting(
        False, "also record the first flight with the engine's renderer and an onboard camera"
    )
    size: list[int] = setting([640, 480], "width and height of that video [px], multiples of 4")

    @property
    def starts(self) -> int:
        """Flights in each engine."""
        return 1000 if self.episodes is None else self.episodes
