"""Training of a base policy from a dataset in a run folder, with exact resume."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from policies.base.generative import GenerativeConfig, GenerativePolicy
from policies.training.base import BaseTrainConfig, BaseTrainer
from policies.training.batches import ALONE, WindowSource
from policies.training.joint import JointVla, JointWindows
from policies.training.moments import moment_steps
from policies.training.wordings import RewordedWindows, varies
from policies.vla.backbone import TINY
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from policies.vocabulary import vocabulary_of
from robo_rl.apps.training.embodiments import (
    check_one_process,
    embodiment_sentences,
    fresh_joint,
    save_policies,
)
from robo_rl.apps.training.initial_encoders import start_from
from robo_rl.apps.training.initial_policy import check_fit, load_start, misfits, with_shape_of
from robo_rl.apps.training.train_data import TrainData, check_targets
from robo_rl.apps.training.train_ranks import (
    check_equal,
    check_processes,
    follow,
    launch_training,
)
from robo_rl.apps.training.unused_settings import unused_by_training
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError, DataError, RoboRLError
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.provenance import commit
from robo_rl.core.seeding import derive_seed
from robo_rl.core.settings import check_settings, free_keys
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.data.windows import WindowSpec
from robo_rl.nets.image_encoder import ImageEncoderConfig, check_positions
from robo_rl.nets.ranks import Ranks, StopVote
from robo_rl.rl.scale.process_group import is_rank, process_group, rank_device, reported
from robo_rl.runs.device import device_of, pick_device, set_cpu_threads, train_in_tf32
from robo_rl.runs.loaded_policy import newest_policy
from robo_rl.runs.outputs import free_path
from robo_rl.runs.resumable import check_weights, resumable
from robo_rl.runs.run_dir import RunDir

DATA_FILE = "data.json"  # in the run folder: the episodes of its training


def train(config: TrainConfig, free: frozenset[str] = frozenset()) -> RunDir:
    """Train and save the policy in `out`/policy. free: further settings that may differ in a resumed run.

    With launcher=torchrun, or in a process started by `torchrun`, several processes train together.
    """
    check_settings(config)
    if isinstance(config.policy, VlaConfig) and config.init is None:
        check_vla_settings(config)
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
    train_in_tf32(device)
    recipe = BaseTrainConfig(**{item.name: getattr(config, item.name) for item in fields(BaseTrainConfig)})
    first = config.policy.moment_steps if isinstance(config.policy, VlaConfig) else 0
    initial = None if config.init is None else load_start(config, config.init, first)
    if initial is not None:
        config = with_shape_of(initial, config)
    if isinstance(initial, VlaPolicy):
        check_vla_settings(config)
    limits = None if initial is None else initial.action_spec
    task_as_instruction = isinstance(config.policy, VlaConfig)
    data = TrainData.select(
        config.data,
        config.learn_from,
        config.action_range,
        limits,
        task_as_instruction=task_as_instruction,
        several=task_as_instruction and initial is None,
    )
    check_one_process(config, data, ranks)
    set_cpu_threads(config.threads, images=data.has_pictures)
    data.check_windows(chunk=config.chunk, obs_steps=config.obs_steps)
    if config.learn_steps == "human":
        data.check_human()
    check_equal(config, data.fingerprint(), ranks)
    source = training_windows(config, data)
    if initial is not None:
        check_fit(initial, data)
    policy = (fresh_policy(config, data) if initial is None else initial).to(device)
    moment_steps(policy, config.steps, ranks)  # refused before there is a folder
    if not ranks.leads:
        follow(trainer_class(config)(policy, source, recipe, ranks=ranks), config.checkpoint_every, ranks)
        return RunDir(Path(config.out))
    out = Path(config.out)
    with RunDir.create(
        out,
        config,
        resume=config.resume,
        overwrite=config.overwrite,
        free=free_keys("train") | free,
        instead=further_words(out),
    ) as run:
        keep_data(run, data, resume=config.resume)
        spatial = isinstance(config.policy, VlaConfig) and config.policy.spatial > 0.0
        robots = embodiment_sentences(out, data, spatial=spatial)
        unused = unused_by_training(config, data.spec) if initial is None else ()
        words = data.task_instruction_sentence() if task_as_instruction else data.unread_sentence()
        for sentence in filter(None, (*data.sentences(), words, *robots, *unused)):
            print(sentence)
        if len(source) < data.frames:
            print(data.human_sentence())
        if initial is not None:
            shape = f"obs_steps={config.obs_steps}, chunk={config.chunk}, execute={config.execute}"
            print(f"{config.init} is trained further, with its {shape}.")
            for sentence in misfits(initial, data):
                print(sentence)
        _lead(config, recipe, policy, source, run, data, ranks)
    return run


def further_words(run: Path) -> str:
    """How to train the policy of a run further, in words that can be pasted; empty without a policy."""
    if not RunDir(run).policy.is_dir():
        return ""
    named = run if run.name not in ("", "..") else run.resolve()
    longer = free_path(named.with_name(f"{named.name}-longer"))
    return f"train it further by {shlex.join([f'init={run}', f'out={longer}'])}"


def _lead(
    config: TrainConfig,
    recipe: BaseTrainConfig,
    policy: GenerativePolicy | VlaPolicy | JointVla,
    source: WindowSource,
    run: RunDir,
    data: TrainData,
    ranks: Ranks,
) -> None:
    """Train to the end and save the average; every checkpoint also holds the average of its step."""
    note = train_note(config, data)
    with resumable(
        run,
        total=config.steps,
        label="train",
        resume=config.resume,
        shown=("base/loss",),
        keep=config.keep_checkpoints,
    ) as session:
        trainer = trainer_class(config)(policy, source, recipe, session.metrics, ranks)
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
            check_weights(
                trainer.average.state_dict(),
                run,
                f"Lower lr={config.lr:g}, or look for NaN in the data (robo-rl data validate).",
            )
            save_policies(folder, trainer.average, data, note | {"steps": trainer.step})

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
    save_policies(run.path, trainer.result(), data, note)


def trainer_class(config: TrainConfig) -> type[BaseTrainer[Any]]:
    """The trainer whose ranks hold parts of the policy, or whole ones."""
    if not config.shard:
        return BaseTrainer
    from policies.training.sharded import ShardedTrainer

    return ShardedTrainer


def training_windows(config: TrainConfig, data: TrainData) -> WindowSource:
    """Windows of the data; those of a vision-language-action policy with varied instructions."""
    if len(data.embodiments) > 1:
        joint = JointWindows(tuple(training_windows(config, part) for part in data.embodiments))
        joint.counts(config.batch_size)  # refused before there is a folder
        return joint
    past = config.policy.memory if isinstance(config.policy, VlaConfig) else 0
    spec = WindowSpec(config.obs_steps, config.chunk, past, config.execute)
    source = data.windows(spec, config.num_workers, human_only=config.learn_steps == "human")
    if isinstance(config.policy, VlaConfig) and INSTRUCTION in data.spec.obs and varies(config.policy):
        return RewordedWindows(source, data.wordings(), config.policy)
    return source


def how_to_be_faster(config: TrainConfig, policy: GenerativePolicy | VlaPolicy | JointVla) -> str:
    """Sentence on the settings that make a long training shorter."""
    images = " It trains an image encoder." if policy.cameras else ""
    gpu = "" if device_of(policy).type == "cuda" else ", and device=cuda is much faster where there is a GPU"
    return (
        f"{images} An update is shorter with a smaller batch_size (now {config.batch_size}); there are fewer "
        f"with a smaller steps (now {config.steps}){gpu}."
    ).strip()


def keep_data(run: RunDir, data: TrainData, *, resume: bool) -> None:
    """Record the episodes of a run. Raises DataError if a resumed run would continue with other ones.

    Batches are functions of (seed, update, number of windows), so other episodes would change all batches;
    other values in them would not fit the normaliser. Runs of earlier releases did not record checksums of
    the values, which are not compared then.
    """
    path, now = run.path / DATA_FILE, data.fingerprint()
    if not (resume and path.exists()):
        write_json(path, now)
        return
    begun = read_json(path)
    if all(now.get(key) == value for key, value in begun.items()):
        return
    counts = [(each["episodes"], each["frames"]) for each in (begun, now)]
    change = f"{data.path} now has {counts[1][0]} with {counts[1][1]} to learn from"
    if counts[0] == counts[1]:
        change = f"{data.path} now holds other ones, recorded or edited since"
    policy = newest_policy(run)
    further = (
        f", train its policy further on the data of now by init={policy} and a new out=," if policy else ""
    )
    raise DataError(
        f"{run.path} was started on {counts[0][0]} episodes with {counts[0][1]} frames, but {change}. Give "
        f"it the data that it was started with{further} or start a new run."
    )


def fresh_policy(config: TrainConfig, data: TrainData) -> GenerativePolicy | VlaPolicy | JointVla:
    """New policy for the dataset's contract, with weights from the seed and a normaliser from the data."""
    if isinstance(config.policy, VlaConfig):
        return fresh_vla(config, config.policy, data)
    shape = GenerativeConfig(
        obs_steps=config.obs_steps,
        chunk=config.chunk,
        execute=config.execute,
        net=config.net,
        process=config.process,
        image=image_settings(config),
        points=config.points,
    )
    torch.manual_seed(derive_seed("init", config.seed))
    states = data.normalizer(config.range_floor)
    policy = GenerativePolicy.build(data.spec.for_policies(), states, shape)
    check_positions(policy.encoder.picture_shapes(), shape.image)
    if config.image.init is not None:
        try:
            start_from(policy, config.image.init)
        except RoboRLError:  # gone or trained anew: the weights of a resumed run are in its checkpoint
            if not (config.resume and RunDir(Path(config.out)).has_intact()):
                raise
    return policy


