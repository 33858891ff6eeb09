"""Videos of episodes: H.264 MP4 for browsers, with a caption strip, and contact sheets of still frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import TracebackType

import av
import cv2
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.protocols import ChunkPolicy, NoiseSource, Obs, VecEnv
from robo_rl.core.shapes import UInt8
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from robo_rl.eval.protocols import ExecutorFactory
from robo_rl.eval.rollout import EvalResult, evaluate
from robo_rl.eval.sensor_views import add_columns, observation_images

Frame = UInt8[ndarray, "h w 3"]  # RGB

MIN_HEIGHT_PX = 320  # smaller images are enlarged so that the caption stays readable
HOLD_S = 0.8  # duration of an episode's last frame
STRIP_PX = 30
_INK, _GREY, _GREEN, _RED = (24, 24, 27), (212, 212, 216), (74, 222, 128), (248, 113, 113)
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def enlarge(frame: Frame, min_height: int = MIN_HEIGHT_PX) -> Frame:
    """Enlarge by a whole factor to at least `min_height`, then crop to even sides, as yuv420p requires."""
    factor = max(1, -(-min_height // frame.shape[0]))
    frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
    return frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]


def caption(frame: Frame, left: str, right: str, success: bool | None) -> Frame:
    """The image with a strip below. `right` is green for success, red for failure, grey while undecided."""
    strip = np.full((STRIP_PX, frame.shape[1], 3), _INK, dtype=np.uint8)
    colour = _GREY if success is None else (_GREEN if success else _RED)
    width = cv2.getTextSize(right, _FONT, 0.45, 1)[0][0]
    cv2.putText(strip, left, (10, 20), _FONT, 0.45, _GREY, 1, cv2.LINE_AA)
    cv2.putText(strip, right, (frame.shape[1] - width - 10, 20), _FONT, 0.45, colour, 1, cv2.LINE_AA)
    return np.concatenate([frame, strip])


class VideoWriter:
    """Streams RGB frames of one size into an MP4 (H.264, yuv420p). The file appears under its name when
    complete.
    """

    def __init__(self, path: Path, fps: float, crf: int = 23) -> None:
        self.path, self._partial = path, path.with_name(f".{path.name}.partial.mp4")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = av.open(str(self._partial), "w", options={"movflags": "faststart"})
        rate = Fraction(fps).limit_denominator(1000)
        self._stream = self._file.add_stream(
            "libx264", rate=rate, options={"crf": str(crf), "preset": "veryfast"}
        )
        self._stream.pix_fmt = "yuv420p"
        self._stream.thread_count = 1  # simulators need the other cores
        self.frames = 0

    def __enter__(self) -> VideoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is not None or self.frames == 0:
            self._file.close()
            self._partial.unlink(missing_ok=True)
            return
        for packet in self._stream.encode(None):
            self._file.mux(packet)
        self._file.close()
        self._partial.replace(self.path)

    def add(self, frame: Frame) -> None:
        if self.frames == 0:
            self._stream.height, self._stream.width = frame.shape[:2]
        if frame.shape != (self._stream.height, self._stream.width, 3):
            raise DataError(
                f"A video frame has shape {frame.shape}, the first one had {self._stream.height} x "
                f"{self._stream.width} x 3. Render every frame at one size."
            )
        for packet in self._stream.encode(
            av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
        ):
            self._file.mux(packet)
        self.frames += 1


def headline(frame: Frame, text: str) -> Frame:
    """The image with a strip above that shows a text, smaller or cut where it is wide."""
    strip = np.full((STRIP_PX, frame.shape[1], 3), _INK, dtype=np.uint8)
    room = frame.shape[1] - 20
    scale = max(0.3, min(0.45, 0.45 * room / max(1, cv2.getTextSize(text, _FONT, 0.45, 1)[0][0])))
    while len(text) > 4 and cv2.getTextSize(text, _FONT, scale, 1)[0][0] > room:
        text = f"{text[:-4]}..."
    cv2.putText(strip, text, (10, 20), _FONT, scale, _GREY, 1, cv2.LINE_AA)
    return np.concatenate([strip, frame])


@dataclass(slots=True)
class Recorder:
    """A `Watcher` that films lane 0: the image before each step, and the last one again with the outcome.

    An instruction among the observations is shown above the image. told: what the policy is told instead.
    views: also show the images among the observations, next to the film.
    """

    writer: VideoWriter
    name: str
    hold: int  # frames
    step: int = 0
    success: bool = False
    stills: bool = True  # store thumbs of every step, 0.1 MB each, for a contact sheet
    frame: Frame = field(default_factory=lambda: np.zeros((2, 2, 3), dtype=np.uint8))
    thumbs: list[list[Frame]] = field(default_factory=lambda: [[]])  # one list per episode
    instruction: str | None = None
    views: bool = False

    def before_step(self, env: VecEnv, obs: Obs) -> None:
        images = observation_images(obs) if self.views else {}
        self.frame = add_columns(enlarge(env.render(0).cpu().numpy()), images)
        words = to_text(obs[INSTRUCTION][0].cpu().numpy()) if INSTRUCTION in obs else None
        if self.instruction is not None or words is not None:
            self.frame = headline(self.frame, f"instruction: {self.instruction or words}")
        if self.stills:
            self.thumbs[-1].append(_thumb(self.frame))
        right = "success" if self.success else "running"
        self.writer.add(
            caption(self.frame, f"{self.name} | step {self.step}", right, True if self.success else None)
        )

    def after_step(self, lane: int, success: bool) -> None:
        if lane == 0:
            self.step, self.success = self.step + 1, success

    def episode_end(self, lane: int, seed: int, success: bool, length: int) -> None:
        right = "success" if success else "failure"
        for _ in range(self.hold):
            self.writer.add(caption(self.frame, f"{self.name} | step {length}", right, success))
        self.thumbs.append([])
        self.step, self.success = 0, False


def record_episodes(
    env: VecEnv,
    policy: ChunkPolicy,
    executor_factory: ExecutorFactory,
    noise: NoiseSource,
    seeds: Sequence[int],
    path: Path,
    *,
    name: str,
    fps: float | None = None,
    sheet: Path | None = None,
    instruction: str | None = None,
) -> EvalResult:
    """Film one policy on these seeds, one episode after another; `env` has a single lane.

    The episodes are those of `evaluate`: the same resets, the same noise. fps: None for the control rate.
    sheet: path of a contact sheet (PNG), one row of stills per episode. told: as of `Recorder`.
    """
    if env.num_envs != 1:
        raise ConfigError(
            f"Videos need an environment with one lane, found {env.num_envs}. Make one with num_envs=1."
        )
    fps = env.spec.control_hz if fps is None else fps
    with VideoWriter(path, fps) as writer:
        recorder = Recorder(
            writer, name, hold=max(1, round(HOLD_S * fps)), stills=sheet is not None, instruction=instruction
        )
        result = evaluate(env, policy, executor_factory, noise, seeds, watcher=recorder)
    if sheet is not None:
        write_contact_sheet(sheet, [row for row in recorder.thumbs if row], result.success)
    return result


def _thumb(frame: Frame, height: int = 200) -> Frame:
    width = round(frame.shape[1] * height / frame.shape[0])
    return np.asarray(cv2.resize(frame, (width, height), interpolation=cv2.INTER_AREA))


def write_contact_sheet(
    path: Path, rows: Sequence[Sequence[Frame]], success: Sequence[bool], columns: int = 8
) -> None:
    """Evenly spaced stills, one row per episode from first to last frame; borders show the outcome.

    Below each row a strip names the episode, its steps and its outcome.
    """
    lines = []
    for i, (row, ok) in enumerate(zip(rows, success, strict=True)):
        at = np.linspace(0, len(row) - 1, columns).round().astype(int)
        stills = np.concatenate([_border(row[step], ok) for step in at], axis=1)
        title = f"episode {i + 1}, steps 0 to {len(row) - 1}, left to right"
        lines.append(caption(stills, title, "success" if ok else "failure", ok))
    encoded, data = cv2.imencode(".png", cv2.cvtColor(np.concatenate(lines), cv2.COLOR_RGB2BGR))
    if not encoded:
        raise DataError(f"The contact sheet {path} could not be encoded as PNG.")
    write_atomic(path, data.tobytes())


def _border(frame: Frame, success: bool, px: int = 3) -> Frame:
    out = frame.copy()
    height, width = out.shape[:2]
    cv2.rectangle(out, (0, 0), (width - 1, height - 1), _GREEN if success else _RED, px)
    return out
