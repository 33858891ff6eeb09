"""`robo-rl identify`: fit the simulated arm to recorded motion, and test the fit on held-out motion."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import yaml
from numpy import ndarray
from rich.console import Console
from rich.table import Table

from robo_rl.conf.identify import IdentifyConfig
from robo_rl.core.errors import ConfigError, DataError
from robo_rl.core.files.durable import write_json
from robo_rl.core.provenance import commit, machine
from robo_rl.core.shapes import Float
from robo_rl.data.episodes.reader import Episode, EpisodeStore
from robo_rl.runs.outputs import check_folder
from robo_rl.runs.progress import progress
from sim.arms.view import Wiring
from sim.bodies.protocol import SUBSTEPS
from sim.registry import make_env, option_of
from sim.scenes.identify import KNOWN, MOST_ROUNDS, ArmModel, Fit, Segments, cut, fit, join, rms
from sim.scenes.task_env import TaskVecEnv

_JOINTS, _SPEEDS = "joints", "joint speeds"  # segments of an observation


def main(config: IdentifyConfig) -> int:
    """Fit, print a table, and write results.json and randomise.yaml into `out`."""
    check_folder("out", config.out)
    store = EpisodeStore(config.data, complete_only=True)
    name = config.env or store.spec.name
    with closing(make_env(name, 1)) as env:
        if not isinstance(env, TaskVecEnv) or not isinstance(env.wiring, Wiring):
            raise ConfigError(f"{name} is not a manipulation environment, so it has no arm to fit.")
        check_recorded(store, env)
        columns = columns_of(env)
        model, joints = ArmModel(env.wiring, SUBSTEPS), env.wiring.robot.joints
        hz = env.spec.control_hz
    if not 0.0 < config.held_out < 1.0:
        raise ConfigError(
            f"held_out={config.held_out:g} cannot be used, expected a fraction of episodes between 0 and 1."
        )
    delays = config.delays if config.delays is not None else [0, 1, 2]
    if not delays or min(delays) < 0:
        raise ConfigError(
            f"delays={delays} cannot be used, expected whole numbers of at least 0, such as [0,1,2]."
        )
    parts = [cut(*motion(episode, columns, hz), config.steps, max(delays) + model.lead) for episode in store]
    if len(parts) < 2:
        raise DataError(
            f"{config.data} holds {len(parts)} episodes; at least 2 are needed, one of them held out."
        )
    kept_out = min(len(parts) - 1, max(1, round(config.held_out * len(parts))))
    fitted, unseen = (
        evenly_spread(join(each), config.stretches) for each in (parts[:-kept_out], parts[-kept_out:])
    )
    try:
        with progress(len(delays) * MOST_ROUNDS, "identify", "simulation") as bar:
            found = fit(model, fitted, delays, bar.update)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt("nothing was written") from stop
    if not found.found.any():
        raise DataError(
            f"No joint in {config.data} moves enough to identify its stiffness and damping. Record motion in "
            "free space that goes back and forth within a second, every joint by 0.1 rad or more."
        )
    before, after = (
        rms(model.errors(unseen, each[None], delay)[0])
        for each, delay in ((np.zeros_like(found.theta), 0), (found.theta, found.delay))
    )
    write(Path(config.out), config, name, joints, found, before, after)
    report(config, name, joints, found, before, after)
    return 0


def check_recorded(store: EpisodeStore, env: TaskVecEnv) -> None:
    """Raise ConfigError if the recorded numbers are not this arm's joints and targets."""
    named = ", ".join(env.wiring.robot.joints)
    if not store.spec.action.unit.startswith(f"rad: {named}"):
        raise ConfigError(
            f"The actions of the dataset are '{store.spec.action.unit}'; expected targets of the arm's "
            f"joints, 'rad: {named}'. Record under control=joint_position."
        )
    if store.spec.obs["state"].shape != env.spec.obs["state"].shape:
        raise ConfigError(
            f"The dataset's state has {store.spec.obs['state'].shape[0]} numbers, that of {env.spec.name} "
            f"{env.spec.obs['state'].shape[0]}. Give the environment that it was recorded in: env=..."
        )


def columns_of(env: TaskVecEnv) -> dict[str, slice]:
    """Columns of joints and, if recorded, their velocities in the state."""
    columns, start = {}, 0
    for part, count, _ in env.task.obs_parts:
        columns[part] = slice(start, start + count)
        start += count
    if _JOINTS not in columns:
        raise ConfigError(f"{env.spec.name} observes no joint positions, to which a model is fitted.")
    return columns


