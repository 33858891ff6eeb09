"""One vision-language-action network for two robots, beside one network for each.

    python benchmarks/vla_embodiments.py --folder runs/embodiments
    python benchmarks/vla_embodiments.py --folder runs/embodiments-drone --drone

An arm of MetaWorld (4 actions at 80 Hz, two cameras; a faucet to open or close) and an arm with three joints
(3 actions at 20 Hz, one camera, and the goal in its state; `arm/reach`). `--drone`: the arm of MetaWorld and
a quadcopter (4 velocities at 20 Hz, one camera, three balls; `drone/seek`, 40 % of the episodes from another
ball), with policy.film=true and policy.spatial=1.0 as in vla_drone.py. The joint training takes a number of
windows per update, a training of one robot as many as it has in such a batch, so that each window is seen
equally often; --joint-only leaves the networks of one robot out. Seeds of the trainings share the
demonstrations. All policies act from zero noise, on the same episodes, which are not used in training. Names:
vla/embodiments/<robot>/joint_success and .../alone_success, with k, n and the 95 % Wilson interval over all
seeds, and the success of each seed; of the pair with the quadcopter vla/embodiments/with_drone/<robot>/...
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import into_log, own_folder, parser, verb
from kept_runs import measured, outcomes, report, trained

from robo_rl.data.store import EpisodeStore


@dataclass(frozen=True)
class Pair:
    """Two robots that share a network. Robots are named by their datasets."""

    envs: Mapping[str, str]
    demos: Mapping[str, int]
    steps: int  # updates of each training
    batch_size: int  # windows per update of the joint training
    recipe: tuple[str, ...] = ()
    prefix: str = ""  # of the names of results
    noise: float = 0.2  # of the scripted experts


METAWORLD = "metaworld/faucet-open-v3+faucet-close-v3"
ARMS = Pair(
    {"metaworld": METAWORLD, "arm": "arm/reach:cameras=view,image_size=64,instruction=reach the goal"},
    {"metaworld": 30, "arm": 30}, steps=2000, batch_size=24,
)  # fmt: skip
WITH_DRONE = Pair(
    {"metaworld": METAWORLD, "drone": "drone/seek:from_ball=0.4"}, {"metaworld": 100, "drone": 600},
    steps=4500, batch_size=64, recipe=("policy.film=true", "policy.spatial=1.0"), prefix="with_drone/",
    noise=0.15,
)  # fmt: skip
RECIPE = ("policy=vla", "chunk=16", "execute=8", "lr=1e-3", "ema_max=0.99", "threads=1")


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--drone", action="store_true", help="an arm and a quadcopter instead of two arms")
    options.add_argument("--episodes", type=int, default=60, help="evaluation episodes of each policy")
    options.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the trainings")
    options.add_argument("--joint-only", action="store_true", help="no network for each robot alone")
    options.add_argument("--folder", type=Path, default=Path("runs/embodiments"), help="folder of the runs")
    args = options.parse_args()
    pair, episodes, more = WITH_DRONE if args.drone else ARMS, args.episodes, list[str]()
    if args.quick:
        pair, episodes = replace(pair, demos=dict.fromkeys(pair.demos, 2), steps=2, batch_size=4), 4
        args.seeds, more = args.seeds[:1], ["max_episode_steps=10"]
    folder = own_folder(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = {name: folder / "data" / name for name in pair.envs}
    with into_log(folder / "log.txt"):
        for name, env in pair.envs.items():
            words = [f"env={env}", f"out={data[name]}", f"episodes={pair.demos[name]}"]
            verb("collect", *words, f"noise={pair.noise:g}")
    for seed in args.seeds:
        train(pair, data, folder / f"seed{seed}", seed, joint_only=args.joint_only)
    shares = rows(data, pair.batch_size)
    for name, env in pair.envs.items():
        spent = {"updates": pair.steps, "rows": shares[name], "demonstrations": pair.demos[name]}
        for kind in ("joint",) if args.joint_only else ("joint", "alone"):
            of_seeds = [
                successes(folder / f"seed{seed}", pair, name, kind, env, episodes, more)
                for seed in args.seeds
            ]
            report(f"vla/embodiments/{pair.prefix}{name}/{kind}_success", of_seeds, spent)


def train(pair: Pair, data: Mapping[str, Path], folder: Path, seed: int, *, joint_only: bool) -> None:
    """The joint network of this seed, and one for each robot; finished trainings are kept."""
    shares = rows(data, pair.batch_size)
    runs = {"joint": (f"[{','.join(map(str, data.values()))}]", pair.batch_size)}
    if not joint_only:
        runs |= {name: (str(path), shares[name]) for name, path in data.items()}
    for name, (given, batch) in runs.items():
        words = [f"data={given}", f"steps={pair.steps}", f"batch_size={batch}", f"seed={seed}"]
        trained(folder / name, folder.parent / "log.txt", *words, *RECIPE, *pair.recipe)


def successes(
    folder: Path, pair: Pair, robot: str, kind: str, env: str, episodes: int, more: list[str]
) -> list[bool]:
    """Successes of the policy that one seed has for this robot."""
    first = next(iter(pair.envs))
    joint = folder / "joint" if robot == first else folder / "joint" / "policies" / robot
    policy, log = joint if kind == "joint" else folder / robot, folder.parent / "log.txt"
    words = (f"env={env}", "num_envs=10", *more)
    return outcomes(measured(policy, folder / f"{robot}-{kind}", log, episodes, *words))


def rows(data: Mapping[str, Path], batch_size: int) -> dict[str, int]:
    """Windows of each robot in a batch of the joint training, by the number of its frames."""
    frames = {name: sum(episode.frames for episode in EpisodeStore(path)) for name, path in data.items()}
    return {name: max(1, round(batch_size * count / sum(frames.values()))) for name, count in frames.items()}


if __name__ == "__main__":
    main()
