"""Where a policy was measured."""

from __future__ import annotations

from robo_rl.runs.success_note import measured_elsewhere


def test_the_order_of_options_does_not_make_another_environment() -> None:
    """A result on the policy's own environment is published as such, however its name was written."""
    own = "arm/reach:control=joint_velocity,engine=pybullet"
    assert measured_elsewhere({"env": "arm/reach:engine=pybullet,control=joint_velocity"}, own) == ""
    assert measured_elsewhere({"env": "arm/reach:engine=pybullet"}, own) == "arm/reach:engine=pybullet"
    assert measured_elsewhere({"env": own, "max_episode_steps": 9}, own).endswith(
        "at most 9 steps per episode"
    )
