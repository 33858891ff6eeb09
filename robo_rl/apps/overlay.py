"""`robo-rl overlay`: draw a robot arm over the hand in videos of people (H2R, arXiv 2505.11920).

Per frame: remove the hand, bring the arm's gripper to its pose by inverse kinematics, render the arm through
the dataset's camera, and paste its pixels. Episodes are committed one by one, so an interrupted run leaves
whole episodes only, and the same command continues.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy import ndarray

from robo_rl.conf.datasets.overlay import OverlayConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.settings import check_settings
from robo_rl.core.shapes import Bool, Float, UInt8
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.dataset_writer import DatasetWriter
from robo_rl.data.episodes.reader import Episode, EpisodeStore
from robo_rl.data.episodes.schema import DATASET_JSON
from robo_rl.data.overlay.hand_video import HandPoses, hand_camera, hand_masks, hand_poses, mask_key
from robo_rl.data.overlay.picture import colour_masks, grown, without_hand
from robo_rl.runs.outputs import free_path
from robo_rl.runs.progress import progress
from sim.scenes.robot_overlay import RobotOverlay, StillCamera

NOTE, SOURCE = "overlay", "overlay_of"  # keys of a dataset's and of an episode's info


def main(config: OverlayConfig) -> int:
    """Write the episodes that `out` lacks, and print how many frames the arm reached."""
    check_settings(config)
    _check_lists(config)
    store = EpisodeStore(config.data)
    name = hand_camera(store, config.camera)
    camera = StillCamera.load(Path(config.camera_file or store.path / f"camera.{name}.yaml"))
    height, width = store.spec.obs[f"image.{name}"].shape[:2]
    robot = RobotOverlay(config.robot, camera, height, width, config.base_m, config.base_yaw_rad)
    with closing(robot):
        hands = [hand_poses(episode) for episode in store]
        paths, missed = followed(robot, hands, config)
        frames = sum(len(each.opening) for each in hands)
        sentence = f"{config.robot} cannot reach the hand in {missed} of {frames} frames"
        if 2 * missed > frames:
            raise DataError(
                f"{sentence} of {config.data}. Move it by base_m= and base_yaw_rad=, leave out hand.quat, or "
                f"allow more than tolerance_m={config.tolerance_m:g} and tolerance_rad="
                f"{config.tolerance_rad:g}."
            )
        with closing(open_out(config, store, name, camera)) as writer:
            done, todo = _done(writer.path), zip(store, hands, paths, strict=True)
            with progress(len(store), "overlay", "episode", initial=len(done)) as bar:
                try:
                    for episode, hand, path in (each for each in todo if each[0].number not in done):
                        pictures = overlaid(episode, name, hand, path, robot, config)
                        _write(writer, episode, f"image.{name}", pictures)
                        bar.update(1)
                except KeyboardInterrupt as stop:
                    kept = f"{bar.n} of {len(store)} episodes are in {config.out}; the same command continues"
                    raise KeyboardInterrupt(kept) from stop
    ending = ", the nearest pose is drawn." if missed else "."
    print(f"{config.out}: {counted(len(store), 'episode')}. {sentence}{ending}")
    out = free_path(Path("runs/video"))
    print(f"Next:   {command('pretrain', data=config.out, camera=name, out=out)}")
    return 0


def followed(
    robot: RobotOverlay, hands: Sequence[HandPoses], config: OverlayConfig
) -> tuple[list[Float[ndarray, "n j"]], int]:
    """Joint positions [rad] of the frames of every episode, and how many frames are not reached.

    All episodes are solved together; at the end of short ones, their last pose is repeated.
    """
    sizes = [len(hand.opening) for hand in hands]
    rows = np.minimum(np.arange(max(sizes)), np.array(sizes)[:, None] - 1)
    position_m = np.stack([hand.position_m[row] for hand, row in zip(hands, rows, strict=True)])
    quats = [hand.quat[row] for hand, row in zip(hands, rows, strict=True) if hand.quat is not None]
    path, missing = robot.follow(position_m, np.stack(quats) if quats else None)
    far = (missing[..., 0] > config.tolerance_m) | (missing[..., 1] > config.tolerance_rad)
    missed = sum(int(far[i, :size].sum()) for i, size in enumerate(sizes))
    return [each[:size] for each, size in zip(path, sizes, strict=True)], missed


def overlaid(
    episode: Episode, camera: str, hand: HandPoses, path: Float[ndarray, "n j"], robot: RobotOverlay,
    config: OverlayConfig,
) -> UInt8[ndarray, "n h w 3"]:  # fmt: skip
    """Pictures of an episode with the robot in the place of the hand."""
    pictures = np.ascontiguousarray(episode.obs(f"image.{camera}"))
    masks = _masks(episode, camera, pictures, config)
    pictures = without_hand(pictures, grown(masks, config.grow_px), config.fill)
    for picture, q_rad, opening in zip(pictures, path, hand.opening, strict=True):
        drawn, pixels = robot.draw(q_rad, float(opening))
        picture[pixels] = drawn[pixels]
    return pictures


def _masks(
    episode: Episode, camera: str, pictures: UInt8[ndarray, "n h w 3"], config: OverlayConfig
) -> Bool[ndarray, "n h w"]:
    """Masks as stored, or by colour. Raises DataError for an episode in which no pixel has the colour."""
    if (stored := hand_masks(episode, camera)) is not None:
        return stored
    masks = colour_masks(pictures, config.hsv_low, config.hsv_high)
    if not masks.any():
        raise DataError(
            f"{episode.path} has no {mask_key(camera)}, and none of its pixels is in the range hsv_low="
            f"{config.hsv_low} to hsv_high={config.hsv_high}. Give the colour of the hand or glove, or masks."
        )
    return masks


def open_out(config: OverlayConfig, store: EpisodeStore, camera: str, pose: StillCamera) -> DatasetWriter:
    """Writer of `out`, created or continued. Raises DataError if `out` was made from something else."""
    obs = {key: array for key, array in store.spec.obs.items() if key != mask_key(camera)}
    spec, out, meta = replace(store.spec, obs=obs), Path(config.out), store.meta
    note = json.loads(json.dumps(asdict(config) | {"out": None, "camera_file": asdict(pose)}))
    if not (out / DATASET_JSON).exists():
        return DatasetWriter.create(
            out, spec, image_codec=meta.image_codec, jpeg_quality=meta.jpeg_quality, stamps=meta.stamps,
            info={**meta.info, NOTE: note},
        )  # fmt: skip
    found = EpisodeStore(out).meta.info.get(NOTE)
    if not isinstance(found, dict) or out.resolve() == store.path.resolve():
        raise DataError(f"{out} is a dataset that robo-rl overlay has not made. Choose another out=.")
    if changed := [key for key in note if note[key] != found.get(key)]:
        raise DataError(
            f"{out} was begun with other settings ({', '.join(changed)}). Repeat those, or choose another "
            "out=."
        )
    frames, done = {episode.number: episode.frames for episode in store}, _done(out)
    if other := [number for number in done if done[number] != frames.get(number)]:
        raise DataError(
            f"{config.data} has changed since {out} was begun: episode {other[0]} had {done[other[0]]} "
            f"frames, now {frames.get(other[0], 0)}. Choose another out=."
        )
    writer = DatasetWriter.open(out, spec)
    writer.rewind(writer.next_number)  # deletes what an interrupted run has left
    return writer


def _done(out: Path) -> dict[int, int]:
    """Number in the source -> frames of each episode that `out` holds."""
    return {episode.meta.info[SOURCE]: episode.frames for episode in EpisodeStore(out)}


def _write(writer: DatasetWriter, episode: Episode, key: str, pictures: UInt8[ndarray, "n h w 3"]) -> None:
    """Commit a copy of the episode with these pictures."""
    meta = episode.meta
    seen = {each: episode.obs(each) for each in writer.spec.obs if each != key} | {key: pictures}
    stamps = episode.stamps()
    info: dict[str, Any] = {**meta.info, SOURCE: episode.number}
    with writer.episode(
        task=meta.task, seed=meta.seed, operator=meta.operator, info=info, recorded_at=meta.recorded_at
    ) as made:
        for i in range(episode.frames):
            made.add(
                {each: rows[i] for each, rows in seen.items()}, episode.action[i], reward=episode.reward[i],
                terminated=episode.terminated[i], intervention=episode.intervention[i],
                stamps={column: int(times[i]) for column, times in stamps.items()},
            )  # fmt: skip
        final = {each: rows[-1] for each, rows in seen.items()} if meta.final_obs else None
        made.commit(success=meta.success, final_obs=final, complete=meta.complete)


def _check_lists(config: OverlayConfig) -> None:
    """Raise ConfigError for a list that is not three numbers."""
    for key in ("base_m", "hsv_low", "hsv_high"):
        if len(value := getattr(config, key)) != 3:
            raise ConfigError(f"{key}={value} has {counted(len(value), 'number')}, expected 3.")
