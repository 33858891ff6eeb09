"""Differences of SAC's updates by robo-rl and by Stable-Baselines3, from equal weights, batches and noise.

    python benchmarks/learner_equality.py
    python benchmarks/learner_equality.py --set "learner.clip_std=false learner.log_std_min=null"  # as before

Both have the settings of method=sac with layers of 64 x 64, the weights of SB3's networks and batches of
SB3's replay on Hopper, recorded with random actions. Names: learner/sac/weights_difference_vs_sb3 (largest
difference of any weight of actor, critics and targets after --updates updates, divided by the norm of its
network; rounding gives about 1e-6 after one update, 1e-5 after 10 and 1e-4 after 100) and
learner/sac/alpha_difference_vs_sb3 (of the temperature).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported

import torch
from common import emit, parser
from learner import sb3
from torch import Tensor, nn

from robo_rl.apps.cli.config import load_config
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import DirectMap
from robo_rl.core.seeding import generator
from robo_rl.data.replay import Batch
from robo_rl.nets.critic import CriticEnsemble
from robo_rl.rl.off_policy.context import LearnerContext
from robo_rl.rl.off_policy.learner import OffPolicyLearner

WIDTH, BATCH = 64, 256
ENV = "Hopper-v5"
STEPS = 2000  # of SB3's replay


def main() -> None:
    options = parser(__doc__.splitlines()[0])
    options.add_argument("--updates", type=int, default=100, help="updates, one after the other")
    options.add_argument("--set", default="", help="settings of our method, such as learner.clip_std=false")
    args = options.parse_args()
    updates = 10 if args.quick else args.updates
    torch.set_num_threads(1)
    sizes = {"net_arch": [WIDTH, WIDTH]}
    theirs = sb3("sac", ENV, 0, policy_kwargs=sizes, learning_starts=STEPS, gamma=0.99, tau=0.005)
    theirs.learn(STEPS)  # random actions alone, without updates
    ours = same_learner(theirs, args.set.split())
    sample = theirs.replay_buffer.sample
    torch.manual_seed(1)
    for _ in range(updates):
        drawn = sample(BATCH)
        noise = {name: torch.randn(BATCH, ours.map.dim) for name in ("actor", "target")}
        given = patch.object(theirs.replay_buffer, "sample", return_value=drawn)
        with given_noise(noise), given:
            theirs.train(1, BATCH)
        with given_noise(noise):
            ours.update(as_batch(drawn, theirs.gamma))
    more: dict[str, Any] = {"env": ENV, "updates": updates, "hidden": [WIDTH, WIDTH], "batch": BATCH}
    more |= {"set": args.set} if args.set else {}
    found = {name: relative(*pair) for name, pair in pairs(ours, theirs).items()}
    emit("learner/sac/weights_difference_vs_sb3", max(found.values()), "share of the norm", **more, **found)
    alpha = float(theirs.log_ent_coef.detach().exp())
    apart = abs(float(ours.multipliers.alpha.detach()) - alpha)
    emit("learner/sac/alpha_difference_vs_sb3", apart, "1", alpha=alpha, **more)


def same_learner(theirs: Any, changes: list[str]) -> OffPolicyLearner:
    """Our learner of method=sac with these changed settings, and with the weights of SB3's."""
    words = ["method=sac", "out=.", f"env=gym/{ENV}", f"method.learner.hidden=[{WIDTH},{WIDTH}]"]
    words += [f"method.{change}" for change in changes]
    config = load_config("finetune", words, FinetuneVerb)
    obs_dim, dim = (space.shape[0] for space in (theirs.observation_space, theirs.action_space))
    ours = OffPolicyLearner(obs_dim, DirectMap(dim), config.method.learner, generator("equality"))
    with torch.no_grad():
        for one, other in pairs(ours, theirs).values():
            for place, value in zip(one, other, strict=True):
                place.copy_(value)
    return ours


def pairs(ours: OffPolicyLearner, theirs: Any) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """Weights of each network, ours and SB3's, in the same order and shapes; ours share memory."""
    actor = theirs.actor
    hidden = list(actor.latent_pi.parameters())
    last = [torch.cat(pair) for pair in zip(actor.mu.parameters(), actor.log_std.parameters(), strict=True)]
    return {
        "actor": ([p.data for p in ours.actor.net.parameters()], [*hidden, *last]),
        "critics": (weights_of(ours.critic), heads_of(theirs.critic.q_networks)),
        "targets": (weights_of(ours.critics.target), heads_of(theirs.critic_target.q_networks)),
    }


def weights_of(critic: CriticEnsemble) -> list[Tensor]:
    """Weights and biases of all heads, layer by layer, as torch.nn.Linear has them."""
    layers = zip(critic.weights, critic.biases, strict=True)
    return [part for w, b in layers for part in (w.data.mT, b.data.squeeze(1))]


def heads_of(networks: nn.ModuleList) -> list[Tensor]:
    return [torch.stack(parts) for parts in zip(*(net.parameters() for net in networks), strict=True)]


def as_batch(drawn: Any, gamma: float) -> Batch:
    none, unknown = torch.zeros(BATCH, 0), torch.full((BATCH,), torch.nan)
    reward, left = drawn.rewards.squeeze(1), gamma * (1.0 - drawn.dones.squeeze(1))
    action = drawn.actions
    return Batch(
        drawn.observations, none, action, action, reward, left, drawn.next_observations, none,
        unknown, unknown, unknown,
    )  # fmt: skip


@contextmanager
def given_noise(noise: dict[str, Tensor]) -> Iterator[None]:
    """Noise of the next update: SB3 draws the actor's before the target's, we after it."""
    theirs, ours = iter((noise["actor"], noise["target"])), iter((noise["target"], noise["actor"]))
    with (
        patch("torch.distributions.normal._standard_normal", lambda *_, **__: next(theirs)),
        patch.object(LearnerContext, "normal", lambda *_: next(ours)),
    ):
        yield


def relative(one: list[Tensor], other: list[Tensor]) -> float:
    """Largest difference of any weight, divided by the norm of the network."""
    flat, expected = (torch.cat([part.detach().flatten() for part in parts]) for parts in (one, other))
    return float((flat - expected).abs().max() / expected.norm())


if __name__ == "__main__":
    main()
