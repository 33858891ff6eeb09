"""Where a policy was measured."""

from __future__ import annotations

import pytest

from robo_rl.apps.evaluate import plain
from robo_rl.conf.schema import EvaluateConfig
from robo_rl.runs.success_note import conditions, measured_elsewhere


def test_the_order_of_options_does_not_make_another_environment() -> None:
    """A result on the policy's own environment is published as such, however its name was written."""
    own = "arm/reach:control=joint_velocity,engine=pybullet"
    assert measured_elsewhere({"env": "arm/reach:engine=pybullet,control=joint_velocity"}, own) == ""
    assert measured_elsewhere({"env": "arm/reach:engine=pybullet"}, own) == "arm/reach:engine=pybullet"
    assert measured_elsewhere({"env": own, "max_episode_steps": 9}, own).endswith(
        "at most 9 steps per episode"
    )


@pytest.mark.parametrize(("env", "limit"), [("arm/reach:max_episode_steps=9", None), ("arm/reach", 9)])
def test_another_step_limit_is_another_measurement(env: str, limit: int | None) -> None:
    """However it is given; success within 9 steps is no success of the task. A policy whose own environment
    has that limit in its name is measured there.
    """
    config = EvaluateConfig("run", env=env, max_episode_steps=limit)
    assert not plain(config, "arm/reach")
    assert measured_elsewhere(conditions(env, 0, 1.0, limit), "arm/reach")
    assert plain(config, env) == (limit is None)
    assert bool(measured_elsewhere(conditions(env, 0, 1.0, limit), env)) == (limit is not None)
