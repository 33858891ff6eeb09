"""Training of a base policy from a dataset in a run folder, with exact resume."""

from __future__ import annotations

import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.checkpoint import save_policy
from policies.training.base import FREE_SETTINGS, BaseTrainConfig, BaseTrainer
from policies.training.batches import ALONE, LoaderWindows, TensorWindows, WindowSource
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from robo_rl.apps.tuning.train_ranks import (
    check_equal,
    check_processes,
    follow,
    launch_training,
)
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.core.settings import check_settings
from robo_rl.core.spec import EnvSpec, image_fault, sense_of
from robo_rl.core.text.counts import counted
from robo_rl.data.normalizer import Normalizer
from robo_rl.data.plausible import check_episodes
from robo_rl.data.selection import EpisodeSelection, select_episodes
from robo_rl.data.store import EpisodeStore
from robo_rl.data.windows import WindowDataset, WindowSpec, collate, load_tensors
from robo_rl.nets.ranks import Ranks, StopVote
from robo_rl.rl.scale.process_group import is_rank, process_group, rank_device, reported
from robo_rl.runs.device import device_of, pick_device, set_cpu_threads
from robo_rl.runs.resumable import resumable
from robo_rl.runs.run_dir import FREE_KEYS, RunDir

LEAST_WINDOW = 32  # frames; windows up to this length are permitted on shorter episodes
DATA_FILE = "data.json"  # in the run folder: the episodes of its training


def train(config: TrainConfig, free: frozenset[str] = frozenset()) -> RunDir:
    """Train and save the policy in `out`/policy. free: further settings that may differ in a resumed run.

    With launcher=torchrun, or in a process started by `torchrun`, several processes train together.
    """
    check_settings(config)
    if not is_rank():
        if config.launcher == "torchrun":
            return launch_training(config)
        check_processes(config)
        return _train(config, free, pick_device(config.device), ALONE)
    with reported():
        device = rank_device(config.device)
        with process_group(device) as ranks:
            return _train(config, free, device, ranks)


def _train(config: TrainConfig, free: frozenset[str], device: torch.device, ranks: Ranks) -> RunDir:
    """Train as one of `ranks`; rank 0 writes the run."""
    recipe = BaseTrainConfig(**{item.name: getattr(config, item.name) for item in fields(BaseTrainConfig)})
    store = EpisodeStore(config.data)
    check_images(store)
    set_cpu_threads(config.threads, images=_has_pictures(store.spec))
    selection = selected_episodes(config, store)
    check_episodes(selection.episodes)
    check_windows(config, selection)
    check_equal(config, _fingerprint(selection), ranks)
    source = window_source(config, selection)
    policy = fresh_policy(config, selection).to(device)
    if not ranks.leads:
        follow(BaseTrainer(policy, source, recipe, ranks=ranks), ranks)
        return RunDir(Path(config.out))
    free = FREE_KEYS | FREE_SETTINGS | {"threads", "launcher", "processes"} | free
    with RunDir.create(
        config.out, config, resume=config.resume, overwrite=config.overwrite, free=free
    ) as run:
        keep_data(run, selection, resume=config.resume)
        if said := selection.sentence():
            print(f"{said} learn_from=all selects every one.")
        _lead(config, recipe, policy, source, run, train_note(config, selection), ranks)
    return run


def _lead(
    config: TrainConfig,
    recipe: BaseTrainConfig,
    policy: GenerativePolicy | VlaPolicy,
    source: WindowSource,
    run: RunDir,
    note: dict[str, Any],
    ranks: Ranks,
) -> None:
    """Train to the end and save the average; every checkpoint also holds the average of its step."""
    with resumable(
        run,
        total=config.steps,
        label="train",
        resume=config.resume,
        shown=("base/loss",),
        keep=config.keep_checkpoints,
    ) as session:
        trainer = BaseTrainer(policy, source, recipe, session.metrics, ranks)
        if (state := session.take_state()) is not None:
            trainer.load_state_dict(state)
            if (before := int(state.get("ranks", 1))) != ranks.count:
                print(
                    f"The run was saved with {counted(before, 'process', 'processes')} and continues with "
                    f"{ranks.count}: its result is that of an uninterrupted one up to rounding."
                )
        trainer.share()
        vote = StopVote(ranks)

        def save_average(folder: Path) -> None:
            save_policy(folder / run.policy.name, trainer.average, note | {"steps": trainer.step})

        try:
            session.run(
                trainer,
                checkpoint_every=config.checkpoint_every,
                extra=save_average,
                faster=how_to_be_faster(config, policy),
                agree=vote,
            )
        finally:
            vote.finish()
    save_policy(run.policy, trainer.result(), note)


def how_to_be_faster(config: TrainConfig, policy: GenerativePolicy | VlaPolicy) -> str:
    """Sentence on the settings that make a long training shorter."""
    images = " It trains an image encoder." if policy.cameras else ""
    gpu = "" if device_of(policy).type == "cuda" else ", and device=cuda is much faster where there is a GPU"
    return (
        f"{images} An update is shorter with a smaller batch_size (now {config.batch_size}); there are fewer "
        f"with a smaller steps (now {config.steps}){gpu}."
    ).strip()


