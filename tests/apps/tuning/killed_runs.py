"""Fine-tuning of the toy task that dies at a chosen moment, and the comparison of two runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robo_rl.apps import finetune
from robo_rl.apps.tuning import comparison, loop, report, start, stores, training_lanes
from robo_rl.conf.finetune import FinetuneVerb, MapConfig, MethodConfig
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.off_policy.config import LearnerConfig
from tests.apps.tuning.dying import Killed, dying
from tests.rl.worlds import make_env


def toy_task(patch: pytest.MonkeyPatch) -> None:
    """Build the toy task under every environment name."""
    for module in (comparison, start, loop, training_lanes, report):
        patch.setattr(module, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    for other in (loop, stores):
        patch.setattr(other, "has_dense_reward", lambda *_: False)


def config(base: Path, out: Path, **changes: Any) -> FinetuneVerb:
    """40 steps of the base, a burn-in of two pieces, then 80 online; a checkpoint every 16, an evaluation
    every 24.

    Every episode of training is recorded.
    """
    method = MethodConfig(
        name="residual",
        env_steps=120,
        base_steps=40,
        burn_in=150,
        replay_capacity=400,
        guard_window=5,
        map=MapConfig("residual"),
        learner=LearnerConfig(hidden=[8], batch=8, actor="deterministic", gate=True),
    )
    small: dict[str, Any] = {
        "out": str(out),
        "base": str(base),
        "method": method,
        "num_envs": 2,
        "eval_every": 24,
        "eval_episodes": 3,
        "final_episodes": 4,
        "checkpoint_every": 16,
        "record": "all",
    }
    return FinetuneVerb(**small | changes)


Death = tuple[Any, str, int, bool]  # where, the function's name, which call, after it or instead of it


def die(verb: FinetuneVerb, death: Death) -> None:
    """Fine-tune until this death."""
    where, name, call, after = death
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, name, dying(getattr(where, name), call, after))
        with pytest.raises(Killed):
            finetune.main(verb)


def recorded(run: Path) -> list[tuple[Any, ...]]:
    """All recorded episodes, in order."""
    return [
        (e.number, e.meta.seed, e.success, e.obs("state").tolist(), e.action.tolist(), e.reward.tolist())
        for e in EpisodeStore(run / "episodes")
    ]


def same_run(one: Path, other: Path) -> None:
    assert recorded(one) == recorded(other)
    assert len(recorded(one)) > 20
    for name in ("policy/weights.safetensors", "metrics.jsonl"):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name
    results = [json.loads((run / "results.json").read_text()) for run in (one, other)]
    for result in results:
        for name in ("train_cpu_s", "wall_s"):
            result["curve"].pop(name)
        for policy in ("policy", "base"):
            del result[policy]["wall_s"], result[policy]["cpu_s"]
    assert results[0] == results[1]
