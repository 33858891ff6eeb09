"""Arrays that the lanes and the vector environment exchange, in private or shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robo_rl.core.spec import EnvSpec

_ALIGN = 64  # bytes: no two arrays share a cache line


@dataclass(frozen=True, slots=True)
class Buffers:
    """Batch arrays; the first axis is the lane. n = lanes, a = action dimension, k = extra info scalars.

    `reward` ... `info` describe the last step. `obs` is the newest observation; after a reset it is the first
    one of the next episode. `success` stays true from the first success to the end of the episode.
    """

    action: NDArray[np.float32]  # (n, a), clipped to the limits, in the units of `spec.action`
    seed: NDArray[np.int64]  # (n,) seed for the next reset
    unread: NDArray[np.bool_]  # (n,) pictures of the next step are not read, unless it ends the episode
    obs: dict[str, NDArray[Any]]  # key -> (n, *shape)
    reward: NDArray[np.float32]  # (n,)
    terminated: NDArray[np.bool_]  # (n,)
    truncated: NDArray[np.bool_]  # (n,)
    success: NDArray[np.bool_]  # (n,)
    info: NDArray[np.float32]  # (n, k)

    @classmethod
    def over(cls, memory: Any, spec: EnvSpec, n: int, k: int) -> Buffers:
        """Views into `memory`, a writable buffer of at least `size_bytes(spec, n, k)` bytes."""
        arrays: dict[str, NDArray[Any]] = {}
        offset = 0
        for name, (shape, dtype) in _layout(spec, n, k).items():
            count = int(np.prod(shape))
            arrays[name] = np.frombuffer(memory, dtype, count, offset).reshape(shape)
            offset += _padded(count * dtype.itemsize)
        obs = {key: arrays.pop(_OBS + key) for key in spec.obs}
        return cls(obs=obs, **arrays)

    def lanes(self, first: int, last: int) -> Buffers:
        """Views of lanes first ... last - 1."""
        block = slice(first, last)
        return Buffers(
            self.action[block],
            self.seed[block],
            self.unread[block],
            {key: value[block] for key, value in self.obs.items()},
            self.reward[block],
            self.terminated[block],
            self.truncated[block],
            self.success[block],
            self.info[block],
        )


def size_bytes(spec: EnvSpec, n: int, k: int) -> int:
    """Bytes that `Buffers.over` needs."""
    return sum(_padded(int(np.prod(shape)) * dtype.itemsize) for shape, dtype in _layout(spec, n, k).values())


_OBS = "obs."


def _layout(spec: EnvSpec, n: int, k: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    flag, real = np.dtype(np.bool_), np.dtype(np.float32)
    obs = {_OBS + key: ((n, *array.shape), np.dtype(array.dtype)) for key, array in spec.obs.items()}
    return {
        "action": ((n, spec.action.dim), real),
        "seed": ((n,), np.dtype(np.int64)),
        "unread": ((n,), flag),
        **obs,
        "reward": ((n,), real),
        "terminated": ((n,), flag),
        "truncated": ((n,), flag),
        "success": ((n,), flag),
        "info": ((n, k), real),
    }


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
