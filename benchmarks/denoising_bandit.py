"""Learning inside the denoising on a bandit: does a method improve, and does the spread of its chunks last.

    python benchmarks/denoising_bandit.py --method dppo,flow_sde,fpo,awr,recap,idql,expo

One decision per episode, reward = -distance of the chunk to a target (`benchmarks/bandit.py`); the base has
imitated chunks spread around it. 20 rounds of 256 decisions, with the methods' own settings, but from N(0, I)
in training and evaluation. All methods are evaluated on the same contexts and noises.
Names: denoising/bandit/<method>/gain (reward of the deployed policy after the last round minus before the
first, mean over seeds; `before`: reward of the base; `best` at any fifth round), .../spread (standard
deviation of chunks over noise).
"""

from __future__ import annotations

import os
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from bandit import Bandit, method, spread_base
from bandit_critics import CriticBandit
from bandit_tokens import TokenBandit
from common import cpu_seconds, emit, parser

from policies.base.flow import FlowConfig
from policies.base.generative import GenerativeConfig, GenerativePolicy
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.denoiser import MlpDenoiserConfig

METHODS = ("dppo", "flow_sde", "flow_noise", "reinflow", "grpo", "fpo", "awr", "recap")
CRITICS = ("idql", "qc", "expo", "fql")  # of a frozen base
TOKENS = ("ppo_tokens",)  # of a decoder that has imitated the same chunks
ROUNDS = 20
ENV = EnvSpec(
    "bandit/target",
    {"state": ArraySpec((4,), unit="1")},
    ActionSpec((-1.0, -1.0), (1.0, 1.0), "1"),
    max_episode_steps=8,
    control_hz=10.0,
)


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument(
        "--method", default=",".join(METHODS + CRITICS + TOKENS), help="methods, separated by commas"
    )
    options.add_argument("--seeds", type=int, default=3, help="number of seeds, from 0")
    options.add_argument("--set", default="", help="more settings of the methods")
    options.add_argument("--label", default="", help="last part of the names, for a run with more settings")
    args = options.parse_args()
    seeds, rounds = (1, 4) if args.quick else (args.seeds, ROUNDS)
    bases = [base_of(seed) for seed in range(seeds)]
    for name in args.method.split(","):
        start_s, label = cpu_seconds(), f"/{args.label}" if args.label else ""
        rows = [learn(base, name, seed, rounds, args.set.split()) for seed, base in enumerate(bases)]
        cpu_s = (cpu_seconds() - start_s) / seeds
        start, curves = fmean(row["rewards"][0] for row in rows), [row["rewards"] for row in rows]
        gains = [rewards[-1] - rewards[0] for rewards in curves]
        best = fmean(max(rewards) - rewards[0] for rewards in curves)
        emit(
            f"denoising/bandit/{name}/gain{label}", fmean(gains), "reward", per_seed=gains, best=best,
            before=start, cpu_s=cpu_s, curves=curves, set=args.set,
        )  # fmt: skip
        spreads = [row["spread"] for row in rows]
        before, spread = fmean(row["spread_before"] for row in rows), fmean(spreads)
        emit(f"denoising/bandit/{name}/spread{label}", spread, "action", per_seed=spreads, before=before)


def base_of(seed: int) -> GenerativePolicy:
    """A flow policy that has imitated chunks spread around the targets."""
    torch.manual_seed(seed)
    states = Normalizer.fit({"state": torch.randn(256, 4, generator=torch.Generator().manual_seed(seed))})
    config = GenerativeConfig(net=MlpDenoiserConfig(width=64, depth=2), process=FlowConfig(steps=10))
    return spread_base(GenerativePolicy.build(ENV, states, config), seed=seed)


def learn(base: GenerativePolicy, name: str, seed: int, rounds: int, settings: list[str]) -> dict[str, Any]:
    """Rewards of the deployed policy at every fifth round, and the spread before and after."""
    made = CriticBandit if name in CRITICS else TokenBandit if name in TOKENS else Bandit
    bandit = made(base, method(name, *settings), seed=seed)
    rewards, before = [bandit.deterministic()], bandit.spread()
    for i in range(rounds):
        bandit.round(rounds)
        if (i + 1) % 5 == 0 or i + 1 == rounds:
            rewards.append(bandit.deterministic())
    return {"rewards": rewards, "spread": bandit.spread(), "spread_before": before}


if __name__ == "__main__":
    main()
