"""A small vision-language-action policy, and a task with pictures and words, for tests of every verb."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from policies.vla.config import VlaConfig, VlaFlowConfig
from policies.vla.policy import VlaPolicy
from robo_rl.core.protocols import Obs
from robo_rl.core.spec import ActionSpec, ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.normalizer import Normalizer
from sim.vec.lane import LaneObs, LaneStep
from sim.vec.workers import WorkerVecEnv

PICTURE = ArraySpec((32, 32, 3), "uint8")
CAMERAS = ("image.top", "image.wrist")
SPEC = EnvSpec(
    "fake/sides",
    {"state": ArraySpec((3,), unit="m"), **dict.fromkeys(CAMERAS, PICTURE), INSTRUCTION: INSTRUCTION_SPEC},
    ActionSpec((-2.0, -2.0), (2.0, 2.0), "m"),
    6,
    50.0,
)
SIDES = {"go to the left side": -1.0, "right": 1.0}
WORDS = tuple(sorted({word for text in SIDES for word in text.split()}))
TP, TA = 4, 2


def small_vla(
    seed: int = 0,
    spec: EnvSpec = SPEC,
    memory: int = 0,
    spatial: float = 0.0,
    experts: Sequence[list[int]] = (),
    **process: object,
) -> VlaPolicy:
    """Policy whose expert is not at its zero start, where actions would depend on nothing."""
    torch.manual_seed(seed)
    flow = VlaFlowConfig(**{"steps": 4} | process)  # type: ignore[arg-type]
    more: dict[str, Any] = {"memory": memory, "spatial": spatial, "experts": list(experts)}
    config = VlaConfig(width=32, layers=2, heads=4, kv_heads=2, process=flow, **more)
    made = VlaPolicy(spec, Normalizer({"state": spec.obs["state"].shape}), config, TP, TA, WORDS)
    for parameter in made.net.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    for name, parameter in made.net.named_parameters():
        if name.endswith("recalled.weight"):  # its input is of unit size, and random weights amplify rounding
            torch.nn.init.normal_(parameter, std=0.05)
    return made.eval().requires_grad_(False)


def token_vla(
    seed: int = 0, spec: EnvSpec = SPEC, memory: int = 0, spatial: float = 0.0, *, random: bool = True
) -> VlaPolicy:
    """`small_vla` with actions as tokens of 16 bins; random: its decoder is not at its zero start."""
    torch.manual_seed(seed)
    config = VlaConfig(
        width=32, layers=2, heads=4, kv_heads=2, memory=memory, spatial=spatial, head="tokens", bins=16
    )
    made = VlaPolicy(spec, Normalizer({"state": spec.obs["state"].shape}), config, TP, TA, WORDS)
    for parameter in made.net.parameters() if random else ():
        torch.nn.init.normal_(parameter, std=0.2)
    return made.eval().requires_grad_(False)


def seen(*texts: str, seed: int = 1) -> Obs:
    """One observation for each instruction, with pictures and states of their own."""
    rng, n = torch.Generator().manual_seed(seed), len(texts)
    shape = (n, 1, *PICTURE.shape)
    pictures = {key: torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8) for key in CAMERAS}
    words = torch.stack([torch.from_numpy(to_bytes(text).copy()) for text in texts]).unsqueeze(1)
    return {"state": torch.rand(n, 1, 3, generator=rng), **pictures, INSTRUCTION: words}


def drawn(rows: int, seed: int = 2) -> torch.Tensor:
    """Noise of chunks."""
    return torch.randn(rows, TP, 2, generator=torch.Generator().manual_seed(seed))


@dataclass
class SidesLane:
    """position += action / 4, in a picture of its brightness. Success: position 0.8 on the told side."""

    spec: EnvSpec = SPEC
    info_keys: tuple[str, ...] = ()
    _position: NDArray[np.float32] = field(default_factory=lambda: np.zeros(2, np.float32))
    _told: str = "right"
    _steps: int = 0

    def reset(self, seed: int) -> LaneObs:
        self._position[:], self._steps = 0.0, 0
        self._told = list(SIDES)[seed % 2]
        return self._obs()

    def step(self, action: NDArray[np.float32]) -> LaneStep:
        self._position += action / 4.0
        self._steps += 1
        there = bool(self._position[0] * SIDES[self._told] > 0.8)
        return self._obs(), float(there), there, not there and self._steps >= SPEC.max_episode_steps, there

    def _obs(self) -> LaneObs:
        light = np.uint8(np.clip(128 + 60 * self._position[0], 0, 255))
        pictures = {key: np.full(PICTURE.shape, light, np.uint8) for key in CAMERAS}
        state = np.array([*self._position, self._steps / 6.0], np.float32)
        return {"state": state, **pictures, INSTRUCTION: to_bytes(self._told)}

    def info(self) -> Sequence[float]:
        return ()

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None:
        pass


def sides_env(lanes: int = 3) -> WorkerVecEnv:
    return WorkerVecEnv(SidesLane, lanes)
