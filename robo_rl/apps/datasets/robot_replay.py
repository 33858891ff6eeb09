"""Replay of an episode on a robot, simulated or real, as teleoperation through the safety filter.

The episode takes the place of a leader arm: the actions are joint targets on `teleop/command`, flagged as an
intervention, so they outrank a policy and pass every limit of the filter. As with a leader, nothing
moves while the first target is too far from the arm, unless it is to be approached at a speed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.description import RobotDescription, load_description
from hardware.layout import action_joints
from hardware.messages import JointState
from hardware.nodes.shared.filter_watch import FilterWatch
from hardware.nodes.teleop import TeleopNode
from hardware.teleop.device import NOTHING, OperatorInput
from hardware.teleop.drive import MATCH_RAD
from hardware.topics import JOINT_STATES
from robo_rl.conf.datasets.replay import DataReplayConfig
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.shapes import Float
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.review.one_episode import episode_at
from robo_rl.runs.progress import progress
from robo_rl.runs.signals import StopRequest, stop_between_steps

START_S = 5.0  # longest wait for the arm's states, and for an arm near the first target


class EpisodeDevice:
    """A leader arm that repeats an episode once, at its rate, from `start` on.

    target_rad: (n, j) in the order of the robot's joints. progress: called with the number of frames played.
    """

    def __init__(
        self, target_rad: Float[ndarray, "n j"], rate_hz: float, progress: Callable[[int], object]
    ) -> None:
        self._target_rad, self._rate_hz, self._progress = target_rad, rate_hz, progress
        self._begin_s: float | None = None
        self._approach_s = 0.0
        self.released, self.frames = True, 0

    def start(
        self, now_s: float, from_rad: Float[ndarray, " j"] | None = None, speed_rad_s: float = 0.0
    ) -> None:
        """Begin to play. With a speed, the target first moves there from `from_rad`."""
        if from_rad is not None and speed_rad_s > 0.0:
            farthest_rad = float(np.abs(self._target_rad[0] - from_rad).max())
            rows = math.ceil(farthest_rad / speed_rad_s * self._rate_hz)
            way = np.linspace(from_rad, self._target_rad[0], rows, endpoint=False).reshape(rows, -1)
            self._target_rad = np.concatenate([way, self._target_rad])
            self._approach_s = rows / self._rate_hz
        self._begin_s, self.released = now_s, False

    @property
    def done(self) -> bool:
        return self._begin_s is not None and self.released

    def poll(self, now_s: float) -> OperatorInput:
        """Target of this instant, between two frames; nothing before the start and after the last frame."""
        if self._begin_s is None:
            return NOTHING
        place, last = (now_s - self._begin_s) * self._rate_hz, len(self._target_rad) - 1
        self.released = self.released or place >= last + 1
        self.frames = max(0, min(int(place), last) + 1 - round(self._approach_s * self._rate_hz))
        self._progress(self.frames)
        if self.released:
            return NOTHING
        share = place % 1.0
        before, after = self._target_rad[int(place)], self._target_rad[min(int(place) + 1, last)]
        return OperatorInput(True, position_rad=(1.0 - share) * before + share * after)

    def connect(self) -> None:
        """Nothing to open."""

    def get_action(self, now_s: float) -> OperatorInput:
        return self.poll(now_s)

    def send_feedback(self, feedback: Any) -> None:
        """The episode is played as it is."""

    def help(self) -> str:
        return "Ctrl-C ends the replay and lets go of the arm."

    def close(self) -> None:
        self.released = True


def replay_on_robot(config: DataReplayConfig) -> int:
    """Play the episode and print how far the arm was from the targets; returns 1 if it was stopped early."""
    _refuse_unused(config)
    episode, robot = episode_at(config.path, config.episode), load_description(str(config.robot))
    target_rad = joint_targets(episode, robot)
    rate_hz = episode.dataset.env.control_hz
    with (
        closing(make_bus(f"replay_{os.getpid()}", config.namespace, config.bus)) as bus,
        progress(len(target_rad), "replay", "frame") as bar,
    ):
        device = EpisodeDevice(target_rad, rate_hz, lambda frames: bar.update(frames - bar.n))
        with stop_between_steps(say=False, of_robot=True) as stop:
            played, largest_rad = play(bus, device, robot, target_rad, config.approach_rad_s, stop)
        if stop.requested:
            outcome = f"the arm was let go after {device.frames} of {counted(len(target_rad), 'frame')}"
            raise KeyboardInterrupt(outcome)
    print(
        f"{config.path}, episode {config.episode}: {played} of {counted(len(target_rad), 'frame')} "
        f"replayed on {robot.name}; the arm was at most {largest_rad:.3f} rad from its target"
    )
    return 0 if played == len(target_rad) else 1


def play(
    bus: Bus,
    device: EpisodeDevice,
    robot: RobotDescription,
    target_rad: Float[ndarray, "n j"],
    approach_rad_s: float = 0.0,
    stop: StopRequest | None = None,
) -> tuple[int, float]:
    """Frames played, and the largest distance of the arm from the target of the same instant [rad].

    Raises DriverError if the robot sends no states, if its safety filter passes no commands, or if it is far
    from the first target and no speed of approach is given. Ends the intervention in any case.
    """
    stop = stop or StopRequest(say=False)
    faults: list[str] = []
    node = TeleopNode(bus, device, robot, faults.append)
    seen: list[Float[ndarray, " j"]] = []
    far_rad = [0.0]

    def on_state(message: JointState, _: float) -> None:
        if not set(robot.names) <= set(message.names):
            return
        measured_rad = message.position_rad[[message.names.index(name) for name in robot.names]]
        seen[:] = [measured_rad]
        if 0 < device.frames <= len(target_rad) and not device.released:
            far_rad[0] = max(far_rad[0], float(np.abs(measured_rad - target_rad[device.frames - 1]).max()))

    JOINT_STATES.subscribe(bus, on_state)
    safety, end_s = FilterWatch(bus), bus.now() + START_S
    try:
        bus.spin(lambda: (bool(seen) and safety.passes) or stop.requested or bus.now() > end_s)
        if not seen:
            raise DriverError(
                f"{robot.name} sends no joint_states. Start it first, e.g. robo-rl up arm_sim, then replay "
                "again."
            )
        if not safety.passes:
            raise DriverError(f"The replay was not begun, because nothing would move: {_why(safety)}")
        if not approach_rad_s:
            _refuse_far(robot, seen[0], target_rad[0])
        device.start(bus.now(), seen[0], approach_rad_s)
        bus.spin(lambda: device.done or bool(faults) or stop.requested or not safety.passes)
    finally:
        node.finish()
    if faults or not (safety.passes or stop.requested):
        ended = f"The replay ended after {counted(device.frames, 'frame')}"
        raise DriverError(f"{ended}. {faults[0]}" if faults else f"{ended}: {_why(safety)}")
    return device.frames, far_rad[0]


def _why(safety: FilterWatch) -> str:
    """Why the filter passes no commands, and how to continue."""
    if not safety.reason:
        return "no safety filter is running. Start the robot, e.g. robo-rl up arm_sim."
    return f"{safety.reason}. To arm it: {safety.arm_command}"


def _refuse_far(
    robot: RobotDescription, measured_rad: Float[ndarray, " j"], first_rad: Float[ndarray, " j"]
) -> None:
    """Raise DriverError that names the joint which is farthest from the first target, if that is too far."""
    away_rad = np.where(robot.is_gripper, 0.0, np.abs(first_rad - measured_rad))
    joint = int(away_rad.argmax())
    if away_rad[joint] > MATCH_RAD:
        raise DriverError(
            f"The replay was not begun: {robot.names[joint]} of {robot.name} is at "
            f"{measured_rad[joint]:.2f} rad, and the episode begins at {first_rad[joint]:.2f}; {MATCH_RAD} "
            "rad are near enough. Drive the arm there, or let the replay do so if the way is free: "
            "approach_rad_s=0.2."
        )


def _refuse_unused(config: DataReplayConfig) -> None:
    """Raise ConfigError for a setting of the simulator, which a replay on a robot would not use."""
    usual = {item.name: item.default for item in fields(DataReplayConfig)}
    for name in ("env", "seed", "tolerance"):
        if getattr(config, name) != usual[name]:
            raise ConfigError(f"{name}= belongs to a replay in the simulator; leave it or robot= out.")


def joint_targets(episode: Episode, robot: RobotDescription) -> Float[ndarray, "n j"]:
    """Actions in the order of the robot's joints [rad]. Raises ConfigError if they are not joint
    positions.
    """
    unit = episode.dataset.env.action.unit
    joints = action_joints(unit)
    if sorted(joints) != sorted(robot.names):
        raise ConfigError(
            f"The actions of {episode.path.parent.parent} are '{unit or 'of no unit'}', but a replay on "
            f"{robot.name} needs positions of its joints: 'rad: {', '.join(robot.names)}'."
        )
    order = [joints.index(name) for name in robot.names]
    return episode.action[:, order].astype(np.float64)
