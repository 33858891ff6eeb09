"""A user's function `obs -> action` in the lanes of an environment: a scripted expert, or any policy."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from robo_rl.core.errors import ConfigError, UnknownNameError
from robo_rl.core.plugins import NOT_FOUND, import_own, lacks
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Float
from robo_rl.core.spec import EnvSpec
from sim.adapters.gymnasium_obs import GymnasiumObs

Function: TypeAlias = Callable[..., Any]
PAGE = "docs/own-robot-task-engine.md"
_GYM = "gym/"
_FORM = (
    "expected: <module>:<name> of a function or class: the function, or an object of the class, returns the "
    "action for an observation"
)


def find_function(path: str) -> Function:
    """The function or class of `<module>:<name>`. Raises ConfigError for one that is not found or not
    callable.
    """
    module, _, name = path.partition(":")
    if not module or not name.isidentifier():
        raise ConfigError(f"expert={path} cannot be used, {_FORM} ({PAGE}).")
    try:
        found = import_own(module)
    except ModuleNotFoundError as error:
        if not lacks(error, module):
            raise
        raise ConfigError(
            f"expert={path} names the module '{module}', {NOT_FOUND}. Start in its folder, or install it."
        ) from error
    if not hasattr(found, name):
        known = [each for each, value in vars(found).items() if _acts(value, found.__name__)]
        raise UnknownNameError(f"function or class of {module}", name, known)
    return checked(getattr(found, name), f"expert={path}")


def _acts(value: Any, module: str) -> bool:
    """True for a function, and for a class of this module whose objects can be called."""
    if inspect.isclass(value):
        return value.__module__ == module and _makes_functions(value)
    return inspect.isfunction(value)


def _makes_functions(made: type) -> bool:
    """True for a class whose objects can be called."""
    return any("__call__" in vars(each) for each in made.__mro__)


def checked(function: Any, what: str) -> Function:
    """The function. Raises ConfigError for an object that cannot be called, a class of such objects, and one
    that takes other arguments.
    """
    if not callable(function):
        raise ConfigError(f"{what} is of the type {type(function).__name__}, {_FORM} ({PAGE}).")
    if inspect.isclass(function) and not _makes_functions(function):
        raise ConfigError(f"{what} is a class without __call__, {_FORM} ({PAGE}).")
    if inspect.isclass(function):
        _check_arguments(function, what, 0)
        # of an object: itself, where it is a method, and the observation
        _check_arguments(function.__call__, what, 1 if _takes_no_object(function) else 2)
    else:
        static = _takes_no_object(type(function))  # then `signature` of the object leaves out the observation
        _check_arguments(function.__call__ if static else function, what, 1)
    return function  # type: ignore[no-any-return]  # callable


def _takes_no_object(made: type) -> bool:
    """True for a class whose __call__ is a static or class method."""
    return isinstance(inspect.getattr_static(made, "__call__"), (staticmethod, classmethod))


def _check_arguments(function: Function, what: str, count: int) -> None:
    """Raise ConfigError if the function cannot be called with `count` arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions written in C, which are called to find out
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise ConfigError(_not_called(what, error, bool(count))) from error


def _not_called(what: str, error: TypeError, observes: bool) -> str:
    takes = "one argument, the observation" if observes else "none, at the start of every episode"
    return f"{what} cannot be called: {error}. Expected arguments: {takes} ({PAGE})."


def name_of(function: Function) -> str:
    """`<module>:<name>`, for notes and messages."""
    plain = function if hasattr(function, "__qualname__") else type(function)
    return f"{plain.__module__}:{plain.__qualname__}"


class OwnFunction:
    """Actions of a user's function in all lanes of one environment.

    It gets one observation as the environment itself gives it: for gym/ environments an array, or a dict with
    the environment's keys and shapes; for others the array `state`, or a dict of arrays by the names of the
    contract where there are more. It returns one action in the environment's units, as an array, list or
    tensor. A class is called at the start of every episode, and its object acts in that episode.
    """

    def __init__(self, function: Function, spec: EnvSpec) -> None:
        self._name = name_of(function)
        self._function, self._spec = checked(function, self._name), spec
        self._dim = spec.action.dim
        self._read, shape = _own_form(spec)
        self._shapes = {(self._dim,), shape, *([()] if self._dim == 1 else [])}
        self._acting: dict[int, Function] = {}

    def begin(self, lanes: Iterable[int]) -> None:
        """Begin episodes in these lanes."""
        for lane in lanes:
            self._acting[lane] = (
                _called(self._function) if inspect.isclass(self._function) else self._function
            )

    @torch.no_grad()
    def act(self, obs: Obs) -> Float[Tensor, "n a"]:
        """Actions in the environment's units, within its limits. obs: (n, *shape). Raises ConfigError for a
        result that is no action; an error inside the function is passed on.
        """
        arrays = {key: value.cpu().numpy() for key, value in obs.items()}
        rows = [
            self._checked(_called(act, self._read({key: value[lane] for key, value in arrays.items()})))
            for lane, act in sorted(self._acting.items())
        ]
        action = torch.from_numpy(np.stack(rows))
        low, high = (action.new_tensor(limit) for limit in (self._spec.action.low, self._spec.action.high))
        return torch.minimum(torch.maximum(action, low), high)

    def _checked(self, result: Any) -> NDArray[np.float32]:
        """The result as an action (a,)."""
        try:
            action = np.asarray(result.detach().cpu() if isinstance(result, Tensor) else result, np.float32)
            if result is None:
                raise TypeError
        except (TypeError, ValueError):
            raise ConfigError(
                f"{self._name} returned {_described(result)}, expected: an array of {self._dim} numbers, the "
                f"action of {self._spec.name}."
            ) from None
        if action.shape not in self._shapes:
            raise ConfigError(
                f"{self._name} returned an action of the shape {action.shape}, expected ({self._dim},): "
                f"{self._spec.name} has {self._dim} numbers in an action, and the function gets one "
                "observation, not a batch."
            )
        flat = action.reshape(self._dim)
        if not np.isfinite(flat).all():
            raise ConfigError(
                f"{self._name} returned an action that is not finite, {flat.tolist()}. Correct the function."
            )
        return flat


def _called(function: Function, *given: Any) -> Any:
    """The function's result. Raises ConfigError for a function that takes other arguments."""
    try:
        return function(*given)
    except TypeError as error:
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:  # raised inside it
            raise
        raise ConfigError(_not_called(name_of(function), error, bool(given))) from error


def _described(result: Any) -> str:
    return "None" if result is None else f"a result of the type {type(result).__name__}"


def _own_form(spec: EnvSpec) -> tuple[Callable[[Mapping[str, NDArray[Any]]], Any], tuple[int, ...]]:
    """(function that makes the environment's own observation of one of the contract, shape of actions)."""
    shape: tuple[int, ...] = (spec.action.dim,)
    if spec.name.startswith(_GYM):
        import gymnasium

        env = gymnasium.make(spec.name.removeprefix(_GYM), disable_env_checker=True)
        space, shape = env.observation_space, env.action_space.shape or shape
        env.close()
        return GymnasiumObs(spec.name, space).own, shape
    if set(spec.obs) == {"state"}:
        return lambda seen: seen["state"], shape
    return dict, shape
