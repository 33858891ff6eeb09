"""The seam between tasks and physics: what an engine has to do, in ten calls. Whoever implements it runs
every task.

Axes: n = worlds (one per lane), k = some of them; nq, nv, nu, nb, nf, nt as in `sim.engines.scene`. SI units,
the world's frame, quaternions wxyz (body -> world). Torch tensors, float64 or float32, on the engine's
device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from sim.engines.scene import Scene
from sim.engines.visual_randomisation import VisualRandomisation


@dataclass(frozen=True, slots=True)
class Physics:
    """What is known of n worlds. Fresh tensors: a caller may keep them."""

    qpos: Float[Tensor, "n nq"]
    qvel: Float[Tensor, "n nv"]
    body_m: Float[Tensor, "n nb 3"]
    body_quat: Float[Tensor, "n nb 4"]
    touch_n: Float[Tensor, "n nt"]  # normal force on each touch sensor in the last sub-step [N]


class Start(NamedTuple):
    """Where k worlds begin: at rest but for `qvel`, servos at `ctrl`."""

    qpos: Float[Tensor, "k nq"]
    ctrl: Float[Tensor, "k nu"]
    fixture_m: Float[Tensor, "k nf 3"]
    fixture_quat: Float[Tensor, "k nf 4"]
    qvel: Float[Tensor, "k nv"] | None = None  # zero when not given


@runtime_checkable
class Engine(Protocol):
    """n copies of one scene, stepped together.

    A world is a pure function of its start, its changes and its commands: no trace of what it was before or
    of its neighbours. It never resets itself, not even when its state stops being finite: whoever steps it
    looks.
    """

    scene: Scene
    num_envs: int
    device: Any  # torch.device

    def step(self, ctrl: Float[Tensor, "n nu"], substeps: int) -> None:
        """`substeps` steps of `scene.timestep_s`, with the same position targets of the servos."""
        ...

    def physics(self) -> Physics:
        """The state that was reached, positions of bodies included."""
        ...

    def set_state(self, worlds: Int[Tensor, " k"], start: Start) -> None:
        """Begin these worlds anew; `physics` shows it at once."""
        ...

    def randomise(self, worlds: Int[Tensor, " k"], changes: Mapping[str, Tensor]) -> None:
        """Other parameters in these worlds, from now on; keys and shapes as in `sim.engines.changes`.

        Raises ConfigError for what this engine cannot change.
        """
        ...

    def save(self) -> dict[str, Tensor]:
        """All it takes to go on from here, to the last bit, in this engine."""
        ...

    def load(self, saved: Mapping[str, Tensor]) -> None: ...

    def render(
        self,
        world: int,
        camera: str,
        height: int,
        width: int,
        kind: str = "rgb",
        look: VisualRandomisation | None = None,
    ) -> Tensor:
        """(h, w, 3) uint8 "rgb", or "pretty" with shadows and smooth edges; (h, w) float32 "depth" [m]; (h,
        w, 4) float32 "rgbd", both from one drawing; or (h, w) int32 "segment": rows of bodies, -1 the sky.

        look: other cameras, colours and light than the model's.
        """
        ...

    def close(self) -> None: ...
