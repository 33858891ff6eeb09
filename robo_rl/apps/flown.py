"""A policy that `robo-rl fly` trained, with the task and the craft that it was trained for, ready to be flown again."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from policies.bundle import MANIFEST, load_bundle
from policies.checkpoint import load_policy, read_policy_json
from policies.flight import STATE, FlightPolicy
from robo_rl.apps.acting import find_policy
from robo_rl.apps.fly_setting import Setting
from robo_rl.apps.run_dir import RunDir
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import CheckpointError, ConfigError
from sim.engines.quad.craft import Craft
from sim.engines.quad.memory import Senses
from sim.engines.quad.realism import Realism
from sim.engines.quad.setting import FlightOptions, check_options
from sim.tasks.protocol import FlightTask


@dataclass(frozen=True)
class Flown:
    """A policy and what it flies."""

    folder: Path
    policy: FlightPolicy
    setting: Setting
    trained: FlyConfig  # the settings of its training, as far as they are known

    @property
    def craft(self) -> Craft:
        return self.setting.craft

    @property
    def task(self) -> FlightTask:
        return self.setting.task

    @property
    def senses(self) -> Senses:
        return self.setting.senses

    @property
    def realism(self) -> Realism:
        return self.setting.realism


def load_flown(config: TransferConfig) -> Flown:
    """From a run, one of its policy folders, or a bundle.

    Raises ConfigError where not exactly one of `run` and `bundle` is given, CheckpointError for a policy that is not
    one of `robo-rl fly`, or that does not see what the task shows.
    """
    if (config.run is None) == (config.bundle is None):
        raise ConfigError("Give either run=<folder of robo-rl fly> or bundle=<folder>, and not both.")
    given = Path(config.run or config.bundle or "")
    folder = find_policy(given)
    if (folder / MANIFEST).is_file():
        load_bundle(folder)  # checks every file against the manifest
    policy = load_policy(folder)
    if not isinstance(policy, FlightPolicy):
        raise CheckpointError(
            f"{folder} holds a policy of kind '{read_policy_json(folder)['kind']}' for another suite; what can be "
            "moved to another engine are policies of robo-rl fly and of tasks of arms (arm/lift, ...)."
        )
    trained = _settings(given, folder)
    changes: dict[str, Any] = {"craft": config.craft, "speed_m_s": config.speed_m_s, "eval_s": config.eval_s}
    trained = replace(trained, **{key: value for key, value in changes.items() if value is not None})
    check_options(trained.task, FlightOptions(speed_m_s=config.speed_m_s))
    setting = Setting.of(trained)
    found, shown = policy.obs_spec[STATE].shape, setting.spec().obs[STATE].shape
    if found != shown:
        raise CheckpointError(
            f"The policy in {folder} sees {found[0]} numbers, and its task shows {shown[0]}: its settings are not "
            "those that it was trained with. Give the run that trained it."
        )
    return Flown(folder, policy, setting, trained)


def _settings(given: Path, folder: Path) -> FlyConfig:
    """Those of the run that the policy lies in; of a bundle that was moved away, those that it carries itself."""
    for place in (given, folder, folder.parent):
        if (place / "config.yaml").is_file():
            saved = RunDir(place).config()
            known = {item.name for item in fields(FlyConfig)}
            return FlyConfig(**{key: value for key, value in saved.items() if key in known})
    settings = read_policy_json(folder)["train"].get("settings")
    if settings is None:
        raise CheckpointError(f"{folder} does not tell how it was trained. Give run=<the folder of robo-rl fly>.")
    return FlyConfig(**settings)
