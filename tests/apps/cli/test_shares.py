"""Settings of training that are fractions: values above 1 are refused."""

from __future__ import annotations

import re

import pytest

from robo_rl.apps.cli.config import load_config
from robo_rl.conf.distill import DistillVerb
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError


@pytest.mark.parametrize(
    ("verb", "schema", "override", "others"),
    [
        ("distill", DistillVerb, "student_share=3", ["teacher=t", "out=o"]),
        ("train", TrainConfig, "ema_max=2", ["data=d", "out=o"]),
        ("finetune", FinetuneVerb, "method.learner.gamma=1.5", ["out=o"]),
    ],
)
def test_fractions_above_one_are_refused(verb: str, schema: type, override: str, others: list[str]) -> None:
    """A discount or a moving average above 1 would diverge silently."""
    with pytest.raises(
        ConfigError, match=rf"{re.escape(override)}.* cannot be used, expected: number from 0 to 1"
    ):
        load_config(verb, [override, *others], schema)
