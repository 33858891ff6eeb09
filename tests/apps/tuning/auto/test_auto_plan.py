"""`method=auto` in few environments: how its steps are split, and which methods it plans."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.tuned.residual import ResidualPolicy
from robo_rl.apps.tuning.auto import plan
from robo_rl.apps.tuning.auto.plan import StepBudget
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.action_map import ResidualMap
from robo_rl.eval.rollout import eval_seeds
from robo_rl.nets.actor import ActorConfig, make_actor
from robo_rl.runs.run_dir import RunDir
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC


@pytest.mark.parametrize(
    ("total", "rounds"),
    [
        (500, []),
        (1000, [848]),
        (24_000, [10_200, 10_200]),
        (38_000, [10_764, 10_768, 10_768]),
        (50_000, [10_624, 10_624, 10_624, 10_628]),
    ],
)
def test_steps_are_split_into_rounds(total: int, rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """85 % of the steps, in rounds of at least 10,000 and in multiples of four lanes; too few are left."""
    monkeypatch.setattr(plan, "LEAST_STEPS", 500)
    budget, found = StepBudget(total, lanes=4), list[int]()
    while steps := budget.round_steps:
        found.append(steps)
        budget.add({"base": 0, "training": steps, "selection": 0})
    assert found == rounds
    assert sum(rounds) + budget.to_choose <= total


@pytest.mark.parametrize(
    ("total", "longest", "episodes"),
    [(24_000, 20, 0), (50_000, 500, 0), (50_000, 50, 13), (400_000, 500, 10), (1_000_000, 100, 50)],
)
def test_a_probe_needs_steps_for_ten_episodes(total: int, longest: int, episodes: int) -> None:
    """At most half of the steps that choose, with all draws: below, it would decide by chance."""
    budget = StepBudget(total, lanes=4)
    assert plan.probe_episodes(budget, longest) == episodes
    assert episodes * 5.5 * longest <= 0.5 * budget.to_choose


@pytest.mark.parametrize("eval_seed", range(4))
def test_stages_are_not_chosen_on_the_final_episodes(eval_seed: int) -> None:
    """The best of several on few episodes is biased upwards: the final 100 must differ."""
    chosen = plan.choice_seed(FinetuneVerb(eval_seed=eval_seed))
    assert not set(eval_seeds(chosen, 50)) & set(eval_seeds(eval_seed, 100))


def test_a_policy_that_cannot_replan_is_corrected() -> None:
    """Steering would change how often a fine-tuned policy plans."""
    actor = make_actor(ActorConfig("deterministic", 5, 1, (8,)))
    tuned = ResidualPolicy(flow_policy(SPEC), actor, ResidualMap(1, 0.2))
    found = plan.make_plan(FinetuneVerb(), tuned, RunDir(Path("unused")), StepBudget(10_000, lanes=4))
    assert not found.steering