def selected_episodes(config: TrainConfig, store: EpisodeStore) -> EpisodeSelection:
    """Episodes to learn from. Raises DataError if the rule selects none."""
    selection = select_episodes(store, config.learn_from)
    if len(store) and not selection.positions:
        raise DataError(
            f"learn_from={config.learn_from} selects none of the {len(store)} episodes in {store.path}: "
            f"{selection.reasons}. Record successful ones, or use all by learn_from=all."
        )
    return selection


def check_images(store: EpisodeStore) -> None:
    """Raise DataError for an image of another type than uint8 (h, w, 3), which no policy reads."""
    for key, array in store.spec.obs.items():
        if fault := image_fault(key, array):
            raise DataError(
                f"{store.path} cannot be trained on: {fault} Write the dataset again with that type."
            )


def check_windows(config: TrainConfig, selection: EpisodeSelection) -> None:
    """Raise ConfigError for windows longer than every episode, which would be mostly padding."""
    longest = max((episode.frames for episode in selection.episodes), default=0)
    for key in ("chunk", "obs_steps"):
        if (length := getattr(config, key)) > max(longest, LEAST_WINDOW):
            raise ConfigError(
                f"{key}={length} cannot be used: the longest episode in {selection.store.path} has "
                f"{counted(longest, 'frame')}. Give at most that many."
            )


def keep_data(run: RunDir, selection: EpisodeSelection, *, resume: bool) -> None:
    """Record the episodes of a run. Raises DataError if a resumed run would continue with other ones.

    Batches are functions of (seed, update, number of windows), so other episodes would change all batches.
    """
    path, now = run.path / DATA_FILE, _fingerprint(selection)
    if not (resume and path.exists()):
        write_json(path, now)
    elif (begun := read_json(path)) != now:
        raise DataError(
            f"{run.path} was started on {begun['episodes']} episodes with {begun['frames']} frames, but "
            f"{selection.store.path} now has {now['episodes']} with {now['frames']} to learn from. Give it "
            "the data that it was started with, or start a new run."
        )


def _fingerprint(selection: EpisodeSelection) -> dict[str, int]:
    """Numbers that differ for other episodes."""
    numbers = [episode.number for episode in selection.episodes]
    return {
        "episodes": len(numbers),
        "frames": sum(episode.frames for episode in selection.episodes),
        "numbers_crc32": zlib.crc32(str(numbers).encode()),
    }


def fresh_policy(config: TrainConfig, selection: EpisodeSelection) -> GenerativePolicy | VlaPolicy:
    """New policy for the dataset's contract, with weights from the seed and a normaliser from the data."""
    if isinstance(config.policy, VlaConfig):
        return fresh_vla(config, config.policy, selection)
    shape = GenerativeConfig(
        obs_steps=config.obs_steps,
        chunk=config.chunk,
        execute=config.execute,
        net=config.net,
        process=config.process,
        image=config.image,
        points=config.points,
    )
    torch.manual_seed(derive_seed("init", config.seed))
    return GenerativePolicy.build(selection.store.spec.for_policies(), fit_normalizer(selection), shape)


def fresh_vla(config: TrainConfig, shape: VlaConfig, selection: EpisodeSelection) -> VlaPolicy:
    """New vision-language-action policy. Raises ConfigError for settings of generative policies."""
    if config.obs_steps != 1:
        raise ConfigError(
            f"policy=vla reads one observation, found obs_steps={config.obs_steps}. Leave it out."
        )
    for key in ("process", "net", "image", "points"):
        if getattr(config, key) != getattr(TrainConfig(), key):
            raise ConfigError(
                f"{key}= is a setting of policy=generative and has no effect on policy=vla. Leave it out; "
                "the settings of policy=vla start with policy. (robo-rl train policy=vla --help all)."
            )
    torch.manual_seed(derive_seed("init", config.seed))
    return VlaPolicy(selection.store.spec, fit_normalizer(selection), shape, config.chunk, config.execute)


def fit_normalizer(selection: EpisodeSelection) -> Normalizer:
    """Statistics of every state observation over all frames of the selected episodes."""
    episodes, obs = selection.episodes, selection.store.spec.obs
    keys = [key for key, spec in obs.items() if sense_of(key, spec) == "state"]
    return Normalizer.fit({key: torch.cat([torch.tensor(e.obs(key)) for e in episodes]) for key in keys})


def window_source(config: TrainConfig, selection: EpisodeSelection) -> WindowSource:
    """Windows in memory for states and words; through a loader for images and point clouds."""
    spec, env = WindowSpec(config.obs_steps, config.chunk), selection.store.spec
    if _has_pictures(env):
        dataset: Dataset[dict[str, Any]] = WindowDataset(config.data, spec, episodes=selection.positions)
        return LoaderWindows(dataset, env.action, config.num_workers, collate)
    columns = load_tensors(config.data, spec, episodes=selection.positions)
    action = env.action.normalize(columns.pop("action"))
    return TensorWindows(columns, action)


def _has_pictures(env: EnvSpec) -> bool:
    return any(sense_of(key, array) not in ("state", "privileged", "text") for key, array in env.obs.items())


def train_note(config: TrainConfig, selection: EpisodeSelection) -> dict[str, Any]:
    """Origin of the policy, for policy.json and the bundle's manifest."""
    frames = sum(episode.frames for episode in selection.episodes)
    data = {
        "path": config.data,
        "episodes": len(selection.positions),
        "frames": frames,
        "left_out": selection.left_out,
    }
    return {
        "verb": "train",
        "data": data,
        "steps": config.steps,
        "seed": config.seed,
        "commit": commit(),
    }
