"""A faulty Gymnasium environment of the user's own is named in one sentence, with what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict

from robo_rl.core.errors import EnvError
from robo_rl.core.seeding import EpisodeSeeds
from sim.registry import make_env


class Sound(gymnasium.Env[Any, Any]):
    """Without a fault; those below override one member."""

    observation_space: gymnasium.Space[Any] = Box(-9.0, 9.0, (3,))
    action_space = Box(-1.0, 1.0, (1,))
    t = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return self.seen(), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return self.seen(), 1.0, False, False, {}

    def seen(self) -> Any:
        return np.zeros(3, np.float32)


class Longer(Sound):
    def seen(self) -> Any:
        return np.zeros(4 if self.t == 1 else 3, np.float32)


class LongerLater(Sound):
    def seen(self) -> Any:
        return np.zeros(4 if self.t == 3 else 3, np.float32)


class Nothing(Sound):
    def seen(self) -> Any:
        return None


class NoInfo(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class NoInfoOfTwo(NoInfo):
    """Two numbers, which could be taken for an observation and an info."""

    observation_space = Box(-9.0, 9.0, (2,))

    def seen(self) -> Any:
        return np.zeros(2, np.float32)


class NoSeed(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return self.seen(), {}


class OldStep(Sound):
    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, False, {}


class ArrayReward(Sound):
    def step(self, action: Any) -> Any:
        return self.seen(), np.zeros(2), False, False, {}


class NoReward(Sound):
    def step(self, action: Any) -> Any:
        return self.seen(), None, False, False, {}


class ArrayEnd(Sound):
    def step(self, action: Any) -> Any:
        return self.seen(), 1.0, np.array([False, True]), False, {}


class ArraysOfOne(Sound):
    """As environments return that were written for batches."""

    def step(self, action: Any) -> Any:
        return self.seen(), np.array([1.0]), np.array([False]), np.array([[True]]), {}


class Parts(Sound):
    observation_space = Dict({"joints": Box(-9.0, 9.0, (3,)), "view": Box(0, 255, (2, 2, 3), np.uint8)})

    def seen(self) -> Any:
        return {"joints": np.zeros(3), "view": np.zeros((2, 2, 3), np.uint8)}


class Missing(Parts):
    def seen(self) -> Any:
        return {"joints": np.zeros(3)}


class Small(Parts):
    def seen(self) -> Any:
        return {"joints": np.zeros(3), "view": np.zeros((2, 4, 3), np.uint8)}


class Black(Parts):
    def seen(self) -> Any:
        return {"joints": np.zeros(3), "view": np.zeros((2, 2, 3))}


class Extra(Parts):
    def seen(self) -> Any:
        return {**super().seen(), "goal": np.zeros(2)}


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    gymnasium.register("Faulty-v0", request.param, max_episode_steps=8)
    yield "gym/Faulty-v0"
    gymnasium.registry.pop("Faulty-v0")


@pytest.mark.parametrize(
    ("registered", "found"),
    [
        (Longer, "returned an observation of shape (4,) from step; its observation_space says (3,)"),
        (Nothing, "returned an observation of kind NoneType from reset; its observation_space says"),
        (NoInfo, "returned a single value of kind ndarray from reset; expected two values: observation"),
        (NoInfoOfTwo, "returned a single value of kind ndarray from reset; expected two values"),
        (NoSeed, "has a reset that takes no seed or no options; expected: reset(self, *, seed=None"),
        (OldStep, "returned another number of values from step; expected five: observation, reward, term"),
        (ArrayReward, "returned reward of shape (2,) from step; expected a single number"),
        (NoReward, "returned reward None from step; expected a single number"),
        (ArrayEnd, "returned terminated of shape (2,) from step; expected a single number"),
        (Missing, "returned no observation 'view' from reset; its observation_space says (2, 2, 3)"),
        (Small, "returned an observation 'view' of shape (2, 4, 3) from reset; its observation_space says"),
        (Black, "returned an observation 'view' of float64 numbers from reset; its observation_space"),
        (Extra, "returned an observation 'goal' from reset; its observation_space says nothing of it"),
    ],
    indirect=["registered"],
)  # fmt: skip
def test_a_fault_is_named_when_the_environment_is_made(registered: str, found: str) -> None:
    """Before a training, and without a traceback of robo-rl's own files."""
    with pytest.raises(EnvError) as refused:
        make_env(registered, 1)
    said = str(refused.value)
    assert said.startswith(f"'gym/Faulty-v0' {found}")
    assert said.endswith("Correct the environment.")
    assert "\n" not in said


@pytest.mark.parametrize("registered", [LongerLater], indirect=True)
def test_a_shape_that_changes_later_is_named_with_its_step(registered: str) -> None:
    with closing(make_env(registered, 1)) as env:
        env.reset(iter([7]))
        env.step(torch.zeros(1, 1))
        env.step(torch.zeros(1, 1))
        with pytest.raises(EnvError, match=r"shape \(4,\) from step 3 of the episode with seed 7; its"):
            env.step(torch.zeros(1, 1))


class Crashes(Sound):
    """An error of the environment's own code, which resembles a fault of its interface."""

    def step(self, action: Any) -> Any:
        one, two = np.zeros(3)
        return one, two


@pytest.mark.parametrize("registered", [Crashes], indirect=True)
def test_an_error_in_the_environment_keeps_its_traceback(registered: str) -> None:
    with pytest.raises(EnvError, match=r"(?s)Traceback .*one, two = np.zeros.*too many values to unpack"):
        make_env(registered, 1)


@pytest.mark.parametrize("registered", [Sound, Parts, ArraysOfOne], indirect=True)
def test_a_sound_environment_runs(registered: str) -> None:
    with closing(make_env(registered, 1)) as env:
        env.reset(EpisodeSeeds("sound"))
        assert env.step(torch.zeros(1, 1))[1].tolist() == [1.0]