def image_settings(config: TrainConfig) -> ImageEncoderConfig:
    """Settings of the picture encoders without the weights that they start from, for the policy's file."""
    return ImageEncoderConfig(
        **{item.name: getattr(config.image, item.name) for item in fields(ImageEncoderConfig)}
    )


def fresh_vla(config: TrainConfig, shape: VlaConfig, data: TrainData) -> VlaPolicy | JointVla:
    """New vision-language-action policy, or one for each of several embodiments."""
    if shape.backbone != TINY:  # policy.json refers to the folder from wherever it is read
        shape = replace(shape, backbone=str(Path(shape.backbone).resolve()))
    if shape.spatial > 0.0:
        check_targets(data, "set policy.spatial=0")
    if len(data.embodiments) > 1:
        return fresh_joint(config, shape, data)
    torch.manual_seed(derive_seed("init", config.seed))
    words = vocabulary_of(data.wordings()) if shape.tokens == "words" and INSTRUCTION in data.spec.obs else ()
    states = data.normalizer(config.range_floor)
    return VlaPolicy(data.spec.for_policies(), states, shape, config.chunk, config.execute, words)


def check_vla_settings(config: TrainConfig) -> None:
    """Raise ConfigError for settings of generative policies."""
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


def train_note(config: TrainConfig, data: TrainData) -> dict[str, Any]:
    """Origin of the policy, for policy.json and the bundle's manifest."""
    sources = {"init": config.init, "image_init": config.image.init}
    started = {key: source for key, source in sources.items() if source is not None}
    return {
        "verb": "train",
        **started,
        "data": {
            "path": config.data,
            "episodes": len(data.episodes),
            "frames": data.frames,
            "left_out": data.left_out,
        },
        **({"task_instructions": data.task_instructions} if data.task_instructions else {}),
        "steps": config.steps,
        "seed": config.seed,
        "commit": commit(),
    }
