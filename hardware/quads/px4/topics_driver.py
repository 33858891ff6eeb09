"""PX4 over its DDS bridge (uXRCE-DDS, px4_msgs): an offboard stream of body rates and thrust, as ROS 2 nodes
send it.

Each `write` is one heartbeat and one setpoint of the stream, and nothing else sends: when writes end, the
stream ends. Guards: ours (`hardware/guard/guard.py`) asks for a landing; behind it PX4's own loss of
offboard, COM_OF_LOSS_T and COM_OBL_RC_ACT, which these topics do not tell: look at them yourself. A pilot who
leaves offboard keeps the craft.
"""

from __future__ import annotations

import math
import time

import numpy as np

from hardware.driver import WATCHDOG_S
from hardware.quads.bounds import QuadLimits, bounded
from hardware.quads.px4.mavlink_driver import ASK_S, ASKS, GAP_S, LOST_S, STREAM_S
from hardware.quads.px4.topics import Px4Topics
from hardware.states import BodyRates, QuadState, Setpoint
from robo_rl.core.errors import DriverError
from robo_rl.core.flight.frames import rotation_of, swap_attitude, swap_body, swap_world

SET_MODE, ARM = 176, 400  # VEHICLE_CMD_DO_SET_MODE, VEHICLE_CMD_COMPONENT_ARM_DISARM
OFFBOARD_MODE, LAND_MODE = (6.0, 0.0), (4.0, 6.0)  # PX4's main and sub mode
OFFBOARD, LAND, ARMED = 14, 18, 2  # nav_state, nav_state, arming_state
NED, BODY_FRD = 1, 3  # frames of an odometry
CONNECT_S, ANSWER_S = 5.0, 0.2


