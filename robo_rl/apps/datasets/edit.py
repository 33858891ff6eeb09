"""`robo-rl data edit`: delete, relabel and split episodes, and undo the last edit."""

from __future__ import annotations

from robo_rl.conf.datasets.review import DataEditConfig
from robo_rl.core.errors import ConfigError
from robo_rl.core.text.commands import command
from robo_rl.data.edit.changes import (
    EditReport,
    Label,
    delete_episodes,
    parse_episodes,
    relabel_episodes,
    split_at,
    undo,
)

_LABELS: dict[str, Label] = {"keep": "keep", "true": True, "false": False, "none": None}


def main(config: DataEditConfig) -> int:
    """Carry out one edit and print what it did and how to undo it."""
    report = _edit(config)
    print(f"{config.path}: {report.sentence}")
    if report.dry_run:
        print("Nothing was changed. Leave out dry_run=true to carry it out.")
    elif config.keep_undo:
        print(f"Undo:   {command('data edit', path=config.path, undo=True)}")
    return 0


def _edit(config: DataEditConfig) -> EditReport:
    edits = {
        "delete": bool(config.delete),
        "relabel": bool(config.relabel),
        "split": config.split is not None,
        "undo": config.undo,
    }
    names = [name for name, given in edits.items() if given]
    if len(names) != 1:
        raise ConfigError(
            f"Found {' and '.join(names) or 'none'} of delete=, relabel=, split= and undo=true: give one."
        )
    _refuse_unused(config, names[0])
    options = {"dry_run": config.dry_run, "keep_undo": config.keep_undo}
    if config.undo:
        return undo(config.path, dry_run=config.dry_run)
    if config.delete:
        return delete_episodes(config.path, parse_episodes(config.delete), **options)
    if config.relabel:
        return relabel_episodes(
            config.path, parse_episodes(config.relabel), success=_LABELS[config.success], task=config.task,
            by=config.by, **options,
        )  # fmt: skip
    if config.split is None or config.frame is None:
        raise ConfigError("split= needs frame=, the first frame of the second part.")
    return split_at(config.path, config.split, config.frame, **options)


def _refuse_unused(config: DataEditConfig, name: str) -> None:
    """Raise ConfigError for a setting that belongs to another edit, so that no mistyped one is ignored."""
    labels = {"success": config.success != "keep", "task": config.task is not None, "by": bool(config.by)}
    unused = [key for key, given in labels.items() if given and name != "relabel"]
    unused += ["frame"] if config.frame is not None and name != "split" else []
    if unused:
        raise ConfigError(f"{unused[0]}= does not apply to {name}=; leave it out.")