def motion(
    episode: Episode, columns: dict[str, slice], hz: float
) -> tuple[Float[ndarray, "ends j"], Float[ndarray, "ends j"], Float[ndarray, "t j"]]:
    """(positions [rad], velocities [rad/s], targets [rad]); ends = t + 1.

    Velocities that were not recorded are central differences.
    """
    state = np.asarray(episode.obs("state"), np.float64)
    q_rad = state[:, columns[_JOINTS]]
    if _SPEEDS in columns:
        dq_rad_s = state[:, columns[_SPEEDS]]
    else:
        dq_rad_s = np.gradient(q_rad, 1.0 / hz, axis=0)
        dq_rad_s[0] = 0.0  # an episode starts at rest
    steps = len(state) - 1
    return q_rad, dq_rad_s, np.asarray(episode.action, np.float64)[:steps, : q_rad.shape[1]]


def evenly_spread(segments: Segments, most: int) -> Segments:
    """At most `most` segments, evenly spread."""
    rows = np.unique(
        np.linspace(0, len(segments.q_rad) - 1, min(most, len(segments.q_rad))).round().astype(int)
    )
    return Segments(segments.q_rad[rows], segments.dq_rad_s[rows], segments.command_rad[rows])


def write(
    out: Path,
    config: IdentifyConfig,
    env: str,
    joints: tuple[str, ...],
    found: Fit,
    before: float,
    after: float,
) -> None:
    """Write results.json, and ranges for randomisation: two standard deviations beyond the extreme joints.

    Joints that the motion does not identify are left out.
    """
    out.mkdir(parents=True, exist_ok=True)
    write_json(
        out / "results.json",
        {
            "commit": commit(),
            "machine": machine(),
            "data": config.data,
            "env": env,
            "delay_steps": found.delay,
            "held_out_rms_rad": {"before": before, "after": after},
            "fitted_rms_rad": found.rms_rad,
            "joints": {
                joint: {
                    "kp": float(found.kp[i]),
                    "kv": float(found.kv[i]),
                    "kp_log_std": float(found.kp_std[i]),
                    "kv_log_std": float(found.kv_std[i]),
                }
                for i, joint in enumerate(joints)
            },
            "motors": {
                key: {"factor": factor, "log_std": std} for key, (factor, std) in found.motors.items()
            },
        },
    )
    fitted = found.found
    ranges = {
        name: [
            float((value * np.exp(-2.0 * std))[fitted].min().round(4)),
            float((value * np.exp(2.0 * std))[fitted].max().round(4)),
        ]
        for name, value, std in (("kp", found.kp, found.kp_std), ("kv", found.kv, found.kv_std))
    }
    for name, (factor, std) in found.motors.items():
        if std < KNOWN:
            ranges[name] = [round(factor * float(np.exp(side * 2.0 * std)), 4) for side in (-1, 1)]
    text = yaml.safe_dump({**ranges, "action_delay": [found.delay, found.delay]}, default_flow_style=None)
    (out / "randomise.yaml").write_text(
        f"# Fitted to {config.data}: the factors of all joints that moved.\n{text}"
    )


def report(
    config: IdentifyConfig, env: str, joints: tuple[str, ...], found: Fit, before: float, after: float
) -> None:
    table = Table(header_style="dim", box=None, pad_edge=False)
    table.add_column("joint", no_wrap=True)
    for column in ("kp", "±", "kv", "±"):
        table.add_column(column, justify="right", no_wrap=True)
    for i, joint in enumerate(joints):
        cells = (found.kp[i], found.kp[i] * found.kp_std[i], found.kv[i], found.kv[i] * found.kv_std[i])
        known = bool(found.found[i])
        table.add_row(joint, *(f"{cell:.3f}" for cell in cells), style=None if known else "dim")
    console = Console()
    console.print(table)
    console.print("Factors on the model's stiffness and damping, with one standard deviation.", style="dim")
    for name, (factor, std) in found.motors.items():
        untold = "" if std < KNOWN else ", not identified by this motion: not in randomise.yaml"
        print(
            f"{name} of all servos: {factor:.3f} ± {factor * std:.3f} times that of the actuator "
            f"model{untold}"
        )
    if unknown := [joint for joint, known in zip(joints, found.found, strict=True) if not known]:
        print(
            f"not identified by this motion: {', '.join(unknown)}; they keep values near the model's and are "
            "not in randomise.yaml. To identify them, record motion in which they go back and forth."
        )
    motors = f"actuator={option_of(env, 'actuator')}," if found.motors else ""
    print(
        f"delay: {found.delay} steps\nheld-out error after {config.steps} steps of simulation, RMS: "
        f"{1e3 * before:.2f} mrad before, {1e3 * after:.2f} mrad after\n"
        f"Next:   robo-rl finetune ... with env=<task>:{motors}randomise={config.out}/randomise.yaml"
    )
