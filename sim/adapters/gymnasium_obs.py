"""Observations of Gymnasium spaces under the names of a contract: `state`, and `image.<key>` for pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.errors import ConfigError
from robo_rl.core.spec import ArraySpec
from sim.adapters.flat import flat, named
from sim.vec.lane import LaneObs

ONLY_PICTURE = "camera"  # name of a picture that is the entire observation
_Path = tuple[str, ...]  # keys from the outer dictionary inwards
REMEDY = (
    "Wrap the environment where you register it: in gymnasium.wrappers.FlattenObservation, or in a wrapper "
    "of your own."
)


class GymnasiumObs:
    """Names and arrays of the observations of one space: a Box, or a Dict of Boxes, also a nested one.

    uint8 (h, w, 3) is a picture: `image.<key>` (keys of nested ones joined by "_"), or `image.camera` without
    a Dict. All other numbers are `state`, in alphabetical order of their keys.
    """

    def __init__(self, name: str, space: Any) -> None:
        """name: of the environment. Raises ConfigError for a space that a policy cannot read."""
        self._boxes = boxes = dict(_boxes(name, space))
        self._pictures: dict[str, _Path] = {}  # name in the contract -> keys in the observation
        for path, box in boxes.items():
            if _is_picture(name, path, box):
                key = _picture_name(path)
                if key in self._pictures:
                    raise ConfigError(f"'{name}' has two pictures that are both called {key}. Rename one.")
                self._pictures[key] = path
        self._paths = frozenset(self._pictures.values())
        self.spec = {key: ArraySpec(boxes[path].shape, "uint8") for key, path in self._pictures.items()}
        self._has_state = len(boxes) > len(self._paths)
        if self._has_state:
            numbers = self._numbers(_zeros(space))
            self.spec["state"] = ArraySpec((flat(numbers).size,), unit=named(numbers))
        if not self.spec:
            raise ConfigError(f"'{name}' has an observation space without entries. Give it a Box.")

    def read(self, obs: Any) -> LaneObs:
        """An observation of the environment under the names of `spec`."""
        found: dict[str, NDArray[Any]] = {key: _at(obs, path) for key, path in self._pictures.items()}
        if self._has_state:
            found["state"] = flat(self._numbers(obs))
        return found

    def own(self, seen: Mapping[str, NDArray[Any]]) -> Any:
        """The observation as the environment gives it, of one under the names of `spec`: an array or a dict,
        with the dtypes of the space.
        """
        pictures, at, found = {path: key for key, path in self._pictures.items()}, 0, {}
        for path, box in self._boxes.items():
            size = 0 if path in pictures else math.prod(box.shape)
            value = seen[pictures[path]] if path in pictures else seen["state"][at : at + size]
            found[path] = value.reshape(box.shape).astype(box.dtype)
            at += size
        return _nested(found)

    def fault(self, obs: Any) -> tuple[str, str] | None:
        """(what an observation holds, what the space says) at the first entry that does not fit; None if all
        do.
        """
        for path, box in self._boxes.items():
            what = f"an observation '{'.'.join(path)}'" if path else "an observation"
            try:
                array = np.asarray(_at(obs, path))
            except (TypeError, KeyError, IndexError):
                return f"no {what.removeprefix('an ')}", f"{box.shape}"
            except ValueError:
                return f"{what} of several lengths", f"{box.shape}"
            if array.dtype.kind not in "biuf":
                return f"{what} of kind {type(_at(obs, path)).__name__}", f"{box.dtype} {box.shape}"
            if array.shape != box.shape:
                return f"{what} of shape {array.shape}", f"{box.shape}"
            if path in self._paths and array.dtype != box.dtype:  # a picture in [0, 1] would become black
                return f"{what} of {array.dtype} numbers", f"{box.dtype}"
        if isinstance(obs, Mapping) and (more := _entries(obs) - set(self._boxes)):
            return f"an observation '{'.'.join(min(more))}'", "nothing of it"
        return None

    def _numbers(self, obs: Any, path: _Path = ()) -> Any:
        """The observation without its pictures, and without dictionaries that hold nothing else."""
        if not self._paths or not isinstance(obs, Mapping):
            return obs
        kept = {
            key: self._numbers(value, (*path, key))
            for key, value in obs.items()
            if (*path, key) not in self._paths
        }
        return {key: value for key, value in kept.items() if not isinstance(value, Mapping) or value}


def _at(obs: Any, path: _Path) -> Any:
    """Entry of an observation."""
    for key in path:
        obs = obs[key]
    return obs


def _nested(found: Mapping[_Path, Any]) -> Any:
    """Nested dicts of values by their keys from the outer dict inwards; the value itself without keys."""
    if () in found:
        return found[()]
    outer: dict[str, Any] = {}
    for path, value in found.items():
        inner = outer
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = value
    return outer


def _entries(obs: Mapping[Any, Any], path: _Path = ()) -> set[_Path]:
    """Keys of all entries of an observation."""
    found = set[_Path]()
    for key, value in obs.items():
        inner = (*path, str(key))
        found |= _entries(value, inner) if isinstance(value, Mapping) else {inner}
    return found


def _boxes(name: str, space: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """(keys, Box) of the space. Raises ConfigError for any other kind of space."""
    from gymnasium.spaces import Box, Dict

    if isinstance(space, Dict):
        for key in sorted(space.spaces):
            yield from _boxes(name, space[key], (*path, key))
    elif isinstance(space, Box):
        yield path, space
    else:
        raise ConfigError(
            f"'{name}' has {_what(path)} of kind {type(space).__name__}; expected Box, or Dict of Box. "
            f"{REMEDY}"
        )


def _is_picture(name: str, path: _Path, box: Any) -> bool:
    """Whether a Box is a picture. Raises ConfigError for pictures of another form."""
    if box.dtype != np.uint8 or len(box.shape) < 3:
        return False
    if len(box.shape) == 3 and box.shape[-1] == 3:
        return True
    raise ConfigError(
        f"'{name}' has {_what(path)} of uint8 {box.shape}; a picture is uint8 (h, w, 3). {REMEDY}"
    )


def _what(path: _Path) -> str:
    return f"an observation '{'.'.join(path)}'" if path else "observations"


def _picture_name(path: _Path) -> str:
    """`image.<key>`; what names of datasets cannot hold becomes "_"."""
    key = re.sub(r"[^A-Za-z0-9_.\-]", "_", "_".join(path)) or ONLY_PICTURE
    return key if key.startswith("image.") else f"image.{key}"


def _zeros(space: Any) -> Any:
    """An observation of the space, all 0."""
    if hasattr(space, "spaces"):
        return {key: _zeros(inner) for key, inner in space.spaces.items()}
    return np.zeros(space.shape, space.dtype)
