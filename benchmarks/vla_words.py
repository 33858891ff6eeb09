"""What wordings change in a vision-language-action policy: prefixes and chunks for the same pictures.

    python benchmarks/vla.py --suite mt6 --folder runs/vla --only success
    python benchmarks/vla_words.py --policy runs/vla/vla_mt6 --data runs/vla/data_mt6

Root mean square difference between two instructions, over frames of the demonstrations with the same state,
pictures and noise. Lines, for <part> = pooled (mean output of the prefix) and chunk (the executed actions, in
[-1, 1]):

    vla/words/<part>/same_task      two wordings of training
    vla/words/<part>/new_wording    a wording of training and one that no demonstration has
    vla/words/<part>/opposite_task  the same number of the list of wordings, of a task and its opposite
    vla/words/nearest_task          fraction of new wordings whose chunks are nearest to their own task's

In a quick run the policy has random weights.
"""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from statistics import fmean

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from common import emit, parser
from torch import Tensor
from vla_head import observation, random_policy

from policies.checkpoint import load_policy
from policies.vla.policy import VlaPolicy
from robo_rl.apps.training.train_data import TrainData
from robo_rl.core.protocols import Obs
from robo_rl.core.seeding import generator
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes
from robo_rl.data.windows import WindowSpec
from robo_rl.runs.loaded_policy import find_policy
from sim.adapters.metaworld_instructions import SUITES, TRAINING, WORDINGS

TASKS = SUITES["mt6"]  # tasks 2 i and 2 i + 1 are opposites
Key = tuple[str, int]  # task, number of its wording


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--policy", default="runs/vla/vla_mt6", help="policy folder, run or <run>@<step>")
    options.add_argument("--data", type=Path, default=Path("runs/vla/data_mt6"), help="its demonstrations")
    options.add_argument("--frames", type=int, default=48, help="frames of the demonstrations")
    args = options.parse_args()
    torch.set_num_threads(1)
    if args.quick:
        policy, rng = random_policy(), torch.Generator().manual_seed(0)
        each = [observation(rng) for _ in range(4)]
        obs = {key: torch.cat([one[key] for one in each]) for key in each[0]}
    else:
        loaded = load_policy(find_policy(args.policy))
        assert isinstance(loaded, VlaPolicy)
        policy, obs = loaded, frames(args.data, args.frames, loaded.chunk)
    found: dict[str, dict[Key, Tensor]] = {"pooled": {}, "chunk": {}}
    for task in TASKS:
        for i, text in enumerate(WORDINGS[task]):
            found["pooled"][task, i], found["chunk"][task, i] = seen(policy, obs, text)
    for part, values in found.items():
        say(part, values)
    emit("vla/words/nearest_task", nearest(found["chunk"]), "fraction", frames=len(obs[INSTRUCTION]))


def frames(data: Path, count: int, chunk: int) -> Obs:
    """Frames of the demonstrations, as observations of a policy."""
    source = TrainData.select(str(data), "unfailed").windows(WindowSpec(1, chunk), 0)
    return next(source.batches(count, 1, 0, 1, torch.device("cpu")))[0]


@torch.no_grad()
def seen(policy: VlaPolicy, obs: Obs, text: str) -> tuple[Tensor, Tensor]:
    """Pooled outputs of the prefix without the state, and executed actions, when told this text."""
    rows = len(obs[INSTRUCTION])
    noise = torch.randn(rows, policy.chunk, policy.action_spec.dim, generator=generator("words", 0))
    told = torch.from_numpy(to_bytes(text).copy()).expand(rows, 1, -1)
    cond = policy.encode({**obs, INSTRUCTION: told})
    states = cond.state.shape[1]
    return cond.pooled[:, :-states], policy.sample_from(cond, noise)[:, : policy.execute]


def say(part: str, values: dict[Key, Tensor]) -> None:
    known, new = range(TRAINING), range(TRAINING, TRAINING + 2)
    pairs: dict[str, list[tuple[Key, Key]]] = {
        "same_task": [((task, i), (task, j)) for task in TASKS for i, j in combinations(known, 2)],
        "new_wording": [((task, i), (task, j)) for task in TASKS for i in known for j in new],
        "opposite_task": [((TASKS[t], i), (TASKS[t ^ 1], i)) for t in range(len(TASKS)) for i in known],
    }
    for name, each in pairs.items():
        distances = [distance(values[a], values[b]) for a, b in each]
        emit(f"vla/words/{part}/{name}", fmean(distances), "rms", largest=max(distances), pairs=len(each))


def nearest(chunks: dict[Key, Tensor]) -> float:
    """Fraction of new wordings that are nearest to the first wording of their own task."""
    new = [(task, j) for task in TASKS for j in range(TRAINING, len(WORDINGS[task]))]
    hits = [min(TASKS, key=lambda o: distance(chunks[o, 0], chunks[key])) == key[0] for key in new]
    return fmean(hits)


def distance(a: Tensor, b: Tensor) -> float:
    """Root mean square difference."""
    return float((a - b).square().mean().sqrt())


if __name__ == "__main__":
    main()
