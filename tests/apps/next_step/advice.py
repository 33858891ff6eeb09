"""Next steps after fine-tuning runs and comparisons with set results."""

from __future__ import annotations

from pathlib import Path

from robo_rl.conf.finetune import FinetuneVerb, MethodConfig
from robo_rl.eval.stats import PairedTest, SuccessRate
from robo_rl.runs.next_step import after_tuning

CONFIG = FinetuneVerb(out="runs/ft", base="runs/base", method=MethodConfig(name="steering", env_steps=12000))


def tuned(before: int, after: int, p: float, config: FinetuneVerb = CONFIG) -> str:
    """Next step after a fine-tuning with these successes of 100 episodes."""
    test = PairedTest(0, max(0, before - after), max(0, after - before), 0, p)
    return after_tuning(config, Path(config.out), SuccessRate(before, 100), SuccessRate(after, 100), test)


WORSE, BETTER = PairedTest(60, 24, 7, 9, 0.0005), PairedTest(60, 7, 24, 9, 0.0005)  # of teacher to head
