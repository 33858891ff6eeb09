from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import torch

from policies.base.noise import EpisodeNoise
from policies.executor import ChunkExecutor
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.text.instruction import INSTRUCTION, to_bytes
from robo_rl.eval.rollout import evaluate
from robo_rl.eval.video import (
    HOLD_S,
    STRIP_PX,
    Recorder,
    VideoWriter,
    caption,
    enlarge,
    headline,
    record_episodes,
)
from tests.eval.fakes import NoisyPolicy, PushButtonEnv


def test_a_film_shows_the_evaluated_episodes(tmp_path: Path) -> None:
    """One frame per control step plus the hold; browsers play H.264 in yuv420p with even sides."""
    seeds, path = [1, 4], tmp_path / "film.mp4"
    env, noise = PushButtonEnv(1), EpisodeNoise((4, 1))
    sheet = tmp_path / "sheet.png"
    filmed = record_episodes(
        env, NoisyPolicy(), ChunkExecutor, noise, seeds, path, name="base", fps=10, sheet=sheet
    )
    assert filmed.success == evaluate(PushButtonEnv(2), NoisyPolicy(), ChunkExecutor, noise, seeds).success
    with av.open(str(path)) as file:
        stream = file.streams.video[0]
        assert (stream.codec_context.name, stream.pix_fmt) == ("h264", "yuv420p")
        assert stream.height % 2 == stream.width % 2 == 0
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(stream)]
    assert len(frames) == sum(filmed.length) + 2 * round(HOLD_S * 10)
    bar = [int((frame[10, :, 2] > 150).sum()) for frame in frames[: filmed.length[0]]]
    assert all(after > before for before, after in pairwise(bar))  # the bar grows: order is kept
    assert cv2.imread(str(sheet)).shape[0] == 2 * (200 + STRIP_PX)


@pytest.mark.parametrize("stills", [True, False])
def test_a_film_without_a_sheet_keeps_no_pictures(tmp_path: Path, stills: bool) -> None:
    """Thumbs of twenty long episodes would take gigabytes."""
    env = PushButtonEnv(1)
    obs = env.reset(iter([1]))
    with VideoWriter(tmp_path / "film.mp4", 10) as writer:
        recorder = Recorder(writer, "base", hold=1, stills=stills)
        for _ in range(3):
            recorder.before_step(env, obs)
    assert len(recorder.thumbs[-1]) == (3 if stills else 0)


@pytest.mark.parametrize("instruction", [None, "close the drawer"])
def test_a_film_shows_the_instruction(tmp_path: Path, instruction: str | None) -> None:
    """In a strip above the image: the observed one, or what the policy is told instead."""
    env = PushButtonEnv(1)
    obs = env.reset(iter([1]))
    with VideoWriter(tmp_path / "film.mp4", 10) as writer:
        recorder = Recorder(writer, "vla", hold=1, instruction=instruction)
        words = torch.from_numpy(to_bytes("open the drawer").copy())[None]
        recorder.before_step(env, {**obs, INSTRUCTION: words})
    expected = headline(enlarge(env.render(0).numpy()), f"instruction: {instruction or 'open the drawer'}")
    np.testing.assert_array_equal(recorder.frame, expected)


def test_a_long_instruction_fits_the_film() -> None:
    """The right edge stays empty: it is written smaller, then cut."""
    frame = np.zeros((40, 320, 3), dtype=np.uint8)
    strip = headline(frame, "instruction: " + "w" * 128)[:STRIP_PX]
    assert (strip[:, -8:] == strip[0, 0]).all()
    assert (strip != strip[0, 0]).any()


def test_the_caption_changes_with_the_outcome() -> None:
    """Green and red strips differ from the undecided one, and the image is unchanged."""
    frame = np.full((40, 200, 3), 128, dtype=np.uint8)
    strips = [caption(frame, "base", "text", outcome) for outcome in (True, False, None)]
    assert all((strip[:40] == frame).all() for strip in strips)
    assert not (strips[0] == strips[1]).all()
    assert not (strips[0] == strips[2]).all()


def test_small_pictures_are_enlarged_to_even_sides() -> None:
    """96-pixel Push-T frames have no space for a caption; the encoder refuses odd sides."""
    assert enlarge(np.zeros((65, 97, 3), dtype=np.uint8)).shape == (324, 484, 3)
    assert enlarge(np.zeros((481, 641, 3), dtype=np.uint8)).shape == (480, 640, 3)


def test_failed_video_leaves_no_file(tmp_path: Path) -> None:
    """A file under the final name is always playable."""
    path = tmp_path / "film.mp4"

    def film() -> None:
        with VideoWriter(path, 10) as writer:
            writer.add(np.zeros((64, 64, 3), dtype=np.uint8))
            writer.add(np.zeros((64, 66, 3), dtype=np.uint8))

    with pytest.raises(DataError, match="one size"):
        film()
    assert list(tmp_path.iterdir()) == []


def test_filming_needs_one_lane(tmp_path: Path) -> None:
    """With more lanes the seeds would run in lanes that are not filmed."""
    noise = EpisodeNoise((4, 1))
    with pytest.raises(ConfigError, match="one lane"):
        record_episodes(
            PushButtonEnv(2), NoisyPolicy(), ChunkExecutor, noise, [1], tmp_path / "a.mp4", name="x"
        )
