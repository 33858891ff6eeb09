"""One vision-language-action network for two robots, beside one network for each.

    python benchmarks/vla_embodiments.py --folder runs/embodiments
    python benchmarks/vla_embodiments.py --folder runs/embodiments-drone --drone

An arm of MetaWorld (4 actions at 80 Hz, two cameras; a faucet to open or close) and an arm with three joints
(3 actions at 20 Hz, one camera, and the goal in its state; `arm/reach`). `--drone`: the arm of MetaWorld and
a quadcopter (4 velocities at 20 Hz, one camera, three balls; `drone/seek`), with policy.film=true and
policy.spatial=1.0 as in vla_drone.py. The joint training takes a number of windows per update, a training of
one robot as many as it has in such a batch, so that each window is seen equally often. All policies act from
zero noise, on the same episodes, which are not used in training. Names:
vla/embodiments/<robot>/joint_success and .../alone_success, with k, n and the 95 % Wilson interval; of the
pair with the quadcopter vla/embodiments/with_drone/<robot>/...
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

from common import emit, into_log, own_folder, parser, verb

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
    {"metaworld": METAWORLD, "drone": "drone/seek"}, {"metaworld": 100, "drone": 500}, steps=2000,
    batch_size=64, recipe=("policy.film=true", "policy.spatial=1.0"), prefix="with_drone/", noise=0.15,
)  # fmt: skip
RECIPE = ("policy=vla", "chunk=16", "execute=8", "lr=1e-3", "ema_max=0.99", "threads=1")
FINAL_SEED = 1  # episodes of the table


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--drone", action="store_true", help="an arm and a quadcopter instead of two arms")
    options.add_argument("--episodes", type=int, default=60, help="evaluation episodes of each robot")
    options.add_argument("--folder", type=Path, default=Path("runs/embodiments"), help="folder of the runs")
    args = options.parse_args()
    pair, episodes, more = WITH_DRONE if args.drone else ARMS, args.episodes, list[str]()
    if args.quick:
        pair, episodes = replace(pair, demos=dict.fromkeys(pair.demos, 2), steps=2, batch_size=4), 4
        more = ["max_episode_steps=10"]
    folder = own_folder(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = {name: folder / "data" / name for name in pair.envs}
    with into_log(folder / "log.txt"):
        for name, env in pair.envs.items():
            if not data[name].exists():
                words = [f"env={env}", f"out={data[name]}", f"episodes={pair.demos[name]}"]
                verb("collect", *words, f"noise={pair.noise:g}")
    every, shares = f"[{','.join(map(str, data.values()))}]", rows(data, pair.batch_size)
    runs = {
        "joint": (every, pair.batch_size),
        **{name: (str(data[name]), shares[name]) for name in pair.envs},
    }
    with into_log(folder / "log.txt"):
        for name, (given, batch) in runs.items():
            if not (folder / name / "policy").exists():
                again = "resume=true" if (folder / name).exists() else "overwrite=true"
                words = [
                    f"data={given}",
                    f"out={folder / name}",
                    f"steps={pair.steps}",
                    f"batch_size={batch}",
                ]
                verb("train", *words, *RECIPE, *pair.recipe, again)
    first, *others = pair.envs
    joint = {first: folder / "joint", **{name: folder / "joint" / "policies" / name for name in others}}
    for name, env in pair.envs.items():
        for kind, policy in (("joint", joint[name]), ("alone", folder / name)):
            result = folder / f"{name}-{kind}.json"
            if not result.exists():
                words = [f"policy={policy}", f"env={env}", f"episodes={episodes}", f"out={result}", *more]
                with into_log(folder / "log.txt"):
                    verb("evaluate", *words, f"seed={FINAL_SEED}", "noise=0", "num_envs=10")
            rate = json.loads(result.read_text())["policy"]["rate"]
            spent = {"updates": pair.steps, "rows": shares[name], "demonstrations": pair.demos[name]}
            counts = {"k": rate["k"], "n": rate["n"], "wilson95": rate["wilson95"]}
            name_of_line = f"vla/embodiments/{pair.prefix}{name}/{kind}_success"
            emit(name_of_line, rate["success"], "fraction", **counts, **spent)


def rows(data: Mapping[str, Path], batch_size: int) -> dict[str, int]:
    """Windows of each robot in a batch of the joint training, by the number of its frames."""
    frames = {name: sum(episode.frames for episode in EpisodeStore(path)) for name, path in data.items()}
    return {name: max(1, round(batch_size * count / sum(frames.values()))) for name, count in frames.items()}


if __name__ == "__main__":
    main()
