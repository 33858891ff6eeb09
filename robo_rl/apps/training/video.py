"""Pre-training of a picture encoder from the pictures of datasets, in a run folder with exact resume."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from policies.pretraining.frames import VideoFrames, check_goals, check_videos
from policies.pretraining.instructions import VideoInstructions
from policies.pretraining.saved_encoder import save_encoder
from policies.pretraining.trainer import VideoTrainer, VideoValuesConfig
from policies.pretraining.value import VideoValue
from policies.vocabulary import words_in
from robo_rl.apps.training.base_run import keep_data
from robo_rl.apps.training.train_data import TrainData, check_images, dataset_paths, selected_episodes
from robo_rl.apps.training.unused_settings import unused_by_pretraining
from robo_rl.conf.train import PretrainConfig, TrainConfig
from robo_rl.core.errors import ConfigError, DataError, RoboRLError
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.core.settings import check_settings, free_keys
from robo_rl.core.spec import EnvSpec, sense_of
from robo_rl.core.text.instruction import INSTRUCTION, to_text
from robo_rl.data.selection import EpisodeSelection, select_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.data.windows import WindowDataset, WindowSpec
from robo_rl.nets.image_encoder import ImageEncoder, check_positions
from robo_rl.runs.device import pick_device, set_cpu_threads, train_in_tf32
from robo_rl.runs.resumable import check_weights, resumable
from robo_rl.runs.run_dir import RunDir


def pretrain(config: PretrainConfig) -> RunDir:
    """Learn values from video, and save their picture encoder in the run."""
    check_settings(config)
    check_goals(config)
    device = pick_device(config.device)
    train_in_tf32(device)
    set_cpu_threads(config.threads, images=True)
    data = video_data(config)
    frames = video_frames(data, config.camera, instructions=config.instruction_goals > 0.0)
    value = fresh_value(config, frames).to(device)
    recipe = VideoValuesConfig(
        **{item.name: getattr(config, item.name) for item in fields(VideoValuesConfig)}
    )
    free = free_keys("pretrain")
    with RunDir.create(
        config.out, config, resume=config.resume, overwrite=config.overwrite, free=free
    ) as run:
        keep_data(run, data, resume=config.resume)
        for sentence in (*data.sentences(), *unused_by_pretraining(config)):
            print(sentence)
        shown = ("video/loss", "video/value")
        with resumable(
            run, total=config.steps, label="pretrain", resume=config.resume, shown=shown
        ) as session:
            trainer = VideoTrainer(value, frames, recipe, session.metrics, config.num_workers)
            if (state := session.take_state()) is not None:
                trainer.load_state_dict(state)
            session.run(
                trainer,
                checkpoint_every=config.checkpoint_every,
                extra=lambda _: check_weights(value.state_dict(), run, f"Lower lr={config.lr:g}."),
                faster=how_to_be_faster(config, device),
            )
        save_encoder(run.encoder, value.encoder, config.image, pretrain_note(config, data))
    return run


def video_data(config: PretrainConfig) -> TrainData:
    """Episodes of the datasets, whose states and actions may differ."""
    stores = [EpisodeStore(path) for path in dataset_paths(config.data)]
    for store in stores:
        check_images(store)
    return TrainData(tuple(selected_episodes(store, config.learn_from) for store in stores))


def video_frames(data: TrainData, camera: str | None, *, instructions: bool = False) -> VideoFrames:
    """Frames of the camera, or of all cameras, of every dataset. instructions: read those, too.

    Raises ConfigError for a camera that a dataset lacks or for cameras of several sizes, DataError for data
    without pictures, without video or without the wanted instructions.
    """
    found = [(each, key) for each in data.selections for key in chosen_cameras(each.store, camera)]
    sizes = {key: each.store.spec.obs[key].shape for each, key in found}
    shapes = {each.store.spec.obs[key].shape for each, key in found}
    if len(shapes) > 1:
        listed = ", ".join(f"{key} {shape[1]} x {shape[0]}" for key, shape in sizes.items())
        raise ConfigError(
            f"The pictures in {data.path} have several sizes ({listed} pixels), and an encoder has one. "
            f"Choose a camera, such as camera={next(iter(sizes))}, or datasets of one size."
        )
    frames = VideoFrames(
        [
            WindowDataset(each.store.path, WindowSpec(1, 1), [key], episodes=each.positions)
            for each, key in found
        ],
        video_instructions([each for each, _ in found], data.path) if instructions else None,
    )
    check_videos(frames.lengths, data.path)
    return frames


def video_instructions(videos: Sequence[EpisodeSelection], path: str) -> VideoInstructions:
    """Instruction at the last frame of each episode of `videos`, one selection after the other. It is reached
    there unless the episode is marked as failed or incomplete. path: the datasets, for messages.

    Raises DataError for an episode without an instruction, and if none is reached.
    """
    texts: list[str] = []
    reached: list[bool] = []
    for each in videos:
        unfailed = set(select_episodes(each.store, "unfailed").positions)
        reached += [position in unfailed for position in each.positions]
        for episode in each.episodes:
            last = episode.frames - 1
            has = INSTRUCTION in each.store.spec.obs
            texts.append(to_text(episode.obs(INSTRUCTION, last, last + 1)[0]) if has else "")
            if not words_in(texts[-1]):
                raise DataError(
                    f"instruction_goals needs episodes with instructions, and episode {episode.number} in "
                    f"{each.store.path} has none. Leave the setting out, or record instructions."
                )
    if not any(reached):
        raise DataError(
            f"instruction_goals needs an episode that did what its instruction says, and all in {path} are "
            "marked as failed or incomplete. Leave the setting out, or add other episodes."
        )
    return VideoInstructions.of(texts, reached)


def chosen_cameras(store: EpisodeStore, camera: str | None) -> list[str]:
    """Keys of colour pictures in the dataset: `camera`, which may leave out `image.`, or all."""
    pictures = pictures_of(store.spec)
    if not pictures:
        raise DataError(
            f"{store.path} holds no pictures to learn from, only {', '.join(store.spec.obs)}. Collect it "
            "with cameras (docs/pixels.md)."
        )
    if camera is None:
        return pictures
    for key in (camera, f"image.{camera}"):
        if key in pictures:
            return [key]
    raise ConfigError(
        f"camera={camera} cannot be used: the cameras in {store.path} are {' | '.join(pictures)}."
    )


def pictures_of(env: EnvSpec) -> list[str]:
    """Keys of colour pictures."""
    return [key for key, array in env.obs.items() if sense_of(key, array) == "image"]


def fresh_value(config: PretrainConfig, frames: VideoFrames) -> VideoValue:
    """Networks with weights from the seed. Raises ConfigError if the encoder cannot tell positions apart."""
    torch.manual_seed(derive_seed("init", config.seed))
    encoder = ImageEncoder(frames.shape, config.image)
    check_positions({"these pictures": frames.shape}, config.image)
    vocabulary = frames.instructions.vocabulary if frames.instructions else 0
    return VideoValue(encoder, config.image.features, config.width, vocabulary)


def how_to_be_faster(config: PretrainConfig, device: torch.device) -> str:
    """Sentence on the settings that make a long training shorter."""
    gpu = "" if device.type == "cuda" else ", and device=cuda is much faster where there is a GPU"
    return (
        f"An update is shorter with a smaller batch_size (now {config.batch_size}); there are fewer with a "
        f"smaller steps (now {config.steps}){gpu}."
    )


def trainable(data: str) -> bool:
    """False for datasets from which `robo-rl train` learns no policy: those that it refuses, as of several
    robots or of failed episodes alone, and videos, whose actions are all the same.
    """
    try:
        episodes = TrainData.select(data, TrainConfig().learn_from).episodes
    except RoboRLError:
        return False
    first = episodes[0].action[:1]
    return any(bool((episode.action != first).any()) for episode in episodes)


def pretrain_note(config: PretrainConfig, data: TrainData) -> dict[str, Any]:
    """Origin of the encoder."""
    return {
        "verb": "pretrain",
        "method": config.method.name,
        "data": {"path": config.data, "episodes": len(data.episodes), "frames": data.frames},
        "camera": config.camera,
        "steps": config.steps,
        "seed": config.seed,
        "commit": commit(),
    }
