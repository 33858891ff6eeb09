"""Videos whose pictures get brighter, or darker, from frame to frame, as their instruction says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy import ndarray

from robo_rl.core.spec import ArraySpec, EnvSpec
from robo_rl.core.text.instruction import INSTRUCTION, INSTRUCTION_SPEC, to_bytes
from robo_rl.data.store import DatasetWriter
from tests.policies.dot_video import CAMERA, ENV

SIDE, LEVELS = 8, 8
BRIGHTER, DARKER = "make it brighter", "make it darker"
TOLD_ENV = replace(
    ENV,
    name="test/light",
    obs={CAMERA: ArraySpec((SIDE, SIDE, 3), "uint8"), INSTRUCTION: INSTRUCTION_SPEC},
)


def light(level: int) -> ndarray:
    """(8, 8, 3) uint8 of one grey; level: 0 to LEVELS - 1."""
    return np.full((SIDE, SIDE, 3), 20 + 30 * level, np.uint8)


def record_light(
    path: Path,
    videos: int,
    *,
    success: bool | None = True,
    complete: bool = True,
    env: EnvSpec = TOLD_ENV,
    text: str | None = None,
) -> Path:
    """Videos of LEVELS frames; every second one starts bright and is told DARKER, the others BRIGHTER.

    text: the instruction of all of them instead.
    """
    writer = DatasetWriter.create(path, env, min_free_bytes=0, durable=False)
    for number in range(videos):
        told, levels = (DARKER, range(LEVELS)[::-1]) if number % 2 else (BRIGHTER, range(LEVELS))
        with writer.episode(seed=number) as episode:
            for level in levels:
                seen = {key: light(level) for key in env.obs}
                if INSTRUCTION in seen:
                    seen[INSTRUCTION] = to_bytes(text or told, stored=True)
                episode.add(seen, np.zeros(env.action.dim, np.float32), reward=0.0)
            episode.commit(success=success, complete=complete)
    return path
