"""Drive a robot from a program of your own, as a node among others: receive joint states, send commands.

    robo-rl up arm_sim                  # in one terminal: the simulated arm behind its safety filter
    python examples/node_client.py      # in another, with the same ROS_DOMAIN_ID

The commands go to the filter on `command/raw`, and the robot executes only what the filter sends. Half way,
the client commands a jump of 3 rad; the filter limits the arm to its velocity. With ROS 2 sourced, the same
program uses rclpy.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from hardware.bus.choose import make_bus
from hardware.bus.protocol import Bus
from hardware.description import RobotDescription, load_description
from hardware.messages import JointState, JointTrajectory
from hardware.topics import JOINT_STATES, RAW, SAFE

SWING_RAD, PERIOD_S, JUMP_RAD = 0.2, 4.0, 3.0


class Client:
    """Holds the first joint until the filter passes commands, then swings it around its initial position.
    Callbacks run one at a time, in the thread of `spin`.
    """

    def __init__(self, bus: Bus, robot: RobotDescription, seconds: float) -> None:
        self._bus, self._robot, self._seconds = bus, robot, seconds
        self._start_rad: np.ndarray | None = None
        self._start_s: float | None = None
        self.measured_rad: list[float] = []  # of the first joint
        self.safe_rad: list[float] = []  # commands sent by the filter
        self._send = RAW.publisher(bus)
        JOINT_STATES.subscribe(bus, self._on_state)
        SAFE.subscribe(bus, self._on_safe)
        bus.timer(1.0 / robot.command_hz, self._tick)

    @property
    def done(self) -> bool:
        return self._start_s is not None and self._bus.now() - self._start_s > self._seconds

    def _on_state(self, state: JointState, received_s: float) -> None:
        order = [state.names.index(name) for name in self._robot.names]
        if self._start_rad is None:
            self._start_rad = state.position_rad[order].copy()
        self.measured_rad.append(float(state.position_rad[order[0]]))

    def _on_safe(self, command: JointTrajectory, received_s: float) -> None:
        if self._start_s is None:
            self._start_s = received_s
        self.safe_rad.append(float(command.position_rad[0, 0]))

    def _tick(self) -> None:
        if self._start_rad is None:
            return  # no state was received yet
        t_s, target_rad = 0.0, self._start_rad.copy()
        if self._start_s is not None:
            t_s = self._bus.now() - self._start_s
        target_rad[0] += SWING_RAD * math.sin(2.0 * math.pi * t_s / PERIOD_S)
        if t_s > self._seconds / 2:
            target_rad[0] += JUMP_RAD
        times_s = np.array([1.0 / self._robot.command_hz])
        stamp_s, names = self._bus.stamp(), self._robot.names
        self._send(JointTrajectory(stamp_s, names, target_rad[None], times_s))


def main(seconds: float = 8.0) -> Client:
    robot, bus = load_description("sim_arm"), make_bus("client")
    try:
        client, late_s = Client(bus, robot, seconds), bus.now() + seconds + 20.0
        bus.spin(lambda: client.done or bus.now() > late_s)
    finally:
        bus.close()
    if not client.measured_rad:
        sys.exit("No joint states arrived: start `robo-rl up arm_sim` first, with the same ROS_DOMAIN_ID.")
    if not client.safe_rad:
        sys.exit("The safety filter passed no command: arm it by `robo-rl call safety_filter/arm`.")
    moved_rad = max(client.measured_rad) - min(client.measured_rad)
    print(f"{robot.names[0]} moved over {moved_rad:.2f} rad")
    step_rad = float(np.abs(np.diff(client.safe_rad)).max())
    print(f"commanded a jump of {JUMP_RAD} rad; the filter's largest step was {step_rad:.3f} rad")
    return client


if __name__ == "__main__":
    main()
