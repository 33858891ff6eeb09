"""Camera frames stored once each: windows of history and next observations are found by index.

A replay of stacked observations stores a frame 2 * To times: in To windows, each as an observation and as a
next one. Here a lane has a ring of frames, and a replay's entry holds the numbers of its two newest frames.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.lanes import Lanes
from robo_rl.core.protocols import Obs
from robo_rl.core.shapes import Bool, Int, UInt8


class FrameRing:
    """Rings of the newest `slots` frames of every lane, uint8.

    Frames of a lane are numbered from 0 on, over all its episodes. An episode's frames are consecutive, from
    that of its reset to its last observation, which precedes the first frame of the next episode. shapes:
    camera -> (h, w, 3). obs_steps: frames To of a window. pinned: pictures are in the host's memory, which a
    GPU reads and writes without the host; a run on the CPU has them there anyway. In the masked form of
    `Lanes`, storing and finding do not read the device.
    """

    def __init__(
        self,
        slots: int,
        lanes: int,
        shapes: Mapping[str, tuple[int, ...]],
        obs_steps: int = 1,
        device: torch.device | str = "cpu",
        pinned: bool = False,
    ) -> None:
        if slots < obs_steps + 1:
            raise ConfigError(
                f"A ring of {slots} frames cannot hold an observation of {obs_steps} frames and the next "
                f"one. Give each lane at least {obs_steps + 1}."
            )
        self.slots, self.obs_steps = slots, obs_steps
        self.data: dict[str, Tensor] = {
            key: pictures_memory((lanes, slots, *shape), torch.device(device), pinned)
            for key, shape in shapes.items()
        }
        self.head = torch.zeros(lanes, dtype=torch.long, device=device)  # frames ever stored, per lane
        self.age = torch.zeros(lanes, slots, dtype=torch.long, device=device)  # frames since the reset

    @property
    def newest(self) -> Int[Tensor, " n"]:
        """Number of the newest frame of every lane; -1: none."""
        return self.head - 1

    @property
    def oldest(self) -> Int[Tensor, " n"]:
        """Number of the oldest frame that is not overwritten; negative while there is room for more."""
        return self.head - self.slots

    @staticmethod
    def bytes_of(slots: int, lanes: int, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """Memory of a ring: one byte per pixel and colour, and 8 for each frame's age."""
        return slots * lanes * (8 + sum(math.prod(shape) for shape in shapes.values()))

    def append(self, lanes: Lanes, frames: Obs, first: Bool[Tensor, " k"] | None = None) -> Int[Tensor, " k"]:
        """Store the newest frame of each of these lanes; returns the frames' numbers.

        frames: camera -> (k, h, w, 3). first: where an episode starts with it; None: nowhere.
        """
        number = lanes.read(self.head).clone()  # a view, if these are all lanes
        before = self.age[lanes.ids, (number - 1) % self.slots]
        age = torch.minimum(before + 1, number)  # nothing precedes a lane's frame 0
        if first is not None:
            age = age.masked_fill(first, 0)
        lanes.put(self.age, number % self.slots, age)
        for key, table in self.data.items():
            lanes.put(table, number % self.slots, frames[key])
        lanes.add(self.head, 1)
        return number

    def windows(self, lane: Int[Tensor, " b"], number: Int[Tensor, " b"]) -> Obs:
        """camera -> (b, To, h, w, 3): each frame with its history, newest last, padded with the episode's
        first.
        """
        steps = torch.arange(self.obs_steps - 1, -1, -1, device=number.device)
        back = torch.minimum(steps, self.age[lane, number % self.slots].unsqueeze(1))
        rows = lane.unsqueeze(1) * self.slots + (number.unsqueeze(1) - back) % self.slots
        return {key: table.flatten(0, 1)[rows] for key, table in self.data.items()}

    def holds(self, lane: Int[Tensor, " b"], number: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """True where the entire window of a frame is stored and not overwritten yet."""
        back = self.age[lane, number % self.slots].clamp(max=self.obs_steps - 1)
        newest = self.head[lane]
        return (number >= 0) & (number < newest) & (number - back >= newest - self.slots)

    def state_dict(self) -> dict[str, Tensor]:
        """The filled part only, so that early checkpoints are small. Pictures are views, which the next
        `append` changes: copies would double the memory of a run.
        """
        used = int(self.head.max().clamp(max=self.slots))
        kept = {f"frames.{key}": table[:, :used] for key, table in self.data.items()}
        return kept | {"age": self.age[:, :used].clone(), "head": self.head.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state. Raises CheckpointError if it has other lanes, slots or pictures."""
        used = int(state["head"].max().clamp(max=self.slots))
        tables = {"age": self.age} | {f"frames.{key}": table for key, table in self.data.items()}
        for name, table in tables.items():
            found = tuple(state[name].shape) if name in state else None
            if found != (expected := tuple(table[:, :used].shape)):
                raise CheckpointError(
                    f"The frames of this checkpoint have {name} of shape {found}, expected {expected}. "
                    "Resume with the settings and the base that the run was started with."
                )
        for name, table in tables.items():
            table[:, :used] = state[name]
        self.head.copy_(state["head"])


def pictures_memory(shape: tuple[int, ...], device: torch.device, pinned: bool) -> UInt8[Tensor, "..."]:
    """Zeros on the device. pinned: a GPU's tensor over pinned memory of the host."""
    if not pinned or device.type == "cpu":
        return torch.zeros(shape, dtype=torch.uint8, device=device)
    return torch.as_tensor(_MappedHostMemory(shape), device=device)


class _MappedHostMemory:
    """Pinned memory in the form in which `torch.as_tensor` takes the memory of a GPU, without a copy."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._memory = torch.zeros(shape, dtype=torch.uint8, pin_memory=True)
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "|u1", "data": (self._memory.data_ptr(), False), "version": 3
        }  # fmt: skip
