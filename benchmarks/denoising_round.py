"""How far one round of each method moves the deployed policy, when the advantage is known.

    python benchmarks/denoising_round.py --task peg-insert-side
    python benchmarks/denoising_round.py --method flow_sde --set "method.ppo.objective=aspo" --label aspo

800 decisions at states of the demonstrations explore as in training. Their advantage is the deviation of
the chunk from the deployed one, along a random direction. After one round of updates, the deployed chunks
are compared with those before, without an environment. Names:
denoising/<task>/<method>/first_round_shift[/<label>], the mean shift along that direction in standard
deviations of the exploration, over three directions; `rms` is the root mean square of the shift in all
directions, `spread` that of the exploration, in normalised action units.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import torch
from common import emit, own_folder, parser
from denoising import INSIDE, TASKS, Call, make_base
from torch import Tensor

from policies.base.generative import GenerativePolicy
from policies.checkpoint import load_policy
from robo_rl.apps.cli.config import load_config
from robo_rl.apps.tuning.denoising import chain_head, chain_map, tunable
from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.core.seeding import generator
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.on_policy.ppo_learner import PpoLearner
from robo_rl.rl.on_policy.rollout import RolloutTransitions
from robo_rl.runs.loaded_policy import find_policy

DECISIONS, ROUNDS = 800, 31  # of a round; the learning rate is that of the first of so many rounds
METHODS = tuple(name for name in INSIDE if name != "grpo")  # its first round is that of flow_sde


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--task", choices=[*TASKS], default="peg-insert-side")
    options.add_argument("--method", default=",".join(METHODS), help="methods, separated by commas")
    options.add_argument("--set", default="", help="more settings of the methods")
    options.add_argument("--label", default="", help="last part of the names, for a run with more settings")
    options.add_argument("--folder", type=Path, default=Path("runs/benchmark"), help="folder of the runs")
    args = options.parse_args()
    call = Call(args.task, "", 0, own_folder(args.folder), (), args.quick)
    call.home.mkdir(parents=True, exist_ok=True)
    make_base(call)
    policy = load_policy(find_policy(str(call.home / "base")))
    assert isinstance(policy, GenerativePolicy)
    features = states_of(policy, EpisodeStore(call.home / "demonstrations"))
    for name in args.method.split(","):
        words = [f"method={name}", "out=.", "method.ppo.critic_warmup=0", *args.set.split()]
        method = load_config("finetune", words, FinetuneVerb).method
        rows = [first_round(policy, features, method, seed) for seed in range(1 if args.quick else 3)]
        mean = {key: fmean(row[key] for row in rows) for key in rows[0]}
        shift = mean.pop("shift")
        label = f"/{args.label}" if args.label else ""
        line = f"denoising/{args.task}/{name}/first_round_shift{label}"
        emit(line, shift, "std", settings=args.set, **mean)


def states_of(policy: GenerativePolicy, episodes: EpisodeStore) -> Tensor:
    """(DECISIONS, f): features of states of the demonstrations, in random order, repeated if they are few."""
    obs = {
        key: torch.cat([torch.from_numpy(episode.obs(key).copy()) for episode in episodes]).unsqueeze(1)
        for key in policy.obs_spec
    }
    with torch.no_grad():
        features = policy.features({key: value.float() for key, value in obs.items()})
    order = torch.randperm(len(features), generator=generator("states", 0))
    return features[order.repeat(-(-DECISIONS // len(order)))[:DECISIONS]]


def first_round(
    policy: GenerativePolicy, features: Tensor, method: MethodConfig, seed: int
) -> dict[str, float]:
    """Shift of the deployed chunks, and what the learner says of its trust region."""
    rng = generator("round", seed)
    tuned = tunable(policy, method.denoising.guidance, rng)
    draws = method.map.draws if method.map.kind == "draws" else 0
    head = chain_head(tuned, policy.encoder.dim, method.denoising, method.ppo.clip, rng, draws)
    action_map, shape = chain_map(policy, draws), (policy.chunk, policy.action_spec.dim)
    learner = PpoLearner(policy.encoder.dim, action_map, method.learner, method.ppo, rng, head=head)
    start, still = torch.randn(DECISIONS, *shape, generator=rng), torch.zeros(DECISIONS, *shape)
    u = learner.act(features, (method.base_noise * start).flatten(1), explore=True)
    with torch.no_grad():
        before = tuned.sample_from(features, still)
        deviation = (action_map.to_chunk(u) - before).flatten(1)
        direction = torch.randn(deviation.shape[1], generator=rng)
        along = deviation @ (direction / direction.norm())
    none, zero = features[:, :0], torch.zeros(DECISIONS)
    info = learner.update(RolloutTransitions(features, none, u, along, zero), ROUNDS)
    with torch.no_grad():
        moved = (tuned.sample_from(features, still) - before).flatten(1)
    return {
        "shift": float((moved @ (direction / direction.norm())).mean() / along.std()),
        "rms": float(moved.square().mean().sqrt()),
        "spread": float(deviation.square().mean().sqrt()),
        "clipped": float(info["actor/clipped"]),
        "kl": float(info["actor/kl"]),
    }


if __name__ == "__main__":
    main()
