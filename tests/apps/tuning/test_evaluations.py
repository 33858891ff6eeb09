"""What the evaluations of a fine-tuning run cost, and how they show in its progress bar."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from tqdm import tqdm

from robo_rl.apps.tuning.evaluations import evaluations, too_costly
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.runs.progress import counting, hidden, progress
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


def config(**changes: Any) -> FinetuneVerb:
    return FinetuneVerb(out="unused", base="b", env="arm/lift", **changes)


def predicted(said: str) -> tuple[int, int]:
    """(steps of the evaluations, all steps) of a sentence."""
    found = re.search(r"about (\d+) of (\d+) environment steps", said)
    assert found is not None
    return int(found[1]), int(found[2])


def test_evaluations_that_cost_more_than_training_are_pointed_out() -> None:
    """A measured case: 12,000 steps by default had 7 evaluations of 50 episodes, of about 98 steps each."""
    said = too_costly(config(), 12_000, 4_920)
    assert said.startswith("The evaluations (7 of 50 episodes) will take about 34440 of 46440 environment")
    assert not too_costly(config(), 12_000, 1_700)


@pytest.mark.parametrize("steps_of_one", [2_000, 4_920, 15_000, 100_000])
@pytest.mark.parametrize("env_steps", [3_000, 12_000, 49_999])
def test_the_advised_values_avoid_it(env_steps: int, steps_of_one: int) -> None:
    """With them the evaluations take less than half of all steps, and nothing more is said."""
    if said := too_costly(config(), env_steps, steps_of_one):
        found = re.search(r"eval_every=(\d+) eval_episodes=(\d+)$", said)
        assert found is not None
        every, episodes = int(found[1]), int(found[2])
        better = config(eval_every=every, eval_episodes=episodes)
        least = 1 if episodes == 1 else 0  # a single long episode may still be too much
        assert least or not too_costly(better, env_steps, -(-steps_of_one * episodes // 50))


def test_an_evaluation_counts_its_episodes_in_the_bar() -> None:
    """The bar of training stands meanwhile; what it showed before comes back."""
    said = io.StringIO()
    with tqdm(total=100, desc="residual", file=said, mininterval=0.0, ncols=120) as bar:
        bar.set_postfix_str("success 0.5", refresh=False)
        env = make_env(2)
        evaluations(config(eval_episodes=3), env, bar)(flow_policy(SPEC), 1.0)
        env.close()
        assert bar.postfix == "success 0.5"
    assert "evaluating, 3/3 episodes" in said.getvalue()
    assert "evaluating, 4/3" not in said.getvalue()


def test_a_hidden_bar_stays_hidden(capsys: pytest.CaptureFixture[str]) -> None:
    with hidden(), progress(3, "x", "step") as bar, counting(bar, "evaluating", 2, "episodes") as add:
        add(2)
    assert capsys.readouterr().err == ""
