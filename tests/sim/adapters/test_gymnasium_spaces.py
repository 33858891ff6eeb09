"""Spaces of Gymnasium environments become states, pictures and limits, or are refused."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import EpisodeSeeds
from robo_rl.core.spec import ArraySpec
from robo_rl.data.episodes.schema import _KEY as SAFE_KEY
from sim.adapters.gymnasium_mujoco import GymnasiumLanes
from sim.adapters.gymnasium_obs import GymnasiumObs
from sim.registry import make_env
from sim.vec.conformance import check_vec_env
from tests.sim.adapters.own_environments import Camera, Rig


class Discrete(gymnasium.Env[Any, Any]):
    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(3)


class Endless(Discrete):
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))


class Unbounded(Discrete):
    action_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,))


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Discrete, "actions of kind Discrete"), (Endless, "no time limit"), (Unbounded, "without limits")],
)
def test_environments_that_do_not_fit_are_refused(kind: type, message: str) -> None:
    """Refused with a reason before training."""
    gymnasium.register("Misfit-v0", kind)
    try:
        with pytest.raises(ConfigError, match=message):
            GymnasiumLanes("Misfit-v0")()
    finally:
        gymnasium.registry.pop("Misfit-v0")


@pytest.mark.parametrize("registered", [Rig], indirect=True)
def test_entries_of_a_dictionary_become_state_and_pictures(registered: str) -> None:
    """Numbers in alphabetical order of their keys; pictures stay pictures, with names that datasets take."""
    with closing(make_env(registered, 2)) as env:
        shapes = {key: (array.shape, array.dtype) for key, array in env.spec.obs.items()}
        assert shapes == {
            "image.arm_views_top": ((2, 2, 3), "uint8"),
            "image.wrist": ((4, 6, 3), "uint8"),
            "state": ((6,), "float32"),
        }
        assert env.spec.obs["state"].unit == "goal 3, joints 3"
        assert all(SAFE_KEY.fullmatch(key) for key in env.spec.obs)
        env.reset(EpisodeSeeds("rig"))
        obs, *_ = env.step(torch.zeros(2, 1))
        torch.testing.assert_close(obs["state"][0], torch.tensor([5.0, 6.0, 7.0, 1.1, 1.2, 1.3]))
        assert obs["image.wrist"].unique().tolist() == [1]
        assert obs["image.arm_views_top"].unique().tolist() == [101]


@pytest.mark.parametrize("registered", [Rig, Camera], indirect=True)
def test_dictionaries_and_pictures_keep_the_contract(registered: str) -> None:
    check_vec_env(make_env(registered, 2), steps=20)


@pytest.mark.parametrize("registered", [Camera], indirect=True)
def test_an_observation_that_is_a_picture_stays_one(registered: str) -> None:
    with closing(make_env(registered, 1)) as env:
        assert env.spec.obs == {"image.camera": ArraySpec((4, 6, 3), "uint8")}
        assert env.reset(EpisodeSeeds("camera"))["image.camera"].dtype == torch.uint8


class Strict(Rig):
    """Refuses actions outside its box of float64, as Gymnasium's own checker does."""

    action_space: Any = gymnasium.spaces.Box(-0.1, 0.1, (1,), np.float64)

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action), action
        return super().step(action)


class Above0(Strict):
    action_space = gymnasium.spaces.Box(0.3, 0.7, (1,), np.float64)


class Whole(Strict):
    action_space = gymnasium.spaces.Box(-3, 3, (1,), np.int64)


@pytest.mark.parametrize("registered", [Strict, Above0, Whole], indirect=True)
def test_actions_are_inside_the_box_in_its_own_type(registered: str) -> None:
    """float32(0.1) is above 0.1; a box without 0 failed before the first episode."""
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("strict"))
        for limit in (env.spec.action.low, env.spec.action.high):
            for factor in (1.0, 2.0, 0.9):
                env.step(factor * torch.tensor([limit], dtype=torch.float32))


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gymnasium.spaces.Discrete(3), "has observations of kind Discrete; expected Box, or Dict of Box"),
        (gymnasium.spaces.Tuple([Camera.observation_space]), "has observations of kind Tuple"),
        (
            gymnasium.spaces.Dict({"a": gymnasium.spaces.Dict({"words": gymnasium.spaces.Text(5)})}),
            "has an observation 'a.words' of kind Text",
        ),
        (
            gymnasium.spaces.Box(0, 255, (1, 8, 8), np.uint8),
            r"has observations of uint8 \(1, 8, 8\); a picture is",
        ),
        (gymnasium.spaces.Dict({}), "observation space without entries"),
    ],
)
def test_spaces_that_no_policy_reads_name_the_wrapper(space: gymnasium.Space[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        GymnasiumObs("Mine-v0", space)
    wraps = "without entries" not in message  # nothing is left to wrap
    assert ("gymnasium.wrappers.FlattenObservation" in str(refused.value)) is wraps
