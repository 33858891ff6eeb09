"""Contracts of environments and robots: observation keys with shapes and units, action limits, rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from robo_rl.core.errors import ConfigError
from robo_rl.core.text.named_numbers import count_fault

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
    """One array of an observation, without the batch axis. `shape` may be given as any sequence of whole
    numbers.
    """

    shape: tuple[int, ...]
    dtype: str = (
        "float32"  # "float32"; "uint8": `image.<camera>` (h, w, 3), `segmentation.<camera>` (h, w, 1)
    )
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _sizes(self.shape))
        _text(self.dtype, "dtype")
        _text(self.unit, "unit")
        if len(self.shape) == 1:
            _named(self.unit, self.shape[0])

    @property
    def torch_dtype(self) -> torch.dtype:
        import torch

        dtype = getattr(torch, self.dtype)
        assert isinstance(dtype, torch.dtype)
        return dtype


def dtypes_conflict(one: str, two: str) -> bool:
    """Whether numbers of the two types differ in meaning. Floats of any precision agree, because networks
    compute in float32.
    """
    return one != two and not (one.startswith("float") and two.startswith("float"))


# Prefix of the label that gives the place to act in a picture: `target.<camera>` (2,), x to the right and y
# down, -1 and 1 at the edges of `image.<camera>`. Only simulators know it.
TARGET = "target"
NAMED_SENSES = {"instruction": "text", "privileged": "privileged", TARGET: "target"}


def sense_of(key: str, spec: ArraySpec) -> str:
    """Kind of an observation: "image" (h, w, 3) uint8, "segmentation" (h, w, 1) uint8 (indices into
    `SEGMENTS`), "depth" (h, w) [m], "points" (p, 3) [m], "text" (bytes of an instruction), "privileged" (what
    only a simulator knows), "target" (a label that a policy learns to predict, see `TARGET`), else "state"
    (numbers of any type and shape, also uint8 that has not the three axes of a picture).
    """
    prefix = key.partition(".")[0]
    if prefix in NAMED_SENSES:
        return NAMED_SENSES[prefix]
    if spec.dtype == "uint8" and (len(spec.shape) == 3 or prefix in ("image", "segmentation")):
        return "segmentation" if prefix == "segmentation" else "image"
    return prefix if prefix in ("depth", "points") else "state"


def target_of(picture: str) -> str:
    """Key of the place to act in the picture `image.<camera>`."""
    return f"{TARGET}.{picture.partition('.')[2]}"


def image_fault(key: str, spec: ArraySpec) -> str:
    """Sentence on an `image.<camera>` that is not uint8 (h, w, 3), or a depth that holds whole numbers, which
    are not metres; empty for all other observations.
    """
    if sense_of(key, spec) == "depth" and not spec.dtype.startswith("float"):
        return (
            f"Observation '{key}' is {spec.dtype} {spec.shape}, but depths must be float32 in metres: divide "
            "millimetres by 1000."
        )
    rgb = spec.dtype == "uint8" and len(spec.shape) == 3 and spec.shape[-1] == 3
    if rgb or not key.startswith("image."):
        return ""
    return (
        f"Observation '{key}' is {spec.dtype} {spec.shape}, but an image must be uint8 (h, w, 3): "
        f'ArraySpec((48, 64, 3), "uint8").'
    )


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """Limits of the executed action, one entry per dimension, in `unit`. Policies act in [-1, 1].

    `low` and `high` may be given as any sequence of numbers, such as a NumPy array, and are kept as tuples.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", _floats(self.low, "low"))
        object.__setattr__(self, "high", _floats(self.high, "high"))
        _text(self.unit, "unit")
        if len(self.low) != len(self.high):
            raise ConfigError(
                f"Action limits need one low and one high for every dimension, found {len(self.low)} in low "
                f"and {len(self.high)} in high."
            )
        pairs = zip(self.low, self.high, strict=True)
        if any(not -math.inf < lo < hi < math.inf for lo, hi in pairs):
            raise ConfigError(
                f"Action limits need finite low < high in every dimension, found {self.low} and {self.high}."
            )
        _named(self.unit, len(self.low))

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
                "state": ArraySpec((6,), unit="rad: a, b, c, d, e, f"),
                "image.front": ArraySpec((96, 96, 3), "uint8"),
            },
            action=ActionSpec(low=(-3.14,) * 6, high=(3.14,) * 6, unit="rad: a, b, c, d, e, f"),
            max_episode_steps=600,
            control_hz=30.0,
        )

    Units name the numbers, joints as in the robot's description: a policy that is to drive the robot needs
    them (`hardware.layout`, `robo-rl contract`).
    """

    name: str  # "<suite>/<task>", e.g. "metaworld/peg-insert-side-v3"
    obs: dict[str, ArraySpec]
    action: ActionSpec
    max_episode_steps: int
    control_hz: float

    def __post_init__(self) -> None:
        _text(self.name, "name")
        for key, array in self.obs.items():
            _text(key, "obs")
            if not isinstance(array, ArraySpec):
                raise ConfigError(
                    f"Observation '{key}' of a contract is {array!r}, an ArraySpec was expected, such as "
                    "ArraySpec((6,))."
                )
        object.__setattr__(self, "max_episode_steps", _whole(self.max_episode_steps, "max_episode_steps"))
        object.__setattr__(self, "control_hz", _number(self.control_hz, "control_hz"))

    @property
    def simulated(self) -> bool:
        """True if `sim.registry` can make it. Policies with any other contract run on the robot only.

        Its names have a suite, as in arm/lift; robot/<name> and a name without a suite are robots.
        """
        suite, of_suite, _ = self.name.partition("/")
        return bool(of_suite) and suite != ROBOT_SUITE

    def for_datasets(self) -> EnvSpec:
        """The same contract without observations `privileged.<name>`, which only scripted experts read."""
        return self._without("privileged")

    def for_policies(self) -> EnvSpec:
        """`for_datasets` without `target.<camera>`, which policies learn to predict and do not read."""
        return self._without("privileged", "target")

    def _without(self, *senses: str) -> EnvSpec:
        kept = {key: array for key, array in self.obs.items() if sense_of(key, array) not in senses}
        return self if len(kept) == len(self.obs) else replace(self, obs=kept)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> EnvSpec:
        """Contract from the output of `to_json`. Raises ConfigError for a value that a contract cannot have,
        and KeyError, TypeError, AttributeError or OverflowError for a different structure.
        """
        obs = {key: ArraySpec(tuple(a["shape"]), a["dtype"], a["unit"]) for key, a in data["obs"].items()}
        action = data["action"]
        action = ActionSpec(tuple(action["low"]), tuple(action["high"]), action["unit"])
        return cls(data["name"], obs, action, data["max_episode_steps"], data["control_hz"])


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{what} of a contract is {value!r}, text was expected.")
    return value


def _named(unit: str, count: int) -> None:
    if fault := count_fault(_text(unit, "unit"), count):
        raise ConfigError(fault)


def _whole(value: object, what: str) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 < int(value) < 2**31:
        raise ConfigError(f"{what} of a contract is {value!r}, a whole number of at least 1 was expected.")
    return int(value)  # also of an integer of NumPy


def _number(value: object, what: str) -> float:
    """A float. Raises ConfigError for anything but a number, OverflowError for one outside the range of
    floats.
    """
    if not isinstance(value, Real) or isinstance(value, bool):
        raise ConfigError(f"{what} of a contract is {value!r}, a number was expected.")
    return float(value)


def _sizes(shape: object) -> tuple[int, ...]:
    """A shape. Raises ConfigError for anything but a sequence of whole numbers of at least 1."""
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise ConfigError(f"The shape {shape!r} of a contract is no sequence of whole numbers, such as (3,).")
    return tuple(_whole(size, f"the shape {shape!r}") for size in shape)


def _floats(limits: object, which: str) -> tuple[float, ...]:
    """Limits of an action. Raises ConfigError for anything but a sequence of numbers."""
    if hasattr(limits, "tolist"):  # an array or a tensor
        limits = limits.tolist()
    if not isinstance(limits, Iterable) or isinstance(limits, str):
        raise ConfigError(f"{which} of the action is {limits!r}, one number per dimension was expected.")
    return tuple(_number(value, f"{which} of the action") for value in limits)
