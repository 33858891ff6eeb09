"""Contracts of environments and robots: observation keys with shapes and units, action limits, rate."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import ConfigError

if TYPE_CHECKING:  # robot nodes read specs and start without torch
    import torch
    from torch import Tensor

_LIMITS: dict[tuple[Any, ...], tuple[Tensor, Tensor]] = {}  # of `_limits`
ROBOT_SUITE = "robot"  # "robot/<name>": recorded on a robot without a simulator
SEGMENTS = (
    "background",
    "fixture",
    "object",
    "robot",
)  # meaning of a pixel of `segmentation.<camera>`, by number


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One array of an observation, without the batch axis."""

    shape: tuple[int, ...]
    dtype: str = (
        "float32"  # "float32"; "uint8": `image.<camera>` (h, w, 3), `segmentation.<camera>` (h, w, 1)
    )
    unit: str = ""

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype


def sense_of(key: str, spec: ArraySpec) -> str:
    """Kind of an observation: "image" (h, w, 3) uint8, "segmentation" (h, w, 1) uint8 (indices into
    `SEGMENTS`), "depth" (h, w) [m], "points" (p, 3) [m], else "state" (numbers of any shape).
    """
    prefix = key.partition(".")[0]
    if spec.dtype == "uint8":
        return "segmentation" if prefix == "segmentation" else "image"
    return prefix if prefix in ("depth", "points") else "state"


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Limits of the executed action, one entry per dimension, in `unit`. Policies act in [-1, 1]."""

    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str = ""

    def __post_init__(self) -> None:
        pairs = zip(self.low, self.high, strict=False)
        if len(self.low) != len(self.high) or any(not -math.inf < lo < hi < math.inf for lo, hi in pairs):
            raise ConfigError(
                f"Action limits need finite low < high in every dimension, found {self.low} and {self.high}."
            )

    @property
    def dim(self) -> int:
        return len(self.low)

    def normalize(self, action: Tensor) -> Tensor:
        """Map the limits to [-1, 1]; the last axis is the action. Limits of [-1, 1] leave the action
        unchanged bit for bit.
        """
        if set(self.low) == {-1.0} and set(self.high) == {1.0}:
            return action
        low, high = _limits(self, action)
        return (action - low) * (2.0 / (high - low)) - 1.0

    def denormalize(self, action: Tensor) -> Tensor:
        """Inverse of `normalize`, clipped to the limits. Limits of [-1, 1] leave it unchanged bit for bit."""
        action = action.clamp(-1.0, 1.0)
        if set(self.low) == {-1.0} and set(self.high) == {1.0}:
            return action
        low, high = _limits(self, action)
        # Rounding may exceed the limits (17 of 100 random pairs do), hence the second clip.
        return (low + (action + 1.0) * (0.5 * (high - low))).maximum(low).minimum(high)


def _limits(spec: ActionSpec, like: Tensor) -> tuple[Tensor, Tensor]:
    """Limits as tensors of this dtype and device. Those of a GPU are made once: a copy at every step would
    delay it.
    """
    if like.device.type == "cpu":
        return like.new_tensor(spec.low), like.new_tensor(spec.high)
    key = (spec.low, spec.high, like.dtype, like.device)
    if key not in _LIMITS:
        _LIMITS[key] = like.new_tensor(spec.low), like.new_tensor(spec.high)
    return _LIMITS[key]


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """The contract between an environment (or robot), a dataset and a policy.

    A robot "my_arm" with six joints and one camera, recorded at 30 Hz::

        EnvSpec(
            name="robot/my_arm",  # no simulator; "<suite>/<task>" for an environment of `make_env`
            obs={
                "state": ArraySpec((6,), unit="joint angles [rad]"),
                "image.front": ArraySpec((96, 96, 3), "uint8"),
            },
            action=ActionSpec(low=(-3.14,) * 6, high=(3.14,) * 6, unit="joint targets [rad]"),
            max_episode_steps=600,
            control_hz=30.0,
        )
    """

    name: str  # "<suite>/<task>", e.g. "metaworld/peg-insert-side-v3"
    obs: dict[str, ArraySpec]
    action: ActionSpec
    max_episode_steps: int
    control_hz: float

    @property
    def simulated(self) -> bool:
        """True if `sim.registry` can make it. Policies with any other contract run on the robot only."""
        return not self.name.startswith(f"{ROBOT_SUITE}/")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EnvSpec:
        """Contract from the output of `to_json`. Raises ConfigError for a value that a contract cannot have,
        and KeyError, TypeError, AttributeError or OverflowError for a different structure.
        """
        obs = {
            _text(key, "obs"): ArraySpec(
                tuple(_whole(size, f"the shape of '{key}'") for size in a["shape"]),
                _text(a["dtype"], "dtype"),
                _text(a["unit"], "unit"),
            )
            for key, a in data["obs"].items()
        }
        low, high = (
            tuple(_number(x, f"{key} of the action") for x in data["action"][key]) for key in ("low", "high")
        )
        action = ActionSpec(low, high, _text(data["action"]["unit"], "unit"))
        steps = _whole(data["max_episode_steps"], "max_episode_steps")
        return cls(_text(data["name"], "name"), obs, action, steps, _number(data["control_hz"], "control_hz"))


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} of a contract is {value!r}, text was expected.")
    return value


def _whole(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**31:
        raise ConfigError(f"{what} of a contract is {value!r}, a whole number of at least 1 was expected.")
    return value


def _number(value: object, what: str) -> float:
    """A float. Raises ConfigError for anything but a number, OverflowError for one outside the range of
    floats.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ConfigError(f"{what} of a contract is {value!r}, a number was expected.")
    return float(value)
