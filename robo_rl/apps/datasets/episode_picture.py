"""Pictures and videos of one recorded episode."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy import ndarray

from robo_rl.core.errors import ConfigError
from robo_rl.core.files.durable import write_atomic
from robo_rl.core.shapes import Shaped, UInt8
from robo_rl.core.spec import sense_of
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.review.stats import number_names
from robo_rl.eval.video import VideoWriter, caption, enlarge

STILLS = 8  # images per camera
MOST_CURVES = 24  # per array; more cannot be told apart
_WIDTH_IN, _ROW_IN, _CURVES_IN = 14.0, 1.9, 2.6
_HUMAN = "#f59e0b"


def cameras(episode: Episode) -> list[str]:
    """Observations that are colour images."""
    env = episode.dataset.env
    return [key for key, spec in env.obs.items() if sense_of(key, spec) == "image" and spec.shape[-1] == 3]


def episode_picture(episode: Episode, out: Path) -> None:
    """Write a PNG: a row of images per camera, then curves of states, actions and reward over time.

    Frames of an intervention are shaded.
    """
    import matplotlib

    matplotlib.use("Agg")
    with matplotlib.rc_context({"text.parse_math": False}):  # a $ in the name of a joint is a letter
        _draw(episode, out)


def _draw(episode: Episode, out: Path) -> None:
    from matplotlib import pyplot as plt

    curves = _curves(episode)
    pictures = cameras(episode)
    heights = [_ROW_IN] * len(pictures) + [_CURVES_IN] * len(curves)
    figure, axes = plt.subplots(
        len(heights), 1, figsize=(_WIDTH_IN, sum(heights)), height_ratios=heights, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    try:
        for axis, key in zip(axes[:, 0], pictures, strict=False):
            _show_stills(axis, episode, key)
        for axis, (name, values, names) in zip(axes[len(pictures) :, 0], curves, strict=True):
            _show_curves(axis, episode, name, values, names)
        axes[-1, 0].set_xlabel("time [s]")
        label = {True: "success", False: "failure", None: "not labelled"}[episode.success]
        title = f"Episode {episode.number}: {episode.meta.task or 'no task'} ({label})"
        figure.suptitle(title)
        data = BytesIO()
        figure.savefig(data, format="png", dpi=100)
        write_atomic(out, data.getvalue())
    finally:
        plt.close(figure)


def _curves(episode: Episode) -> list[tuple[str, Shaped[ndarray, "n d"], list[str]]]:
    env, n = episode.dataset.env, episode.frames
    found = []
    for key, spec in env.obs.items():
        if spec.dtype.startswith("float") and len(spec.shape) <= 1 and sense_of(key, spec) == "state":
            rows = episode.obs(key)[:n].reshape(n, -1)
            found.append((key, rows, number_names(spec.unit, rows.shape[1])))
    found.append(("action", episode.action, number_names(env.action.unit, env.action.dim)))
    return [*found, ("reward", episode.reward.reshape(n, 1), ["reward"])]


def _show_stills(axis: Any, episode: Episode, key: str) -> None:
    rows = np.linspace(0, episode.frames - 1, min(STILLS, episode.frames)).round().astype(int)
    images = [episode.obs(key, row, row + 1)[0] for row in rows.tolist()]
    axis.imshow(
        np.concatenate(
            [np.pad(each, ((0, 0), (0, 2), (0, 0)), constant_values=255) for each in images], axis=1
        )
    )
    axis.set_title(f"{key}, frames {', '.join(map(str, rows.tolist()))}", fontsize=9, loc="left")
    axis.set_axis_off()


def _show_curves(
    axis: Any, episode: Episode, name: str, values: Shaped[ndarray, "n d"], names: list[str]
) -> None:
    time_s = np.arange(len(values)) / episode.dataset.env.control_hz
    for column, label in zip(values.T[:MOST_CURVES], names, strict=False):
        axis.plot(time_s, column, linewidth=1.0, label=label)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], episode.intervention, [False]]).astype(np.int8)))
    for begin, end in (edges.reshape(-1, 2) / episode.dataset.env.control_hz).tolist():
        axis.axvspan(begin, end, color=_HUMAN, alpha=0.2, linewidth=0)
    axis.set_title(name, fontsize=9, loc="left")
    axis.margins(x=0)
    if 1 < len(names) <= MOST_CURVES:
        axis.legend(fontsize=7, ncols=min(8, len(names)), loc="upper right")


def episode_video(episode: Episode, out: Path) -> None:
    """Write an MP4 of all cameras side by side, with frame, time and intervention. Raises ConfigError without
    cameras.
    """
    keys = cameras(episode)
    if not keys:
        raise ConfigError(f"Episode {episode.number} has no cameras. Give out=<name>.png for its curves.")
    rate_hz = episode.dataset.env.control_hz
    height = max(episode.dataset.env.obs[key].shape[0] for key in keys)
    with VideoWriter(out, rate_hz) as video:
        for row in range(episode.obs_rows):
            images = [_scaled(episode.obs(key, row, row + 1)[0], height) for key in keys]
            human = row < episode.frames and bool(episode.intervention[row])
            left = f"frame {row}, {row / rate_hz:.2f} s{', human' if human else ''}"
            last = episode.success if row == episode.obs_rows - 1 else None
            video.add(_even(caption(enlarge(np.concatenate(images, axis=1)), left, "", last)))


def _scaled(image: UInt8[ndarray, "h w 3"], height: int) -> UInt8[ndarray, "h w 3"]:
    width = round(image.shape[1] * height / image.shape[0])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA))


def _even(image: UInt8[ndarray, "h w 3"]) -> UInt8[ndarray, "h w 3"]:
    return image[: image.shape[0] // 2 * 2, : image.shape[1] // 2 * 2]
