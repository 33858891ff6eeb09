"""Last lines of `robo-rl data import`: what was imported, or by dry_run=true, what would be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from robo_rl.conf.schema import DataImportConfig
from robo_rl.core.spec import EnvSpec
from robo_rl.core.text.commands import command
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.rehearsal import Rehearsal, current_rehearsal
from robo_rl.data.episodes.schema import DatasetMeta


def report_import(config: DataImportConfig, what: str, details: str = "", notes: Sequence[str] = ()) -> None:
    """Print the result, what was assumed and the next command.

    what: the source in words, e.g. "20 episodes". notes: sentences on what the source leaves open.
    """
    trial = current_rehearsal()
    if trial is None:
        print(f"Imported {what} into {config.out}{details}", *notes, sep="\n")
        print_unknown_units(DatasetMeta.load(Path(config.out)).env)
        print(f"Next:   {command('data info', path=config.out)}")
        return
    print(f"Would import {what} into {config.out}{details}", *notes, sep="\n")
    print("\n".join(rehearsal_lines(trial, config)))
    if trial.env is not None:
        print_unknown_units(trial.env)
    print("Nothing was written. Leave out dry_run=true to carry it out.")


def print_unknown_units(env: EnvSpec) -> None:
    """Say what a dataset without units cannot be used for."""
    if not env.simulated and not env.action.unit:
        print(
            "The dataset has no units. For a policy that fits a robot or a simulated task, import the source "
            "with robot=<description> or env=<task>."
        )


def rehearsal_lines(trial: Rehearsal, config: DataImportConfig) -> list[str]:
    """Size, contract and missing parts of the dataset that would be written, one per line."""
    lines = [f"size       {counted(trial.frames, 'frame')}, {trial.bytes / 1e6:.1f} MB"]
    if trial.env is not None:
        lines += _contract(trial.env, config)
    if missing := _missing(trial):
        lines.append(f"not known  {', '.join(missing)}")
    return lines


def _contract(env: EnvSpec, config: DataImportConfig) -> list[str]:
    given = f"robot={config.robot}" if config.robot else f"env={config.env}" if config.env else "the source"
    obs = ", ".join(f"{key} {spec.dtype}{list(spec.shape)}" for key, spec in env.obs.items())
    return [
        f"contract   {env.name} at {env.control_hz:g} Hz, of {given}",
        f"observed   {obs}",
        f"action     {env.action.dim} dimensions {env.action.unit}".rstrip(),
    ]


def _missing(trial: Rehearsal) -> list[str]:
    """What the source does not say about all or some of its episodes."""
    facts = {
        "success labels": trial.labelled,
        "instructions": trial.with_task,
        "observations after the last action": trial.with_final_obs,
        "time stamps": trial.episodes if trial.stamps else 0,
    }
    total = trial.episodes
    return [
        name if not have else f"{name} ({total - have} of {total} episodes)"
        for name, have in facts.items()
        if have < total
    ]
