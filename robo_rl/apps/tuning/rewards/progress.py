"""Reward for progress in a fine-tuning run: its model, which is kept in the run, and the shaping by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from policies.checkpoint import check_compatible
from policies.registry import SavedPolicy
from policies.vla.packed import PackedPolicy
from robo_rl.conf.finetune import MethodConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.state_io import has_state, load_state, save_state
from robo_rl.core.seeding import generator
from robo_rl.core.views import Views
from robo_rl.data.store import EpisodeStore
from robo_rl.rl.progress.labelling import gripper_of, labelled_episodes, progress_episodes
from robo_rl.rl.progress.model import ProgressModel, ProgressReport, check_enough, fit_progress
from robo_rl.rl.progress.shaping import PotentialShaping
from robo_rl.runs.run_dir import PROGRESS

_REPORT = "report"


@dataclass(frozen=True)
class ProgressRun:
    """Where a run keeps its model. folder: of the run; None: nowhere. seed: of the run."""

    folder: Path | None
    seed: int
    say: Callable[[str], None] = print

    def shaping(
        self,
        method: MethodConfig,
        base: SavedPolicy,
        acting: SavedPolicy | PackedPolicy,
        views: Views,
        demos: EpisodeStore | None,
        device: torch.device | str,
    ) -> PotentialShaping | None:
        """Shaping by the model of this run; None with method.progress_weight=0.

        A resumed run reads its model; a new one learns it and writes it. acting: the base with the features
        that are stored. views: the columns of them that critics see.
        """
        if method.progress_weight == 0.0:
            return None
        check_progress(method, demos is not None)
        assert demos is not None
        kept = None if self.folder is None else self.folder / PROGRESS
        if kept is not None and has_state(kept):
            model, report = read_progress(kept)
        else:
            check_compatible(base, demos.spec, str(demos.path))
            gripper = gripper_index(method, demos)
            episodes = labelled_episodes(demos, acting, gripper, views.critic, device)
            model, report = fit_progress(episodes, generator("progress", self.seed))
            if kept is not None:
                write_progress(kept, model, report)
        self.say(str(report))
        return PotentialShaping(
            model.to(device),
            method.progress_weight,
            timeout_is_failure=method.learner.timeout_is_failure,
            columns=views.critic,
        )


def check_progress(method: MethodConfig, given: bool) -> None:
    """Raise ConfigError for a reward for progress that cannot be learned or used. given: there are
    demonstrations.
    """
    if method.progress_weight == 0.0:
        return
    if not given:
        raise ConfigError(
            f"method.progress_weight={method.progress_weight:g} learns progress from demonstrations: give "
            "demos=<dataset>, or leave it out."
        )
    if method.encoder == "learned":
        raise ConfigError(
            "A model of progress reads the base's features, which method.encoder=learned does not store. Set "
            "method.progress_weight=0 or method.encoder=frozen."
        )
    if method.reward_source == "interventions":
        raise ConfigError(
            "method.reward_source=interventions learns from take-overs alone. Set method.progress_weight=0, "
            "or method.reward_source=task."
        )
    if method.groups.size:
        raise ConfigError(
            "Groups of episodes are compared by their sum of rewards without discount, which a reward for "
            "progress would change. Set method.progress_weight=0."
        )


def check_taught(method: MethodConfig, base: SavedPolicy, demos: EpisodeStore) -> None:
    """Raise ConfigError or CheckpointError for demonstrations from which no progress can be learned with this
    base. It reads all of them, so a run calls it once, before its folder is made.
    """
    check_compatible(base, demos.spec, str(demos.path))
    gripper_index(method, demos)
    check_enough(len(progress_episodes(demos, base)))


def gripper_index(method: MethodConfig, demos: EpisodeStore) -> int | None:
    """Number of the action that commands the gripper; None if there is none."""
    if method.progress_gripper is None:
        return gripper_of(demos.spec.action)
    if method.progress_gripper >= demos.spec.action.dim:
        raise ConfigError(
            f"method.progress_gripper={method.progress_gripper} names no action: {demos.path} has "
            f"{demos.spec.action.dim} numbers per action, counted from 0."
        )
    return method.progress_gripper


def write_progress(folder: Path, model: ProgressModel, report: ProgressReport) -> None:
    """Write the model and what is known about it."""
    save_state(folder, {"weights": model.state_dict(), _REPORT: report.to_json()})


def read_progress(folder: Path) -> tuple[ProgressModel, ProgressReport]:
    """The model of a run. Raises CheckpointError if its files are damaged."""
    state = load_state(folder)
    report = ProgressReport(**state[_REPORT])
    model = ProgressModel(len(state["weights"]["mean"]), report.members)
    model.load_state_dict(state["weights"])
    return model.eval().requires_grad_(False), report


def progress_note(run: Path) -> dict[str, Any]:
    """Entry of results.json about the model of a run; empty without one."""
    if not has_state(run / PROGRESS):
        return {}
    return {PROGRESS: read_progress(run / PROGRESS)[1].to_json()}
