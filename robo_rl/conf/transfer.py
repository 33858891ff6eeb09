"""Settings of `robo-rl transfer`."""

from __future__ import annotations

from dataclasses import dataclass

from robo_rl.conf.fields import setting
from robo_rl.core.settings import one_of


@dataclass
class TransferConfig:
    """`robo-rl transfer`: a policy in other physics engines, unchanged, on the same starts."""

    run: str | None = setting(None, "folder of a run of `robo-rl fly`, `train` or `finetune`, or of a policy")
    bundle: str | None = setting(None, "or a bundle that it wrote")
    engine: str = one_of("pybullet", help="that it is flown in, beside the dynamics that it was trained in")
    engines: str | None = setting(None, "arms: as many as you like, by commas: mujoco,pybullet,mjwarp")
    env: str | None = setting(
        None, "arms: another variant of the task, e.g. arm/peg_insert without randomise; none: as trained"
    )
    effects: str = setting("ground,downwash,drag", "what the air does in it, by commas; or none")
    height_m: float = setting(1.0, "of the goal over the floor: with 0.2 a miss can be a crash", at_least=0.0)
    above_m: float | None = setting(
        None, "another craft hovers this far above the goal; none: no other craft"
    )
    rate_hz: float = setting(240.0, "the engine steps at least this often", at_least=60.0)
    aero: str = setting(
        "cf2x_gym", "craft whose coefficients of the effects stand in where the flown craft's data have none"
    )
    out: str = setting("runs/transfer", "results.json, transfer.png, transfer.mp4")
    episodes: int | None = setting(
        None, "starts, the same in every engine; none: 1000 flights, 100 of an arm", at_least=1
    )
    seed: int = setting(1, "which starts", at_least=0)
    randomize: float = setting(
        0.0, "half-width of mass, inertia, thrust, lag and drag, the same in both engines", at_least=0.0
    )
    controllers: list[str] = setting([], "classical ones to fly as well, e.g. [pid,geometric]")
    craft: str | None = setting(None, "none: the one that the policy was trained on")
    speed_m_s: float | None = setting(None, "figure8: largest speed; none: as trained", at_least=0.01)
    eval_s: float | None = setting(None, "length of an episode; none: as trained", at_least=0.1)
    video: bool = setting(True, "film the flights in the other engine; needs no display")
    pretty: bool = setting(
        False, "film the first one by the engine's own renderer as well, with its onboard camera"
    )
    size: list[int] = setting([640, 480], "of that film, in pixels: multiples of 4")

    @property
    def starts(self) -> int:
        """Flights in each engine."""
        return 1000 if self.episodes is None else self.episodes
