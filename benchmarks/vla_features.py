"""What critics of a VLA can know: the object's place, read from the policy's pooled features.

    python benchmarks/vla_features.py --policy runs/vla/vla_mt6

A network like a critic learns the object's place from the policy's features in states that random actions
lead to, and is tested in episodes with other places. `vla/features/<kind>/object_error_cm` is its mean error:
from the mean of the prefix's outputs (`mean`), the key points of the pictures (`points`), or both (`pooled`),
each with the robot's state. `vla/features/none/object_error_cm` is that of a guess from the task.
"""

from __future__ import annotations

import math
import os
from contextlib import closing
from itertools import count
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from common import emit, parser
from torch import Tensor, nn

from policies.checkpoint import load_policy
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from policies.vocabulary import vocabulary_of
from robo_rl.core.protocols import VecEnv
from robo_rl.core.shapes import Bool, Float, Int
from robo_rl.core.spec import EnvSpec
from robo_rl.data.normalizer import Normalizer
from sim.adapters.metaworld_instructions import WORDINGS
from sim.registry import make_env, task_in

SUITE, TRUE_STATE, OBJECT = "metaworld/mt6", "privileged.state", slice(4, 7)
LANES, STEPS_BETWEEN = 6, 3  # lanes of the suite; steps between two samples of an episode
SAMPLES = 4  # of an episode
TEST_SHARE = 5  # every fifth round of episodes is for the test
WIDTH, BATCH = 256, 128  # of the network that reads a place


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--policy", type=Path, help="run of benchmarks/vla.py; none: random weights")
    options.add_argument("--rounds", type=int, default=100, help="episodes of each task")
    options.add_argument("--updates", type=int, default=3000, help="updates of a network that reads a place")
    args = options.parse_args()
    if args.quick:
        args.rounds, args.updates = 5, 100
    with closing(make_env(SUITE, LANES, 0)) as env:
        policy = policy_of(args.policy, env.spec)
        pooled, place, task, tested = samples(policy, env, args.rounds)
    width, state = policy.shape.width, math.prod(env.spec.obs["state"].shape)
    columns = {
        "mean": [slice(0, width), slice(-state, None)],
        "points": [slice(width, None)],
        "pooled": [slice(None)],
    }
    said = {"rounds": args.rounds, "updates": args.updates, "trained": args.policy is not None}
    emit("vla/features/none/object_error_cm", 100.0 * spread(place, task, tested), "cm", **said)
    for kind, parts in columns.items():
        seen = torch.cat([pooled[:, part] for part in parts], dim=1)
        error_m = read_error(seen, place, tested, args.updates)
        emit(f"vla/features/{kind}/object_error_cm", 100.0 * error_m, "cm", columns=seen.shape[1], **said)


def policy_of(run: Path | None, env: EnvSpec) -> VlaPolicy:
    """Policy of a run, or one with random weights."""
    if run is not None:
        policy = load_policy(run / "policy")
        assert isinstance(policy, VlaPolicy)
        return policy
    spec, words = env.for_policies(), vocabulary_of(text for each in WORDINGS.values() for text in each)
    normalizer = Normalizer({"state": spec.obs["state"].shape}, clip=float("inf"))
    torch.manual_seed(0)
    return VlaPolicy(spec, normalizer, VlaConfig(), 16, 8, words).eval()


@torch.no_grad()
def samples(
    policy: VlaPolicy, env: VecEnv, rounds: int
) -> tuple[Float[Tensor, "n f"], Float[Tensor, "n 3"], Int[Tensor, " n"], Bool[Tensor, " n"]]:
    """(pooled features, place of the object [m], task, True for the test) of states after random actions."""
    rng = np.random.default_rng(0)
    kept: list[tuple[Tensor, Tensor]] = []
    for i in range(rounds):
        obs = env.reset(count(LANES * i))
        for _ in range(SAMPLES):
            seen = {key: obs[key].unsqueeze(1) for key in policy.obs_spec}
            kept.append((policy.features(seen), obs[TRUE_STATE][:, OBJECT].clone()))
            for _ in range(STEPS_BETWEEN):
                env.step_async(torch.from_numpy(rng.uniform(-1, 1, (LANES, env.spec.action.dim))).float())
                obs = env.step_wait()[0]
    seeds = torch.arange(LANES * rounds).view(rounds, 1, LANES).expand(-1, SAMPLES, -1).flatten()
    task = torch.tensor([task_in(SUITE, int(seed)) for seed in seeds])
    features, place = (torch.cat(column) for column in zip(*kept, strict=True))
    return features, place, task, seeds // LANES % TEST_SHARE == 0


def spread(place: Float[Tensor, "n 3"], task: Int[Tensor, " n"], tested: Bool[Tensor, " n"]) -> float:
    """Mean distance [m] of the tested places from the mean place of their task."""
    means = torch.stack([place[~tested & (task == each)].mean(0) for each in range(int(task.max()) + 1)])
    return float((place - means[task])[tested].norm(dim=1).mean())


def read_error(
    seen: Float[Tensor, "n f"], place: Float[Tensor, "n 3"], tested: Bool[Tensor, " n"], updates: int
) -> float:
    """Mean error [m] of a network that learns the place from these features, in the tested samples."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Linear(seen.shape[1], WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()),
        *(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3)),
    )
    known = ~tested
    x = (seen - seen[known].mean(0)) / (seen[known].std(0) + 1e-3)
    middle, scale = place[known].mean(0), place[known].std(0)
    y, rows = (place - middle) / scale, known.nonzero()[:, 0]
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=1e-2)
    for _ in range(updates):
        drawn = rows[torch.randint(len(rows), (BATCH,))]
        loss = nn.functional.mse_loss(net(x[drawn]), y[drawn])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return float((net(x[tested]) * scale + middle - place[tested]).norm(dim=1).mean())


if __name__ == "__main__":
    main()
