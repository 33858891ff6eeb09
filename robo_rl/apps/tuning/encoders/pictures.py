"""Learned encoders of pictures: the copy that learns, the frames of its replay, and their memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from policies.observation import ObsEncoder
from policies.registry import SavedPolicy
from policies.tuned.fine_tuned import newest_encoder
from policies.vla.packed import has_prefix
from robo_rl.conf.dotted import flat
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.data.frames import FrameRing
from robo_rl.data.normalizer import Normalizer
from robo_rl.nets.image_encoder import ImageEncoderConfig, check_positions
from robo_rl.rl.demo_outcomes import DemoEpisode

PICTURES = ("image", "segmentation")  # senses that a replay of frames can hold: uint8
WRITTEN = 2  # copies of a replay in the host's memory while a checkpoint is written


@dataclass(frozen=True)
class LearnedPictures:
    """Encoder that learns, and where the pictures of its replay are kept."""

    encoder: ObsEncoder
    device: torch.device
    on_host: bool  # in the host's pinned memory, which a GPU reads

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """camera -> (h, w, c)."""
        return self.encoder.picture_shapes()

    @property
    def states_dim(self) -> int:
        """Numbers that the replay keeps beside the pictures of an observation."""
        encoder = self.encoder
        return encoder.obs_steps * sum(math.prod(encoder.spec[key].shape) for key in encoder.float_keys)

    @property
    def sentence(self) -> str:
        """Sentence on a setting without effect; empty without one."""
        if self.on_host and self.device.type == "cpu":
            return "method.frames=host has no effect on the CPU, whose memory is the host's."
        return ""

    def ring(self, slots: int, lanes: int) -> FrameRing:
        """Memory for `slots` pictures of every lane and camera."""
        steps = self.encoder.obs_steps
        return FrameRing(slots, lanes, self.shapes, steps, self.device, pinned=self.on_host)


def learned_pictures(
    method: MethodConfig, base: SavedPolicy, device: torch.device | str
) -> LearnedPictures | None:
    """The learned encoder of a run, a copy of the base's; None with method.encoder=frozen.

    Raises ConfigError if method and base do not fit it.
    """
    if method.encoder == "frozen":
        return None
    check_method(method)
    if has_prefix(base):
        raise ConfigError(
            "method.encoder=learned cannot be used with a vision-language-action policy: its pictures are "
            "read by the prefix network, which the critics do not train. Leave it out; actor and critics "
            "then read the features of the prefix."
        )
    found = newest_encoder(base)
    if found is None or not found.image_keys:
        raise ConfigError(
            f"method.encoder=learned needs pictures, but this policy of kind '{base.kind}' observes only "
            f"{sorted(base.obs_spec)}. Leave it out."
        )
    senses = {key: sense_of(key, array) for key, array in found.spec.items()}
    if others := sorted(key for key, sense in senses.items() if sense not in (*PICTURES, "state")):
        raise ConfigError(
            f"method.encoder=learned replays uint8 pictures, but this base also encodes {others}. Leave it "
            "out, or train a base without these."
        )
    learned = copy.deepcopy(found).requires_grad_(True).to(device)
    pictures = LearnedPictures(learned, torch.device(device), method.frames == "host")
    for key, shape in pictures.shapes.items():
        if method.shift_px >= min(shape[:2]):
            raise ConfigError(
                f"method.shift_px={method.shift_px} can move all of {key} out of the picture, which has "
                f"{shape[1]} x {shape[0]} pixels. Give a smaller one; DrQ-v2 takes 4 of 84 pixels."
            )
    return pictures


def check_method(method: MethodConfig) -> None:
    """Raise ConfigError for a method whose learner or replay does not take pictures."""
    if method.encoder == "frozen":
        return
    if method.algorithm != "off_policy":
        raise ConfigError(
            f"method.encoder=learned is for off-policy learners with critics of the robot's action, but "
            f"method={method.name} has algorithm={method.algorithm}. Leave it out, or choose residual, "
            "steering, sac or td3."
        )
    mix = method.mix
    if stores := [name for name in ("base", "intervention") if getattr(mix, name) > 0.0]:
        none = " ".join(f"method.mix.{name}=0" for name in stores)
        online = mix.online + sum(getattr(mix, name) for name in stores)  # fractions must sum to 1
        raise ConfigError(
            f"method.encoder=learned replays the pictures of training and of demonstrations only. Set {none} "
            f"method.mix.online={online:g}."
        )


def check_picture_settings(method: MethodConfig, *, from_scratch: bool) -> None:
    """Raise ConfigError for settings of pictures that differ from their defaults and have no effect.

    from_scratch: the run has no base.
    """
    usual, learned = MethodConfig(), method.encoder == "learned"
    if learned and from_scratch:
        if method.image.far_m != usual.image.far_m:
            raise ConfigError(
                f"method.image.far_m={method.image.far_m:g} has no effect: method.encoder=learned reads no "
                "depth pictures. Leave it out."
            )
        return
    names = ["image"] if learned else ["shift_px", "frames", "image"]
    ours, defaults = (
        dict(flat({key: value for key, value in asdict(each).items() if key in names}))
        for each in (method, usual)
    )
    changed = [f"method.{key}={ours[key]}" for key in ours if ours[key] != defaults.get(key)]
    if not changed:
        return
    reason, advice = (
        ("the encoder starts as a copy of the base's and keeps its layers", "")
        if learned
        else ("method.encoder=frozen (the default) trains no encoder", ", or set method.encoder=learned")
    )
    raise ConfigError(f"{' '.join(changed)} has no effect: {reason}. Leave it out{advice}.")


def fresh_encoder(
    env: EnvSpec, normalizer: Normalizer | None, image: ImageEncoderConfig, seed: int
) -> ObsEncoder:
    """Encoder with random weights for learning from scratch. normalizer: of the states; None: none.

    Raises ConfigError if it would not see its pictures.
    """
    shapes = {key: array.shape for key, array in env.obs.items() if sense_of(key, array) == "state"}
    normalizer = Normalizer(shapes, clip=float("inf")) if normalizer is None else normalizer
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed("encoder", seed))
        encoder = ObsEncoder(env.obs, 1, normalizer, image)
    check_positions(encoder.picture_shapes(), image, "method.image.")
    return encoder


# Memory


@dataclass(frozen=True)
class ReplaySize:
    """Decisions and frames that the replay of training holds for every lane."""

    decisions: int
    frames: int
    lanes: int


def replay_size(method: MethodConfig, lanes: int, steps_of_decision: int, obs_steps: int) -> ReplaySize:
    """Size of the replay of training: no more than the run collects.

    An episode has one frame more than steps. With episodes of eight steps or more, no frame of the run is
    overwritten before `replay_capacity` is reached.
    """
    steps = math.ceil(method.env_steps / lanes)
    decisions = min(max(1, method.replay_capacity // lanes), steps)
    frames = min(decisions * steps_of_decision, steps) * 9 // 8
    return ReplaySize(decisions, frames + obs_steps + steps_of_decision + 1, lanes)


def demo_frames(episodes: list[DemoEpisode], obs_steps: int) -> int:
    """Frames of demonstrations: one more than steps each."""
    return sum(episode.frames + 1 for episode in episodes) + obs_steps


def bytes_of_decision(widths: Mapping[str, int]) -> int:
    """Memory of a decision beside its pictures: numbers, flags and the numbers of two frames."""
    return 4 * (sum(widths.values()) + 4) + 4 + 2 * 8


@dataclass(frozen=True)
class Memory:
    """Bytes of the replays. decision: of one more decision of training. fixed: of demonstrations."""

    decisions: int
    decision: float
    fixed: int

    @property
    def total(self) -> int:
        return math.ceil(self.decisions * self.decision) + self.fixed


def memory_of(
    size: ReplaySize, pictures: LearnedPictures, widths: Mapping[str, int], demos: list[DemoEpisode]
) -> Memory:
    """Memory of the replays, before they exist. demos: the replayed episodes."""
    shapes, numbers = pictures.shapes, bytes_of_decision(widths)
    decisions = size.decisions * size.lanes
    online = FrameRing.bytes_of(size.frames, size.lanes, shapes) / decisions + numbers
    rows = demo_frames(demos, pictures.encoder.obs_steps) if demos else 0
    shown = FrameRing.bytes_of(rows, 1, shapes) + sum(each.frames for each in demos) * numbers
    return Memory(decisions, online, shown)


def check_memory(need: Memory, pictures: LearnedPictures, free: Mapping[str, int] | None = None) -> None:
    """Raise ConfigError if the replays do not fit into the memory that is free. free: bytes by place."""
    on_host = pictures.on_host or pictures.device.type == "cpu"
    copies = WRITTEN + 1  # a checkpoint first copies pictures of a GPU to the host
    places = {"host": copies} if on_host else {"device": 1, "host": copies}
    for place, times in places.items():
        there = free[place] if free is not None else free_bytes(place, pictures.device)
        if times * need.total <= there:
            continue
        most = int((there / times - need.fixed) / need.decision)
        most -= most % 1000 if most > 10_000 else 0
        fits = (
            f"Set method.replay_capacity={most} at most"
            if most > 0
            else "The demonstrations alone do not fit: replay fewer"
        )
        written = " while a checkpoint is written" if place == "host" else ""
        where = "of the host" if place == "host" else f"of {pictures.device}"
        host = ", or method.frames=host" if place == "device" else ""
        raise ConfigError(
            f"The replay of {need.decisions} decisions with pictures needs {size_words(need.total)}, and "
            f"{size_words(times * need.total)} of the memory {where}{written}, of which {size_words(there)} "
            f"are free. {fits}{host}, or choose a smaller image_size."
        )


def free_bytes(place: str, device: torch.device) -> int:
    """Memory that is free: of the device, or of the host within the limits of its container."""
    if place == "device":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (most := limit.read_text().strip()) != "max":
        free = min(free, int(most) - int(used.read_text()))
    return max(0, free)


def size_words(count: int) -> str:
    """Bytes in words: "1.5 GB"."""
    if count >= 1e12:
        return f"{count / 1e9:,.0f} GB"
    return f"{count / 1e9:.3g} GB" if count >= 1e9 else f"{count / 1e6:.3g} MB"
