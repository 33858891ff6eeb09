"""Reset and step of a user's Gymnasium environment; what they must not return is named in one sentence."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import EnvError
from sim.adapters.gymnasium_obs import GymnasiumObs
from sim.vec.lane import LaneObs

RESET = "observation, info"
STEP = "observation, reward, terminated, truncated, info"
OURS_OF_GYMNASIUM = ("gymnasium/wrappers/", "gymnasium/core.py")  # files that call the environment


class GymnasiumAnswers:
    """One environment, whose answers are checked and read.

    Every method raises EnvError for an answer that does not fit the environment's spaces or Gymnasium's
    interface; errors in the environment's own code pass through.
    """

    def __init__(self, name: str, env: Any, obs: GymnasiumObs) -> None:
        """name: of the environment, for messages."""
        self._name, self._env, self._obs = name, env, obs
        self._seed = self._steps = 0

    def reset(self, seed: int) -> LaneObs:
        self._seed, self._steps = seed, 0
        try:
            answer = self._env.reset(seed=seed)
        except TypeError as error:
            if "unexpected keyword argument" in str(error) and _in_gymnasium(error):
                raise EnvError(
                    f"'{self._name}' has a reset that takes no seed or no options; expected: "
                    "reset(self, *, seed=None, options=None). Correct the environment."
                ) from error
            raise
        if not isinstance(answer, tuple | list) or len(answer) != 2 or not isinstance(answer[1], Mapping):
            raise self._fault(f"{_found(answer)} from reset", f"two values: {RESET}")
        return self._read(answer[0])

    def step(self, action: NDArray[Any]) -> tuple[LaneObs, float, bool, bool, Mapping[str, Any]]:
        self._steps += 1
        try:
            answer = self._env.step(action)
        except ValueError as error:  # Gymnasium's own wrappers unpack it
            if "values to unpack" in str(error) and _in_gymnasium(error):
                raise self._fault(f"another number of values from {self._where}", f"five: {STEP}") from error
            raise
        if not isinstance(answer, tuple | list) or len(answer) != 5 or not isinstance(answer[4], Mapping):
            raise self._fault(f"{_found(answer)} from {self._where}", f"five values: {STEP}")
        obs, reward, terminated, truncated, info = answer
        return (
            self._read(obs),
            self._number("reward", reward),
            bool(self._number("terminated", terminated)),
            bool(self._number("truncated", truncated)),
            info,
        )

    def _read(self, obs: Any) -> LaneObs:
        try:
            found = self._obs.read(obs)
            fits = all(
                found[key].shape == spec.shape and (key == "state" or found[key].dtype == spec.dtype)
                for key, spec in self._obs.spec.items()
            )
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            if fault := self._obs.fault(obs):
                raise self._fault(*self._of_space(fault)) from error
            raise
        if fits:
            return found
        raise self._fault(*self._of_space(self._obs.fault(obs) or ("more entries", "fewer")))

    def _of_space(self, fault: tuple[str, str]) -> tuple[str, str]:
        found, expected = fault
        return f"{found} from {self._where}; its observation_space says {expected}", ""

    def _number(self, what: str, value: Any) -> float:
        """A single number of an answer; also one in an array, as environments of batches return it."""
        if isinstance(value, float | bool):
            return value
        array = np.asarray(value)
        if array.size != 1 or array.dtype.kind not in "fiub":
            kind = f"of shape {array.shape}" if array.shape else f"{value!r}"
            raise self._fault(f"{what} {kind} from {self._where}", "a single number")
        return float(array.item())

    @property
    def _where(self) -> str:
        if self._steps == 0:
            return "reset"
        return "step" if self._steps == 1 else f"step {self._steps} of the episode with seed {self._seed}"

    def _fault(self, found: str, expected: str) -> EnvError:
        more = f"; expected {expected}" if expected else ""
        return EnvError(f"'{self._name}' returned {found}{more}. Correct the environment.")


def _found(answer: Any) -> str:
    """What was returned instead of a tuple, in words."""
    if isinstance(answer, tuple | list):
        return f"{len(answer)} values" if len(answer) not in (2, 5) else "no dictionary as info"
    return f"a single value of kind {type(answer).__name__}"


def _in_gymnasium(error: BaseException) -> bool:
    """True if Gymnasium's code raised the error, and not the environment's own."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename.replace("\\", "/")
    return any(part in last for part in OURS_OF_GYMNASIUM)
