"""Properties of RLIF, which learns from interventions alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from robo_rl.core.files.state_io import load_state, save_state
from robo_rl.core.protocols import VecEnv
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.data.replay import Replay
from robo_rl.rl.loop import FineTuner
from sim.vec.intervention import Intervened, by_distance
from tests.rl.tuners import LANES, Human, direct, stored
from tests.rl.worlds import make_env


def watched(seed: int = 1) -> Intervened:
    return Intervened(make_env(LANES), Human(), by_distance(0.8), error=0.1, steps=2, seed=seed)


def rlif(**config: Any) -> tuple[FineTuner, VecEnv, EpisodeSeeds]:
    """RLIF as composed: the task's reward unused, -1 before an intervention."""
    tuner, env, seeds = direct(
        watched(), stores=("online", "intervention"), fractions={"online": 0.5, "intervention": 0.5}, **config
    )
    reward = tuner.collector.reward
    reward.scale, reward.before_intervention = 0.0, -1.0
    return tuner, env, seeds


def decisions(store: Replay) -> Iterator[tuple[int, int]]:
    """(lane, slot) of all."""
    for lane, head in enumerate(store.head.tolist()):
        for slot in range(head):
            yield lane, slot


def test_rlif_learns_from_nothing_but_interventions() -> None:
    """-1 exactly on the step before an intervention in the same episode, 0 elsewhere, even for successes."""
    tuner, env, _ = rlif(base_steps=30, env_steps=450)
    successes = 0
    while not tuner.done:
        successes += sum(episode.success for episode in tuner.advance())
    env.close()
    assert successes > 10
    store, data, punished = tuner.mix["online"], tuner.mix["online"].data, 0
    for lane, slot in decisions(store):
        ended = bool(data["terminated"][lane, slot] | data["truncated"][lane, slot])
        last = slot == int(store.head[lane]) - 1
        hands = (
            not ended
            and not last
            and not data["demo"][lane, slot]
            and data["demo"][lane, min(slot + 1, store.slots - 1)]
        )
        if last and not ended:
            continue  # what followed is not stored yet
        assert data["reward"][lane, slot] == (-1.0 if hands else 0.0), (lane, slot)
        punished += bool(hands)
    assert punished > 10
    assert stored(tuner.mix["intervention"], "demo").min() == 1.0


def test_rlif_is_resumed_exactly_in_the_middle_of_an_intervention(tmp_path: Path) -> None:
    """The intervention state is part of the environment's snapshot."""
    whole, env, _ = rlif(env_steps=150)
    while not whole.done:
        whole.advance()
    env.close()
    half, env, seeds = rlif(env_steps=150)
    while half.env_steps < 40 or not bool((env._left > 0).any()):  # type: ignore[attr-defined]
        half.advance()
    save_state(tmp_path, {"tuner": half.state_dict(), "env": env.snapshot()})
    env.close()
    other, env, _ = rlif(env_steps=150)
    state = load_state(tmp_path)
    env.restore(state["env"], EpisodeSeeds(seeds.root, seeds.count))  # type: ignore[call-arg]
    other.load_state_dict(state["tuner"])
    while not other.done:
        other.advance()
    env.close()
    assert torch.equal(whole.learner.critics.critic_opt.flat, other.learner.critics.critic_opt.flat)
    assert torch.equal(stored(whole.mix["online"], "reward"), stored(other.mix["online"], "reward"))
