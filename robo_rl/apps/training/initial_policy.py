"""`robo-rl train init=`: a policy that is trained further, with its shape, normaliser and action limits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from policies.base.generative import GenerativePolicy
from policies.checkpoint import check_compatible, load_to_train
from policies.vla.policy import VlaPolicy
from policies.vocabulary import vocabulary_of
from robo_rl.apps.training.train_data import TrainData, check_targets, unlabelled_sentence
from robo_rl.conf.train import GenerativeChoice, StartedImageConfig, TrainConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from robo_rl.core.spec import target_of
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.core.text.setting_changes import change_words, setting_changes
from robo_rl.data.normalizer import Normalizer
from robo_rl.runs.loaded_policy import find_policy, newest_policy
from robo_rl.runs.run_dir import RunDir

TOLD = 1e-3  # share of the numbers in the data, above which the user is told of it
ROUNDING = 1e-5  # of normalised actions


def load_initial(init: str, moment_steps: int = 0) -> GenerativePolicy | VlaPolicy:
    """Policy of a run, a checkpoint or a policy folder; what its kind trains has gradients.

    moment_steps: those of this training, not of the one that made the policy. Raises CheckpointError if there
    is none, or one that does not learn from a dataset.
    """
    policy = load_to_train(find_policy(init))
    if not isinstance(policy, GenerativePolicy | VlaPolicy):
        raise CheckpointError(
            f"init={init} holds a policy of kind '{policy.kind}', which robo-rl train cannot train further. "
            "Give a run of robo-rl train."
        )
    if isinstance(policy, VlaPolicy):
        policy.shape = replace(policy.shape, moment_steps=moment_steps)
    return policy


def load_start(config: TrainConfig, init: str, moment_steps: int) -> GenerativePolicy | VlaPolicy:
    """Policy whose shape and normaliser the training has: the newest one of the resumed run itself, because
    `init` may be gone or trained anew since, else `init`. Weights of a resumed run come from its checkpoint.

    Raises what `load_initial` raises for `init`.
    """
    own = newest_policy(RunDir(Path(config.out))) if config.resume else ""
    if own:
        with suppress(CheckpointError):  # a damaged checkpoint
            return load_initial(own, moment_steps)
    return load_initial(init, moment_steps)


def with_shape_of(policy: GenerativePolicy | VlaPolicy, config: TrainConfig) -> TrainConfig:
    """The settings, with those of the policy's shape. Raises ConfigError if another shape was given."""
    own = replace(config, obs_steps=policy.obs_steps, chunk=policy.chunk, execute=policy.execute)
    if isinstance(policy, VlaPolicy):
        own = replace(own, policy=policy.shape)
    else:
        shape = policy.shape
        image = StartedImageConfig(**asdict(shape.image))
        own = replace(
            own,
            policy=GenerativeChoice(),
            net=shape.net,
            process=shape.process,
            image=image,
            points=shape.points,
        )
    default = TrainConfig()
    own = replace(own, range_floor=default.range_floor)
    if config.action_range != default.action_range:
        raise ConfigError(
            f"action_range={config.action_range} cannot be used with init={config.init}: its policy keeps "
            "the range of actions that it was trained with. Leave the setting out."
        )
    given = _given(config)
    if changes := [each for each in setting_changes(config, asdict(own)) if each.key in given]:
        saved, now = change_words(changes)
        raise ConfigError(
            f"{now} cannot be used with init={config.init}: its policy has {saved}, and keeps its shape and "
            "its normaliser. Leave the setting out, or train a new policy without init=."
        )
    return own


def _given(config: TrainConfig) -> set[str]:
    """Dotted names of the settings that are not the default; of a group of another kind, its name too."""
    default, groups = TrainConfig(), ("policy", "process", "net")
    kinds = {key: type(getattr(config, key)) for key in groups}
    same_kinds = replace(default, **{key: kind() for key, kind in kinds.items()})
    others = {key for key, kind in kinds.items() if kind is not type(getattr(default, key))}
    return others | {each.key for each in setting_changes(config, asdict(same_kinds))}


def check_fit(policy: GenerativePolicy | VlaPolicy, data: TrainData) -> None:
    """Raise CheckpointError if the policy needs other observations or actions than the data have. A policy of
    a joint network may have been trained without targets, and is trained further without them.
    """
    check_compatible(policy, data.spec, data.path)
    if isinstance(policy, VlaPolicy) and policy.shape.spatial > 0.0 and policy.joint is None:
        check_targets(data, "use a policy that was trained with policy.spatial=0")


def misfits(policy: GenerativePolicy | VlaPolicy, data: TrainData) -> list[str]:
    """A sentence for each part of the data that is outside what the policy can read, do or tell apart."""
    found = []
    if (share := clipped_states(policy, data)) > TOLD:
        found.append(
            f"{share:.1%} of the numbers in the states are so far outside the data of init= that the "
            "policy's normaliser clips them."
        )
    if (share := clipped_actions(policy, data)) > TOLD:
        found.append(
            f"{share:.1%} of the numbers in the actions lie outside the range of actions that the policy was "
            "trained with, and are learned as its border. To learn them as they are, train a new policy on "
            "all of the data, without init=."
        )
    learns_points = isinstance(policy, VlaPolicy) and policy.shape.spatial > 0.0
    targets = {target_of(key) for key in policy.obs_spec} if learns_points else set()  # read in training
    if unread := sorted(data.spec.obs.keys() - policy.obs_spec.keys() - targets - {INSTRUCTION}):
        found.append(f"The policy does not read {', '.join(unread)} of the data.")
    if learns_points and (unlabelled := unlabelled_sentence(data)):
        found.append(unlabelled)
    if unknown := unknown_words(policy, data):
        found.append(
            f"{counted(len(unknown), 'word')} of the instructions, such as '{unknown[0]}', are not in the "
            "policy's vocabulary. They share one token, so no two of them can be told apart."
        )
    return found


def clipped_states(policy: GenerativePolicy | VlaPolicy, data: TrainData) -> float:
    """Share of the numbers in the states that the policy's normaliser clips."""
    normalizer: Normalizer = policy.normalizer if isinstance(policy, VlaPolicy) else policy.encoder.normalizer
    states = {key: torch.cat([torch.tensor(e.obs(key)) for e in data.episodes]) for key in normalizer.keys}
    scaled = normalizer.normalize(states)
    numbers = [scaled[key].abs().flatten() >= normalizer.clip for key in normalizer.keys]
    return float(torch.cat(numbers).double().mean()) if numbers else 0.0


def clipped_actions(policy: GenerativePolicy | VlaPolicy, data: TrainData) -> float:
    """Share of the numbers in the actions that exceed the policy's limits."""
    actions = torch.cat([torch.tensor(episode.action) for episode in data.episodes])
    return float((policy.action_spec.normalize(actions).abs() > 1.0 + ROUNDING).double().mean())


def unknown_words(policy: GenerativePolicy | VlaPolicy, data: TrainData) -> list[str]:
    """Words of the instructions that are not in the vocabulary of a policy that has one."""
    if not isinstance(policy, VlaPolicy) or not policy.vocabulary:
        return []
    return sorted(set(vocabulary_of(data.wordings())) - set(policy.vocabulary))