class Px4TopicsDriver:
    """namespace: before /fmu, empty for one craft. system: its MAV_SYS_ID. arm, max_rate_rad_s ...: as
    `Px4Driver`.
    """

    names: tuple[str, ...] = ()

    def __init__(
        self,
        namespace: str = "",
        system: int = 1,
        arm: bool = False,
        max_rate_rad_s: float = 4.0,
        max_tilt_rad: float = 0.6,
        max_speed_m_s: float = 2.0,
        thrust_low: float = 0.0,
        thrust_high: float = 1.0,
        watchdog_s: float = WATCHDOG_S,
    ) -> None:
        self._limits = QuadLimits(max_rate_rad_s, max_tilt_rad, max_speed_m_s, thrust_low, thrust_high)
        self._namespace, self._system, self._arm = namespace, system, arm
        self._robot = f"the PX4 on the topics {namespace}/fmu"
        self._topics: Px4Topics | None = None
        self._begun_s = self._written_s = self._asked_s = -math.inf
        self._asks, self._was_offboard, self._stopped = 0, False, False

    def connect(self) -> None:
        self.close()
        self._topics = topics = Px4Topics(self._namespace)
        late_s = time.monotonic() + CONNECT_S
        while topics.odometry is None or topics.status is None:
            if time.monotonic() > late_s:
                lacking = [n for n in ("odometry", "status") if getattr(topics, n) is None]
                self.close()
                raise DriverError(
                    f"{self._robot} told no vehicle_{' and no vehicle_'.join(lacking)} within {CONNECT_S:g} "
                    "s. Does MicroXRCEAgent run, in this ROS_DOMAIN_ID and namespace, and is it PX4 1.14 or "
                    "later?"
                )
            time.sleep(0.01)
        try:
            self.read()
        except DriverError:
            self.close()
            raise

    def read(self) -> QuadState:
        topics = self._open()
        assert topics.odometry is not None
        assert topics.status is not None
        (told, told_s), (status, status_s) = topics.odometry, topics.status
        if time.monotonic() - max(told_s, status_s) > LOST_S:
            raise DriverError(
                f"{self._robot} has been silent for more than {LOST_S:g} s. Its failsafe flies it now; check "
                "agent and link, and connect again when it is on the ground."
            )
        if told.pose_frame != NED or told.velocity_frame not in (NED, BODY_FRD):
            raise DriverError(
                f"{self._robot} tells its place in frame {told.pose_frame} and its velocity in frame "
                f"{told.velocity_frame}, expected NED (1), and NED (1) or its body (3). Give its estimator a "
                "heading."
            )
        quat, velocity = swap_attitude(np.asarray(told.q, float)), np.asarray(told.velocity, float)
        world = (
            swap_world(velocity) if told.velocity_frame == NED else rotation_of(quat) @ swap_body(velocity)
        )
        armed = status.arming_state == ARMED
        return QuadState(
            told_s,
            swap_world(np.asarray(told.position, float)),
            quat,
            world,
            swap_body(np.asarray(told.angular_velocity, float)),
            armed=armed,
            flying=armed,
            controlled=armed and status.nav_state == OFFBOARD,
        )

    def write(self, command: Setpoint) -> Setpoint:
        topics = self._open()
        if self._stopped:
            raise DriverError(f"{self._robot} was told to land. Connect again when it is on the ground.")
        sent = bounded(command, self._limits, self._robot)
        if not isinstance(sent, BodyRates):
            raise DriverError(
                f"{self._robot} takes BodyRates here, no {type(sent).__name__}. Nothing was sent."
            )
        state = self.read()
        self._check_obedience(topics)
        now_s = time.monotonic()
        self._begun_s = now_s if now_s - self._written_s > GAP_S else self._begun_s
        self._written_s = now_s
        roll, pitch, yaw = swap_body(sent.rates_rad_s).tolist()
        thrust = np.array([0.0, 0.0, -sent.thrust], dtype=np.float32)  # down is positive
        topics.send("offboard_control_mode", body_rate=True)
        topics.send("vehicle_rates_setpoint", roll=roll, pitch=pitch, yaw=yaw, thrust_body=thrust)
        if now_s - self._begun_s > STREAM_S and now_s - self._asked_s > ASK_S:
            self._ask(topics, state, now_s)
        return sent

    def stop(self, reason: str) -> None:
        topics = self._topics
        if topics is None or self._stopped or self._written_s == -math.inf:
            return
        self._stopped = True
        if not (self._is_offboard(topics) or (self._asks and not self._was_offboard)):
            return  # whoever else flies it goes on flying it
        for _ in range(3):  # best effort: until it is seen to land
            self._command(topics, SET_MODE, 1.0, *LAND_MODE)
            late_s = time.monotonic() + ANSWER_S
            while time.monotonic() < late_s:
                if topics.status is not None and topics.status[0].nav_state == LAND:
                    return
                time.sleep(0.005)

    def close(self) -> None:
        if self._topics is not None:
            self.stop("closed")
            self._topics.close()
        self._topics, self._stopped, self._was_offboard, self._asks = None, False, False, 0
        self._begun_s = self._written_s = self._asked_s = -math.inf

    def _open(self) -> Px4Topics:
        if self._topics is None:
            raise DriverError(f"{self._robot} is not connected. Call connect() first.")
        return self._topics

    def _is_offboard(self, topics: Px4Topics) -> bool:
        return topics.status is not None and topics.status[0].nav_state == OFFBOARD

    def _check_obedience(self, topics: Px4Topics) -> None:
        """Raise DriverError when it flies by somebody else's will."""
        if self._is_offboard(topics):
            self._was_offboard = True
        elif self._was_offboard:
            raise DriverError(
                f"{self._robot} left offboard: a pilot or a failsafe has it now. Nothing was sent. Connect "
                "again to go on."
            )

    def _ask(self, topics: Px4Topics, state: QuadState, now_s: float) -> None:
        """Ask for offboard, then for armed motors, without waiting for an answer."""
        offboard = self._is_offboard(topics)
        if offboard and (state.armed or not self._arm):
            self._asks = 0
            return
        if self._asks >= ASKS:
            raise DriverError(
                f"{self._robot} did not {'arm' if offboard else 'enter offboard'} though it was asked {ASKS} "
                "times. Is another ground station in command, does it lack an estimate, or is MAV_SYS_ID not "
                "system=?"
            )
        self._asked_s, self._asks = now_s, self._asks + 1
        if offboard:
            self._command(topics, ARM, 1.0)
        else:
            self._command(topics, SET_MODE, 1.0, *OFFBOARD_MODE)

    def _command(self, topics: Px4Topics, command: int, *values: float) -> None:
        parameters = {f"param{i}": value for i, value in enumerate(values, 1)}
        topics.send(
            "vehicle_command", command=command, target_system=self._system, target_component=1,
            source_system=self._system, source_component=1, from_external=True, **parameters,
        )  # fmt: skip
