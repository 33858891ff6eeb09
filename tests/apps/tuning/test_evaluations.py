"""Cost of the evaluations of a fine-tuning run, and their place in its progress bar."""

from __future__ import annotations

import io
import json
import math
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tqdm import tqdm

from robo_rl.apps.tuning import report
from robo_rl.apps.tuning.evaluations import evaluations, too_costly
from robo_rl.apps.tuning.loop import _Training
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.eval.rollout import EvalResult
from robo_rl.rl.loop import FinetuneConfig
from robo_rl.runs.learning_curve import LearningCurve
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


@pytest.mark.parametrize(("every", "episodes"), [(0, 1), (4_000, 1), (100, 1)])
def test_no_advice_that_changes_nothing(every: int, episodes: int) -> None:
    """The first and the last policy are always evaluated, on one episode at least."""
    said = too_costly(config(eval_every=every, eval_episodes=episodes), 100, 150)
    assert said.endswith(
        f"The evaluations (2 of {episodes} episodes) will take about 300 of 400 environment steps."
    )
    assert "Fewer: eval_every=100 eval_episodes=1" in too_costly(config(eval_episodes=2), 100, 300)
    assert "Fewer" in too_costly(config(eval_every=10, eval_episodes=1), 100, 150)


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


def test_an_evaluation_without_a_number_is_not_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator may return NaN in the first evaluation: later ones are compared, and the state is saved."""
    returns = iter([math.nan, 1.0, math.nan, 0.5])
    learner = SimpleNamespace(weights=dict)
    tuner: Any = SimpleNamespace(learner=learner, policy=None, env_steps=0, config=FinetuneConfig(100))
    session: Any = SimpleNamespace(tuner=tuner, policy=None, noise_scale=1.0)
    unused: Any = None
    run = config(eval_every=0)
    training = _Training(
        run,
        session,
        unused,
        lambda *_: EvalResult((0,), (False,), (5,), (next(returns),), None, 5, 0.0, 0.0),
        SimpleNamespace(log=lambda *_: None),  # type: ignore[arg-type]
        unused,
        lambda _: None,
        run.method,
    )
    best = []
    for step in range(4):
        tuner.env_steps = step
        training._evaluate()
        assert training.best is not None
        best.append(training.best.env_steps)
        saved = json.loads(json.dumps([training.best.to_state(), training.curve.to_json()], allow_nan=False))
    assert best == [0, 1, 1, 1]
    assert math.isnan(LearningCurve.from_json(saved[1]).returns[2])


def test_the_final_evaluations_show_their_progress_and_a_kept_base_needs_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 episodes of each take longer than a short training; those of the same policy are the same."""
    base, after = flow_policy(SPEC), cast(EvalResult, "of 100 episodes")

    def measured(
        policy: Any, scale: float, env: Any, config: Any, episodes: int, progress: Any
    ) -> EvalResult:
        progress(episodes)
        return after

    monkeypatch.setattr(report, "measure", measured)
    monkeypatch.setattr(report, "find_policy", lambda name: name)
    monkeypatch.setattr(report, "trained_noise", lambda folder: 1.0)

    def before(noise_scale: float) -> EvalResult:
        kept = cast(Any, SimpleNamespace(policy=base, noise_scale=noise_scale))
        return report._of_base(base, kept, after, cast(Any, None), config())

    assert before(1.0) is after
    assert capsys.readouterr().err == ""
    before(0.0)  # the base without its noise is another policy
    assert "base: 100%" in capsys.readouterr().err
    report._final(base, 1.0, cast(Any, None), config(), "evaluate")
    assert "evaluate: 100%" in capsys.readouterr().err
