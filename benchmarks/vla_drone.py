"""A vision-language-action policy on a quadcopter: fly to the ball whose colour it is told.

    python benchmarks/vla_drone.py --folder runs/drone
    python benchmarks/vla_drone.py --folder runs/drone --plain
    python benchmarks/vla_drone.py --folder runs/drone --robot

Demonstrations of `drone/seek`, of which --from-ball start at another ball than the told one; --trainings in
turn for each of --seeds, each from the policy of the one before (init=), with policy.film=true
(`--plain`: without it), zero noise. All evaluations are of episodes that are not used in training, the same
for every seed, as many for each colour. Names: vla/drone/<film or plain>/success, .../success/<colour>,
.../new_wording_success (wordings that no demonstration has), .../other_instruction_success (told another
colour than the one that the environment scores), .../from_ball_success (all episodes start at another
ball), .../two_minutes_success (stays at its ball for two minutes instead of three seconds). k, n and the 95
% Wilson interval are over all seeds; `seeds` is the success of each. `--robot` measures the exported
bundles of finished trainings through the nodes of a robot instead (camera, inference process, velocity
loop, flight filter, an autopilot's rate loop), in real time, in episodes with starts like those of the
demonstrations: vla/drone/film/robot_success.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import into_log, own_folder, parser, verb
from kept_runs import FINAL_SEED, measured, outcomes, report, trained

from sim.flight.seek.words import COLOURS

ENV = "drone/seek"
COMMON = ("policy=vla", "ema_max=0.99", "threads=1")
RECIPE = (*COMMON, "policy.spatial=1.0", "chunk=16", "execute=8")
LANES = "num_envs=20"  # of the evaluations


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--demos", type=int, default=600, help="demonstrations")
    options.add_argument("--from-ball", type=float, default=0.4, help="share of them from another ball")
    options.add_argument("--steps", type=int, default=1500, help="updates of each training")
    options.add_argument("--trainings", type=int, default=3, help="in turn, each from the policy before")
    options.add_argument("--batch-size", type=int, default=64, help="windows per update")
    options.add_argument("--episodes", type=int, default=80, help="episodes of each evaluation")
    options.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="of the trainings")
    options.add_argument("--plain", action="store_true", help="without policy.film")
    options.add_argument("--robot", action="store_true", help="through the nodes of a robot, in real time")
    options.add_argument("--folder", type=Path, default=Path("runs/drone"), help="folder of the runs")
    args = options.parse_args()
    demos, steps, size, episodes = args.demos, args.steps, args.batch_size, args.episodes
    more: list[str] = []
    if args.quick:
        demos, steps, size, episodes, more = 4, 2, 4, 4, ["max_episode_steps=10"]
        args.seeds = args.seeds[:1]
    folder = own_folder(args.folder) / name_of_runs(demos, args.from_ball, steps, size)
    folder.mkdir(parents=True, exist_ok=True)
    data, kind = folder / "data", "plain" if args.plain else "film"
    runs = [folder / f"{kind}_seed{seed}_{args.trainings}" for seed in args.seeds]
    film = f"policy.film={str(not args.plain).lower()}"
    with into_log(log := folder / "log.txt"):
        given = [f"env={ENV}:from_ball={args.from_ball}", f"out={data}", f"episodes={demos}", "noise=0.15"]
        verb("collect", *given, "num_envs=64")
    for seed in args.seeds:
        given = [f"data={data}", f"steps={steps}", f"batch_size={size}", f"seed={seed}"]
        before: Path | None = None
        for number in range(1, args.trainings + 1):
            out = folder / f"{kind}_seed{seed}_{number}"
            if before is None:
                trained(out, log, *given, *RECIPE, film, "lr=1e-3")
            else:
                trained(out, log, *given, *COMMON, f"init={before}", "lr=7e-4")
            before = out
    spent = {
        "trainings": args.trainings, "updates": steps, "rows": size, "demonstrations": demos,
        "from_ball": args.from_ball,
    }  # fmt: skip
    if args.robot:
        report(f"vla/drone/{kind}/robot_success", [flown(run, episodes) for run in runs], spent)
        return

    def evaluated(run: Path, name: str, *words: str, env: str = ENV, count: int = episodes) -> dict[str, Any]:
        return measured(run, run / name, log, count, f"env={env}", LANES, *more, *words)

    own = [evaluated(run, "own") for run in runs]
    report(f"vla/drone/{kind}/success", [outcomes(each) for each in own], spent)
    for number, colour in enumerate(COLOURS):
        found = [outcomes(each, ENV, number) for each in own]
        report(f"vla/drone/{kind}/success/{colour}", found, spent)
    on = [outcomes(evaluated(run, "from-ball", env=f"{ENV}:from_ball=1")) for run in runs]
    report(f"vla/drone/{kind}/from_ball_success", on, spent)
    some = max(len(COLOURS), episodes // 4)
    long_env = f"{ENV}:hold_s={0.25 if args.quick else 120}"
    long = [outcomes(evaluated(run, "two-minutes", env=long_env, count=some)) for run in runs]
    report(f"vla/drone/{kind}/two_minutes_success", long, spent)
    new = [outcomes(evaluated(run, "new", "wordings=new")) for run in runs]
    report(f"vla/drone/{kind}/new_wording_success", new, spent)
    others = [told_another(run, log, max(1, episodes // len(COLOURS)), more) for run in runs]
    report(f"vla/drone/{kind}/other_instruction_success", others, spent)


def name_of_runs(demos: int, from_ball: float, steps: int, batch_size: int) -> str:
    """Folder name of the runs with these settings."""
    return f"{demos}_demos_{from_ball:g}_from_ball_{steps}_updates_of_{batch_size}"


def told_another(run: Path, log: Path, episodes: int, more: list[str]) -> list[bool]:
    """Successes in `episodes` of each colour, told the next one and scored by its own."""
    found: list[bool] = []
    names = list(COLOURS)
    for colour, other in zip(names, (*names[1:], names[0]), strict=True):
        words = [f"env={ENV}", LANES, *more, f"tasks=[{colour}]", f"instruction=fly to the {other} ball"]
        found += outcomes(measured(run, run / f"other-{colour}", log, episodes, *words))
    return found


def flown(run: Path, episodes: int) -> list[bool]:
    """Successes of the bundle in real time, kept with their number in the file's name."""
    bundle, result = run / "bundle", run / f"robot_{episodes}.json"
    with into_log(run.parent / "log.txt"):
        if not bundle.exists():
            verb("export", f"policy={run}", f"out={bundle}", "noise=zero")
        if not result.exists():
            given = (f"bundle={bundle}", "robot=sim_quad", f"episodes={episodes}", f"seed={FINAL_SEED}")
            verb("run", *given, f"out={result}")
    found: list[bool] = json.loads(result.read_text())["success"]
    if len(found) != episodes:
        raise SystemExit(
            f"{result} has {len(found)} episodes, expected {episodes}: delete it and begin anew."
        )
    return found


if __name__ == "__main__":
    main()
