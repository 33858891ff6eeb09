"""Training of one vision-language-action policy on datasets of several embodiments, and where it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from policies.base.generative import GenerativePolicy
from policies.checkpoint import save_policy
from policies.training.joint import JointVla, joint_policy
from policies.vla.config import VlaConfig
from policies.vla.policy import VlaPolicy
from policies.vocabulary import vocabulary_of
from robo_rl.apps.training.train_data import TrainData, difference, unlabelled_sentence
from robo_rl.conf.train import TrainConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.seeding import derive_seed
from robo_rl.core.text.counts import counted
from robo_rl.core.text.instruction import INSTRUCTION
from robo_rl.nets.ranks import Ranks
from robo_rl.runs.run_dir import OWN_DATA, RunDir


def check_one_process(config: TrainConfig, data: TrainData, ranks: Ranks) -> None:
    """Raise ConfigError for several embodiments in several processes, or with parts of the policy in each."""
    if len(data.embodiments) > 1 and (ranks.count > 1 or config.shard):
        raise ConfigError(
            f"{data.path} are of {len(data.embodiments)} embodiments, which are trained in one process. "
            "Leave launcher=torchrun and shard=true out, or give data= of one robot."
        )


def fresh_joint(config: TrainConfig, shape: VlaConfig, data: TrainData) -> JointVla:
    """New policies of all embodiments of the data, with weights from the seed."""
    torch.manual_seed(derive_seed("init", config.seed))
    instructed = all(INSTRUCTION in each.spec.obs for each in data.embodiments)
    words = vocabulary_of(data.wordings()) if shape.tokens == "words" and instructed else ()
    each = [(part.spec.for_policies(), part.normalizer(config.range_floor)) for part in data.embodiments]
    return joint_policy(each, shape, config.chunk, config.execute, words)


def folder_names(data: TrainData) -> list[str]:
    """Name of each embodiment: that of the folder of its first dataset, without dots before it, which would
    hide it, and with a number if it is not the only one of that name.
    """
    names: list[str] = []
    for part in data.embodiments:
        name = part.selections[0].store.path.resolve().name.lstrip(".") or "data"
        number = 2
        while (unique := name if name not in names else f"{name}-{number}") in names:
            number += 1
        names.append(unique)
    return names


def embodiment_sentences(run: Path, data: TrainData, *, spatial: bool) -> list[str]:
    """What each embodiment is and where its policy will be; none for a single one. spatial: the policy learns
    where in the pictures to act.
    """
    if len(data.embodiments) == 1:
        return []
    lines = [f"One network for {len(data.embodiments)} embodiments, told apart by observations and actions:"]
    for folder, part in zip(policy_folders(run, data), data.embodiments, strict=True):
        dim, rate, count = part.spec.action.dim, part.spec.control_hz, counted(len(part.episodes), "episode")
        lines.append(f"  {folder}: {part.path}, {count}, actions of {dim} at {rate:g} Hz")
        first, own = (each.selections[0].store for each in (data, part))
        if what := difference(first, own):
            lines.append(f"    differs from the first: {what}")
        if spatial and (unlabelled := unlabelled_sentence(part)):
            lines.append(f"    {unlabelled}")
    return lines


def policy_folders(run: Path, data: TrainData) -> list[Path]:
    """Folder of each embodiment's policy, in a run or in one of its checkpoints."""
    inside = RunDir(run)
    return [inside.policy, *(inside.embodiments / name for name in folder_names(data)[1:])]


def save_policies(
    run: Path, policy: GenerativePolicy | VlaPolicy | JointVla, data: TrainData, note: dict[str, Any]
) -> None:
    """Write the policy, or those of all embodiments, below `run`, which may be a checkpoint."""
    if not isinstance(policy, JointVla):
        save_policy(RunDir(run).policy, policy, note)
        return
    parts = zip(policy_folders(run, data), policy.policies, data.embodiments, strict=True)
    for folder, one, part in parts:
        save_policy(folder, one, own_note(note, part))


def own_note(note: dict[str, Any], part: TrainData) -> dict[str, Any]:
    """The note of one embodiment's policy: that of the training, with its own datasets and tasks told."""
    own = {OWN_DATA: [str(each.store.path) for each in part.selections]}
    instructions = {"task_instructions": part.task_instructions} if part.task_instructions else {}
    return {key: value for key, value in note.items() if key != "task_instructions"} | own | instructions
