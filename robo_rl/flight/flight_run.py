"""Trained flight policy of a run or bundle, with its task, craft and settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from policies.checkpoint import read_policy_json
from policies.flight.policy import STATE, FlightPolicy
from robo_rl.conf.fly import FlyConfig
from robo_rl.conf.transfer import TransferConfig
from robo_rl.core.errors import CheckpointError
from robo_rl.flight.fly.setup import FlightSetup
from robo_rl.runs.loaded_policy import flight_policy, trained_settings
from sim.engines.quad.craft import Craft
from sim.flight.realism import Realism
from sim.flight.setting import FlightOptions, check_options
from sim.tasks.flight.observation import FlightSenses
from sim.tasks.flight.protocol import FlightTask


@dataclass(frozen=True)
class FlightRun:
    """Policy with its task and craft."""

    folder: Path
    policy: FlightPolicy
    setting: FlightSetup
    trained: FlyConfig  # training settings; defaults where unknown

    @property
    def craft(self) -> Craft:
        return self.setting.craft

    @property
    def task(self) -> FlightTask:
        return self.setting.task

    @property
    def senses(self) -> FlightSenses:
        return self.setting.senses

    @property
    def realism(self) -> Realism:
        return self.setting.realism


def load_flight_run(config: TransferConfig) -> FlightRun:
    """Load a policy and its setup from a run, one of its policy folders, or a bundle.

    Raises ConfigError unless exactly one of `run` and `bundle` is given, CheckpointError for a policy that
    was not trained by `robo-rl fly`, or whose observation has another size than the task's.
    """
    given, folder, policy = flight_policy(config, "fly")
    if not isinstance(policy, FlightPolicy):
        raise CheckpointError(
            f"{folder} holds a policy of kind '{read_policy_json(folder)['kind']}', expected a policy of "
            "robo-rl fly, or of a task in a scene (arm/lift, ...). Others cannot be transferred to another "
            "engine."
        )
    trained: FlyConfig = trained_settings(given, folder, FlyConfig, "fly")
    changes: dict[str, Any] = {"craft": config.craft, "speed_m_s": config.speed_m_s, "eval_s": config.eval_s}
    trained = replace(trained, **{key: value for key, value in changes.items() if value is not None})
    check_options(trained.task, FlightOptions(speed_m_s=config.speed_m_s))
    setting = FlightSetup.of(trained)
    found, shown = policy.obs_spec[STATE].shape, setting.spec().obs[STATE].shape
    if found != shown:
        raise CheckpointError(
            f"The policy in {folder} takes {found[0]} numbers, but its task gives {shown[0]}: the settings "
            "differ from those of its training. Give the run that trained it."
        )
    return FlightRun(folder, policy, setting, trained)
