"""Checks of the settings of `robo-rl demo`, before any work."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from robo_rl.apps.cli.config import load_config
from robo_rl.apps.workflow.stages import METHODS, SETTINGS_FILE, STAGES_FILE
from robo_rl.conf.demo import DemoConfig
from robo_rl.conf.finetune import FinetuneVerb
from robo_rl.core.errors import ConfigError
from robo_rl.core.files.describe_path import describe_path
from robo_rl.core.files.durable import read_json, write_json
from robo_rl.core.text.setting_changes import change_words, setting_changes
from robo_rl.runs import replaced
from sim.registry import make_env, make_expert


def check_out(out: Path) -> None:
    """Raise ConfigError for a folder that holds something other than a demo."""
    if not out.is_dir() or not replaced.contents(out):
        return
    if not any((out / name).exists() for name in (SETTINGS_FILE, STAGES_FILE)):
        raise ConfigError(
            f"out={out} {describe_path(out)}, expected a new folder or that of an earlier demo. Choose "
            "another path."
        )


def check_steps(config: DemoConfig) -> None:
    """Raise ConfigError, before any work, for too few steps for a method to start learning."""
    for name in METHODS:
        key = f"{name}_steps"
        steps = getattr(config, key)
        base_steps = load_config(
            "finetune", [f"method={name}", f"out={config.out}"], FinetuneVerb
        ).method.base_steps
        if steps <= base_steps:
            raise ConfigError(
                f"{key}={steps} leaves no steps for learning: the base alone executes the first "
                f"{base_steps}. Give more."
            )


def check_env(name: str) -> None:
    """Raise a RoboRLError, before any work, for an unknown environment or one without a scripted expert."""
    make_expert(name)
    make_env(name, 1).close()


def check_same(config: DemoConfig, out: Path) -> None:
    """Raise ConfigError for settings that differ from those of the demo in `out`; save them in a new one.

    The report would otherwise name settings that did not produce its results.
    """
    path, settings = out / SETTINGS_FILE, asdict(config)
    kept = {key: value for key, value in settings.items() if key not in ("out", "overwrite")}
    began = (out / STAGES_FILE).exists() or (out / "demonstrations").exists()
    if not began or not path.exists():
        write_json(path, kept)
        return
    if changes := setting_changes(config, read_json(path), ("out", "overwrite")):
        before, now = change_words(changes)
        it = "settings" if len(changes) > 1 else "setting"
        raise ConfigError(
            f"The demo in {out} was started with {before} and cannot be continued with {now}. Give "
            f"the {it} it was started with, add overwrite=true to replace it, or choose another folder."
        )
