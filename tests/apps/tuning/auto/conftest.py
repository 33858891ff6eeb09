"""Bases to improve by `method=auto`, and small networks and short stages for it."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np
import pytest

from policies.checkpoint import save_policy
from robo_rl.apps.tuning import comparison, loop, report, start, stores, training_lanes
from robo_rl.apps.tuning.auto import imitation, plan, stages, verb
from robo_rl.apps.tuning.start import with_planning_interval
from robo_rl.conf.finetune import MethodConfig
from robo_rl.data.store import DatasetWriter
from tests.apps.tuning.auto.auto_runs import Base
from tests.policies.small import flow_policy
from tests.rl.worlds import SPEC, make_env


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Base:
    """(demonstrations, base policy) of the toy task, whose base plans less often than steering."""
    folder = tmp_path_factory.mktemp("toy")
    writer = DatasetWriter.create(folder / "data", SPEC)
    for position in (1.0, 2.0, 3.0):
        with writer.episode() as episode:
            for _ in range(6):
                episode.add({"state": np.array([position, 1.0], np.float32)}, np.ones(1, np.float32))
            episode.commit(success=True)
    save_policy(folder / "base" / "policy", with_planning_interval(flow_policy(SPEC), 4))
    return folder / "data", folder / "base"


@pytest.fixture
def base(made: Base, monkeypatch: pytest.MonkeyPatch) -> Base:
    """Factory of the toy task under every environment name."""
    for module in (plan, stages, comparison, start, loop, training_lanes, report):
        monkeypatch.setattr(module, "make_env", lambda name, lanes, *_, **__: make_env(lanes))
    for module in (loop, stores):
        monkeypatch.setattr(module, "has_dense_reward", lambda *_: False)
    return made


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks, short stages."""
    recipe = cache(plan.stage_method)  # hydra takes a tenth of a second to compose one

    def shrunk(name: str) -> MethodConfig:
        method = copy.deepcopy(recipe(name))
        if name == "auto":
            return method
        method.learner.hidden, method.burn_in = [16], min(method.burn_in, 20)
        method.env_steps, method.replay_capacity = min(method.env_steps, 120), 1000
        return method

    for module in (plan, stages, verb):
        monkeypatch.setattr(module, "stage_method", shrunk)
    monkeypatch.setattr(plan, "LEAST_STEPS", 40)
    monkeypatch.setattr(imitation, "UPDATES", 20)
