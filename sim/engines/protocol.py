"""Protocol between tasks and physics engines: ten methods. An engine that implements them runs every task.

Axes: n = worlds (one per lane), k = some of them; nq, nv, nu, nb, nf, nt as in `sim.engines.scene`. SI units,
world frame, quaternions wxyz (body -> world). Torch tensors, float64 or float32, on the engine's device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from robo_rl.core.shapes import Bool, Float, Int
from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation


@dataclass(frozen=True, slots=True)
class Physics:
    """State of n worlds, in fresh tensors: the caller may keep them."""

    qpos: Float[Tensor, "n nq"]
    qvel: Float[Tensor, "n nv"]
    body_m: Float[Tensor, "n nb 3"]
    body_quat: Float[Tensor, "n nb 4"]
    touch_n: Float[Tensor, "n nt"]  # normal force on each touch sensor in the last sub-step [N]


class Start(NamedTuple):
    """Start state of k worlds: at rest except for `qvel`, servo targets `ctrl`."""

    qpos: Float[Tensor, "k nq"]
    ctrl: Float[Tensor, "k nu"]
    fixture_m: Float[Tensor, "k nf 3"]
    fixture_quat: Float[Tensor, "k nf 4"]
    qvel: Float[Tensor, "k nv"] | None = None  # zero when not given


@runtime_checkable
class RestartsByMask(Protocol):
    """An engine that restarts worlds without the host knowing which."""

    def set_state_where(self, mask: Bool[Tensor, " n"], start: Start) -> None:
        """`set_state` of the worlds at which `mask` is true. start: of all n worlds."""
        ...

    def randomise_where(self, mask: Bool[Tensor, " n"], changes: Mapping[str, Tensor]) -> None:
        """`randomise` of these worlds. changes: of all n worlds, each of which `randomise` has changed before
        in the same way; factors above 0, which is not checked.
        """
        ...


@runtime_checkable
class Engine(Protocol):
    """n copies of one scene, stepped together.

    The motion of a world depends only on its start, its changes and its commands, not on earlier episodes or
    on other worlds. The engine never resets a world, not even when its state is no longer finite: the caller
    checks.
    """

    scene: Scene
    num_envs: int
    device: Any  # torch.device

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        """Advance by `substeps` steps of `scene.timestep_s` with constant position targets of the servos."""
        ...

    def physics(self) -> Physics:
        """Current state, body positions included."""
        ...

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        """Restart these worlds; `physics` returns the new state at once."""
        ...

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        """Change parameters of these worlds from now on; keys and shapes as in `sim.engines.changes`.

        Raises ConfigError for a change that the engine does not support.
        """
        ...

    def save(self) -> dict[str, Tensor]:
        """Everything needed to continue from here exactly, in this engine."""
        ...

    def load(self, saved: Mapping[str, Tensor]) -> None: ...

    def render(
        self,
        world: int,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        visuals: VisualRandomisation | None = None,
    ) -> Tensor:
        """Picture of a world from a camera of the scene, by its name; "": from a free one.

        By kind: (h, w, 3) uint8 "rgb", or "pretty" with shadows and smooth edges; (h, w) float32 "depth" [m];
        (h, w, 4) float32 "rgbd", both from one rendering; (h, w) int32 "segment": body indices, -1 for the
        sky. visuals: changed cameras, colours and light.
        """
        ...

    def close(self) -> None: ...
