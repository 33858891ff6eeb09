"""Replay of an episode on a robot, simulated or real, as teleoperation through the safety filter.

The episode takes the place of a leader arm: the actions are joint targets on `teleop/command`, flagged as an
intervention, so they outrank a policy and pass every limit of the filter. As with a leader, nothing
moves while the first target is too far from the arm.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
from numpy import ndarray

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.description import RobotDescription, load_description
from hardware.layout import action_joints
from hardware.messages import JointState
from hardware.nodes.teleop import TeleopNode
from hardware.teleop.device import NOTHING, OperatorInput
from hardware.topics import JOINT_STATES
from robo_rl.conf.datasets.replay import DataReplayConfig
from robo_rl.core.errors import ConfigError, DriverError
from robo_rl.core.shapes import Float
from robo_rl.core.text.counts import counted
from robo_rl.data.episodes.reader import Episode
from robo_rl.data.review.one_episode import episode_at
from robo_rl.runs.progress import progress

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
        self.released, self.frames = True, 0

    def start(self, now_s: float) -> None:
        """Begin to play."""
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
        self.frames = min(int(place), last) + 1
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
    episode, robot = episode_at(config.path, config.episode), load_description(str(config.robot))
    target_rad = joint_targets(episode, robot)
    rate_hz = episode.dataset.env.control_hz
    with (
        closing(make_bus(f"replay_{os.getpid()}", config.namespace, config.bus)) as bus,
        progress(len(target_rad), "replay", "frame") as bar,
    ):
        device = EpisodeDevice(target_rad, rate_hz, lambda frames: bar.update(frames - bar.n))
        played, largest_rad = play(bus, device, robot, target_rad)
    print(
        f"{config.path}, episode {config.episode}: {played} of {counted(len(target_rad), 'frame')} "
        f"replayed on {robot.name}; the arm was at most {largest_rad:.3f} rad from its target"
    )
    return 0 if played == len(target_rad) else 1


def play(
    bus: Bus, device: EpisodeDevice, robot: RobotDescription, target_rad: Float[ndarray, "n j"]
) -> tuple[int, float]:
    """Frames played, and the largest distance of the arm from the target of the same instant [rad].

    Raises DriverError if the robot sends no states. Ends the intervention in any case.
    """
    said: list[str] = []
    node = TeleopNode(bus, device, robot, said.append)
    seen: list[JointState] = []
    far_rad = [0.0]

    def on_state(message: JointState, _: float) -> None:
        seen[:] = [message]
        if (
            set(robot.names) <= set(message.names)
            and 0 < device.frames <= len(target_rad)
            and not device.released
        ):
            measured_rad = message.position_rad[[message.names.index(name) for name in robot.names]]
            far_rad[0] = max(far_rad[0], float(np.abs(measured_rad - target_rad[device.frames - 1]).max()))

    JOINT_STATES.subscribe(bus, on_state)
    end_s = bus.now() + START_S
    try:
        bus.spin(lambda: bool(seen) or bus.now() > end_s)
        if not seen:
            raise DriverError(
                f"{robot.name} sends no joint_states. Start it first, e.g. robo-rl up arm_sim, then replay "
                "again."
            )
        device.start(bus.now())
        bus.spin(lambda: device.done or bool(said))
    finally:
        node.last_word()
    if said:
        raise DriverError(f"The replay was not begun. {said[0]}".replace("of the leader", "of the episode"))
    return device.frames, far_rad[0]


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
